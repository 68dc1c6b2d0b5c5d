"""Outcomes and arrays as JSON, and states that a model cannot continue from."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from toy_outcomes import told

from autotune.errors import InvalidValueError
from autotune.models.cost import (
    ObservationLog,
    arrays_digest,
    arrays_from_json,
    arrays_to_json,
    check_model,
)
from autotune.store.records import Outcome

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
