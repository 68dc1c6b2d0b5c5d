"""Networks for a CUDA device: compiled for real devices, run on a fake one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.networks.frontend import RelaxFrontend
from fake_cuda import FakeCuda
from relax_networks import const, network, op, run, weights

import autotune
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.ir.workloads import Workload
from autotune.networks import LoadOptions, NetworkProgram
from autotune.networks.running import compare_outputs
from autotune.runtime.device import DeviceArray, shared_device
from autotune.runtime.loaded import LoadedKernels
from autotune.runtime.network import CudaNetwork, open_cuda_network
from autotune.sketches import WarpTensorize
from autotune.spaces import SketchSpace
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target, detect_cuda, preset, resolve

TARGET = preset("h100")
SHAPES = [((4, 8), "float32"), ((4, 8), "float32")]


def body(emit: Any, x: Any, y: Any) -> Any:
    """Two products with one weight, a view, a constant output and an input handed through."""
    weight = const(weights(8, 8))
    hidden = emit(op.nn.relu(emit(op.matmul(x, weight))))
    again = emit(op.nn.relu(emit(op.matmul(hidden, weight))))
    view = emit(op.reshape(emit(op.add(again, y)), (2, 16)))
    return emit_tuple(emit, view, emit(op.nn.softmax(view)), hidden, y)


def emit_tuple(emit: Any, *values: Any) -> Any:
    from tvm import relax

    return emit(relax.Tuple(list(values)))


@pytest.fixture(scope="module")
def module() -> Any:
    return network(SHAPES, body)


def loaded(module: Any) -> NetworkProgram:
    return RelaxFrontend().load(module, None, LoadOptions(TARGET, 1))


def test_a_network_runs_on_arrays_of_the_host_and_of_the_device(
    cuda: FakeCuda, module: Any
) -> None:
    program = loaded(module)
    built = program.build({}, TARGET, 1)
    assert isinstance(built, CudaNetwork)
    x, y = weights(4, 8, seed=1), weights(4, 8, seed=2)
    wanted = run(module, x, y)
    found = built(x, y)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)

    device = shared_device(TARGET)
    there = []
    for array in (2 * x, y):
        there.append(device.empty(array.shape, "float32"))
        with device.current() as driver:
            driver.upload(there[-1].pointer, array)
    second = built(*there)
    assert all(isinstance(array, DeviceArray) for array in second)
    for one, other in zip(second, run(module, 2 * x, y), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-4)
    # Inputs are as they were, and outputs of an earlier call as well.
    np.testing.assert_array_equal(there[0].numpy(), 2 * x)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-4)

    assert len(built.time_calls((x, y), 3)) == 3
    profile = built.profile((x, y))
    assert set(profile) == {task.name for task in program.tasks if not task.view}
    assert all(seconds > 0 for seconds in profile.values())
    with pytest.raises(InvalidValueError, match="1 inputs; the network takes 'x0', 'x1'"):
        built(x)
    with pytest.raises(InvalidValueError, match=r"'input x1' must be float32 of shape \[4, 8\]"):
        built(x, y[:2])


def test_blocks_of_a_default_schedule_may_have_rows_of_threads(cuda: FakeCuda) -> None:
    """TVM reduces a matrix-vector product in warps, of which a block has sixteen."""
    made = network(
        [((1, 144, 1, 1), "float32")],
        lambda emit, x: emit(op.nn.conv2d(x, const(weights(40, 144, 1, 1)))),
    )
    x = weights(1, 144, 1, 1, seed=1)
    (found,) = loaded(made).build({}, TARGET, 1)(x)
    np.testing.assert_allclose(found, run(made, x)[0], rtol=1e-4, atol=1e-4)


def test_others_use_the_device_while_a_network_is_recorded(
    cuda: FakeCuda, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread on the default stream, and what is collected in this one."""
    built = loaded(module).build({}, TARGET, 1)
    device, launch = shared_device(TARGET), LoadedKernels.launch
    kept = device.empty((64,), "float32")

    def beside() -> None:
        with device.driver.current(device.context):
            device.driver.fill(kept.pointer, 0, kept.bytes)

    def disturbed(kernels: Any, parameters: Any, stream: int) -> None:
        launch(kernels, parameters, stream)
        device.driver.free(device.driver.allocate(256))
        with ThreadPoolExecutor(1) as other:
            other.submit(beside).result()

    monkeypatch.setattr(LoadedKernels, "launch", disturbed)
    x, y = weights(4, 8, seed=1), weights(4, 8, seed=2)
    for one, wanted in zip(built(x, y), run(module, x, y), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-4)


def test_it_is_built_and_saved_where_there_is_no_device(
    cuda: FakeCuda, tmp_path: Path, module: Any
) -> None:
    cuda.set(DEVICES="")
    built = loaded(module).build({}, TARGET, 1)
    assert "there is no CUDA device here" in built.lacks
    with pytest.raises(UnsupportedTarget, match="there is no CUDA device here"):
        built(weights(4, 8), weights(4, 8))
    path = tmp_path / "network.cuda"
    (remark,) = built.save(path)
    assert "it runs on h100 with the driver alone" in remark
    again = tmp_path / "again.cuda"
    opened = open_cuda_network(path)
    opened.save(again)
    assert again.read_bytes() == path.read_bytes()
    with pytest.raises(InvalidValueError, match=r"network\.cuda' cannot be written"):
        built.save(tmp_path / "nowhere" / "network.cuda")

    cuda.set(DEVICES="h100")
    assert opened.lacks == ""
    x, y = weights(4, 8, seed=1), weights(4, 8, seed=2)
    for one, other in zip(opened(x, y), run(module, x, y), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("processor", ["sm_90a", "sm_80"])
def test_functions_become_real_machine_code(module: Any, processor: str) -> None:
    target = evolve(TARGET, processor=processor)
    built = RelaxFrontend().load(module, None, LoadOptions(target, 1)).build({}, target, 1)
    assert isinstance(built, CudaNetwork)
    cubins = [it.program.cubin for it in built.plan.programs.values()]
    assert all(map(_is_cubin, cubins))


_ELF, _CUDA_MACHINE = b"\x7fELF", 190


def _is_cubin(content: bytes) -> bool:
    return content.startswith(_ELF) and int.from_bytes(content[18:20], "little") == _CUDA_MACHINE


def convolution_and_product(emit: Any, x: Any) -> Any:
    """Two tasks whose float32 products are large enough for tensor cores."""
    image = emit(op.nn.conv2d(x, const(weights(16, 16, 3, 3)), padding=1))
    rows = emit(op.reshape(emit(op.nn.relu(image)), (16, 64)))
    return emit(op.matmul(rows, const(weights(64, 24))))


def on_tensor_cores(program: NetworkProgram, target: Target) -> dict[str, Record]:
    """A record on tensor cores for each task that multiplies, of the fewest threads."""
    backend, found = TVMBackend(), {}
    key = MeasureKey(target.fingerprint, "tvm", "1", "1", 1, "warm-3")
    for task in program.tasks:
        assert isinstance(task.program, Workload)
        space = SketchSpace(task.program, target, backend.limits(target))
        drawn = space.sample(200, np.random.default_rng(0))
        rows = [row for row in drawn if row.sketch.name == "tensor-cores"]
        if rows:
            candidate = min(rows, key=lambda row: _warps(row.config))
            assert any(
                isinstance(step, WarpTensorize) and step.intrinsic == "mma-m16n8k8-tf32"
                for step in candidate.sketch.steps
            )
            found[task.name] = Record(
                *("run", len(found), candidate, key, target.to_json(), space.version),
                *(Outcome("ok", 1e-3, (1e-3,)), 0.0),
            )
    return found


def _warps(config: Mapping[str, int]) -> int:
    return math.prod(value for name, value in config.items() if name.endswith(".1"))


@pytest.mark.slow
def test_networks_in_tf32_are_compared_to_its_precision(cuda: FakeCuda) -> None:
    target = resolve("cuda-tf32")
    module = network([((1, 16, 8, 8), "float32")], convolution_and_product)
    program = RelaxFrontend().load(module, None, LoadOptions(target, 1))
    records = on_tensor_cores(program, target)
    assert len(records) == 2
    inputs = (weights(1, 16, 8, 8, seed=1),)
    built = program.build(records, target, 1)
    wanted, found = run(module, *inputs), built(*inputs)
    (strict,) = compare_outputs(program.outputs, wanted, found)
    (rounded,) = compare_outputs(program.outputs, wanted, found, target)
    assert rounded.ok and not strict.ok
    plain = program.build({}, target, 1)(*inputs)
    assert all(it.ok for it in compare_outputs(program.outputs, wanted, plain))


@pytest.mark.slow
@pytest.mark.needs("nvrtc")
def test_products_in_tf32_become_real_machine_code() -> None:
    target = evolve(resolve("h100-tf32"), processor="sm_90a")
    module = network([((1, 16, 8, 8), "float32")], convolution_and_product)
    program = RelaxFrontend().load(module, None, LoadOptions(target, 1))
    built = program.build(on_tensor_cores(program, target), target, 1)
    assert isinstance(built, CudaNetwork)
    assert all(_is_cubin(it.program.cubin) for it in built.plan.programs.values())


@pytest.mark.gpu
def test_a_network_runs_on_a_real_device(tmp_path: Path, module: Any) -> None:
    target = detect_cuda()
    result = autotune.tune_model(
        module, trials=12, round_size=4, target=target, database=str(tmp_path / "records.db")
    )
    x, y = weights(4, 8, seed=1), weights(4, 8, seed=2)
    built = result.build()
    for one, other in zip(built(x, y), run(module, x, y), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert result.timed(built).timing is not None
    path = tmp_path / "network.cuda"
    built.save(path)
    for one, other in zip(open_cuda_network(path)(x, y), built(x, y), strict=True):
        np.testing.assert_array_equal(one, other)
