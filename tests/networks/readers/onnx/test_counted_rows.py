"""Boxes of which data says how many are kept: rows, how many are valid, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model_of

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import evaluate
from autotune.networks.plan.cpu_network import compile_network
from autotune.networks.readers.onnx import OnnxNetwork, read_onnx
from autotune.networks.readers.onnx.source import onnx_source
from autotune.targets import detect_cpu

node = helper.make_node
BOXES, CLASSES = 7, 2
INPUTS = {"boxes": ("float32", (1, BOXES, 4)), "scores": ("float32", (1, CLASSES, BOXES))}
CONSTANTS = {
    "most": np.array([3], np.int64),
    "overlap": np.array([0.4], np.float32),
    "least": np.array([0.2], np.float32),
    "column": np.array([2], np.int64),
    "first": np.array([0], np.int64),
    "two": np.array([2], np.int64),
    "one": np.array([1], np.int64),
    "flat": np.array([-1], np.int64),
    "half": np.float32(0.5),
    "row": np.zeros((1, 3), np.int64),
}
KEPT = node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["kept"])


def model(nodes: list[Any], outputs: dict[str, Any]) -> Any:
    used = {name for it in (KEPT, *nodes) for name in it.input}
    constants = {name: array for name, array in CONSTANTS.items() if name in used}
    return model_of([KEPT, *nodes], INPUTS, outputs, constants)


# What ends detectors: the boxes that are kept, halved, with their classes, and how many.
DETECTOR = model(
    [
        node("Gather", ["kept", "column"], ["places"], axis=1),
        node("Reshape", ["places", "flat"], ["chosen"]),
        node("Squeeze", ["boxes", "first"], ["all"]),
        node("Gather", ["all", "chosen"], ["corners"], axis=0),
        node("Mul", ["corners", "half"], ["halved"]),
        node("Slice", ["kept", "one", "two", "one"], ["kind"]),
        node("Cast", ["kind"], ["class"], to=1),
        node("Concat", ["halved", "class"], ["found"], axis=1),
        node("Slice", ["found", "first", "two", "first"], ["best"]),
        node("Shape", ["kept"], ["shape"]),
        node("Gather", ["shape", "first"], ["count"]),
    ],
    {
        "kept": ("int64", ("n", 3)),
        "found": ("float32", ("n", 5)),
        "best": ("float32", ("m", 5)),
        "count": ("int64", (1,)),
    },
)
NAMES = ("kept", "found", "best", "count")


def inputs(seed: int, scale: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 1, (1, BOXES, 2))
    corners = np.concatenate([low, low + rng.uniform(0.2, 1, (1, BOXES, 2))], -1)
    scores = rng.uniform(0, scale, (1, CLASSES, BOXES))
    return {"boxes": corners.astype(np.float32), "scores": scores.astype(np.float32)}


def valid(network: OnnxNetwork, found: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a model, cut to what is valid; what is behind is one number."""
    cut = {name: found[name] for name in found if not name.endswith(" (count)")}
    for name, axis in network.counted.items():
        assert axis == 0
        count = int(found[f"{name} (count)"])
        rest = cut[name][count:]
        assert (rest == (-1 if rest.dtype.kind == "i" else 0)).all()
        cut[name] = cut[name][:count]
    return cut


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**16), st.sampled_from((0.1, 0.3, 1.0)))
def test_what_is_computed_of_boxes_one_by_one_is_what_onnx_says(seed: int, scale: float) -> None:
    """Also where none is kept, or all are that there is room for."""
    network = read_onnx(DETECTOR)
    given = inputs(seed, scale)
    wanted = ReferenceEvaluator(DETECTOR).run(None, given)
    found = valid(network, evaluate(network.graph, given))
    for name, want in zip(NAMES, wanted, strict=True):
        np.testing.assert_allclose(found[name], want.reshape(found[name].shape), err_msg=name)


def test_there_is_room_for_the_most_and_a_remark_says_so() -> None:
    network = read_onnx(DETECTOR)
    assert network.counted == {"kept": 0, "found": 0, "best": 0}
    shapes = {name: it.shape for name, it in network.graph.outputs.items()}
    assert shapes["kept"] == (6, 3) and shapes["found"] == (6, 5) and shapes["best"] == (2, 5)
    assert "'kept'" in network.fixed.remarks[0] and "room for 6" in network.fixed.remarks[0]


def test_a_library_and_the_yardstick_give_the_same() -> None:
    source, given = onnx_source(DETECTOR), inputs(3)
    wanted = evaluate(source.graph, given)
    built = compile_network(source.graph, {}, detect_cpu(), 1)
    assert source.yardstick is not None
    other = source.yardstick.run([given[it.name] for it in source.graph.inputs])
    assert other is not None
    for want, got, known in zip(wanted.values(), built.run(given).values(), other, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
        np.testing.assert_allclose(known, want, rtol=1e-6, strict=True)


def loop_of_boxes() -> list[Any]:
    """An operator inside a loop, of which each step keeps as many boxes as it will."""
    info = helper.make_tensor_value_info
    body = [
        node("NonMaxSuppression", ["moved", "scores", "most"], ["inner"]),
        node("Mul", ["moved", "half"], ["next"]),
        node("Identity", ["go"], ["on"]),
        node("Identity", ["inner"], ["each"]),
    ]
    step = helper.make_graph(
        body,
        "step",
        [info("at", 7, []), info("go", 9, []), info("moved", 1, [1, BOXES, 4])],
        [info("on", 9, []), info("next", 1, [1, BOXES, 4]), info("each", 7, [])],
    )
    return [
        node("Mul", ["boxes", "half"], ["start"]),
        node("Loop", ["most", "", "start"], ["end", "y"], body=step),
    ]


@pytest.mark.parametrize(
    ("nodes", "who"),
    [
        ([node("ReduceSum", ["kept", "first"], ["y"])], "ReduceSum|reduce|y"),
        ([node("Concat", ["kept", "row"], ["y"], axis=0)], "y"),
        ([node("Concat", ["row", "kept"], ["y"], axis=0)], "y"),
        ([node("Gather", ["kept", "first"], ["y"], axis=0)], "y"),
        ([node("CumSum", ["kept", "first"], ["y"], reverse=1)], "y"),
        ([node("Reshape", ["kept", "flat"], ["y"])], "y"),
        (
            [
                node("Cast", ["kept"], ["numbers"], to=1),
                node("TopK", ["numbers", "one"], ["y", "i"], axis=0),
            ],
            "y",
        ),
        (loop_of_boxes(), "end"),
    ],
    ids=lambda it: it[-1].op_type if isinstance(it, list) else it,
)
def test_what_looks_across_boxes_is_refused(nodes: list[Any], who: str) -> None:
    """Such an operator would see the rows that are not valid."""
    with pytest.raises(UnsupportedWorkload, match=f"({who}).*(looks across|in a loop)"):
        read_onnx(model(nodes, {"y": ("int64", ("n",))}))
