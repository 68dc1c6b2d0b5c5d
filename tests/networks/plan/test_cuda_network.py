"""Networks of printed kernels, without a device and without a compiler plugin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.backends import InvalidSchedule
from autotune.backends.cuda import CudaBackend
from autotune.networks import FixedInputs, GraphFrontend, GraphProgram, GraphSource, LoadOptions
from autotune.networks.graph import Graph, binary, input_value, matmul, unary
from autotune.networks.plan import cuda_network
from autotune.runtime.network import CudaNetwork
from autotune.targets import preset

A100 = preset("a100")


@pytest.fixture(autouse=True)
def printed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plugin has a backend for devices."""
    monkeypatch.setattr(cuda_network, "device_backends", lambda kind: (CudaBackend(),))


def program(graph: Graph) -> GraphProgram:
    fixed = FixedInputs({it.name: it.shape for it in graph.inputs}, None)
    return GraphProgram(GraphSource("g", graph, fixed), LoadOptions(A100, 1))


@pytest.mark.needs("nvrtc")
def test_a_network_is_machine_code_of_printed_kernels() -> None:
    x, w = input_value("x", (8, 16), "float32"), input_value("w", (16, 16), "float32")
    made = program(Graph((x, w), {"y": matmul(unary("tanh", matmul(x, w)), w)}))
    assert made.backend == "cuda"
    network = made.build({}, A100, 1)
    assert isinstance(network, CudaNetwork)
    assert set(network.plan.task_names) == {it.name for it in made.tasks}
    for each in network.plan.programs.values():
        assert each.program.cubin.startswith(b"\x7fELF")


def test_a_task_that_is_not_printed_is_named() -> None:
    x = input_value("x", (1 << 16, 1 << 16), "float32")
    made = program(Graph((x,), {"y": binary("add", x, x)}))
    (task,) = made.tasks
    with pytest.raises(InvalidSchedule, match=f"task '{task.name}': .* has more elements than a"):
        made.build({}, A100, 1)


def test_tasks_are_tuned_with_every_backend_of_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frontend = GraphFrontend()
    assert (frontend.backend_for(A100), frontend.kernel_backends(A100)) == ("cuda", ())
    other: Any = SimpleNamespace(name="other")
    monkeypatch.setattr(cuda_network, "device_backends", lambda kind: (other, CudaBackend()))
    assert (frontend.backend_for(A100), frontend.kernel_backends(A100)) == ("other", ("cuda",))
