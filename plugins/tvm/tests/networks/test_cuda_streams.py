"""Calls of a network on the streams of torch: in order, not waited for, and without copies.

The fake driver begins what is on a stream as late as it may, and mixes it with that of others.
"""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_tvm.networks.frontend import RelaxFrontend
from fake_cuda import FakeCuda
from fake_torch import WAITING, FakeTorch
from relax_networks import network, op, run, weights

from autotune.errors import InvalidValueError
from autotune.measure.devices.shared import DeviceFailed, shared_device
from autotune.networks import LoadOptions
from autotune.networks.cuda_network import CudaNetwork
from autotune.targets import CudaError, detect_cuda, preset

TARGET = preset("h100")
SHAPES = [((4, 8), "float32"), ((8, 8), "float32")]


def body(emit: Any, x: Any, weight: Any) -> Any:
    hidden = emit(op.nn.relu(emit(op.matmul(x, weight))))
    return emit(op.matmul(hidden, weight))


MODULE = network(SHAPES, body)
X, W = weights(4, 8, seed=1), weights(8, 8, seed=2)


def wanted(x: Any, weight: Any) -> Any:
    return run(MODULE, x, weight)[0]


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def built(cuda: FakeCuda) -> CudaNetwork:
    made = RelaxFrontend().load(MODULE, None, LoadOptions(TARGET, 1)).build({}, TARGET, 1)
    assert isinstance(made, CudaNetwork)
    return made


def test_the_host_waits_for_nothing(
    built: CudaNetwork, torch: FakeTorch, counted: Callable[[], dict[str, int]]
) -> None:
    torch.stream = torch.new_stream()
    x, w = torch.tensor(X), torch.tensor(W)
    built(x, w)
    given = torch.tensor(3 * X), torch.tensor(2 * W)
    counted()
    (found,) = built(*given)
    assert not set(WAITING) & set(counted())
    assert not np.allclose(torch.read(found), wanted(3 * X, 2 * W)), "nothing was left to do"
    shared_device(TARGET).driver.synchronize(torch.stream)
    close(torch.read(found), wanted(3 * X, 2 * W))


@pytest.mark.promise(
    "a network is called on two streams of torch at once",
    "its calls follow one another, and each gives its own outputs",
)
def test_calls_on_several_streams_follow_one_another(built: CudaNetwork, torch: FakeTorch) -> None:
    driver = shared_device(TARGET).driver
    streams = [torch.new_stream(), torch.new_stream(), 0]
    w = torch.tensor(W)
    inputs = [torch.tensor(factor * X) for factor in (1, 2, 3, 4, 5)]
    found = []
    for number, x in enumerate(inputs):
        torch.stream = streams[number % 3]
        found += built(x, w)
    # Arrays of the host are computed in between, and waited for.
    close(built(7 * X, W)[0], wanted(7 * X, W))
    torch.stream = streams[0]
    found += built(inputs[0], w)
    for stream in reversed(streams):
        driver.synchronize(stream)
    for factor, tensor in zip((1, 2, 3, 4, 5, 1), found, strict=True):
        close(torch.read(tensor), wanted(factor * X, W))


def test_weights_are_read_where_they_lie(
    built: CudaNetwork, torch: FakeTorch, counted: Callable[[], dict[str, int]]
) -> None:
    """From the second call on, whatever becomes of them; what moves is copied."""
    w, activations = torch.tensor(W), [torch.tensor(factor * X) for factor in (1, 2, 3)]

    def call(x: Any, weight: Any) -> tuple[Any, dict[str, int]]:
        counted()
        (found,) = built(x, weight)
        calls = counted()
        shared_device(TARGET).driver.synchronize(torch.stream)
        return torch.read(found), calls

    found, calls = call(activations[0], w)
    close(found, wanted(X, W))
    assert calls["cuMemcpyDtoDAsync_v2"] == 3, "both inputs, and the output"
    found, calls = call(activations[1], w)
    close(found, wanted(2 * X, W))
    assert calls["cuMemcpyDtoDAsync_v2"] == 2
    assert calls["cuGraphInstantiateWithFlags"] == 1
    # Changed by whatever way, also one that torch counts no version of.
    torch.write(w, 3 * W)
    found, calls = call(activations[2], w)
    close(found, wanted(3 * X, 3 * W))
    assert calls["cuMemcpyDtoDAsync_v2"] == 2
    assert "cuGraphInstantiateWithFlags" not in calls

    others = [torch.tensor(-W), torch.tensor(5 * W)]
    found, calls = call(activations[0], others[0])
    close(found, wanted(X, -W))
    assert calls["cuMemcpyDtoDAsync_v2"] == 3
    for factor, other in ((-1, others[0]), (5, others[1]), (5, others[1])):
        found, calls = call(activations[1], other)
        close(found, wanted(2 * X, factor * W))
    assert "cuGraphInstantiateWithFlags" not in calls
    # Arrays of the host, and their times, are as before.
    close(built(X, W)[0], wanted(X, W))
    assert len(built.time_calls((activations[0].array, w.array), 2)) == 2
    close(call(activations[1], w)[0], wanted(2 * X, 3 * W))


def test_tensors_out_of_order_and_wrong_ones(built: CudaNetwork, torch: FakeTorch) -> None:
    x, w = torch.tensor(X), torch.tensor(W)
    x.order = False
    (found,) = built(x, w)
    close(torch.read(found), wanted(X, W))
    with pytest.raises(InvalidValueError, match=r"'input x0' must be float32 of shape \[4, 8\],"):
        built(w, w)
    short = torch.empty((4, 8), dtype=torch.float16, device=("cuda", 0))
    with pytest.raises(InvalidValueError, match="must be float32 of shape"):
        built(short, w)
    elsewhere = type("Elsewhere", (type(x),), {"get_device": lambda _: 3})(x.array, x.dtype)
    with pytest.raises(InvalidValueError, match="'input x0' is on cuda:3, and the program on cu"):
        built(elsewhere, w)
    # Outputs are on the host where the first input is: the call has ended.
    close(built(X, w)[0], wanted(X, W))


def test_torch_records_a_network(built: CudaNetwork, torch: FakeTorch) -> None:
    driver = shared_device(TARGET).driver
    torch.stream = torch.new_stream()
    x, w = torch.tensor(X), torch.tensor(W)
    driver.begin_capture(torch.stream)
    with pytest.raises(InvalidValueError, match="when it has been called before"):
        built(x, w)
    driver.destroy_graph(driver.end_capture(torch.stream))
    built(x, w)
    driver.synchronize(torch.stream)
    driver.begin_capture(torch.stream)
    (found,) = built(x, w)
    with pytest.raises(InvalidValueError, match="with tensors of the device only"):
        built(x, W)
    graph = driver.end_capture(torch.stream)
    for factor in (1, 4):
        torch.write(x, factor * X)
        driver.launch_graph(graph, torch.stream)
        driver.synchronize(torch.stream)
        close(torch.read(found), wanted(factor * X, W))


def test_what_is_on_its_way_is_freed_afterwards(built: CudaNetwork, torch: FakeTorch) -> None:
    torch.stream = torch.new_stream()
    x, w = torch.tensor(X), torch.tensor(W)
    (found,) = built(x, w)
    loaded = weakref.ref(built._loaded)  # type: ignore[arg-type]
    built._loaded = None
    gc.collect()
    assert loaded() is None
    shared_device(TARGET).driver.synchronize(torch.stream)
    close(torch.read(found), wanted(X, W))


@pytest.mark.promise(
    "a network fails on the device after its call has returned",
    "what waits for it says so, and so does every later call",
)
def test_faults_are_those_of_whatever_waits(
    cuda: FakeCuda, fake_driver: Path, tmp_path: Path
) -> None:
    # A driver of its own, whose context is lost.
    driver = shutil.copy(fake_driver, tmp_path / "libcuda.so.1")
    cuda.patch.setenv("AUTOTUNE_LIBCUDA", str(driver))
    cuda.fail(1, "later error 700")
    made = RelaxFrontend().load(MODULE, None, LoadOptions(TARGET, 1)).build({}, TARGET, 1)
    device = shared_device(TARGET)
    with device.driver.current(device.context):
        torch = FakeTorch(device, cuda.patch)
        torch.stream = torch.new_stream()
        given = torch.tensor(X), torch.tensor(W)
        made(*given)
        with pytest.raises(DeviceFailed, match="CUDA error 700"), device.current() as driver:
            driver.synchronize(torch.stream)
        for _ in range(2):
            with pytest.raises(DeviceFailed, match="700.*nothing runs on it in this process"):
                made(*given)
        with pytest.raises(DeviceFailed, match="CUDA error 700"):
            made(X, W)
        del made, given
        gc.collect()


@pytest.fixture
def real() -> Any:
    import torch

    target = detect_cuda()
    made = RelaxFrontend().load(MODULE, None, LoadOptions(target, 1)).build({}, target, 1)
    return torch, made


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
def test_torch_itself_calls_on_its_streams(real: Any) -> None:
    torch, made = real
    w = torch.from_numpy(W).cuda()
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    found = []
    for number in range(30):
        with torch.cuda.stream(streams[number % 3]):
            streams[number % 3].wait_stream(streams[0])
            busy = torch.randn(2048, 2048, device="cuda")
            for _ in range(5):
                busy = (busy @ busy).sin()
            x = torch.from_numpy(X).cuda() * (number + 1) + 0 * busy[:4, :8]
            # Later work on the stream reads what was computed.
            found.append(made(x, w)[0] + 1)
    torch.cuda.synchronize()
    for number, tensor in enumerate(found):
        np.testing.assert_allclose(
            tensor.cpu().numpy(), wanted((number + 1) * X, W) + 1, rtol=1e-3, atol=1e-2
        )


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
def test_weights_of_torch_change_and_torch_records(real: Any) -> None:
    torch, made = real
    w, x = torch.from_numpy(W).cuda().requires_grad_(), torch.from_numpy(X).cuda()
    for factor in (1.0, 2.0, 3.0):
        w.data.copy_(torch.from_numpy(np.float32(factor) * W))
        np.testing.assert_allclose(
            made(x, w)[0].cpu().numpy(), wanted(X, factor * W), rtol=1e-3, atol=1e-3
        )
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (found,) = made(x, w)
    for factor in (1.0, -2.0):
        x.copy_(torch.from_numpy(np.float32(factor) * X))
        graph.replay()
        np.testing.assert_allclose(
            found.cpu().numpy(), wanted(factor * X, 3.0 * W), rtol=1e-3, atol=1e-3
        )


def test_what_is_done_here_ends_no_recording_of_others(torch: FakeTorch) -> None:
    """While ``torch.cuda.graph`` records nobody may allocate or free, but the collector does."""
    device = shared_device(TARGET)
    driver, stream = device.driver, torch.new_stream()
    free = driver.memory()[0]
    before = device.empty((1 << 20,), "float32")
    driver._call("cuStreamBeginCapture_v2", stream, 0)
    during = device.empty((1 << 20,), "float32")
    del before, during
    gc.collect()
    driver.destroy_graph(driver.end_capture(stream))
    assert driver.memory()[0] == free
    # Elsewhere in this thread all is as it was.
    driver._call("cuStreamBeginCapture_v2", stream, 0)
    with pytest.raises(CudaError, match="CUDA error 900"):
        driver.allocate(1)
    driver.destroy_graph(driver.end_capture(stream))


def test_a_context_that_is_lost_hides_nothing(torch: FakeTorch) -> None:
    device = shared_device(TARGET)
    wanted = pytest.raises(DeviceFailed, match="cuda:0: cuLaunchKernel: CUDA error 700")
    with wanted, device.current():
        raise CudaError("cuLaunchKernel", 700, "")
