"""Recurrent nodes of ONNX, unrolled, compute what the operators' specification says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from autotune_tvm.networks.frontend import RelaxFrontend
from autotune_tvm.networks.sources.onnx_recurrent import unroll_recurrent
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.errors import UnsupportedWorkload
from autotune.networks import LoadOptions
from autotune.networks.running import check_network
from autotune.targets import Target

Array = NDArray[np.float32]

STEPS, BATCH, WIDTH, HIDDEN = 3, 2, 5, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SIDES = {"forward": 1, "reverse": 1, "bidirectional": 2}


def numbers(*shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, *shape])
    return rng.standard_normal(shape).astype(np.float32)


def model_of(
    kind: str,
    left_out: tuple[str, ...] = (),
    length: int | str = STEPS,
    lengths: list[int] | None = None,
    opset: int = 17,
    weights_are_inputs: bool = False,
    **attributes: Any,
) -> Any:
    """A model of one node, without the inputs and outputs of ``left_out``."""
    sides = SIDES[attributes.get("direction", "forward")]
    rows = GATES[kind] * HIDDEN
    batch_first = bool(attributes.get("layout"))
    tensors = {
        "W": numbers(sides, rows, WIDTH, seed=1),
        "R": numbers(sides, rows, HIDDEN, seed=2),
        "B": numbers(sides, 2 * rows, seed=3),
        "lengths": None if lengths is None else np.array(lengths, np.int32),
        "P": numbers(sides, 3 * HIDDEN, seed=4),
    }
    state = [BATCH, sides, HIDDEN] if batch_first else [sides, BATCH, HIDDEN]
    data = [BATCH, length, WIDTH] if batch_first else [length, BATCH, WIDTH]
    names = ["X", "W", "R", "B", "lengths", "h", "c", "P"][: 8 if kind == "LSTM" else 6]
    given = ["" if it in left_out or (it == "lengths" and lengths is None) else it for it in names]
    results = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(
        kind,
        given,
        ["" if it in left_out else it for it in results],
        name="cell",
        hidden_size=HIDDEN,
        **attributes,
    )
    inputs = {"X": data, "h": state, "c": state}
    weights = {it: tensors[it] for it in given if tensors.get(it) is not None}
    if weights_are_inputs:
        inputs |= {it: list(array.shape) for it, array in weights.items()}
        weights = {}
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(it, TensorProto.FLOAT, shape)
            for it, shape in inputs.items()
            if it in given
        ],
        [
            helper.make_tensor_value_info(it, TensorProto.FLOAT, [None] * (4 if it == "Y" else 3))
            for it in results
            if it not in left_out
        ],
        [numpy_helper.from_array(array, it) for it, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def inputs_of(model: Any) -> dict[str, Array]:
    shapes = {
        it.name: [axis.dim_value or STEPS for axis in it.type.tensor_type.shape.dim]
        for it in model.graph.input
    }
    return {name: numbers(*shape, seed=9) for name, shape in shapes.items()}


def unrolled(model: Any) -> Any:
    shapes = {name: list(array.shape) for name, array in inputs_of(model).items()}
    made = unroll_recurrent(model, shapes)
    onnx.checker.check_model(made, full_check=True)
    assert not {node.op_type for node in made.graph.node} & set(GATES)
    return made


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)), np.float32)


def activations_of(
    kind: str, options: dict[str, Any], sides: int
) -> list[Callable[[Array], Array]]:
    """The functions of the gates, for one side after the other."""
    named = [it.decode() for it in options.get("activations", ())]
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
    named = named or usual[kind] * sides
    functions: dict[str, Callable[[Array], Array]] = {
        "Sigmoid": sigmoid,
        "Tanh": np.tanh,
        "Relu": lambda v: np.maximum(v, 0),
        "HardSigmoid": lambda v: np.clip(0.3 * v + 0.4, 0, 1),
    }
    count, most = len(named) // sides, options.get("clip", np.inf)
    # What the cell gives out is not clipped.
    limits = [np.inf if place % count == 2 else most for place in range(len(named))]
    return [
        (lambda v, f=functions[it], m=limit: f(np.clip(v, -m, m)))
        for it, limit in zip(named, limits, strict=True)
    ]


def specified(model: Any) -> list[Array]:
    """The formulas of the specification, step by step."""
    (node,) = model.graph.node
    known = {it.name: numpy_helper.to_array(it) for it in model.graph.initializer}
    known |= inputs_of(model)
    options = {it.name: helper.get_attribute_value(it) for it in node.attribute}
    x, w, r = (known[it] for it in ("X", "W", "R"))
    if options.get("layout"):
        x = x.transpose(1, 0, 2)
    sides, rows = w.shape[:2]
    zeros = np.zeros((sides, BATCH, HIDDEN), np.float32)

    def state(name: str) -> Array:
        found = known.get(name, zeros)
        return found.transpose(1, 0, 2) if options.get("layout") and name in known else found

    h0, c0 = state("h"), state("c")
    bias = known.get("B", np.zeros((sides, 2 * rows), np.float32))
    peepholes = known.get("P", np.zeros((sides, 3 * HIDDEN), np.float32))
    each = activations_of(node.op_type, options, sides)
    count = len(each) // sides
    y = np.zeros((STEPS, sides, BATCH, HIDDEN), np.float32)
    last_h, last_c = [], []
    for side in range(sides):
        backwards = options.get("direction") == b"reverse" or side == 1
        wb, rb = np.split(bias[side], 2)
        pi, po, pf = np.split(peepholes[side], 3)
        f, *others = each[side * count : (side + 1) * count]
        h, c = h0[side], c0[side]
        for step in range(STEPS)[:: -1 if backwards else 1]:
            gx, gh = x[step] @ w[side].T + wb, h @ r[side].T + rb
            if node.op_type == "RNN":
                h = f(gx + gh)
            elif node.op_type == "LSTM":
                i, o, forget, new = np.split(gx + gh, 4, 1)
                i = f(i + pi * c)
                left = 1 - i if options.get("input_forget") else f(forget + pf * c)
                c = left * c + i * others[0](new)
                h = f(o + po * c) * others[1](c)
            else:
                (zx, rx, nx), (zh, rh, nh) = np.split(gx, 3, 1), np.split(gh, 3, 1)
                z, reset = f(zx + zh), f(rx + rh)
                if not options.get("linear_before_reset"):
                    nh = (reset * h) @ r[side][2 * HIDDEN :].T + rb[2 * HIDDEN :]
                new = others[0](nx + (reset * nh if options.get("linear_before_reset") else nh))
                h = (1 - z) * new + z * h
            y[step, side] = h
        last_h.append(h)
        last_c.append(c)
    results = {"Y": y, "Y_h": np.stack(last_h), "Y_c": np.stack(last_c)}
    if options.get("layout"):
        results = {
            it: array.transpose((2, 0, 1, 3) if it == "Y" else (1, 0, 2))
            for it, array in results.items()
        }
    return [results[it] for it in node.output if it]


PLAIN = ("P", "B", "h", "c")
HARD = {
    "activations": ["HardSigmoid", "Relu", "Tanh"],
    "activation_alpha": [0.3],
    "activation_beta": [0.4],
}
CASES: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("LSTM", PLAIN, {}),
    ("LSTM", ("P",), {"direction": "bidirectional"}),
    ("LSTM", (), {"direction": "reverse", "clip": 0.5}),
    ("LSTM", ("Y", "Y_c"), {"input_forget": 1}),
    ("LSTM", ("P", "h"), {"layout": 1, "direction": "bidirectional"}),
    ("LSTM", ("P", "c"), HARD),
    ("GRU", PLAIN, {}),
    ("GRU", ("h",), {"linear_before_reset": 1}),
    ("GRU", ("B", "h"), {"linear_before_reset": 1}),
    ("GRU", (), {"linear_before_reset": 1, "direction": "bidirectional"}),
    ("GRU", (), {"linear_before_reset": 0, "direction": "bidirectional"}),
    ("GRU", ("Y_h",), {"layout": 1}),
    ("RNN", PLAIN, {"activations": ["Relu"]}),
    ("RNN", (), {"direction": "bidirectional", "activations": ["Tanh", "Relu"], "clip": 1.0}),
]


@pytest.mark.parametrize(("kind", "left_out", "attributes"), CASES)
def test_every_form_is_unrolled(
    kind: str, left_out: tuple[str, ...], attributes: dict[str, Any]
) -> None:
    model = model_of(kind, left_out, **attributes)
    found = ReferenceEvaluator(unrolled(model)).run(None, inputs_of(model))
    wanted = specified(model)
    assert len(found) == len(wanted) == len(model.graph.output)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.needs("onnxruntime")
@pytest.mark.parametrize(
    ("kind", "left_out", "attributes"),
    # Which has no batch-first form.
    [case for case in CASES if not case[2].get("layout")],
)
def test_the_runtime_of_onnx_agrees(
    kind: str, left_out: tuple[str, ...], attributes: dict[str, Any]
) -> None:
    from onnxruntime import InferenceSession

    model = model_of(kind, left_out, **attributes)
    given = inputs_of(model)
    wanted, found = (
        InferenceSession(it.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, given
        )
        for it in (model, unrolled(model))
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_weights_may_be_inputs_and_lengths_may_have_names() -> None:
    model = model_of("GRU", length="time", weights_are_inputs=True)
    node_less = unrolled(model)
    constant = model_of("GRU")
    del constant.graph.initializer[:]
    given = inputs_of(model)
    constant.graph.initializer.extend(
        numpy_helper.from_array(given[it], it) for it in ("W", "R", "B")
    )
    found = ReferenceEvaluator(node_less).run(None, given)
    for one, other in zip(found, specified(constant), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_model_without_recurrent_nodes_is_left_alone() -> None:
    values = [helper.make_tensor_value_info(it, TensorProto.FLOAT, [2]) for it in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", "x", "y")], "g", values[:1], values[1:])
    model = helper.make_model(graph)
    assert unroll_recurrent(model, {"x": [2]}) is model


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"length": "time"}, "the length of its sequence is known only when it runs"),
        ({"lengths": [3, 2]}, "its sequences have lengths of their own"),
        ({"activations": ["Affine"] * 3}, "activation 'Affine' is none of Relu, Tanh"),
        ({"opset": 9}, "it is of opset 9"),
    ],
)
def test_what_is_not_unrolled_is_named(given: dict[str, Any], message: str) -> None:
    model = model_of("LSTM", **given)
    with pytest.raises(UnsupportedWorkload, match=r"node 'cell' \(LSTM\): " + message):
        unroll_recurrent(model, {})


def test_lengths_that_are_the_whole_sequence_are_read() -> None:
    model = model_of("GRU", lengths=[STEPS, STEPS])
    found = ReferenceEvaluator(unrolled(model)).run(None, inputs_of(model))
    for one, other in zip(found, specified(model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "left_out", "attributes"),
    [
        ("LSTM", (), {"direction": "bidirectional"}),
        ("GRU", ("h", "Y"), {"linear_before_reset": 1}),
    ],
)
def test_tvm_computes_what_the_model_does(
    kind: str,
    left_out: tuple[str, ...],
    attributes: dict[str, Any],
    target: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "recurrent.onnx"
    model = model_of(kind, left_out, **attributes)
    onnx.save(model, str(path))
    program = RelaxFrontend().load(path, list(inputs_of(model).values()), LoadOptions(target, 1))
    wanted = tuple(specified(model))
    # Onnx's own evaluator has no such directions.
    monkeypatch.setattr(program, "reference", lambda inputs: wanted)
    assert all(it.ok for it in check_network(program, program.build({}, target, 1)))
