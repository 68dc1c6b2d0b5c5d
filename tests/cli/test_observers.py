"""Observers on the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toy_parts import REFERENCE_BACKEND

BACKEND = ("--backend", REFERENCE_BACKEND)


def test_readings_are_in_the_result_the_record_and_what_is_shown(cli: Any) -> None:
    done = cli.tune_with_workers("--trials", "4", "--observe", "perf", "--json", "out.json")
    assert done.status == 0, done.stderr
    best = json.loads((cli.folder / "out.json").read_text())["best"]
    readings = best["readings"]
    assert readings["perf/page_faults_per_call"] >= 0
    shown = json.loads(cli("show", "--json", "-", *BACKEND).stdout)
    assert shown["record"]["outcome"]["readings"] == readings
    text = cli("show", *BACKEND).stdout
    assert "\nReadings\n" in text and "perf/page_faults_per_call" in text
    for name, value in readings.items():
        if value is None:
            (line,) = (line for line in text.splitlines() if line.startswith(f"{name} "))
            assert line.split() == [name, "absent"]
    only = cli("show", "--part", "readings").stdout
    assert "perf/context_switches_per_call" in only and "Steps" not in only


def test_without_observers_there_is_nothing_to_show(tuned_cli: Any) -> None:
    assert json.loads((tuned_cli.folder / "out.json").read_text())["best"]["readings"] == {}
    assert "Readings" not in tuned_cli("show", *BACKEND).stdout
    assert "nothing was observed" in tuned_cli("show", "--part", "readings").stdout


@pytest.mark.slow
def test_what_is_absent_is_said_once(cli: Any) -> None:
    done = cli.tune_with_workers("--trials", "8", "--observe", "faulty_observers:Missing")
    assert done.status == 0
    assert done.stderr.count("no meter was ever built") == 1, done.stderr


def test_an_unknown_observer(cli: Any) -> None:
    done = cli.tune("--observe", "pref")
    assert done.status == 2 and cli.files() == set()
    assert done.stderr.startswith("autotune: error: unknown observer 'pref'; available: ")
    assert "Did you mean 'perf'?" in done.stderr


def test_observers_are_listed(cli: Any) -> None:
    listed = json.loads(cli("plugins", "--json", "-").stdout)
    found = {part["name"] for part in listed if part["kind"] == "observer"}
    assert found >= {"perf", "energy"}
