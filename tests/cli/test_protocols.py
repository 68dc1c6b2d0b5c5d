"""``--protocol``."""

from __future__ import annotations

import json
from typing import Any

import attrs
import click
import pytest

from autotune.cli.app import command_group
from autotune.cli.options import read_protocol, settings
from autotune.errors import AutotuneError
from autotune.measure import PHASES, PROTOCOLS, MeasureProtocol
from autotune.testing.reference_backend import SCRIPT_VARIABLE

MEASURING = ("tune", "tune-model", "tune-external", "compare", "train record")


def command_of(name: str) -> click.Command:
    found: Any = command_group
    for word in name.split():
        found = found.get_command(None, word)
    assert isinstance(found, click.Command)
    return found


@pytest.mark.parametrize("name", MEASURING)
def test_every_command_that_measures_takes_it(name: str) -> None:
    assert "--protocol" in {flag for option in command_of(name).params for flag in option.opts}


def test_every_field_and_every_deadline_is_a_setting() -> None:
    changed: dict[str, Any] = {"cold": True, "pin": False, "memory_bytes": 4_000_000_000}
    default = MeasureProtocol()
    for name in settings():
        field, _, phase = name.partition(".")
        value = changed.get(field, 7)
        read = read_protocol([f"{name}={json.dumps(value)}"])
        given = {"deadlines": {phase: value}} if phase else {field: value}
        assert read == attrs.evolve(default, **given) != default
    assert {name.partition(".")[2] for name in settings()} == {"", *PHASES}


def test_settings_change_a_named_protocol() -> None:
    assert read_protocol([]) == PROTOCOLS["standard"]
    assert read_protocol([], usual="quick") == read_protocol(["quick"]) == PROTOCOLS["quick"]
    changed = read_protocol(["resolution=0.1", "quick", "memory_bytes=4e9"])
    assert changed == attrs.evolve(PROTOCOLS["quick"], resolution=0.1, memory_bytes=4 * 10**9)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["quik"], "unknown measuring protocol 'quik'; .* Did you mean 'quick'"),
        (["quick", "standard"], "takes one named protocol, not quick and standard"),
        (["min_sample=3"], "unknown setting of --protocol 'min_sample'; .* Did you mean 'min_sa"),
        (["deadlines.compile=3"], "'deadlines.compile'; available: .*deadlines.build"),
        (["deadlines=3"], "unknown setting of --protocol 'deadlines'"),
        (["version=4"], "unknown setting of --protocol 'version'"),
        (["pin=true", "pin=false"], "--protocol names 'pin' twice"),
        (["min_samples=x"], "--protocol: min_samples is not a whole number: 'x'"),
        (["min_samples=2.5"], "min_samples is not a whole number: 2.5"),
        (["cold=1"], "cold is not true or false: 1"),
        (["memory_bytes=0"], "memory_bytes must be positive, not 0"),
        (["deadlines.build=-1"], "the deadline of build must be positive: -1"),
        (["deadlines.build=soon"], "--protocol: .*is not a number: 'soon'"),
        (["limit_seconds=1e999"], "limit_seconds must be finite, not '1e999'"),
    ],
)
def test_mistakes(texts: list[str], words: str) -> None:
    with pytest.raises(AutotuneError, match=words):
        read_protocol(texts)


def test_a_deadline_ends_a_slow_build(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps({"build_seconds": 60.0}))
    done = cli.tune_with_workers(
        *("--trials", "1", "--json", "out.json", "--protocol", "deadlines.build=0.2")
    )
    assert done.status == 1, done.stderr
    assert json.loads((cli.folder / "out.json").read_text())["outcomes"]["timeout"] == 1


def test_what_decides_the_numbers_is_part_of_the_records(cli: Any) -> None:
    options = ("--trials", "1", "--database", "records.db", "--quiet")
    found = set()
    for text in ("max_samples=4", "deadlines.build=9"):
        assert cli.tune(*options, "--protocol", text).status == 0
        records = json.loads(cli("best", "--database", "records.db", "--json", "-").stdout)
        found |= {record["key"]["protocol"].rpartition("+")[0] for record in records}
    assert found == {read_protocol(["max_samples=4"]).identity, MeasureProtocol().identity}
