"""Files of models, outcomes and arrays as JSON, and states that a model cannot continue from."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from toy_outcomes import told

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models import ModelContext
from autotune.models.cost import (
    AnalyticCostModel,
    GradientBoostedTrees,
    ModelFile,
    ObservationLog,
    arrays_digest,
    arrays_from_json,
    arrays_to_json,
    check_has_learned,
    check_model,
    model_file,
    read_model,
    split_learn,
    trained_model,
    write_model,
)
from autotune.plugins import PluginSpec, parts
from autotune.plugins.manager import PluginManager
from autotune.store.records import Outcome
from autotune.targets import preset

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


def test_a_model_never_sees_the_option() -> None:
    assert split_learn("gbdt", {}) == (True, {})
    assert split_learn("gbdt", {"learn": False, "other": 1}) == (False, {"other": 1})
    assert split_learn("module:Model", {"learn": True}) == (True, {})
    assert split_learn("analytic", {"learns": False}) == (False, {}), "its earlier name"


def test_it_is_true_or_false() -> None:
    with pytest.raises(InvalidValueError, match="'learn' of cost model 'gbdt'.*not 'never'"):
        split_learn("gbdt", {"learn": "never"})


def test_what_has_to_be_trained_needs_a_file() -> None:
    with pytest.raises(InvalidValueError, match="'gbdt' is not to learn.*--load-cost-model"):
        check_has_learned("gbdt", GradientBoostedTrees(ModelContext()))
    check_has_learned("analytic", AnalyticCostModel(ModelContext(target=preset("avx512-8core"))))


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a trained model ``brought-1``; another file of this name is at hand."""
    file = tmp_path / "weights.npz"
    file.write_bytes(b"weights")
    spec = PluginSpec("trained_model", "brought-1", lambda _context: file, "Weights for a test")
    manager = PluginManager(entry_points=())
    plugin = SimpleNamespace(autotune_parts=lambda: [spec])
    manager.register(plugin, "bringing")
    monkeypatch.setattr(model_file, "manager", lambda: manager)
    monkeypatch.setattr(parts, "manager", lambda: manager)
    monkeypatch.chdir(tmp_path)
    Path("brought-1").write_bytes(b"other")
    return file


def test_a_name_is_that_of_a_plugin_and_a_path_that_of_a_file(brought: Path) -> None:
    assert trained_model("brought-1") == ModelFile.at(brought)
    for path in ("./brought-1", Path("brought-1")):
        assert trained_model(path) == ModelFile.at("brought-1")


def test_a_name_without_a_suffix_may_be_that_of_a_file(brought: Path) -> None:
    Path("mine").write_bytes(b"other")
    assert trained_model("mine") == ModelFile.at("mine")


def test_what_is_neither_is_refused(brought: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'brought-1'.*no such file"):
        trained_model("brougt-1")
    with pytest.raises(InvalidValueError, match="'missing.npz' cannot be read"):
        trained_model("missing.npz")


STATE = {"model": "mine", "feature_version": "v1", "file": "abc"}


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (("other", "v1", "abc"), "of cost model 'mine', this one is 'other'"),
        (("mine", "v2", "abc"), "version 'v1', this one computes version 'v2': train a new one"),
        (("mine", "v1", ""), "from the file abc, this one from none"),
        (("mine", "v1", "abd"), "from the file abc, this one from abd"),
    ],
)
def test_states_of_something_else_are_refused(own: tuple[str, str, str], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        check_model(own[0], STATE, own[1], own[2])
    check_model("mine", STATE, "v1", "abc")
    check_model("mine", {"model": "mine"})


def test_outcomes_come_back_in_order_each_sketch_once() -> None:
    outcomes = [*told(5, extent=8), *told(4), *told(3, extent=8)]
    outcomes[2] = outcomes[2][0], Outcome("crash")
    log = ObservationLog()
    log.add(outcomes[:5])
    log.add(outcomes[5:])
    written = json.loads(json.dumps(log.to_json()))
    sketches = {it.sketch.digest for it, _ in outcomes}
    assert len(log) == 12 and len(written["sketches"]) == len(sketches) < 12
    found = ObservationLog.read(written)
    assert [it.digest for it, _ in found] == [it.digest for it, _ in outcomes]
    assert [it.latency for _, it in found] == [it.latency for _, it in outcomes]
    assert all(it.ok == (it.latency is not None) for _, it in found)
    numbers, values = zip(*written["rows"], strict=True)
    earlier = {"numbers": list(numbers), "values": list(values)}
    assert ObservationLog.read({**written, **earlier, "rows": written["rows"]}) == found
    del written["rows"]
    assert ObservationLog.read({**written, **earlier}) == found


@pytest.mark.parametrize(
    "damage",
    [
        {"rows": [[3, [1]]]},
        {"rows": []},
        {"rows": None},
        {"latencies": ["x"]},
        {"sketches": [{}]},
    ],
)
def test_damaged_outcomes_are_refused(damage: dict[str, Any]) -> None:
    log = ObservationLog()
    log.add(told(1))
    with pytest.raises(InvalidValueError, match="not outcomes"):
        ObservationLog.read({**log.to_json(), **damage})


def test_arrays_come_back() -> None:
    arrays = {
        "weights": np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1],
        "count": np.array(7, dtype=np.int64),
    }
    written = json.loads(json.dumps(arrays_to_json(arrays)))
    found = arrays_from_json(written)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].flags.writeable
        np.testing.assert_array_equal(found[name], array)
    assert arrays_digest(found) == arrays_digest(arrays)
    assert arrays_digest({**found, "count": np.array(8)}) != arrays_digest(found)
    earlier = {"weights": written["weights"][1:]}
    np.testing.assert_array_equal(arrays_from_json(earlier)["weights"], arrays["weights"])


@pytest.mark.parametrize("item", [["O", [1], ""], ["<f4", [7], "AAAA"], 3, ["<f4"], [], None])
def test_damaged_arrays_are_refused(item: object) -> None:
    with pytest.raises(InvalidValueError, match="not weights"):
        arrays_from_json({"a": item})
