"""T1 descriptions: values and constraints are parsed, and run nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from recorded_spaces import PARAMETERS, kernel_tuner_cache, t1_data

from autotune.errors import AutotuneError
from autotune.evaluation.replay import Evaluation, make_space
from autotune.evaluation.replay.formats.kernel_tuner_cache import read_cache
from autotune.evaluation.replay.formats.t4 import Description, check_described, read_t1, t1_text
from autotune.spaces.parameters import Parameter, parse_condition


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


def test_what_is_written_is_read() -> None:
    constraint = parse_condition("block * tile <= 64 or padded", [it.name for it in PARAMETERS])
    described = Description("kernel", (*PARAMETERS[:-1], Parameter("padded", (False, True), True)))
    described = Description("kernel", described.parameters, (constraint,))
    assert read_t1(json.loads(t1_text(described)), "name") == described


@pytest.mark.parametrize(
    "values",
    [
        "[__import__('os').system('true')]",
        "range(4)",
        "[2**i for i in range(4)]",
        "open('x')",
        "4",
        "",
    ],
)
def test_values_are_a_list_of_values_and_nothing_else(values: str) -> None:
    data = t1_data()
    data["ConfigurationSpace"]["TuningParameters"][0]["Values"] = values
    with pytest.raises(AutotuneError, match="parameter 0: its values are not a list of numbers"):
        read_t1(data, "name")


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("max(block, tile) < 8", "calls a function"),
        ("__import__('os').system('true') == 0", "calls a function"),
        ("block.real > 1", "not allowed"),
        ("blok > 1", "unknown parameter in constraint 'blok > 1': 'blok'"),
        ("block >", "no expression"),
        ("(lambda: 1)() == 1", "calls a function"),
    ],
)
def test_constraints_are_arithmetic(constraint: str, message: str) -> None:
    with pytest.raises(AutotuneError) as caught:
        read_t1(t1_data(constraint), "name")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Type": "complex"}, "unknown type of n: parameter 0 'complex'"),
        ({"Type": "bool"}, "value 4 is no bool"),
        ({"Type": "string"}, "value 4 is no string"),
        ({"Type": "uint", "Values": "[-1]"}, "value -1 is no uint"),
        ({"Values": "[1, 1]"}, "value 1 twice"),
        ({"Values": "[[1]]"}, "no value of a parameter"),
        ({"Values": [4, 8]}, "'Values' is not a text"),
        ({"Name": "tile"}, "two parameters are called 'tile'"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    data = t1_data()
    data["ConfigurationSpace"]["TuningParameters"][0].update(change)
    with pytest.raises(AutotuneError) as caught:
        read_t1(data, "n")
    assert message in str(caught.value) and "\n" not in str(caught.value)


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
