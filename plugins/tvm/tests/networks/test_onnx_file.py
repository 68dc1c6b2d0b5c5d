"""ONNX files become programs that compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attrs import evolve
from autotune_tvm.importer import import_module
from autotune_tvm.networks.frontend import RelaxFrontend
from onnx import TensorProto, helper, numpy_helper
from relax_networks import weights

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks import AskedInputs, LoadOptions
from autotune.networks.comparison import compare_outputs
from autotune.networks.running import check_network
from autotune.targets import Target


def write_model(path: Path, batch: int | str = 1, last: str = "Relu") -> None:
    """Convolution, batch norm, the operator ``last``, and a product of matrices."""
    constants = {
        "w": weights(6, 3, 3, 3),
        "b": weights(6),
        "gamma": weights(6, seed=1),
        "beta": weights(6, seed=2),
        "mean": weights(6, seed=3),
        "variance": np.abs(weights(6, seed=4)) + np.float32(0.5),
        "classes": weights(6 * 36, 5),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", ["c", "gamma", "beta", "mean", "variance"], ["n"], name="norm"
        ),
        helper.make_node(last, ["n"], ["r"], name="last"),
        helper.make_node("Flatten", ["r"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "classes"], ["scores"], name="product"),
    ]
    shape: list[Any] = [batch, 3, 6, 6]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))


def test_a_file_computes_what_the_model_does(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    write_model(path)
    program = RelaxFrontend().load(path, None, LoadOptions(target, 1))
    assert [task.nodes for task in program.tasks][0] == ("conv2d", "add", "relu")
    assert [(it.name, it.shape) for it in program.inputs] == [("image", (1, 3, 6, 6))]
    inputs = program.example_inputs()
    wanted = program.reference(inputs)
    assert wanted is not None
    found = program.build({}, target, 1)(*inputs)
    (difference,) = compare_outputs(program.outputs, wanted, found)
    assert difference.ok and difference.output == "scores"


def test_example_inputs_give_the_lengths_of_named_axes(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "dynamic.onnx"
    write_model(path, batch="batch")
    options = LoadOptions(target, 1)
    program = RelaxFrontend().load(path, None, options)
    assert program.inputs[0].shape == (1, 3, 6, 6)
    assert program.fixed is not None and "axis 'batch' open: it is 1" in program.fixed.remarks[0]
    program = RelaxFrontend().load(path, [weights(2, 3, 6, 6)], options)
    assert program.inputs[0].shape == (2, 3, 6, 6)
    asked = evolve(options, asked=AskedInputs(dims={"batch": 4}))
    assert RelaxFrontend().load(path, None, asked).inputs[0].shape == (4, 3, 6, 6)


def scaled(open_axis: str) -> Any:
    """An image times a rate, of open axes."""
    shape: list[Any] = [1, open_axis, "?"]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("rate", TensorProto.INT64, []),
    ]
    nodes = [
        helper.make_node("Cast", ["rate"], ["r"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "r"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "scaled", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_value_is_baked_in_and_the_reference_has_it_too(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "scaled.onnx"
    onnx.save(scaled("?"), str(path))
    options = LoadOptions(target, 1)
    with pytest.raises(UnsupportedWorkload, match="give --input x=1,N,N .in Python"):
        RelaxFrontend().load(path, None, options)
    onnx.save(scaled("width"), str(path))
    asked = AskedInputs(inputs={"x": (1, 2, 3), "rate": 16})
    program = RelaxFrontend().load(path, None, evolve(options, asked=asked))
    assert [it.name for it in program.inputs] == ["x"]
    network = program.build({}, target, 1)
    check_network(program, network)
    np.testing.assert_array_equal(network(weights(1, 2, 3))[0], weights(1, 2, 3) * 16)


def grouped_attention() -> Any:
    """Four heads of queries that share two of keys and values, as exporters write it."""

    def copied(name: str) -> list[Any]:
        names = (name, f"{name}_apart", f"{name}_spread", f"{name}_copied")
        return [
            helper.make_node("Unsqueeze", [names[0], "axis"], [names[1]]),
            helper.make_node("Expand", [names[1], "spread"], [names[2]]),
            helper.make_node("Reshape", [names[2], "heads"], [names[3]]),
        ]

    nodes = [
        *copied("k"),
        *copied("v"),
        helper.make_node("Transpose", ["k_copied"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["products"]),
        helper.make_node("Mul", ["products", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "mask"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v_copied"], ["y"]),
    ]
    constants = {
        "axis": np.array([2]),
        "spread": np.array([1, 2, 2, 16, 16]),
        "heads": np.array([1, 4, 16, 16]),
        "scale": np.array(0.25, np.float32),
        "mask": np.where(np.tri(16), 0, -np.inf).astype(np.float32),
    }
    heads = {"q": 4, "k": 2, "v": 2, "y": 4}
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, count, 16, 16])
        for name, count in heads.items()
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "grouped", values[:3], values[3:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_heads_that_share_keys_are_not_copied(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "grouped.onnx"
    onnx.save(grouped_attention(), str(path))
    program = RelaxFrontend().load(path, None, LoadOptions(target, 1))
    (task,) = (it for it in program.tasks if not it.view)
    workload, _ = import_module(task.program)
    assert [it.shape for it in workload.inputs] == [(2, 2, 16, 16), (2, 16, 16), (2, 16, 16)]
    inputs = program.example_inputs()
    wanted = program.reference(inputs)
    assert wanted is not None
    found = program.build({}, target, 1)(*inputs)
    (difference,) = compare_outputs(program.outputs, wanted, found)
    assert difference.ok and difference.output == "y"


def test_an_operator_that_tvm_does_not_know_is_named(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    write_model(path, last="Det")
    with pytest.raises(UnsupportedWorkload, match=r"node 'last' \(Det\)"):
        RelaxFrontend().load(path, None, LoadOptions(target, 1))


def test_a_truncated_file_is_one_line(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    write_model(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InvalidValueError, match="no valid ONNX model") as caught:
        RelaxFrontend().load(path, None, LoadOptions(target, 1))
    assert "\n" not in str(caught.value)


def test_a_node_that_tvm_cannot_translate_is_named(
    target: Target, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "misfit.onnx"
    values = [helper.make_tensor_value_info(it, TensorProto.FLOAT, [2, 3]) for it in "xy"]
    node = helper.make_node("MatMul", ["x", "x"], ["y"], name="square")
    graph = helper.make_graph([node], "misfit", values[:1], values[1:])
    onnx.save(helper.make_model(graph, ir_version=8), str(path))
    with pytest.raises(UnsupportedWorkload, match=r"node 'square' \(MatMul\): .*reduction"):
        RelaxFrontend().load(path, None, LoadOptions(target, 1))
    assert capfd.readouterr() == ("", "")


def test_an_input_of_texts_is_named(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "texts.onnx"
    values = [helper.make_tensor_value_info(it, TensorProto.STRING, [3]) for it in "xy"]
    node = helper.make_node("StringNormalizer", ["x"], ["y"], name="lower")
    graph = helper.make_graph([node], "texts", values[:1], values[1:])
    onnx.save(helper.make_model(graph, ir_version=8), str(path))
    with pytest.raises(UnsupportedWorkload, match="input 'x' of texts.onnx is no tensor"):
        RelaxFrontend().load(path, None, LoadOptions(target, 1))


def one_node(kind: str, opset: int, constants: dict[str, Any], **attributes: Any) -> Any:
    """A model of one node, which reads ``x`` and then the constants."""
    outputs = attributes.pop("outputs", ["y"])
    reads = [] if kind in ("RandomNormal", "RandomUniform") else ["x"]
    node = helper.make_node(kind, [*reads, *constants], outputs, name="it", **attributes)
    values = [helper.make_tensor_value_info(it, TensorProto.FLOAT, [2, 3]) for it in ("x", "z")]
    add = helper.make_node("Add", ["x", "y"], ["z"])
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node, add], "one", values[:1], values[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


HALF = np.array(0.5, np.float32)
STATISTICS = {name: np.abs(weights(3)) for name in ("scale", "b", "mean", "variance")}
DROPPED = {"ratio": HALF, "training": np.array(True)}


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (one_node("RandomNormal", 17, {}, shape=[2, 3]), "draws random numbers"),
        (one_node("RandomUniform", 17, {}, shape=[2, 3]), "draws random numbers"),
        (one_node("RandomNormalLike", 17, {}), "draws random numbers"),
        (one_node("RandomUniformLike", 17, {}), "draws random numbers"),
        (one_node("Bernoulli", 17, {}), "draws random numbers"),
        (one_node("Dropout", 17, DROPPED), "draws random numbers"),
        (one_node("Dropout", 6, {}), "computes as in training"),
        (
            one_node(
                "BatchNormalization", 17, STATISTICS, outputs=["y", "m", "v"], training_mode=1
            ),
            "computes as in training",
        ),
        (
            one_node("BatchNormalization", 9, STATISTICS, outputs=["y", "m", "v", "s", "t"]),
            "computes as in training",
        ),
    ],
)
def test_random_numbers_and_training_are_refused_by_node(
    model: Any, problem: str, target: Target, tmp_path: Path
) -> None:
    path = tmp_path / "drawing.onnx"
    onnx.save(model, str(path))
    named = rf"node 'it' \({model.graph.node[0].op_type}\) {problem}"
    with pytest.raises(UnsupportedWorkload, match=named):
        RelaxFrontend().load(path, None, LoadOptions(target, 1))


@pytest.mark.parametrize(
    "model",
    [
        one_node("Dropout", 10, {}),
        one_node("Dropout", 17, {"ratio": HALF}),
        one_node("Dropout", 17, {"ratio": HALF, "training": np.array(False)}),
        one_node("BatchNormalization", 17, STATISTICS),
    ],
)
def test_what_has_a_mode_for_training_is_read_in_the_other(
    model: Any, target: Target, tmp_path: Path
) -> None:
    path = tmp_path / "still.onnx"
    onnx.save(model, str(path))
    program = RelaxFrontend().load(path, None, LoadOptions(target, 1))
    check_network(program, program.build({}, target, 1))
