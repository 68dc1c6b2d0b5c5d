"""Models as graphs: what is folded, inlined, looped, asked for and refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import graph_of, model_of

from autotune.errors import AutotuneError, InvalidValueError, UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune.networks.fixed_inputs import AskedInputs
from autotune.networks.graph import Loop, evaluate
from autotune.networks.readers.onnx import OnnxNetwork, read_onnx

node = helper.make_node
X = ("float32", (3, 4))
RNG = np.random.default_rng(0)


def _ints(*values: int) -> Any:
    return np.array(values, np.int64)


def _computed(network: OnnxNetwork, **inputs: Any) -> list[Any]:
    return [*evaluate(network.graph, inputs).values()]


def _operations(network: OnnxNetwork) -> list[str]:
    return [
        it.operation.name if isinstance(it.operation, Workload) else type(it.operation).__name__
        for it in network.graph.nodes
    ]


def test_arithmetic_on_shapes_is_folded() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["narrow"], to=TensorProto.INT32),
        node("Gather", ["narrow", "one"], ["columns"]),
        node("Cast", ["columns"], ["n"], to=TensorProto.INT64),
        node("Range", ["zero", "n", "one"], ["r"]),
        node("NonZero", ["r"], ["places"]),
        node("Size", ["places"], ["size"]),
        node("Reshape", ["size", "flat"], ["wide"]),
        node("Concat", ["minus", "wide"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
    ]
    constants = {"one": np.int64(1), "zero": np.int64(0), "flat": _ints(1), "minus": _ints(-1)}
    network = read_onnx(model_of(nodes, {"x": X}, {"y": ("float32", (4, 3))}, constants))
    assert network.graph.outputs["y"].shape == (4, 3)
    assert _operations(network) == ["HostOperator"]


def test_functions_of_a_model_take_attributes_and_defaults() -> None:
    scaled = node("LeakyRelu", ["a"], ["b"])
    reference = scaled.attribute.add(name="alpha", type=1)
    reference.ref_attr_name = "slope"
    function = helper.make_function(
        "own",
        "Leaky",
        ["a"],
        ["b"],
        [scaled],
        [helper.make_opsetid("", 17)],
        attribute_protos=[helper.make_attribute("slope", 0.5)],
    )
    calls = [
        node("Leaky", ["x"], ["half"], domain="own"),
        node("Leaky", ["half"], ["y"], domain="own", slope=0.25),
    ]
    model = model_of(calls, {"x": X}, {"y": X}, domains=["own"], functions=[function])
    x = -np.ones((3, 4), np.float32)
    np.testing.assert_allclose(_computed(read_onnx(model), x=x)[0], x * 0.125)


def test_an_operator_of_another_domain_is_not_that_of_onnx() -> None:
    model = model_of(
        [node("Relu", ["x"], ["y"], domain="own")], {"x": X}, {"y": X}, domains=["own"]
    )
    with pytest.raises(UnsupportedWorkload, match=r"own\.Relu 'y'.*not that of ONNX"):
        read_onnx(model)


def test_an_unknown_operator_is_named_with_its_node() -> None:
    model = model_of(
        [node("Strange", ["x"], ["y"], name="here", domain="own")],
        {"x": X},
        {"y": X},
        domains=["own"],
    )
    with pytest.raises(UnsupportedWorkload, match=r"own\.Strange 'here': .*not supported"):
        read_onnx(model)


def test_what_no_output_depends_on_is_not_read() -> None:
    nodes = [node("Strange", ["x"], ["z"], domain="own"), node("Relu", ["x"], ["y"])]
    model = model_of(nodes, {"x": X}, {"y": X}, domains=["own"])
    assert _operations(read_onnx(model)) == ["relu"]


def _branches() -> Mapping[str, Any]:
    return {
        "then_branch": graph_of([node("Relu", ["x"], ["t"])], {}, {"t": X}),
        "else_branch": graph_of([node("Neg", ["x"], ["e"])], {}, {"e": X}),
    }


def test_a_branch_is_taken_where_the_condition_is_known() -> None:
    nodes = [node("If", ["c"], ["y"], **_branches())]
    network = read_onnx(model_of(nodes, {"x": X}, {"y": X}, {"c": np.array(False)}))
    assert _operations(network) == ["neg"]


def test_a_branch_is_chosen_by_data() -> None:
    nodes = [node("If", ["c"], ["y"], **_branches())]
    network = read_onnx(model_of(nodes, {"x": X, "c": ("bool", ())}, {"y": X}))
    x = RNG.standard_normal((3, 4), dtype=np.float32)
    np.testing.assert_array_equal(_computed(network, x=x, c=np.array(True))[0], np.maximum(x, 0))
    np.testing.assert_array_equal(_computed(network, x=x, c=np.array(False))[0], -x)


@pytest.mark.parametrize("condition", ["", "yes"], ids=["without", "true"])
def test_a_loop_of_known_trips_is_one_step(condition: str) -> None:
    """The step reads a tensor around it, counts, and keeps what it computes."""
    step = graph_of(
        [
            node("Cast", ["i"], ["number"], to=TensorProto.FLOAT),
            node("Mul", ["x", "number"], ["part"]),
            node("Add", ["sum", "part"], ["next"]),
            node("Identity", ["go"], ["go_on"]),
            node("Identity", ["next"], ["kept"]),
        ],
        {"i": ("int64", ()), "go": ("bool", ()), "sum": X},
        {"go_on": ("bool", ()), "next": X, "kept": X},
    )
    nodes = [node("Loop", ["trips", condition, "x"], ["last", "all"], body=step)]
    outputs = {"last": X, "all": ("float32", (50, 3, 4))}
    weights = {"trips": np.int64(50), "yes": np.array(True)}
    network = read_onnx(model_of(nodes, {"x": X}, outputs, weights))
    (loop,) = (it.operation for it in network.graph.nodes)
    assert isinstance(loop, Loop)
    assert loop.trips == 50
    x = RNG.standard_normal((3, 4), dtype=np.float32)
    last, kept = _computed(network, x=x)
    np.testing.assert_allclose(last, x * (1 + sum(range(50))), rtol=1e-5)
    np.testing.assert_allclose(kept[2], x * 4, rtol=1e-6)


def test_a_loop_that_stops_itself_is_followed() -> None:
    step = graph_of(
        [node("Less", ["i", "two"], ["go_on"]), node("Add", ["sum", "x"], ["next"])],
        {"i": ("int64", ()), "go": ("bool", ()), "sum": X},
        {"go_on": ("bool", ()), "next": X},
        {"two": np.int64(2)},
    )
    nodes = [node("Loop", ["", "yes", "x"], ["y"], body=step)]
    network = read_onnx(model_of(nodes, {"x": X}, {"y": X}, {"yes": np.array(True)}))
    x = RNG.standard_normal((3, 4), dtype=np.float32)
    np.testing.assert_allclose(_computed(network, x=x)[0], x * 4, rtol=1e-6)


@pytest.mark.parametrize("length", [3, 200])
def test_a_recurrence_does_not_grow_with_its_sequence(length: int) -> None:
    gates, width = 4, 5
    weights = {
        "w": RNG.standard_normal((1, gates * width, 2), dtype=np.float32),
        "r": RNG.standard_normal((1, gates * width, width), dtype=np.float32),
    }
    nodes = [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=width)]
    model = model_of(
        nodes,
        {"x": ("float32", (length, 1, 2))},
        {"y": ("float32", (length, 1, 1, width))},
        weights,
    )
    assert len(read_onnx(model).graph.nodes) < 10


def test_open_axes_are_given_chosen_or_asked_for() -> None:
    model = model_of(
        [node("Relu", ["x"], ["y"])],
        {"x": ("float32", ("batch", "time"))},
        {"y": ("float32", ("batch", "time"))},
    )
    with pytest.raises(UnsupportedWorkload, match="--dim time=N"):
        read_onnx(model)
    network = read_onnx(model, None, AskedInputs(dims={"time": 7}))
    assert network.graph.inputs[0].shape == (1, 7)
    assert "'batch'" in network.fixed.remarks[0]
    given = read_onnx(model, [np.zeros((2, 5), np.float32)])
    assert given.graph.inputs[0].shape == (2, 5)
    assert given.fixed.remarks == ()


def _reshaping() -> Any:
    return model_of(
        [node("Reshape", ["x", "to"], ["y"])],
        {"x": X, "to": ("int64", (2,))},
        {"y": ("float32", ("a", "b"))},
    )


def test_an_input_that_decides_shapes_is_asked_for() -> None:
    with pytest.raises(UnsupportedWorkload, match=r"input 'to': give --input to=FILE\.npy"):
        read_onnx(_reshaping())


def test_an_input_that_decides_shapes_is_baked_from_its_file(tmp_path: Path) -> None:
    np.save(tmp_path / "to.npy", _ints(6, 2))
    asked = AskedInputs(inputs={"to": tmp_path / "to.npy"})
    network = read_onnx(_reshaping(), None, asked)
    assert network.graph.outputs["y"].shape == (6, 2)
    assert [it.name for it in network.graph.inputs] == ["x"]
    assert "'to'" in network.fixed.remarks[-1]


def test_a_value_is_baked_in() -> None:
    model = model_of(
        [node("Expand", ["x", "n"], ["y"])],
        {"x": ("float32", (1,)), "n": ("int64", (1,))},
        {"y": ("float32", ("n",))},
    )
    network = read_onnx(model, None, AskedInputs(inputs={"n": 5}))
    assert network.graph.outputs["y"].shape == (5,)


def test_a_number_of_results_that_depends_on_data_is_refused() -> None:
    model = model_of(
        [node("NonZero", ["x"], ["y"])], {"x": ("float32", (8, 8))}, {"y": ("int64", (2, "n"))}
    )
    with pytest.raises(UnsupportedWorkload, match="NonZero 'y'"):
        read_onnx(model, [np.ones((8, 8), np.float32)])


def test_an_integer_division_by_zero_in_data_is_an_error() -> None:
    model = model_of(
        [node("Div", ["x", "n"], ["y"])],
        {"x": ("int64", (3,)), "n": ("int64", (3,))},
        {"y": ("int64", (3,))},
    )
    network = read_onnx(model)
    np.testing.assert_array_equal(
        _computed(network, x=_ints(7, -7, 9), n=_ints(2, 2, -4))[0], [3, -3, -2]
    )
    with pytest.raises(InvalidValueError, match="divided by zero"):
        _computed(network, x=_ints(1, 2, 3), n=_ints(1, 0, 1))


def _quantised(scales: int) -> Any:
    nodes = [
        node("QuantizeLinear", ["x", "s", "p"], ["q"]),
        node("DequantizeLinear", ["q", "s", "p"], ["d"]),
        node("DequantizeLinear", ["w", "t"], ["e"], axis=0),
        node("Conv", ["d", "e", "b"], ["y"], pads=[1, 1, 1, 1]),
    ]
    constants = {
        "s": np.float32(0.02),
        "p": np.uint8(128),
        "w": RNG.integers(-128, 128, (6, 3, 3, 3)).astype(np.int8),
        "t": np.linspace(0.01, 0.03, scales, dtype=np.float32).reshape(-1)
        if scales > 1
        else np.float32(0.01),
        "b": RNG.standard_normal(6, dtype=np.float32),
    }
    shapes = {"x": ("float32", (1, 3, 8, 8))}, {"y": ("float32", (1, 6, 8, 8))}
    return model_of(nodes, *shapes, constants), constants


@pytest.mark.parametrize("scales", [1, 6])
def test_a_convolution_of_what_is_dequantised_is_one_of_bytes(scales: int) -> None:
    model, constants = _quantised(scales)
    network = read_onnx(model)
    (product,) = (
        it
        for it in network.graph.nodes
        if isinstance(it.operation, Workload) and it.operation.name == "convolution"
    )
    assert [it.dtype for it in product.operands] == ["uint8", "int8"]
    x = RNG.uniform(-2, 2, (1, 3, 8, 8)).astype(np.float32)
    q = np.clip(np.rint(x / constants["s"]) + 128, 0, 255)
    padded = np.pad((q - 128) * 0.02, ((0, 0), (0, 0), (1, 1), (1, 1)))
    weights = constants["w"] * np.reshape(constants["t"], (-1, 1, 1, 1)).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", windows, weights) + constants["b"].reshape(-1, 1, 1)
    np.testing.assert_allclose(_computed(network, x=x)[0], wanted, rtol=1e-4, atol=1e-4)


def test_nodes_are_called_after_those_of_the_model() -> None:
    """Nodes that ONNX expands too; nodes without a name are called after their result."""
    nodes = [
        node("Softmax", ["x"], ["s"], name="scores"),
        node("Gather", ["s", "at"], ["rows"]),
        node("Celu", ["rows"], ["y"], name="activation"),
    ]
    shapes = {"x": X, "at": ("int64", (2,))}, {"y": ("float32", (2, 4))}
    network = read_onnx(model_of(nodes, *shapes))
    assert {it.label for it in network.graph.nodes} == {"scores", "rows", "activation"}
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(InvalidValueError, match="^rows: index 7 is not from"):
        _computed(network, x=x, at=_ints(0, 7))


def test_messages_are_one_line() -> None:
    model = model_of(
        [node("Reshape", ["x", "to"], ["y"], name="folded")],
        {"x": X},
        {"y": ("float32", (5, 5))},
        {"to": _ints(5, 5)},
    )
    with pytest.raises(AutotuneError, match="Reshape 'folded'") as caught:
        read_onnx(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        node("Pad", ["x", "odd"], ["y"]),
        node("Resize", ["x", "", "scales"], ["y"], mode="spline"),
        node("Transpose", ["x"], ["y"], perm=[0, 7]),
        node("Split", ["x"], ["y"], axis=9, num_outputs=1),
    ],
    ids=lambda it: it.op_type,
)
def test_what_contradicts_the_specification_is_an_error_of_the_node(wrong: Any) -> None:
    constants = {"odd": _ints(1, 2, 3), "scales": np.ones(5, np.float32)}
    model = model_of([wrong], {"x": X}, {"y": ("float32", ("a", "b"))}, constants, opset=18)
    with pytest.raises(AutotuneError, match=f"{wrong.op_type} 'y'") as caught:
        read_onnx(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "domain", "why"),
    [
        ("ImageDecoder", "", "it decodes files of images, which comes before a network"),
        ("Binarizer", "ai.onnx.ml", "it is of classical models, such as trees"),
        ("Mystery", "pkg", "the operator is not supported"),
    ],
)
def test_what_is_no_part_of_a_network_says_so(kind: str, domain: str, why: str) -> None:
    node = helper.make_node(kind, ["x"], ["y"], domain=domain)
    kind = "float32" if domain else "uint8"
    ends = {"x": (kind, (4,))}, {"y": (kind, (4,))}
    with pytest.raises(UnsupportedWorkload, match=why):
        read_onnx(model_of([node], *ends, opset=20, domains=[domain] if domain else []))
