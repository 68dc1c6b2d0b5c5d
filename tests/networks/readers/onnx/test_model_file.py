"""Models from files and objects: weights beside the file, damage, what onnxruntime wrote."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import model_of

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks.graph import evaluate
from autotune.networks.readers.onnx import read_onnx
from autotune.networks.readers.onnx.model_file import open_model
from autotune.plugins.installing import install_extra

F = ("float32", (2, 3))


def _with_weights(folder: Path) -> Path:
    """A model whose weights are in another file, behind what is not theirs."""
    weights = np.arange(9, dtype=np.float32).reshape(3, 3)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": F}, {"y": F})
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[3, 3])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    told = {"location": "weights.bin", "offset": "64", "length": "36"}
    for key, value in told.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "weights.bin").write_bytes(bytes(64) + weights.tobytes())
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_without_onnx_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InvalidValueError) as caught:
        open_model(tmp_path / "m.onnx")
    assert str(caught.value) == (
        "models of ONNX are read with the package onnx, which is not installed: run "
        + install_extra("onnx")
    )


@pytest.mark.parametrize("as_text", [False, True])
def test_weights_beside_the_file_are_mapped(tmp_path: Path, as_text: bool) -> None:
    path = _with_weights(tmp_path)
    network = read_onnx(str(path) if as_text else path)
    (weights,) = network.graph.constants
    assert weights.constant is not None
    assert isinstance(weights.constant.base, np.memmap)
    x = np.ones((2, 3), np.float32)
    wanted = x @ np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_allclose(evaluate(network.graph, {"x": x})["y"], wanted)


def test_weights_that_are_cut_off_are_named(tmp_path: Path) -> None:
    path = _with_weights(tmp_path)
    (tmp_path / "weights.bin").write_bytes(bytes(70))
    with pytest.raises(InvalidValueError, match=r"weights\.bin"):
        read_onnx(path)


def test_weights_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = _with_weights(inner)
    (inner / "weights.bin").rename(tmp_path / "weights.bin")
    content = path.read_bytes().replace(b"weights.bin", b"../weigh.in")
    (tmp_path / "weigh.in").write_bytes(bytes(200))
    path.write_bytes(content)
    with pytest.raises(InvalidValueError, match=r"m\.onnx|weigh\.in"):
        read_onnx(path)


def test_a_model_that_is_an_object_has_its_weights_in_it(tmp_path: Path) -> None:
    path = _with_weights(tmp_path)
    whole = onnx.load(path)
    assert read_onnx(whole).graph.inputs[0].shape == (2, 3)


@pytest.mark.parametrize("content", [b"", b"no model", bytes(range(200))])
def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidValueError, match="no valid ONNX model") as caught:
        read_onnx(path)
    assert "\n" not in str(caught.value)


def test_other_objects_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="not dict"):
        read_onnx({})


def test_a_model_that_onnxruntime_optimised_is_named() -> None:
    node = helper.make_node("FusedConv", ["x", "w"], ["y"], name="fused", domain="com.microsoft")
    x = ("float32", (1, 1, 4, 4))
    model = model_of(
        [node], {"x": x, "w": ("float32", (1, 1, 1, 1))}, {"y": x}, domains=["com.microsoft"]
    )
    with pytest.raises(UnsupportedWorkload, match="optimised by onnxruntime.*'fused'"):
        read_onnx(model)
