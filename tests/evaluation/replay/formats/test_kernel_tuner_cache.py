"""Caches of Kernel Tuner: closed or not, and what is wrong with others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from recorded_spaces import PARAMETERS, cache_entry, kernel_tuner_cache, small_space

from autotune.errors import AutotuneError
from autotune.evaluation.replay.formats.kernel_tuner_cache import (
    cache_text,
    parse_cache,
    read_cache,
)


def test_a_cache_is_read_in_seconds() -> None:
    space = read_cache(kernel_tuner_cache(), "name", "other")
    assert (space.name, space.kernel, space.device) == ("name", "convolution", "Some GPU")
    assert [(it.name, it.values) for it in space.parameters] == [
        ("block", (4, 8)),
        ("tile", (1, 2)),
    ]
    first, second, failed = space.evaluations
    assert first.configuration == {"block": 4, "tile": 1} and first.status == "ok"
    assert first.seconds == pytest.approx(2e-3) and first.samples == pytest.approx((2e-3, 3e-3))
    assert (first.compiling, first.running, first.framework) == pytest.approx((0.1, 0.015, 0.001))
    assert second.seconds == pytest.approx(1.5e-3)
    assert (failed.status, failed.seconds, failed.samples) == ("crash", None, ())
    assert space.positions.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert space.costs == pytest.approx([0.116] * 3) and space.best == pytest.approx(1.5e-3)


@pytest.mark.parametrize(
    ("entry", "status"),
    [
        (cache_entry(8, 1, "CompilationFailedConfig"), "build_error"),
        (cache_entry(8, 1, "InvalidConfig"), "invalid"),
        (cache_entry(8, 1, None, __error__="RuntimeFailedConfig"), "crash"),
        (cache_entry(8, 1, 1e20), "crash"),
    ],
)
def test_failures_have_a_kind(entry: dict[str, Any], status: str) -> None:
    space = read_cache(kernel_tuner_cache(cache_entry(4, 1), entry), "name", "")
    assert space.evaluations[1].status == status and space.evaluations[1].seconds is None


def test_a_cache_without_times_of_its_steps_says_so() -> None:
    entry = {"block": 4, "tile": 1, "time": 2.0, "times": [2.0, 3.0]}
    space = read_cache(kernel_tuner_cache(entry), "name", "device")
    assert space.notes == ("1 configurations have no compile time",)
    assert space.costs == pytest.approx([5e-3])


@pytest.mark.parametrize("ending", ["}\n}", "}", "", ",", ",\n"])
def test_a_cache_that_was_not_closed_is_read(ending: str) -> None:
    text = json.dumps(kernel_tuner_cache()).removesuffix("}}") + ending
    assert len(read_cache(parse_cache(text), "name", "").evaluations) == 3


def test_one_that_is_cut_off_within_a_configuration_is_refused() -> None:
    text = json.dumps(kernel_tuner_cache())
    with pytest.raises(AutotuneError, match="no JSON, or cut off within a configuration"):
        parse_cache(text[:-40])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (kernel_tuner_cache(cache_entry(4, 1, float("nan"))), "4,1: 'time' is nan, which is no"),
        (kernel_tuner_cache(cache_entry(4, 1, -1.0)), "'time' is -1.0, which is no time"),
        (kernel_tuner_cache(cache_entry(4, 1, 0.0)), "takes 0.0 s, which is no time"),
        (kernel_tuner_cache(cache_entry(4, 1, [2.0])), "'time' is not a number"),
        (
            kernel_tuner_cache(cache_entry(4, 1, "OddConfig")),
            "unknown error in n: 4,1 'Odd",
        ),
        (kernel_tuner_cache(cache_entry(4, 3)), "3 is no value of parameter 'tile'"),
        (kernel_tuner_cache(cache_entry(True, 1)), "True is no value of parameter 'block'"),
        (kernel_tuner_cache(cache_entry(4, 1, compile_time=-1)), "'compile_time' is -1"),
        (kernel_tuner_cache(cache={}), "n has no configuration"),
        (kernel_tuner_cache(cache_entry(4, 1, "InvalidConfig")), "n has no valid configuration"),
        (kernel_tuner_cache(objective="GFLOP/s"), "objective 'GFLOP/s'; only times"),
        (kernel_tuner_cache(tune_params={"block": [4]}), "'tile' has no values"),
        (kernel_tuner_cache(tune_params_keys=["block"]), "unknown parameter of n 'tile'"),
        (kernel_tuner_cache(cache=[]), "'cache' is not an object"),
        (kernel_tuner_cache(cache={"4,1": {"block": 4, "time": 1.0}}), "lacks parameter 'tile'"),
        ({"cache": {}}, "n lacks 'tune_params_keys'"),
    ],
)
def test_what_is_wrong_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(AutotuneError) as caught:
        read_cache(data, "n", "")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_key_that_is_there_twice_is_refused() -> None:
    text = json.dumps(kernel_tuner_cache(cache_entry(4, 1))).replace(
        '"cache": {', '"cache": {"4,1": {}, '
    )
    with pytest.raises(AutotuneError, match="'4,1' is there twice"):
        parse_cache(text)


def test_what_is_written_is_read() -> None:
    space = small_space()
    text = cache_text(space)
    read = read_cache(parse_cache(text), space.name, "")
    assert read.parameters == PARAMETERS and read.device == "device"
    assert (read.seconds == space.seconds).all() and (read.positions == space.positions).all()
    assert read.costs == pytest.approx(space.costs)
    # By which Kernel Tuner tells that a file was closed.
    assert text.rstrip()[-3:] == "}\n}"
