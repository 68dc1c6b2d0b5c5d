"""Graphs become modules of Relax that compute the same, with the same workloads."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from autotune_tvm.networks.graph import output_tensors
from autotune_tvm.networks.reader import read_graph
from autotune_tvm.networks.writer import write_graph
from relax_networks import const, network, op, run, small_network, two_layers, weights
from tvm import relax

from autotune.errors import UnsupportedWorkload
from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, constant, evaluate, input_value
from autotune.networks.passes import run_passes
from autotune.targets import Target

X = weights(4, 6)
PLACES = np.array([[0, 3, 1, 0, 2, 3], [1, 1, 0, 2, 3, 0]], np.int64)
ROWS = np.array([[2], [0], [3]], np.int64)


def read(module: Any) -> Graph:
    return read_graph(module, [tensor.name for tensor in output_tensors(module)])


def tuple_of(graph: Graph) -> Any:
    """The type of a tuple of all outputs."""
    return relax.TupleType([relax.TensorType(it.shape, it.dtype) for it in graph.outputs.values()])


def check(graph: Graph, *arrays: Any) -> None:
    """The module computes what the graph does."""
    given = dict(zip((it.name for it in graph.inputs), arrays, strict=True))
    wanted = evaluate(graph, given)
    found = run(write_graph(graph, tuple_of(graph)), *arrays)
    for one, other in zip(found, wanted.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def digests(graph: Graph) -> list[str]:
    return sorted(it.digest for it in graph.workloads)


@pytest.mark.parametrize("make", [small_network, two_layers])
def test_what_is_written_is_read_as_it_was(make: Any, target: Target) -> None:
    """Before the passes and after them, with workloads that are equal to the last sign."""
    module = make()
    for graph in (read(module), run_passes(read(module), target, 1)[0]):
        written = write_graph(graph, module["main"].ret_ty)
        again = read(written)
        assert digests(again) == digests(graph)
        assert [it.name for it in again.inputs] == [it.name for it in graph.inputs]
        shape = graph.inputs[0].shape
        x = weights(*shape, seed=7)
        np.testing.assert_allclose(run(written, x)[0], run(module, x)[0], rtol=1e-3, atol=1e-3)


def test_equal_workloads_are_one_function() -> None:
    module = write_graph(read(two_layers()), two_layers()["main"].ret_ty)
    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    assert len(names) == 3, names


def test_scatters_are_written() -> None:
    x = input_value("x", (4, 6), "float32")
    places, rows = input_value("p", (2, 6), "int64"), input_value("r", (3, 1), "int64")
    given = [constant(weights(*shape, seed=1)) for shape in ((2, 6), (3, 6))]
    outputs: dict[str, Value] = {}
    for combiner in ("add", "mul", "max", "min"):
        outputs[f"along_{combiner}"] = ops.scatter_along(x, places, given[0], 0, combiner)
        outputs[f"nd_{combiner}"] = ops.scatter_nd(x, rows, given[1], combiner)
    check(Graph((x, places, rows), outputs), X, PLACES, ROWS)


def test_what_is_written_last_stays() -> None:
    x = input_value("x", (4, 6), "float32")
    places, rows = input_value("p", (1, 6), "int64"), input_value("r", (3, 1), "int64")
    outputs = {
        "along": ops.scatter_along(x, places, constant(weights(1, 6, seed=1)), 0),
        "nd": ops.scatter_nd(x, rows, constant(weights(3, 6, seed=1))),
    }
    check(Graph((x, places, rows), outputs), X, PLACES[:1], ROWS)


def test_orders_views_and_scans_are_written() -> None:
    x = input_value("x", (4, 6), "float32")
    outputs = {"view": ops.reshape(x, (3, 8))}
    for largest in (True, False):
        values, places = ops.top_k(x, 2, 0, largest=largest)
        order = ops.sort(x, -1, descending=largest)[1]
        scan = ops.scan("add", x, 1, exclusive=largest)
        found = {"values": values, "places": places, "order": order, "scan": scan}
        outputs |= {f"{name}_{largest}": value for name, value in found.items()}
    check(Graph((x,), outputs), X)


def test_constants_and_inputs_are_outputs() -> None:
    half = weights(2, 3).astype(ml_dtypes.bfloat16)
    x = input_value("x", (4, 6), "float32")
    truths = np.array([True, False])
    outputs = {
        "half": constant(half.view(np.uint16), "bfloat16"),
        "truths": constant(truths, "bool"),
        "number": constant(np.float32(3.5)),
        "same": x,
        "sum": ops.cast(ops.binary("add", ops.cast(x, "bfloat16"), 1), "float32"),
    }
    graph = Graph((x,), outputs)
    again = read(write_graph(graph, tuple_of(graph)))
    found = list(again.outputs.values())
    np.testing.assert_array_equal(found[0].constant, half.view(np.uint16))
    np.testing.assert_array_equal(found[1].constant, truths)
    assert found[0].dtype == "bfloat16" and found[2].constant == 3.5
    assert found[3] is again.inputs[0]
    assert digests(again) == digests(graph)


def nothing(emit: Any, x: Any) -> Any:
    return emit(op.exp(x))


def one(emit: Any, x: Any) -> Any:
    return emit(relax.Tuple([emit(op.exp(x))]))


def nested(emit: Any, x: Any) -> Any:
    held = const(weights(2))
    return emit(relax.Tuple([x, relax.Tuple([emit(op.exp(x)), relax.Tuple([held, x])])]))


@pytest.mark.parametrize("body", [nothing, one, nested])
def test_the_form_of_what_is_returned_is_kept(body: Any) -> None:
    module = network([(X.shape, "float32")], body)
    written = write_graph(read(module), module["main"].ret_ty)
    assert str(written["main"].ret_ty) == str(module["main"].ret_ty)


def test_what_relax_lacks_is_named_in_one_line() -> None:
    x = input_value("x", (4, 6), "float32")

    def step(states: Any, slices: Any, fixed: Any) -> Any:
        return [ops.binary("add", states[0], slices[0])], []

    (last,), _ = ops.loop(step, 4, [constant(weights(6))], [x])
    for value, kind in ((ops.nonzero(x)[0], "nonzero"), (last, "loop")):
        graph = Graph((x,), {"y": value})
        with pytest.raises(UnsupportedWorkload, match=f"Relax has no operator '{kind}'") as caught:
            write_graph(graph, tuple_of(graph))
        assert "\n" not in str(caught.value)
