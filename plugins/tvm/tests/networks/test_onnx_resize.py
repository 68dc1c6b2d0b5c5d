"""Nodes of ONNX that resize compute what the specification says, in every form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from autotune_tvm.networks.frontend import RelaxFrontend
from autotune_tvm.networks.sources.onnx_resize import write_out_resizes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.errors import UnsupportedWorkload
from autotune.networks import LoadOptions
from autotune.networks.running import check_network
from autotune.targets import Target

Array = NDArray[Any]


def image(*shape: int) -> Array:
    rng = np.random.default_rng(sum(shape))
    return rng.standard_normal(shape).astype(np.float32)


def model_of(
    shape: Sequence[int],
    given: Mapping[str, Sequence[float]],
    *,
    kind: str = "Resize",
    opset: int = 19,
    element: int = TensorProto.FLOAT,
    **attributes: Any,
) -> Any:
    """A model of one node, which takes the tensors of ``given`` as constants."""
    names = ("roi", "scales", "sizes") if opset >= 11 and kind == "Resize" else ("scales",)
    types = {"roi": np.float32, "scales": np.float32, "sizes": np.int64}
    inputs = [name if name in given else "" for name in names]
    while inputs and not inputs[-1]:
        inputs.pop()
    node = helper.make_node(kind, ["x", *inputs], ["y"], name="node", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", element, list(shape))],
        [helper.make_tensor_value_info("y", element, [None] * len(shape))],
        [numpy_helper.from_array(np.array(given[it], types[it]), it) for it in inputs if it],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def written(model: Any, shape: Sequence[int]) -> Any:
    made = write_out_resizes(model, {"x": list(shape)})
    onnx.checker.check_model(made, full_check=True)
    return made


def kinds(model: Any) -> set[str]:
    return {node.op_type for node in model.graph.node}


def check(model: Any, shape: Sequence[int]) -> Any:
    """The model without the node, which computes the same."""
    made, data = written(model, shape), image(*shape)
    assert "Resize" not in kinds(made)
    (found,) = ReferenceEvaluator(made).run(None, {"x": data})
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": data})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    return made


MODES = ("nearest", "linear", "cubic")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
COORDINATES = ("half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric")
extents = st.integers(1, 7)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(extents, st.integers(1, 12)), min_size=1, max_size=2),
    st.sampled_from(MODES),
    st.sampled_from(COORDINATES),
    st.sampled_from(ROUNDINGS),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_every_form_is_that_of_the_specification(
    axes: list[tuple[int, int]],
    mode: str,
    coordinates: str,
    rounding: str,
    smooth: bool,
    leave_out: bool,
    by_scales: bool,
) -> None:
    """Of images of one or two axes, which are always written out."""
    shape = [extent for extent, _ in axes]
    sizes = [to for _, to in axes]
    scales = [(to + 0.3) / extent for extent, to in axes]
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = rounding
    else:
        attributes |= {"antialias": int(smooth), "exclude_outside": int(leave_out)}
    tensors = {"scales": scales} if by_scales else {"sizes": sizes}
    check(model_of(shape, tensors, **attributes), shape)


@pytest.mark.parametrize(
    ("given", "attributes"),
    [
        ({"sizes": [9, 4]}, {"axes": [1, 3], "mode": "linear"}),
        ({"sizes": [4, 9], "roi": [0.1, 0.2, 0.9, 1.4]}, {"axes": [2, 3], "mode": "linear"}),
        ({"sizes": [3, 9]}, {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}),
        ({"sizes": [3, 9]}, {"axes": [3, 2], "keep_aspect_ratio_policy": "not_smaller"}),
        ({"scales": [1, 1, 1.3, 0.7]}, {"mode": "linear"}),
        ({"sizes": [1, 2, 2, 3]}, {"mode": "cubic", "antialias": 1, "cubic_coeff_a": -0.5}),
    ],
)
def test_axes_policies_and_regions(given: Any, attributes: dict[str, Any]) -> None:
    if "roi" in given:
        attributes = {
            **attributes,
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": 2.5,
            "antialias": 1,
        }
    check(model_of([1, 2, 5, 6], given, **attributes), [1, 2, 5, 6])


@pytest.mark.parametrize(
    ("given", "attributes"),
    [
        ({"sizes": [1, 2, 9, 4]}, {"mode": "linear"}),
        ({"scales": [1, 1, 2, 0.5]}, {"mode": "nearest", "nearest_mode": "floor"}),
        ({"sizes": [1, 2, 9, 4]}, {"mode": "cubic", "exclude_outside": 1}),
    ],
)
def test_what_tvm_knows_is_left_as_it_is(given: Any, attributes: dict[str, Any]) -> None:
    model = model_of([1, 2, 5, 6], given, **attributes)
    assert write_out_resizes(model, {"x": [1, 2, 5, 6]}) is model


@pytest.mark.parametrize(
    "given", [{"sizes": [9, 4], "scales": []}, {"sizes": [9, 4]}], ids=["empty", "axes"]
)
def test_sizes_in_another_form_become_those_of_all_axes(given: Any) -> None:
    shape = [1, 2, 5, 6]
    model = model_of(shape, given, axes=[2, 3], mode="linear")
    made = written(model, shape)
    (node, _) = made.graph.node
    constants = {it.name: numpy_helper.to_array(it) for it in made.graph.initializer}
    assert node.op_type == "Resize"
    assert constants[node.input[3]].tolist() == [1, 2, 9, 4]


@pytest.mark.parametrize("kind", ["Upsample", "Resize"])
def test_nodes_of_old_opsets(kind: str) -> None:
    """Of the spec's first form: elements in front, and scales only."""
    opset = 9 if kind == "Upsample" else 10
    model = model_of([1, 2, 3, 4], {"scales": [1, 1, 2, 3]}, kind=kind, opset=opset)
    made = write_out_resizes(model, {"x": [1, 2, 3, 4]})
    assert kinds(made) <= {"Gather", "Identity"}
    data = image(1, 2, 3, 4)
    (found,) = ReferenceEvaluator(made).run(None, {"x": data})
    np.testing.assert_array_equal(found, data.repeat(2, 2).repeat(3, 3))


def test_few_elements_are_sums_and_many_are_products() -> None:
    shape = [40, 41]
    few = check(model_of(shape, {"sizes": [90, 35]}, mode="linear"), shape)
    assert kinds(few) == {"Gather", "Mul", "Add", "Identity"}
    many = check(model_of(shape, {"sizes": [5, 4]}, mode="linear", antialias=1), shape)
    assert kinds(many) == {"MatMul", "Identity"}


@pytest.mark.parametrize(
    ("attributes", "element", "message"),
    [
        ({"mode": "lanczos"}, TensorProto.FLOAT, "'lanczos' is none of nearest, linear, cubic"),
        ({"mode": "linear"}, TensorProto.INT8, "it interpolates elements of int8"),
    ],
)
def test_what_cannot_be_expressed_is_named(
    attributes: dict[str, Any], element: int, message: str
) -> None:
    model = model_of([3, 4], {"sizes": [5, 5]}, element=element, **attributes)
    with pytest.raises(UnsupportedWorkload, match=rf"node 'node' \(Resize\): {message}"):
        write_out_resizes(model, {"x": [3, 4]})


def test_a_network_resizes(target: Target, tmp_path: Path) -> None:
    """Through TVM: smoothed rows, a volume, and what is left to TVM, in one model."""
    nodes = [
        helper.make_node("Resize", ["x", "", "", "small"], ["a"], mode="linear", antialias=1),
        helper.make_node("Resize", ["x", "", "", "large"], ["b"], mode="linear"),
        helper.make_node("Resize", ["v", "", "by"], ["c"], mode="cubic"),
    ]
    constants = {
        "small": np.array([1, 2, 3, 4], np.int64),
        "large": np.array([1, 2, 9, 11], np.int64),
        "by": np.array([1, 1, 1.3, 0.7, 2.1], np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "three",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 7, 9]),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [1, 2, 4, 5, 3]),
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank)
            for name, rank in (("a", 4), ("b", 4), ("c", 5))
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = tmp_path / "three.onnx"
    opsets = [helper.make_opsetid("", 19)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    program = RelaxFrontend().load(path, None, LoadOptions(target, 1))
    check_network(program, program.build({}, target, 1))
