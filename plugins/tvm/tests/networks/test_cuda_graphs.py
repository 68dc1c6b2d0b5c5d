"""Graphs of workloads on a CUDA device: compiled for real devices, run on a fake one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from fake_cuda import FakeCuda
from fake_torch import FakeTorch

from autotune.backends import BuildRequest, CudaExecutable
from autotune.backends.cuda import CudaBackend
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune.networks import FixedInputs, GraphFrontend, LoadOptions
from autotune.networks.graph import (
    Graph,
    Value,
    binary,
    constant,
    evaluate,
    input_value,
    loop,
    matmul,
    reshape,
    softmax,
    sort,
    take,
    transpose,
    unary,
)
from autotune.networks.graph_program import GraphProgram, GraphSource
from autotune.networks.plan import cuda_network
from autotune.runtime.device import shared_device
from autotune.runtime.network import CudaNetwork, open_cuda_network
from autotune.spaces import SketchSpace
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target, preset

TARGET = preset("h100")
RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((20, 8)).astype(np.float32)
WEIGHT = RNG.standard_normal((8, 8)).astype(np.float32)


def embedded() -> Graph:
    """Rows of a table, their product with itself, an input and a constant handed through."""
    ids, x = input_value("ids", (3, 2), "int64"), input_value("x", (3, 2), "float32")
    rows = reshape(take(constant(TABLE), ids, 0), (6, 8))
    hidden = unary("tanh", matmul(rows, constant(WEIGHT)))
    scores = softmax(matmul(hidden, transpose(hidden)), -1)
    outputs = {"scores": scores, "view": reshape(hidden, (2, 24)), "x": x, "w": constant(WEIGHT)}
    return Graph((ids, x), outputs)


def recurrent() -> Graph:
    """A state that every step multiplies and adds a slice to, read from the end; all are kept."""
    x, first = input_value("x", (5, 2, 8), "float32"), input_value("h", (2, 8), "float32")

    def step(states: Any, slices: Any, fixed: Any) -> Any:
        moved = unary("tanh", binary("add", matmul(states[0], fixed[0]), slices[0]))
        return [moved], [binary("mul", moved, slices[0])]

    (last,), (kept,) = loop(step, 5, [first], [x], [constant(WEIGHT)], reverse=[True])
    return Graph((x, first), {"last": last, "kept": kept})


def program(graph: Graph, target: Target = TARGET) -> GraphProgram:
    fixed = FixedInputs({it.name: it.shape for it in graph.inputs}, None)
    return GraphProgram(GraphSource("g", graph, fixed), LoadOptions(target, 1))


def built(graph: Graph) -> CudaNetwork:
    made = program(graph).build({}, TARGET, 1)
    assert isinstance(made, CudaNetwork)
    return made


def check(graph: Graph, network: CudaNetwork, *arrays: Any) -> None:
    wanted = evaluate(graph, dict(zip((it.name for it in graph.inputs), arrays, strict=True)))
    found = network(*arrays)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


IDS = np.array([[0, 19], [-1, -20], [3, 3]], np.int64)
X = RNG.standard_normal((3, 2)).astype(np.float32)


@pytest.fixture(params=["tvm", "cuda"])
def kernels(request: pytest.FixtureRequest, cuda: FakeCuda) -> str:
    """The backend of a network: that of TVM, or that which prints kernels, as without TVM."""
    if request.param == "cuda":
        cuda.patch.setattr(cuda_network, "device_backends", lambda kind: (CudaBackend(),))
    return str(request.param)


def test_a_graph_runs_and_is_saved(kernels: str, tmp_path: Path) -> None:
    graph = embedded()
    assert program(graph).backend == kernels
    network = built(graph)
    check(graph, network, IDS, X)
    path = tmp_path / "network.cuda"
    network.save(path)
    opened = open_cuda_network(path)
    check(graph, opened, IDS, X)
    again = tmp_path / "again.cuda"
    opened.save(again)
    assert again.read_bytes() == path.read_bytes()
    assert set(network.profile((IDS, X))) == {it.name for it in program(graph).tasks}
    # Indices out of range are errors, and nothing is read there.
    for wrong in (20, -21):
        ids = IDS.copy()
        ids[1, 0] = wrong
        with pytest.raises(InvalidValueError, match=f"take: index {wrong} is not from -20 to 19"):
            network(ids, X)
    check(graph, network, IDS, X)


def test_a_task_has_the_program_of_the_backend_that_tuned_it(cuda: FakeCuda) -> None:
    """Printed kernels beside TVM's default schedules."""
    graph, backend = embedded(), CudaBackend()
    made = program(graph)
    task = max(made.tasks, key=lambda it: it.flop)
    assert isinstance(task.program, Workload)
    space = SketchSpace(task.program, TARGET, backend.limits(TARGET))
    (candidate,) = space.sample(1, np.random.default_rng(0))
    key = MeasureKey(TARGET.fingerprint, "cuda", "1", "1", 1, "warm-3")
    record = Record(
        *("run", 0, candidate, key, TARGET.to_json(), space.version),
        *(Outcome("ok", 1e-3, (1e-3,)), 0.0),
    )
    network = made.build({task.name: record}, TARGET, 1)
    assert isinstance(network, CudaNetwork)
    check(graph, network, IDS, X)
    printed = backend.build(BuildRequest(task.program, None, candidate, TARGET, 1))
    assert isinstance(printed, CudaExecutable)
    found = {network.plan.tasks[name]: it for name, it in network.plan.programs.items()}
    assert found[task.name].program == printed.program
    assert "cuda" in GraphFrontend().kernel_backends(TARGET)


def test_where_the_host_does_not_wait_the_next_call_says_so(
    cuda: FakeCuda, torch: FakeTorch
) -> None:
    network = built(embedded())
    given = [torch.tensor(IDS + 1), torch.tensor(X)]
    network(*given)
    with pytest.raises(InvalidValueError, match="take: index 20 is not from -20 to 19"):
        network(*given)
    torch.write(given[0], IDS)
    found = network(*given)
    shared_device(TARGET).driver.synchronize(torch.stream)
    wanted = evaluate(embedded(), {"ids": IDS, "x": X})
    np.testing.assert_allclose(torch.read(found[0]), wanted["scores"], rtol=1e-4, atol=1e-4)


def test_loops_are_calls_for_each_trip(kernels: str, tmp_path: Path) -> None:
    graph = recurrent()
    network = built(graph)
    x = RNG.standard_normal((5, 2, 8)).astype(np.float32)
    h = RNG.standard_normal((2, 8)).astype(np.float32)
    check(graph, network, x, h)
    network.save(tmp_path / "network.cuda")
    check(graph, open_cuda_network(tmp_path / "network.cuda"), x, h)


def test_integers_are_divided_by_no_zero(kernels: str) -> None:
    a, b = (input_value(name, (4,), "int32") for name in "ab")
    graph = Graph((a, b), {"y": binary("div", a, b)})
    network = built(graph)
    given = np.array([7, -7, 9, 1], np.int32), np.array([2, 2, -4, 3], np.int32)
    check(graph, network, *given)
    with pytest.raises(InvalidValueError, match="div: an integer is divided by zero"):
        network(given[0], np.array([2, 2, 0, 3], np.int32))


def test_what_a_device_does_not_run_is_named() -> None:
    x, ids = input_value("x", (2, 8), "float32"), input_value("i", (2, 2), "int64")
    ordered = Graph((x,), {"y": sort(x)[0]})
    with pytest.raises(UnsupportedWorkload, match="operator 'sort' of 'sort' has no program for"):
        program(ordered)

    def step(states: Any, slices: Any, fixed: Any) -> Any:
        return [binary("add", states[0], take(fixed[0], slices[0], 0))], []

    table = input_value("t", (5, 3), "float32")
    (last,), _ = loop(step, 2, [Value((2, 3), "float32", "s")], [ids], [table])
    inside = Graph((Value((2, 3), "float32", "s"), ids, table), {"y": last})
    with pytest.raises(UnsupportedWorkload, match="'take' reads at indices that a loop computes"):
        program(inside)


@pytest.mark.slow
@pytest.mark.needs("nvrtc")
def test_graphs_become_real_machine_code() -> None:
    target = evolve(TARGET, processor="sm_90a")
    for graph in (embedded(), recurrent()):
        network = program(graph, target).build({}, target, 1)
        assert isinstance(network, CudaNetwork)
        for each in network.plan.programs.values():
            assert each.program.cubin.startswith(b"\x7fELF")
