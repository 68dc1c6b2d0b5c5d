"""Models without their large tensors: these stay where they are in the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx_models import model_of

from autotune.errors import InvalidValueError
from autotune.networks.graph import evaluate
from autotune.networks.readers.onnx import read_onnx
from autotune.networks.readers.onnx.model_file import split_model

F = ("float32", (2, 64))


def _model(*sizes: int) -> onnx.ModelProto:
    """A model with a constant of each size."""
    arrays = {f"w{number}": np.arange(it, dtype=np.float32) for number, it in enumerate(sizes)}
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    model = model_of(nodes, {"x": F}, {"y": F}, arrays)
    assert isinstance(model, onnx.ModelProto)
    return model


@given(
    sizes=st.lists(st.integers(0, 200), max_size=4),
    least=st.integers(0, 900),
    typed=st.booleans(),
)
def test_bytes_and_what_is_left_are_the_model(sizes: list[int], least: int, typed: bool) -> None:
    model = _model(*sizes)
    if typed:
        model.graph.initializer.append(helper.make_tensor("t", 1, [300], [1.5] * 300))
    data = model.SerializeToString()
    light, places = split_model(memoryview(data), least)
    found = onnx.ModelProto.FromString(light)
    assert len(places) == len(found.graph.initializer)
    for tensor, place in zip(found.graph.initializer, places, strict=True):
        assert (place is None) or not tensor.HasField("raw_data")
        if place is not None:
            tensor.raw_data = data[place.begin : place.end]
        elif tensor.HasField("raw_data"):
            assert tensor.ByteSize() < least
    assert found.SerializeToString(deterministic=True) == model.SerializeToString(
        deterministic=True
    )


@settings(deadline=None)
@given(cut=st.floats(0, 1), flip=st.integers(0, 255))
def test_damage_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, cut: float, flip: int
) -> None:
    """A file that is cut off, or has another byte somewhere, ends in one line if it ends."""
    data = bytearray(_with_weights().SerializeToString())
    place = int(cut * (len(data) - 1))
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    data[place] = flip
    for content in (bytes(data), bytes(data[:place])):
        path.write_bytes(content)
        try:
            read_onnx(path)
        except InvalidValueError as error:
            assert "\n" not in str(error)
        except Exception as error:
            assert isinstance(error, onnx.checker.ValidationError) or type(error).__module__ == (
                "autotune.errors"
            ), error


def _with_weights() -> onnx.ModelProto:
    weights = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, {"x": F}, {"y": F}, {"w": weights})
    assert isinstance(model, onnx.ModelProto)
    return model


def test_weights_of_a_file_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(_with_weights().SerializeToString())
    network = read_onnx(path)
    (weights,) = network.graph.constants
    assert weights.constant is not None and network.file.content is not None
    assert np.shares_memory(weights.constant, network.file.content)
    x = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    wanted = x @ np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    np.testing.assert_allclose(evaluate(network.graph, {"x": x})["y"], wanted, rtol=1e-5)


def test_a_file_that_is_written_anew_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(_with_weights().SerializeToString())
    (weights,) = read_onnx(path).graph.constants
    path.write_bytes(b"")
    np.testing.assert_array_equal(np.ravel(weights.constant), np.arange(64 * 64))  # type: ignore[arg-type]


def test_a_tensor_of_another_length_is_damaged(tmp_path: Path) -> None:
    model = _with_weights()
    (tensor,) = model.graph.initializer
    tensor.raw_data = numpy_helper.to_array(tensor).tobytes()[:-4]
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InvalidValueError, match=r"'w' is damaged: it has 16380 bytes"):
        read_onnx(path)
