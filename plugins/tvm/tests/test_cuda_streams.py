"""Calls of programs and networks on the streams of torch: in order, and not waited for.

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
from attrs import frozen
from autotune_tvm.backend import TVMBackend
from autotune_tvm.networks.frontend import RelaxFrontend
from fake_cuda import FakeCuda
from fake_torch import WAITING, FakeTorch
from relax_networks import network, op, run, weights

from autotune.backends import BuildRequest, CudaExecutable
from autotune.errors import InvalidValueError
from autotune.ir.workloads import gemm, reference_outputs, softmax
from autotune.networks import LoadOptions
from autotune.runtime.device import DeviceFailed, shared_device
from autotune.runtime.function import DeviceFunction
from autotune.runtime.network import CudaNetwork
from autotune.targets import CudaError, detect_cuda, preset

TARGET = preset("h100")
# Untuned, it has intermediate arrays, which its calls share.
SOFTMAX, PRODUCT = softmax(m=4, n=32), gemm(m=8, n=8, k=8)
Y = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
A, B = np.random.default_rng(2).standard_normal((2, 8, 8)).astype(np.float32)
SHAPES = [((4, 8), "float32"), ((8, 8), "float32")]


def body(emit: Any, x: Any, weight: Any) -> Any:
    hidden = emit(op.nn.relu(emit(op.matmul(x, weight))))
    return emit(op.matmul(hidden, weight))


MODULE = network(SHAPES, body)
X, W = weights(4, 8, seed=1), weights(8, 8, seed=2)


def program_of(workload: Any) -> DeviceFunction:
    executable = TVMBackend().build(BuildRequest(workload, None, None, TARGET, 1))
    assert isinstance(executable, CudaExecutable)
    return DeviceFunction(workload, executable, TARGET)


def network_of(target: Any = TARGET) -> CudaNetwork:
    made = RelaxFrontend().load(MODULE, None, LoadOptions(target, 1)).build({}, target, 1)
    assert isinstance(made, CudaNetwork)
    return made


def softmax_of(x: Any) -> Any:
    return next(iter(reference_outputs(SOFTMAX, {"X": x}).values()))


def product_of(x: Any, weight: Any) -> Any:
    return run(MODULE, x, weight)[0]


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@frozen
class Kind:
    """A kind of what is called.

    Attributes:
        built: Builds it.
        given: What it is called with, of which tests multiply the first.
        wanted: What it computes.
        fault: What fails of the first call on the device.
    """

    built: Callable[[], Any]
    given: tuple[Any, ...]
    wanted: Callable[..., Any]
    fault: str

    def scaled(self, factor: float) -> tuple[Any, ...]:
        return (np.float32(factor) * self.given[0], *self.given[1:])

    def result(self, factor: float) -> Any:
        return self.wanted(*self.scaled(factor))


PROGRAM = Kind(lambda: program_of(SOFTMAX), (Y,), softmax_of, "error 700")
NETWORK = Kind(network_of, (X, W), product_of, "later error 700")


@pytest.fixture(params=[PROGRAM, NETWORK], ids=["program", "network"])
def kind(request: pytest.FixtureRequest, cuda: FakeCuda) -> Kind:
    found: Kind = request.param
    return found


def first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


def test_the_host_waits_for_nothing(
    kind: Kind, torch: FakeTorch, counted: Callable[[], dict[str, int]]
) -> None:
    built = kind.built()
    torch.stream = torch.new_stream()
    built(*map(torch.tensor, kind.given))
    given = [*map(torch.tensor, kind.scaled(3))]
    counted()
    found = first(built(*given))
    assert not set(WAITING) & set(counted())
    assert not np.allclose(torch.read(found), kind.result(3)), "nothing was left to do"
    shared_device(TARGET).driver.synchronize(torch.stream)
    close(torch.read(found), kind.result(3))


@pytest.mark.promise(
    "a tuned CUDA program is called on two streams of torch at once",
    "its calls follow one another, and each gives its own output",
)
@pytest.mark.promise(
    "a network is called on two streams of torch at once",
    "its calls follow one another, and each gives its own outputs",
)
def test_calls_on_several_streams_follow_one_another(kind: Kind, torch: FakeTorch) -> None:
    built, driver = kind.built(), shared_device(TARGET).driver
    streams = [torch.new_stream(), torch.new_stream(), 0]
    others = [*map(torch.tensor, kind.given[1:])]
    inputs = [torch.tensor(kind.scaled(factor)[0]) for factor in (1, 2, 3, 4, 5)]
    found = []
    for number, x in enumerate(inputs):
        torch.stream = streams[number % 3]
        found.append(first(built(x, *others)))
    # Arrays of the host are computed in between, and waited for.
    close(first(built(*kind.scaled(7))), kind.result(7))
    torch.stream = streams[0]
    found.append(first(built(inputs[0], *others)))
    for stream in reversed(streams):
        driver.synchronize(stream)
    for factor, tensor in zip((1, 2, 3, 4, 5, 1), found, strict=True):
        close(torch.read(tensor), kind.result(factor))


def test_torch_records(kind: Kind, torch: FakeTorch) -> None:
    built, driver = kind.built(), shared_device(TARGET).driver
    torch.stream = torch.new_stream()
    given = [*map(torch.tensor, kind.given)]
    driver.begin_capture(torch.stream)
    with pytest.raises(InvalidValueError, match="when it has been called before"):
        built(*given)
    driver.destroy_graph(driver.end_capture(torch.stream))
    built(*given)
    driver.synchronize(torch.stream)
    driver.begin_capture(torch.stream)
    found = first(built(*given))
    with pytest.raises(InvalidValueError, match="with tensors of the device only"):
        if kind is PROGRAM:
            built(*given, out=np.zeros_like(Y))
        else:
            built(given[0], W)
    graph = driver.end_capture(torch.stream)
    for factor in (1, 4):
        torch.write(given[0], kind.scaled(factor)[0])
        driver.launch_graph(graph, torch.stream)
        driver.synchronize(torch.stream)
        close(torch.read(found), kind.result(factor))


def test_what_is_on_its_way_is_freed_afterwards(kind: Kind, torch: FakeTorch) -> None:
    built = kind.built()
    torch.stream = torch.new_stream()
    found = first(built(*map(torch.tensor, kind.given)))
    loaded = weakref.ref(built._calls.loaded)
    del built
    gc.collect()
    assert loaded() is None
    close(torch.read_done(found), kind.result(1))


@pytest.mark.promise(
    "a network fails on the device after its call has returned",
    "what waits for it says so, and so does every later call",
)
def test_faults_are_those_of_whatever_waits(
    kind: Kind, cuda: FakeCuda, fake_driver: Path, tmp_path: Path
) -> None:
    # A driver of its own, whose context is lost.
    driver = shutil.copy(fake_driver, tmp_path / "libcuda.so.1")
    cuda.patch.setenv("AUTOTUNE_LIBCUDA", str(driver))
    cuda.fail(1, kind.fault)
    built, device = kind.built(), shared_device(TARGET)
    with device.driver.current(device.context):
        torch = FakeTorch(device, cuda.patch)
        torch.stream = torch.new_stream()
        given = [*map(torch.tensor, kind.given)]
        built(*given)
        with pytest.raises(DeviceFailed, match="CUDA error 700"), device.current() as known:
            known.synchronize(torch.stream)
        for _ in range(2):
            with pytest.raises(DeviceFailed, match="700.*nothing runs on it in this process"):
                built(*given)
        with pytest.raises(DeviceFailed, match="CUDA error 700"):
            built(*kind.given)
        del built, given
        gc.collect()


def shifted(torch: FakeTorch, array: Any) -> Any:
    """A tensor that begins four bytes behind a multiple of 16."""
    whole = torch.tensor(np.concatenate([np.zeros(1, np.float32), array.reshape(-1)]))
    return torch.part(whole, 4, array.shape)


def test_outputs_are_written_where_the_caller_says(
    torch: FakeTorch, counted: Callable[[], dict[str, int]]
) -> None:
    """Tensors that kernels cannot read or write in place are copied, when the stream is there."""
    function, driver = program_of(SOFTMAX), shared_device(TARGET).driver
    torch.stream = torch.new_stream()
    function(torch.tensor(Y))
    for number, make in enumerate((torch.tensor, lambda array: shifted(torch, array)), 2):
        given, out = make(number * Y), make(np.zeros_like(Y))
        counted()
        assert function(given, out=out) is out
        assert not set(WAITING) & set(counted())
        assert not torch.read(out).any(), "nothing was left to do"
        driver.synchronize(torch.stream)
        close(torch.read(out), softmax_of(number * Y))
    gaps = torch.tensor(Y)
    gaps.order = False
    close(torch.read_done(function(gaps)), softmax_of(Y))
    with pytest.raises(InvalidValueError, match="out for .* is not contiguous"):
        function(torch.tensor(Y), out=gaps)
    there = torch.tensor(Y)
    with pytest.raises(InvalidValueError, match="out for .* overlaps another one"):
        function(there, out=there)
    with pytest.raises(InvalidValueError, match=r"must be float32 of shape \[4, 32\]"):
        function(torch.tensor(A))


def test_with_arrays_of_the_host_a_call_has_ended(torch: FakeTorch) -> None:
    function = program_of(PRODUCT)
    torch.stream = torch.new_stream()
    # What torch has begun on a tensor comes first.
    left = torch.empty((8, 8), dtype=torch.float32, device=("cuda", 0))
    with shared_device(TARGET).current() as driver:
        driver.begin_upload(left.data_ptr(), A, torch.stream)
    found = function(left, B)
    np.testing.assert_allclose(found.numpy(), A @ B, rtol=1e-4, atol=1e-4)
    into = torch.tensor(np.zeros_like(A))
    assert function(A, 2 * B, out=into) is into
    np.testing.assert_allclose(torch.read(into), 2 * A @ B, rtol=1e-4, atol=1e-4)


def test_weights_are_read_where_they_lie(
    torch: FakeTorch, counted: Callable[[], dict[str, int]]
) -> None:
    """From the second call on, whatever becomes of them; what moves is copied."""
    built = network_of()
    w, activations = torch.tensor(W), [torch.tensor(factor * X) for factor in (1, 2, 3)]

    def call(x: Any, weight: Any) -> tuple[Any, dict[str, int]]:
        counted()
        (found,) = built(x, weight)
        calls = counted()
        shared_device(TARGET).driver.synchronize(torch.stream)
        return torch.read(found), calls

    found, calls = call(activations[0], w)
    close(found, product_of(X, W))
    assert calls["cuMemcpyDtoDAsync_v2"] == 3, "both inputs, and the output"
    found, calls = call(activations[1], w)
    close(found, product_of(2 * X, W))
    assert calls["cuMemcpyDtoDAsync_v2"] == 2
    assert calls["cuGraphInstantiateWithFlags"] == 1
    # Changed by whatever way, also one that torch counts no version of.
    torch.write(w, 3 * W)
    found, calls = call(activations[2], w)
    close(found, product_of(3 * X, 3 * W))
    assert calls["cuMemcpyDtoDAsync_v2"] == 2
    assert "cuGraphInstantiateWithFlags" not in calls

    others = [torch.tensor(-W), torch.tensor(5 * W)]
    found, calls = call(activations[0], others[0])
    close(found, product_of(X, -W))
    assert calls["cuMemcpyDtoDAsync_v2"] == 3
    for factor, other in ((-1, others[0]), (5, others[1]), (5, others[1])):
        found, calls = call(activations[1], other)
        close(found, product_of(2 * X, factor * W))
    assert "cuGraphInstantiateWithFlags" not in calls
    # Arrays of the host, and their times, are as before.
    close(built(X, W)[0], product_of(X, W))
    assert len(built.time_calls((activations[0].array, w.array), 2)) == 2
    close(call(activations[1], w)[0], product_of(2 * X, 3 * W))


def test_tensors_out_of_order_and_wrong_ones(torch: FakeTorch) -> None:
    built, x, w = network_of(), torch.tensor(X), torch.tensor(W)
    x.order = False
    (found,) = built(x, w)
    close(torch.read(found), product_of(X, W))
    with pytest.raises(InvalidValueError, match=r"'input x0' must be float32 of shape \[4, 8\],"):
        built(w, w)
    short = torch.empty((4, 8), dtype=torch.float16, device=("cuda", 0))
    with pytest.raises(InvalidValueError, match="must be float32 of shape"):
        built(short, w)
    elsewhere = type("Elsewhere", (type(x),), {"get_device": lambda _: 3})(x.array, x.dtype)
    with pytest.raises(InvalidValueError, match="'input x0' is on cuda:3, and the program on cu"):
        built(elsewhere, w)
    # Outputs are on the host where the first input is: the call has ended.
    close(built(X, w)[0], product_of(X, W))


@pytest.fixture
def real() -> Any:
    import torch

    target = detect_cuda()
    return torch, network_of(target)


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
            tensor.cpu().numpy(), product_of((number + 1) * X, W) + 1, rtol=1e-3, atol=1e-2
        )


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
def test_weights_of_torch_change_and_torch_records(real: Any) -> None:
    torch, made = real
    w, x = torch.from_numpy(W).cuda().requires_grad_(), torch.from_numpy(X).cuda()
    for factor in (1.0, 2.0, 3.0):
        w.data.copy_(torch.from_numpy(np.float32(factor) * W))
        np.testing.assert_allclose(
            made(x, w)[0].cpu().numpy(), product_of(X, factor * W), rtol=1e-3, atol=1e-3
        )
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (found,) = made(x, w)
    for factor in (1.0, -2.0):
        x.copy_(torch.from_numpy(np.float32(factor) * X))
        graph.replay()
        np.testing.assert_allclose(
            found.cpu().numpy(), product_of(factor * X, 3.0 * W), rtol=1e-3, atol=1e-3
        )


def test_what_is_done_here_ends_no_recording_of_others(torch: FakeTorch) -> None:
    """While ``torch.cuda.graph`` records nobody may allocate or free, but the collector does."""
    device = shared_device(TARGET)
    driver, stream = device.driver, torch.new_stream()
    gc.collect()
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
    refused = pytest.raises(DeviceFailed, match="cuda:0: cuLaunchKernel: CUDA error 700")
    with refused, device.current():
        raise CudaError("cuLaunchKernel", 700, "")
