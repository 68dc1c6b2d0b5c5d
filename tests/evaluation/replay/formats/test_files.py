"""Files of recorded spaces: caches of Kernel Tuner, T4 results and T1 descriptions.

They are told apart by what is in them, packed or not; values and constraints are parsed, and run
nothing.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from recorded_spaces import (
    PARAMETERS,
    cache_entry,
    kernel_tuner_cache,
    small_space,
    t1_data,
    t4_data,
    t4_result,
)

from autotune.errors import AutotuneError
from autotune.evaluation.replay import Evaluation, RecordedSpace, make_space
from autotune.evaluation.replay.formats import (
    read_description,
    read_space,
    read_spaces,
    space_bytes,
)
from autotune.evaluation.replay.formats.kernel_tuner_cache import (
    cache_text,
    parse_cache,
    read_cache,
)
from autotune.evaluation.replay.formats.t4 import (
    INVALIDITIES,
    Description,
    check_described,
    read_t1,
    read_t4,
    t1_text,
    t4_text,
)
from autotune.spaces.parameters import Parameter, parse_condition
from autotune.store.statuses import OUTCOME_STATUSES


def written(path: Path, data: Any) -> str:
    content = json.dumps(data).encode()
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    return str(path)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("k-d.json", kernel_tuner_cache()),
        ("k-d.json.gz", kernel_tuner_cache()),
        ("k-d.t4.json", t4_data()),
        ("k-d.t4.json.gz", t4_data()),
        ("k-d.json", t4_data()),
        ("k-d", kernel_tuner_cache()),
    ],
)
def test_names_say_nothing_about_formats(tmp_path: Path, name: str, data: Any) -> None:
    space = read_space(written(tmp_path / name, data))
    assert space.name == "k-d" and len(space) == 3
    assert space.kernel in ("k", "convolution") and space.device in ("d", "Some GPU")


@pytest.mark.parametrize("end", ["t4.json", "t4.json.gz", "json", "json.gz"])
def test_a_space_survives_every_format(tmp_path: Path, end: str) -> None:
    space, path = small_space(), tmp_path / f"kernel-device.{end}"
    path.write_bytes(space_bytes(space, None, str(path)))
    described = tmp_path / "kernel.t1.json"
    described.write_bytes(space_bytes(space, None, str(described)))
    read = read_space(str(path), read_description(str(described)))
    assert (read.kernel, read.device, len(read)) == ("kernel", "device", len(space))
    assert (read.seconds == space.seconds).all() and read.costs == pytest.approx(space.costs)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"{", "is no recorded space"),
        (b'{"cache": {"a": ', "no JSON, or cut off"),
        (b"[1, 2]", "the file is not an object"),
        (b"\xff\xfe", "is no text"),
        (b"\x1f\x8b\x08\x00abc", "cannot be unpacked"),
        (json.dumps(t1_data()).encode(), "has no results to replay"),
        (json.dumps({"schema_version": "3.1"}).encode(), "version '3.1'"),
        (json.dumps({"other": 1}).encode(), "is no recorded space"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_file(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(AutotuneError) as caught:
        read_space(str(path))
    text = str(caught.value)
    assert message in text and str(path) in text and "\n" not in text


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AutotuneError, match=r"absent.json' cannot be read: No such file"):
        read_space(str(tmp_path / "absent.json"))


def test_the_unit_of_a_file_can_be_said(tmp_path: Path) -> None:
    paths = [written(tmp_path / name, kernel_tuner_cache()) for name in ("a.json", "b.json")]
    one, other = read_spaces(paths, units={"b": "us"})
    assert other.best == pytest.approx(one.best / 1000)
    assert other.costs == pytest.approx(one.costs)
    with pytest.raises(AutotuneError, match="unknown unit of time in a 'minutes'"):
        read_spaces(paths, units={"a": "minutes"})
    with pytest.raises(AutotuneError, match="unknown space 'c'"):
        read_spaces(paths, units={"c": "us"})
    with pytest.raises(AutotuneError, match="two spaces are called 'a'"):
        read_spaces([paths[0], paths[0]])


def test_a_format_that_nobody_knows_is_refused() -> None:
    with pytest.raises(AutotuneError, match=r"'space.csv' ends in none of .t1.json, .t4.json"):
        space_bytes(small_space(), None, "space.csv")


Read = Callable[[Any], RecordedSpace]


def as_cache(data: Any) -> RecordedSpace:
    return read_cache(data, "n", "device")


def as_t4(data: Any) -> RecordedSpace:
    return read_t4(data, "n", "convolution", "device")


def as_t1(change: Mapping[str, Any]) -> Description:
    """A description with other facts of the first parameter."""
    data = t1_data()
    data["ConfigurationSpace"]["TuningParameters"][0].update(change)
    return read_t1(data, "n")


@pytest.mark.parametrize(
    ("read", "data", "device"),
    [(as_cache, kernel_tuner_cache(), "Some GPU"), (as_t4, t4_data(), "device")],
)
def test_results_are_read_in_seconds(read: Read, data: Any, device: str) -> None:
    space = read(data)
    assert (space.name, space.kernel, space.device) == ("n", "convolution", device)
    assert [(it.name, it.values) for it in space.parameters] == [
        ("block", (4, 8)),
        ("tile", (1, 2)),
    ]
    first, second, failed = space.evaluations
    assert first.configuration == {"block": 4, "tile": 1} and first.status == "ok"
    assert first.seconds == pytest.approx(2e-3) and first.samples == pytest.approx((2e-3, 3e-3))
    assert (first.compiling, first.running, first.framework) == pytest.approx((0.1, 0.015, 0.001))
    assert second.seconds == pytest.approx(1.5e-3) == space.best
    assert (failed.status, failed.seconds, failed.samples) == ("crash", None, ())
    assert failed.running == pytest.approx(0.015), "what it took before it failed counts"
    assert space.positions.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert space.costs == pytest.approx([0.116] * 3)


FAULTS: Mapping[Callable[[Any], object], list[tuple[Any, str]]] = {
    as_cache: [
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
    as_t4: [
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
    as_t1: [
        ({"Type": "complex"}, "unknown type of n: parameter 0 'complex'"),
        ({"Type": "bool"}, "value 4 is no bool"),
        ({"Type": "string"}, "value 4 is no string"),
        ({"Type": "uint", "Values": "[-1]"}, "value -1 is no uint"),
        ({"Values": "[1, 1]"}, "value 1 twice"),
        ({"Values": "[[1]]"}, "no value of a parameter"),
        ({"Values": [4, 8]}, "'Values' is not a text"),
        ({"Name": "tile"}, "two parameters are called 'tile'"),
        *(
            ({"Values": values}, "parameter 0: its values are not a list of numbers")
            for values in (
                *("[__import__('os').system('true')]", "range(4)", "open('x')", "4", ""),
                "[2**i for i in range(4)]",
            )
        ),
    ],
    lambda constraint: read_t1(t1_data(constraint), "n"): [
        ("max(block, tile) < 8", "calls a function"),
        ("__import__('os').system('true') == 0", "calls a function"),
        ("block.real > 1", "not allowed"),
        ("blok > 1", "unknown parameter in constraint 'blok > 1': 'blok'"),
        ("block >", "no expression"),
        ("(lambda: 1)() == 1", "calls a function"),
    ],
}
"""Data and what is said of it, by what reads it."""


@pytest.mark.parametrize(
    ("read", "data", "message"),
    [(read, data, message) for read, rows in FAULTS.items() for data, message in rows],
)
def test_what_is_wrong_is_named(read: Callable[[Any], object], data: Any, message: str) -> None:
    with pytest.raises(AutotuneError) as caught:
        read(data)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda text: read_cache(parse_cache(text), "n", ""), cache_text(small_space())),
        (
            lambda text: read_t4(json.loads(text), "n", "kernel", "device", PARAMETERS),
            t4_text(small_space()),
        ),
    ],
)
def test_what_is_written_is_read(read: Read, text: str) -> None:
    space, found = small_space(), read(text)
    assert found.parameters == PARAMETERS and found.device == "device"
    assert (found.seconds == space.seconds).all()
    assert (found.positions == space.positions).all()
    assert found.costs == pytest.approx(space.costs)
    assert [it.status for it in found.evaluations] == [it.status for it in space.evaluations]


def test_a_cache_that_is_written_is_closed() -> None:
    """Kernel Tuner tells it by its last characters."""
    assert cache_text(small_space()).rstrip()[-3:] == "}\n}"


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


def test_a_key_that_is_there_twice_is_refused() -> None:
    text = json.dumps(kernel_tuner_cache(cache_entry(4, 1))).replace(
        '"cache": {', '"cache": {"4,1": {}, '
    )
    with pytest.raises(AutotuneError, match="'4,1' is there twice"):
        parse_cache(text)


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


def test_parameters_and_constraints_are_read() -> None:
    found = read_t1(t1_data("block * tile <= 8"), "name")
    assert found.name == "convolution"
    assert [(it.name, it.values) for it in found.parameters] == [
        ("block", (4, 8)),
        ("tile", (1, 2)),
    ]
    assert [it.text for it in found.constraints] == ["block * tile <= 8"]
    # The default in the file is none of the values.
    assert [it.default for it in found.parameters] == [None, None]


def test_a_description_that_is_written_is_read() -> None:
    constraint = parse_condition("block * tile <= 64 or padded", [it.name for it in PARAMETERS])
    described = Description("kernel", (*PARAMETERS[:-1], Parameter("padded", (False, True), True)))
    described = Description("kernel", described.parameters, (constraint,))
    assert read_t1(json.loads(t1_text(described)), "name") == described


def test_a_space_that_breaks_its_constraints_is_refused() -> None:
    space = read_cache(kernel_tuner_cache(), "name", "")
    check_described(space, read_t1(t1_data("block * tile <= 8"), "t1"))
    with pytest.raises(AutotuneError, match="block=4, tile=2 breaks the constraint 'block < 8'|"):
        check_described(space, read_t1(t1_data("tile == 1"), "t1"))


def test_values_of_several_types_stay_what_they_are() -> None:
    parameters = (Parameter("mode", (1, "fast", False)), Parameter("tile", (1, 2)))
    rows = [{"mode": mode, "tile": 1} for mode in parameters[0].values]
    space = make_space("s", parameters, [Evaluation(row, "ok", 1.0) for row in rows])
    names = [it.name for it in parameters]
    check_described(space, Description("t1", parameters, (parse_condition("tile < 2", names),)))
    wrong = parse_condition("mode != 'fast' or tile > 1", names)
    with pytest.raises(AutotuneError, match="mode=fast, tile=1 breaks the constraint"):
        check_described(space, Description("t1", parameters, (wrong,)))
