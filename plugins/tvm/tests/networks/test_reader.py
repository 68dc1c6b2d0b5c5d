"""Modules of Relax become graphs that compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from autotune_tvm.networks.graph import output_tensors
from autotune_tvm.networks.reader import read_graph
from relax_networks import const, network, op, run, small_network, weights
from tvm import relax

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune.networks.graph import Graph, HostOperator, evaluate

X = weights(4, 6)
PLACES = np.array([[0, 3, 1, 0, 2, 3], [1, 1, 0, 2, 3, 0]], np.int64)
ROWS = np.array([[2], [0], [2]], np.int64)

OPERATORS: dict[str, Callable[..., Any]] = {
    "reshape": lambda x: op.reshape(x, (3, 8)),
    "expand_dims": lambda x: op.expand_dims(x, 1),
    "squeeze": lambda x: op.squeeze(op.expand_dims(x, 0), [0]),
    "flatten": op.flatten,
    "topk both": lambda x: op.topk(x, 2, axis=0, ret_type="both"),
    "topk values": lambda x: op.topk(x, 3, ret_type="values", largest=False),
    "topk indices": lambda x: op.topk(x, 3, ret_type="indices", dtype="int64"),
    "sort": lambda x: op.sort(x, axis=0),
    "sort descending": lambda x: op.sort(x, descending=True),
    "argsort": lambda x: op.argsort(x, axis=1, descending=True),
    "cumsum": lambda x: op.cumsum(x, 1),
    "cumsum of all": lambda x: op.cumsum(x, dtype="float64"),
    "cumprod": lambda x: op.cumprod(x, 0, exclusive=True),
    **{
        f"scatter_elements {it}": lambda x, it=it: op.scatter_elements(
            x, const(PLACES), const(weights(2, 6, seed=1)), 0, it
        )
        for it in ("add", "mul", "max", "min")
    },
    **{
        f"scatter_nd {it}": lambda x, it=it: op.scatter_nd(
            x, const(ROWS), const(weights(3, 6, seed=1)), it
        )
        for it in ("add", "mul", "max", "min")
    },
}


def read(module: Any) -> Graph:
    return read_graph(module, [tensor.name for tensor in output_tensors(module)])


def computed(module: Any, *arrays: Any) -> list[Any]:
    """Compute the graph of a module."""
    graph = read(module)
    given = dict(zip((it.name for it in graph.inputs), arrays, strict=True))
    return list(evaluate(graph, given).values())


def check(module: Any, *arrays: Any) -> None:
    """The graph computes what TVM alone does."""
    found, wanted = computed(module, *arrays), run(module, *arrays)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_operators_compute_what_tvm_does() -> None:
    """All of them in one network."""
    names: list[str] = []

    def body(emit: Any, x: Any) -> Any:
        outputs: list[Any] = []
        for name, make in OPERATORS.items():
            value = emit(make(x))
            count = len(value.ty.fields) if isinstance(value.ty, relax.TupleType) else 0
            parts = [emit(relax.TupleGetItem(value, it)) for it in range(count)] or [value]
            outputs += parts
            names.extend([name] * len(parts))
        return emit(relax.Tuple(outputs))

    module = network([(X.shape, "float32")], body)
    for name, one, other in zip(names, computed(module, X), run(module, X), strict=True):
        assert one.dtype == other.dtype, name
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=name)


def test_indices_are_data() -> None:
    """Later writes win, and places count from the start."""

    def body(emit: Any, x: Any, places: Any, rows: Any) -> Any:
        written = emit(op.scatter_elements(x, places, const(weights(2, 6, seed=1)), 0, "add"))
        return emit(op.scatter_nd(written, rows, const(weights(3, 6, seed=2)), "add"))

    shapes = [(X.shape, "float32"), (PLACES.shape, "int64"), (ROWS.shape, "int64")]
    module = network(shapes, body)
    check(module, X, PLACES, ROWS)
    kinds = [
        it.operation.kind for it in read(module).nodes if isinstance(it.operation, HostOperator)
    ]
    assert kinds == ["scatter_along", "scatter_nd"]


@pytest.mark.parametrize(
    ("make", "places", "wrong"),
    [
        (lambda x, at: op.take(x, at, 0), np.array([0, 3, 1]), (2, [4, -1])),
        (lambda x, at: op.take(x, at, 0, "clip"), np.array([0, 3, 9]), None),
        (lambda x, at: op.take(x, at, 1, "wrap"), np.array([0, 8, -1]), None),
        (lambda x, at: op.gather_elements(x, at, 0), PLACES, ((0, 0), [4])),
        (lambda x, at: op.gather_nd(x, at), np.array([[3, 5], [0, 1]]), ((0, 1), [6])),
    ],
    ids=["take", "take clip", "take wrap", "gather_elements", "gather_nd"],
)
def test_an_index_beside_a_table_is_refused(make: Any, places: Any, wrong: Any) -> None:
    shapes = [(X.shape, "float32"), (places.shape, "int64")]
    module = network(shapes, lambda emit, x, at: emit(make(x, at)))
    check(module, X, places)
    at, numbers = wrong if wrong else ((), ())
    for number in numbers:
        beside = places.copy()
        beside[at] = number
        with pytest.raises(InvalidValueError, match=rf"index {number} is not from"):
            computed(module, X, beside)


def test_a_network_is_workloads_and_views() -> None:
    check(small_network(), weights(1, 3, 12, 12))
    nodes = read(small_network()).nodes
    others = [it.operation.kind for it in nodes if not isinstance(it.operation, Workload)]
    assert set(others) == {"reshape"}


def test_compiled_functions_are_read_as_they_are() -> None:
    legal = relax.transform.LegalizeOps()(small_network())
    check(legal, weights(1, 3, 12, 12))
    names = {it.operation.name for it in read(legal).nodes if isinstance(it.operation, Workload)}
    assert names < {str(variable.name_hint) for variable in legal.get_global_vars()}


def test_constants_are_what_they_hold() -> None:
    half = weights(3).astype(ml_dtypes.bfloat16)
    truths = np.array([True, False, True])
    held = [
        relax.const(half, "bfloat16"),
        relax.const(truths, "bool"),
        relax.const(np.float64(2.5), "float64"),
    ]
    module = network([((1,), "float32")], lambda emit, x: emit(relax.Tuple(held)))
    found = list(read(module).outputs.values())
    assert [(it.dtype, it.shape) for it in found] == [
        *(("bfloat16", (3,)), ("bool", (3,))),
        ("float64", ()),
    ]
    np.testing.assert_array_equal(found[0].constant, half.view(np.uint16))
    np.testing.assert_array_equal(found[1].constant, truths)
    assert found[2].constant == 2.5


def test_one_constant_is_one_value() -> None:
    held = const(weights(4, 6, seed=3))
    module = network(
        [(X.shape, "float32")],
        lambda emit, x: emit(op.multiply(emit(op.add(x, held)), held)),
    )
    constants = [
        it for node in read(module).nodes for it in node.operands if it.constant is not None
    ]
    assert len(constants) == 2 and len({it.key for it in constants}) == 1


def test_tuples_in_tuples_are_outputs_in_order() -> None:
    def body(emit: Any, x: Any) -> Any:
        inner = emit(relax.Tuple([x, emit(relax.Tuple([emit(op.exp(x))]))]))
        return emit(relax.Tuple([emit(op.negative(x)), inner, relax.TupleGetItem(inner, 0)]))

    negative, same, exponential, again = computed(network([(X.shape, "float32")], body), X)
    np.testing.assert_allclose(exponential, np.exp(X), rtol=1e-6)
    for found, wanted in ((negative, -X), (same, X), (again, X)):
        np.testing.assert_array_equal(found, wanted)


def opaque(emit: Any, x: Any) -> Any:
    return emit(op.call_dps_packed("outside", [x], relax.TensorType(X.shape, "float32")))


def branching() -> Any:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    condition = relax.Var("c", relax.TensorType((), "bool"))
    with builder.function("main", [x, condition]):
        chosen = builder.emit(relax.If(condition, op.exp(x), op.negative(x)))
        builder.emit_func_output(chosen)
    return builder.get()


def unknown_function() -> Any:
    source = """
@I.ir_module(s_tir=True)
class Module:
    @T.prim_func(s_tir=True)
    def searched(A: T.Buffer((4, 6), "float32"), B: T.Buffer((4, 6), "float32")):
        for i in range(4):
            while B[i, 0] < A[i, 0]:
                B[i, 0] = B[i, 0] + T.float32(1)
    @R.function
    def main(x: R.Tensor((4, 6), dtype="float32")) -> R.Tensor((4, 6), dtype="float32"):
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.searched, (x,), out_ty=R.Tensor((4, 6), dtype="float32"))
            R.output(y)
        return y
"""
    return tvm.script.from_source(source)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: network([(X.shape, "float32")], opaque),
            "operator 'call_dps_packed' of a Relax module has no form as a loop nest",
        ),
        (branching, "depends on data that is known only when it runs"),
        (
            lambda: network([(X.shape, "float32")], lambda emit, x: emit(op.nonzero(x))),
            "known only when it runs",
        ),
        (unknown_function, "function 'searched' of a Relax module: "),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(make: Callable[[], Any], message: str) -> None:
    module = make()
    with pytest.raises(UnsupportedWorkload, match=message) as caught:
        read(module)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("axis", [0, 1])
def test_reading_says_nothing(axis: int, capfd: pytest.CaptureFixture[str]) -> None:
    """TVM writes a line for every lookup in a table."""
    places = np.array([[3, 0, 1], [1, 1, 2]])
    module = network(
        [(X.shape, "float32"), (places.shape, "int64")],
        lambda emit, x, i: emit(op.take(x, i, axis)),
    )
    check(module, X, places)
    capfd.readouterr()
    read(module)
    assert capfd.readouterr().err == ""
