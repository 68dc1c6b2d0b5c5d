"""Networks for a CUDA device: compiled for real devices, run on a fake one."""

from __future__ import annotations

from typing import Any

import fake_cuda
import numpy as np
import pytest
from autotune_tvm.networks.frontend import RelaxFrontend
from fake_cuda import FakeCuda
from relax_networks import const, network, op, run, weights

from autotune.errors import InvalidValueError
from autotune.measure.devices.shared import DeviceArray, shared_device
from autotune.networks import LoadOptions, NetworkProgram
from autotune.networks.cuda_network import CudaNetwork
from autotune.targets import preset

pytestmark = pytest.mark.skipif(
    not fake_cuda.has_compiler(), reason="there is no g++: the fake driver cannot be built"
)
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
