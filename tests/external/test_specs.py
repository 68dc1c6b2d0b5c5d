"""Specs: one strict schema for TOML, JSON and Python."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.external.program import ExternalProgram, parameter_of
from autotune.external.specs import (
    parameters_of_text,
    program_of,
    program_of_text,
    read_spec,
)

SPEC: dict[str, Any] = {
    "name": "stencil",
    "parameters": {
        "level": {"values": ["-O1", "-O3"], "default": "-O1"},
        "tile": {"powers_of_two": {"from": 4, "to": 64}, "default": 16},
        "unroll": {"range": {"from": 1, "to": 7, "step": 2}, "default": 1},
        "shift": {"values": [-1, 0, 1], "default": 0},
        "fast": {"values": [False, True], "default": True},
        "ratio": {"range": {"from": 0.5, "to": 1.0, "step": 0.25}, "default": 0.5},
    },
    "constraints": ["tile % unroll < 4", "fast or level == '-O3'"],
    "build": {"command": "cc {level} -o {workdir}/a", "timeout": 5},
    "run": {
        "command": ["{workdir}/a", "{tile}", "{output}"],
        "timeout": 2.5,
        "repeats": 4,
        "warmup": 1,
    },
    "read": {"pattern": "(\\S+) ms"},
    "unit": "ms",
    "validate": {"method": "bitexact"},
    "environment": {"OMP_PROC_BIND": "true"},
}


def changed(path: str, value: object) -> dict[str, Any]:
    """The spec with another value, or without one where it is None."""
    spec = json.loads(json.dumps(SPEC))
    *parents, last = path.split("/")
    inner = spec
    for key in parents:
        inner = inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return spec


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(SPEC))
    (tmp_path / "a.toml").write_text(
        """
        name = "stencil"
        constraints = ["tile % unroll < 4", "fast or level == '-O3'"]
        unit = "ms"
        [parameters]
        level = { values = ["-O1", "-O3"], default = "-O1" }
        tile = { powers_of_two = { from = 4, to = 64 }, default = 16 }
        unroll = { range = { from = 1, to = 7, step = 2 }, default = 1 }
        shift = { values = [-1, 0, 1], default = 0 }
        fast = { values = [false, true], default = true }
        ratio = { range = { from = 0.5, to = 1.0, step = 0.25 }, default = 0.5 }
        [build]
        command = "cc {level} -o {workdir}/a"
        timeout = 5
        [run]
        command = ["{workdir}/a", "{tile}", "{output}"]
        timeout = 2.5
        repeats = 4
        warmup = 1
        [read]
        pattern = '(\\S+) ms'
        [validate]
        method = "bitexact"
        [environment]
        OMP_PROC_BIND = "true"
        """
    )
    one, other = read_spec(tmp_path / "a.json"), read_spec(tmp_path / "a.toml")
    assert one.text == other.text
    assert [list(it.values) for it in one.parameters[1:4]] == [
        [4, 8, 16, 32, 64],
        [1, 3, 5, 7],
        [-1, 0, 1],
    ]
    assert one.read.source == "stdout" and one.directory == tmp_path
    assert one.unused_parameters == ("unroll", "shift", "fast", "ratio")


def test_the_text_of_a_program_is_read_back(tmp_path: Path) -> None:
    program = program_of(SPEC, tmp_path)
    again = program_of_text(program.text, tmp_path)
    assert again.text == program.text
    assert again.identity == program.identity
    assert parameters_of_text(program.text) == program.parameters


def test_candidates_have_the_values_that_were_given(tmp_path: Path) -> None:
    space = program_of(SPEC, tmp_path).space()
    config = {
        "level": "-O3",
        "tile": 32,
        "unroll": 3,
        "shift": -1,
        "fast": False,
        "ratio": 0.75,
    }
    found = space.decode(space.encode(config))
    assert found == config
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in config.items()
    }


@pytest.mark.parametrize(
    "path,value",
    [
        ("name", "other"),
        ("parameters/tile/powers_of_two/to", 128),
        ("constraints", []),
        ("build/timeout", 6),
        ("run/timeout", 6),
        ("run/repeats", 9),
    ],
)
def test_programs_that_measure_the_same_are_one(path: str, value: object, tmp_path: Path) -> None:
    one, other = program_of(SPEC, tmp_path), program_of(changed(path, value), tmp_path)
    assert one.identity == other.identity
    assert one.space().sketch.workload.digest == other.space().sketch.workload.digest


@pytest.mark.parametrize(
    "path,value",
    [
        ("build/command", "cc {level} -g -o {workdir}/a"),
        ("run/command", "{workdir}/a {tile} -v {output}"),
        ("parameters/tile/default", 32),
        ("unit", "us"),
        ("environment/OMP_PROC_BIND", "false"),
        ("validate/method", "allclose"),
    ],
)
def test_programs_that_measure_something_else_are_two(
    path: str, value: object, tmp_path: Path
) -> None:
    one, other = program_of(SPEC, tmp_path), program_of(changed(path, value), tmp_path)
    assert one.space().sketch.workload.digest != other.space().sketch.workload.digest


def test_files_that_commands_name_are_part_of_a_program(tmp_path: Path) -> None:
    source, header = tmp_path / "a.c", tmp_path / "a.h"
    source.write_text("1")
    header.write_text("1")
    spec = {**changed("build/command", "cc {level} a.c -o {workdir}/a"), "files": ["a.h"]}
    seen = [program_of(spec, tmp_path).identity]
    for path in (source, header):
        path.write_text("2")
        seen.append(program_of(spec, tmp_path).identity)
    assert len(set(seen)) == 3


@pytest.mark.parametrize(
    "path,value,message",
    [
        ("run", None, "it lacks 'run'"),
        ("parameters", None, "it lacks 'parameters'"),
        ("parameters", {}, "there are no parameters to tune"),
        ("parameters", [1], "parameters: a table with keys is needed"),
        ("parameters/tile", 8, "parameter 'tile': a table with keys is needed"),
        ("parameters/tile", {}, "has no values; it needs one of values, range"),
        ("parameters/tile", {"values": 3}, "a list is needed, not 3"),
        ("parameters/tile/default", 5, "'tile' cannot be 5; allowed: 4, 8, 16, 32, 64"),
        ("parameters/tile/powers_of_two/to", 12, "go from one power of two to another"),
        ("parameters/unroll/range/step", 0, "by a positive step"),
        ("parameters/unroll/range/to", 10**9, "values; there can be 4096"),
        ("parameters/level/values", ["a", "a"], "has value 'a' twice"),
        ("parameters/level/values", [[]], "values are numbers, texts or truth values"),
        ("constraints", "x", "constraints is not a list: 'x'"),
        ("constraints", [3], "constraints is not a text: 3"),
        ("name", 3, "name is not a text: 3"),
        ("run/command", 3, "run.command: a command is a text or a list of texts, not 3"),
        ("build", {}, "build lacks 'command'"),
        ("build/timeout", -1, "build.timeout must be a positive number"),
        ("run/timeout", True, "run.timeout is not a number: True"),
        ("run/repeats", 1.5, "run.repeats is not a whole number: 1.5"),
        ("run/repeats", 0, "run.repeats must be a whole number from 1"),
        ("run", {"command": "a", "function": "b:c"}, "run has a command or a function"),
        ("run", {"function": "b"}, "run.function is module:function, not 'b'"),
        ("read", {"from": "stdout"}, "'stdout' needs read.pattern"),
        ("read", {"from": "wall", "field": "a"}, "'wall' takes no read.field"),
        ("read/pattern", "(", "is no regular expression"),
        ("read/pattern", "[0-9]+", "has 0 groups; it needs one"),
        ("read", {"from": "function"}, "needs run.function"),
        ("read", {"from": "wall"}, "is in seconds: leave out the unit"),
        ("validate/rtol", -1, "validate.rtol must be 0 or more"),
        ("validate/dtype", "object", "is none of numpy's"),
        ("validate/reference", "gone.npy", "there is no file 'gone.npy'"),
        ("run/command", "{workdir}/a {tile}", "put {output} into run.command"),
        ("parameters/tile", [4, 8], "there is no default of tile"),
        ("environment/A", 3, "environment variable 'A' cannot be 3"),
        ("environment/A=B", "3", "environment variable 'A=B' cannot be"),
        ("files", ["gone"], "there is no file 'gone'"),
        ("directory", "gone", "there is no folder"),
        ("parameters/threads", [1, 2], "'threads', which commands use otherwise"),
    ],
)
def test_what_is_no_spec(path: str, value: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=re.escape(message)):
        program_of(changed(path, value), tmp_path)


@pytest.mark.parametrize(
    "path,value,near",
    [
        ("paramters", {}, "parameters"),
        ("run/comand", "a", "command"),
        ("read/feld", "a", "field"),
        ("validate/rtoll", 1, "rtol"),
        ("parameters/tile/defualt", 1, "default"),
        ("unit", "1/m", "1/ms"),
        ("validate/method", "alclose", "allclose"),
        ("run/command", "{workdir}/a {otput} {output}", "output"),
    ],
)
def test_an_unknown_word_is_named_with_what_is_near(
    path: str, value: object, near: str, tmp_path: Path
) -> None:
    with pytest.raises(UnknownNameError, match=f"Did you mean .*'{near}'"):
        program_of(changed(path, value), tmp_path)


def test_a_placeholder_is_a_name_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="placeholder in run.command: 'tile.__class__'"):
        program_of(changed("run/command", "cc {tile.__class__} {output}"), tmp_path)


@pytest.mark.parametrize(
    "path,value,message",
    [
        ("constraints", ["tile < 1"], "no configuration satisfies 'tile < 1'"),
        ("constraints", ["__import__('os')"], "it calls a function"),
        ("constraints", ["tile.real < 3"], "is not allowed"),
        ("constraints", ["tiel < 3"], "unknown parameter in constraint 'tiel < 3'"),
        ("constraints", ["tile > 16"], "is not feasible: it breaks 'tile > 16'"),
    ],
)
def test_what_is_no_space(path: str, value: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(AutotuneError, match=re.escape(message)):
        program_of(changed(path, value), tmp_path).space()


@pytest.mark.parametrize(
    "name,text,message",
    [
        ("a.toml", "= 3", "is no TOML"),
        ("a.json", "{", "is no JSON"),
        ("a.json", "[]", "a spec: a table with keys is needed"),
        ("a.json", "[" * 100_000, "is no JSON"),
    ],
)
def test_what_is_no_file_of_a_spec(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidValueError, match=message):
        read_spec(tmp_path / name)
    with pytest.raises(InvalidValueError, match="No such file"):
        read_spec(tmp_path / "gone.toml")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.sampled_from(["parameters", "run", "read", "build", "validate", "constraints"]), JSON)
def test_whatever_is_given_ends_in_an_error_of_ours(key: str, value: object) -> None:
    try:
        program_of({**SPEC, key: value}, ".")
    except AutotuneError as error:
        assert str(error)


def test_parameters_of_python() -> None:
    assert parameter_of("n", range(2, 9, 3)).values == (2, 5, 8)
    assert parameter_of("n", ("a", "b")).values == ("a", "b")


@settings(max_examples=40)
@given(
    st.sampled_from(["s", "ms", "us", "ns", "1/s", "1/ms", "1/us", "1/ns"]), st.floats(1e-3, 1e9)
)
def test_units_there_and_back(unit: str, number: float) -> None:
    base = program_of({**SPEC, "unit": "s"}, ".")
    program: ExternalProgram = evolve(base, unit=unit)
    assert program.value(program.seconds(number)) == pytest.approx(number)
    # A larger rate is a smaller latency, and a longer time a larger one.
    assert (program.seconds(2 * number) < program.seconds(number)) == unit.startswith("1/")
