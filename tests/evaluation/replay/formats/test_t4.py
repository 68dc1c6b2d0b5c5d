"""T4 results: as the schema has them, and as files do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from recorded_spaces import PARAMETERS, small_space, t4_data, t4_result

from autotune.errors import AutotuneError
from autotune.evaluation.replay.formats.t4 import INVALIDITIES, read_t4, t4_text
from autotune.store.statuses import OUTCOME_STATUSES


def test_results_are_read_in_seconds() -> None:
    space = read_t4(t4_data(), "name", "convolution", "GPU")
    assert [(it.name, it.values) for it in space.parameters] == [
        ("block", (4, 8)),
        ("tile", (1, 2)),
    ]
    first, second, failed = space.evaluations
    assert first.seconds == pytest.approx(2e-3) and first.samples == pytest.approx((2e-3, 3e-3))
    assert (first.compiling, first.running, first.framework) == pytest.approx((0.1, 0.015, 0.001))
    assert second.seconds == pytest.approx(1.5e-3)
    assert (failed.status, failed.seconds, failed.samples) == ("crash", None, ())
    assert failed.running == pytest.approx(0.015), "what it took before it failed counts"


@pytest.mark.parametrize(("invalidity", "status"), INVALIDITIES.items())
def test_every_invalidity_is_a_status(invalidity: str, status: str) -> None:
    assert status in OUTCOME_STATUSES
    space = read_t4(t4_data(t4_result(4, 1), t4_result(4, 2, invalidity=invalidity)), "n", "", "")
    assert space.evaluations[1].status == status


def test_the_time_of_compiling_has_two_names() -> None:
    times = {"compilation_time": 250.0, "runtimes": []}
    (found,) = read_t4(t4_data(t4_result(4, 1, times=times)), "n", "", "").evaluations
    assert found.compiling == pytest.approx(0.25)
    times["compilation"] = 1.0
    with pytest.raises(AutotuneError, match="compilation and compilation_time contradict"):
        read_t4(t4_data(t4_result(4, 1, times=times)), "n", "", "")


@pytest.mark.parametrize(("unit", "seconds"), [("seconds", 2.0), ("us", 2e-6), ("ms", 2e-3)])
def test_units_are_those_of_the_file_or_of_the_measurement(unit: str, seconds: float) -> None:
    data = t4_data(t4_result(4, 1), metadata={"timeunit": unit})
    assert read_t4(data, "n", "", "").best == pytest.approx(seconds)
    measured = [{"name": "time", "value": 2.0, "unit": unit}]
    data = t4_data(t4_result(4, 1, measurements=measured))
    assert read_t4(data, "n", "", "").best == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            t4_data(schema_version="2.0.0"),
            "n is of version '2.0.0' of the T4 schema; only '1.0.0'",
        ),
        ({"results": []}, "n lacks 'schema_version'"),
        (t4_data(results=[]), "n has no configuration"),
        (t4_data(t4_result(4, 1, float("nan"))), "result 0: 'value' is nan, which is no time"),
        (t4_data(t4_result(4, 1, "InvalidConfig")), "'value' is not a number"),
        (
            t4_data(t4_result(4, 1), t4_result(4, 1, 3.0)),
            "block=4, tile=1 is there twice, as 0.002",
        ),
        (
            t4_data(t4_result(4, 1), t4_result(4, 1)),
            "tile=1 is there twice, as 0.002 s and as 0.0",
        ),
        (t4_data(t4_result(4, 1, invalidity="fine")), "unknown invalidity in n: result 0 'fine'"),
        (t4_data(t4_result(4, 1, objectives=["GFLOP/s"])), "no time as its objective 'GFLOP/s'"),
        (t4_data(t4_result(4, 1, objectives=["time", "energy"])), "has 2 objectives"),
        (t4_data(t4_result(4, 1, configuration={"block": [4]})), "'block' is no value of a"),
        (t4_data(t4_result(4, 1, configuration={"block": 4}), t4_result(4, 2)), "lacks parameter"),
        (t4_data(metadata={"timeunit": "days"}), "unknown unit of time in n: 'timeunit' 'days'"),
        (t4_data(t4_result(4, 1, times=[])), "'times' is not an object"),
        (t4_data(t4_result(4, 1, times={"validation": -1.0})), "'validation' is -1.0"),
    ],
)
def test_what_is_wrong_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(AutotuneError) as caught:
        read_t4(data, "n", "", "")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_written_is_read() -> None:
    space = small_space()
    read = read_t4(json.loads(t4_text(space)), space.name, "kernel", "device", PARAMETERS)
    assert (read.seconds == space.seconds).all() and (read.positions == space.positions).all()
    assert read.costs == pytest.approx(space.costs)
    assert [it.status for it in read.evaluations] == [it.status for it in space.evaluations]
