from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.models.cost import ModelFile, read_model, write_model

WEIGHTS = {"weights": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.zeros(3)}


def _written(model: str = "mine", version: int | str = "v1") -> io.BytesIO:
    stream = io.BytesIO()
    write_model(stream, model, version, WEIGHTS, {"epochs": 7})
    stream.seek(0)
    return stream


def test_round_trip() -> None:
    saved = read_model(_written(), "mine", "v1")
    assert saved.facts == {"epochs": 7}
    assert list(saved.arrays) == list(WEIGHTS)
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(saved.arrays[name], array)
        assert saved.arrays[name].dtype == array.dtype


def test_equal_models_give_equal_bytes() -> None:
    assert _written().getvalue() == _written().getvalue()


@pytest.mark.parametrize(
    ("model", "version", "message"),
    [
        ("yours", "v1", "of cost model 'mine', this one is 'yours'"),
        ("mine", "v2", "version 'v1', this autotune computes version 'v2': train a new one"),
    ],
)
def test_what_does_not_fit_is_refused_naming_both(model: str, version: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        read_model(_written(), model, version)


def _npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    return stream.getvalue()


def _npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        _npy(),
        _npz(weights=np.zeros(3)),
        _npz(header=np.frombuffer(b"{", dtype=np.uint8)),
        _npz(header=np.frombuffer(b"[]", dtype=np.uint8)),
        _npz(header=np.frombuffer(b"{}", dtype=np.uint8)),
        _written().getvalue()[:-30],
    ],
)
def test_damage_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidValueError, match="no file of a cost model") as caught:
        read_model(io.BytesIO(content), "mine", "v1")
    # What numpy says of other bytes is how to execute them.
    assert "pickle" not in str(caught.value)


def test_objects_are_never_read() -> None:
    content = _npz(header=np.array([{"format": "autotune.cost_model"}], dtype=object))
    with pytest.raises(InvalidValueError, match="no file of a cost model"):
        read_model(io.BytesIO(content), "mine", "v1")


def test_files_of_a_later_format_are_refused() -> None:
    header = {"format": "autotune.cost_model", "version": 2, "model": "mine"}
    text = json.dumps({**header, "feature_version": "v1", "facts": {}}).encode()
    content = _npz(header=np.frombuffer(text, dtype=np.uint8))
    with pytest.raises(InvalidValueError, match="version 2; this autotune reads .* version 1"):
        read_model(io.BytesIO(content), "mine", "v1")


def test_an_array_may_not_take_the_place_of_the_header() -> None:
    with pytest.raises(InvalidValueError, match="may not be called 'header'"):
        write_model(io.BytesIO(), "mine", "v1", {"header": np.zeros(1)})


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(_written().getvalue())
    file = ModelFile.at(path)
    assert read_model(file.open(), "mine", "v1").facts == {"epochs": 7}
    assert ModelFile.at(path) == file
    path.write_bytes(_written("yours").getvalue())
    assert ModelFile.at(path) != file
    with pytest.raises(InvalidValueError, match="has changed"):
        file.open()
    with pytest.raises(InvalidValueError, match=r"missing.npz' cannot be read: No such file"):
        ModelFile.at(tmp_path / "missing.npz")
