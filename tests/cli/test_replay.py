"""``autotune replay`` and ``records convert``: what they show, and bad input in one line."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from command_lines import refused
from python_processes import start_python
from read_page import read_page
from recorded_spaces import cache_entry, kernel_tuner_cache, small_space, t1_data

from autotune.evaluation.replay.formats import read_space, space_bytes

needs_libraries = pytest.mark.needs("report")
CACHE = kernel_tuner_cache()
QUICK = ("--seeds", "3", "--budget", "20", "--strategies", "random,grid,felix", "--quiet")


@pytest.fixture
def folder(cli: Any) -> Path:
    """The folder of the command line, with two spaces."""
    for name in ("bowl-one.json", "bowl-two.t4.json.gz"):
        path = cli.folder / name
        path.write_bytes(space_bytes(small_space("bowl-x"), None, str(path)))
    return Path(cli.folder)


@needs_libraries
def test_strategies_are_compared(cli: Any, folder: Path) -> None:
    outputs = ("--plot", "scores.svg", "-o", "page.html", "--json", "summary.json")
    spaces = ("bowl-one.json", "bowl-two.t4.json.gz")
    done = cli("replay", *spaces, *QUICK, *outputs, "--against", "grid")
    assert done.status == 0 and done.stderr == ""
    for text in ("Strategies", "P20 by space", "Compared with grid", "loop nests"):
        assert text in done.stdout
    told = json.loads((folder / "summary.json").read_text())
    assert [it["name"] for it in told["spaces"]] == ["bowl-one", "bowl-two"]
    assert [it["strategy"] for it in told["strategies"]] == ["random", "grid"]
    assert {it["strategy"] for it in told["left_out"]} == {"felix"}
    (difference,) = told["differences"]
    assert difference["strategy"] == "random" and difference["to_budget"]["pairs"] == 6
    assert (folder / "scores.svg").read_text().startswith("<svg ")
    page = read_page((folder / "page.html").read_text())
    assert page.titles["strategies"] == "Strategies" and len(page.images) == 3
    # Its own files are replaced.
    assert cli("replay", *spaces, *QUICK, *outputs).status == 0


def test_runs_that_are_there_are_not_made_again(cli: Any, folder: Path) -> None:
    command = ("replay", "bowl-one.json", *QUICK, "--results", "runs.jsonl", "--json")
    assert cli(*command, "one.json").status == 0
    lines = (folder / "runs.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 6
    assert cli(*command, "two.json").status == 0
    assert (folder / "runs.jsonl").read_bytes() == b"".join(lines)
    assert (folder / "one.json").read_text() == (folder / "two.json").read_text()
    # What is lost is made again, and only that.
    (folder / "runs.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:30])
    assert cli(*command, "three.json").status == 0
    again = (folder / "runs.jsonl").read_bytes().splitlines(keepends=True)
    assert again[:4] == lines[:4] and len(again) == 6
    steps = [json.loads(line)["steps"] for line in again]
    assert steps == [json.loads(line)["steps"] for line in lines]


def test_an_interrupt_keeps_what_was_done(folder: Path) -> None:
    command = ("-m", "autotune", "replay", "bowl-one.json")
    options = ("--strategies", "random", "--seeds", "100000", "--results", "runs.jsonl")
    process = start_python(*command, *options, cwd=folder)
    results = folder / "runs.jsonl"
    while not (results.exists() and results.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert "random" in stdout and "interrupted after" in stderr
    assert "runs.jsonl keeps them" in stderr
    kept = results.read_text().splitlines()
    assert len(kept) >= 3 and all(json.loads(line)["strategy"] == "random" for line in kept)


@pytest.mark.parametrize(
    ("files", "arguments", "message"),
    [
        ({"a.json": {}}, (), "'a.json' is no recorded space"),
        ({"a.json": CACHE, "t1": t1_data("max(block) < 3")}, (), "calls a function"),
        ({"a.json": CACHE, "t1": t1_data("block < 8")}, (), "breaks the constraint"),
        (
            {"a.json": CACHE, "b.json": kernel_tuner_cache(cache_entry(4, 1, 2000.0))},
            (),
            "is in another unit",
        ),
        ({"a.json": CACHE}, ("--unit", "a=days"), "unknown unit of time in a 'days'"),
        ({"a.json": CACHE}, ("--strategies", "rndom"), "unknown strategy 'rndom'"),
        ({"a.json": CACHE}, ("--time", "-1"), "above 0 s, not -1.0"),
        ({"a.json": CACHE}, ("--results", "a.json"), "would replace it"),
        ({"a.json": CACHE}, ("--database", "no.db"), "no.db"),
    ],
)
def test_bad_input_is_one_line(
    cli: Any, files: dict[str, Any], arguments: tuple[str, ...], message: str
) -> None:
    for name, data in files.items():
        (cli.folder / name).write_text(json.dumps(data))
    described = ("--parameters", "t1") if "t1" in files else ()
    spaces = [name for name in files if name != "t1"]
    assert message in refused(cli("replay", *spaces, *described, *arguments))


def test_nothing_to_replay_is_said(cli: Any, folder: Path) -> None:
    done = cli("replay", "bowl-one.json", "--strategies", "felix", "--quiet")
    assert done.status == 1 and "no run was made" in done.stdout and "loop nests" in done.stdout


def test_options_of_strategies_are_passed_on(cli: Any, folder: Path) -> None:
    options = ("--strategy-option", "evolutionary.population=8", "--seeds", "1", "--budget", "5")
    done = cli("replay", "bowl-one.json", "--strategies", "evolutionary", *options, "--quiet")
    assert done.status == 0 and "evolutionary[population=8]" in done.stdout


@pytest.mark.parametrize("name", ["new.json", "new.t4.json", "new.t4.json.gz", "new.t1.json"])
def test_spaces_are_converted(cli: Any, folder: Path, name: str) -> None:
    command = ("records", "convert", "bowl-one.json", name, "--json", "-")
    done = cli(*command)
    assert done.status == 0
    told = json.loads(done.stdout)
    assert told["configurations"] == 360 and told["file"] == name and told["parameters"] == 5
    if "t1" in name:
        described = cli("replay", "bowl-one.json", *QUICK, "--parameters", name)
        assert described.status == 0
    else:
        one, other = read_space(str(folder / name)), read_space(str(folder / "bowl-one.json"))
        assert (sorted(one.seconds) == sorted(other.seconds)) and len(one) == 360
    assert cli(*command).status == 0, "its own file is replaced"
    (folder / name).write_bytes(b"mine")
    assert "is no recorded space: it is kept" in refused(cli(*command))


@pytest.mark.parametrize(
    ("name", "message"), [("new.csv", "ends in none of .t1.json"), ("-", "has no format")]
)
def test_a_file_without_a_format_is_refused(
    cli: Any, folder: Path, name: str, message: str
) -> None:
    assert message in refused(cli("records", "convert", "bowl-one.json", name))
    assert not (folder / name).exists()
