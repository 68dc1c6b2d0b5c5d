"""``autotune tune-external``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.app import run

SPEC = """
name = "printer"
unit = "ms"
constraints = ["n + m <= 9"]

[parameters]
n = { values = [5, 3, 4], default = 5 }
m = { range = { from = 1, to = 4, step = 3 }, default = 4 }
mode = { values = ["", "-x"], default = "" }

[run]
command = ["sh", "-c", 'echo "took $1.$2 ms"', "sh", "{n}", "{m}", "{mode}"]
repeats = 1

[read]
pattern = 'took (\\S+) ms'
"""
USUAL = ("--strategy", "grid", "--trials", "12", "--threads", "1", "--quiet")


def tune(cli: Any, spec: str = SPEC, *arguments: str) -> Any:
    (cli.folder / "printer.toml").write_text(spec)
    return cli("tune-external", "printer.toml", *USUAL, *arguments)


@pytest.fixture(scope="module")
def done_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the database and the result of one run, to be copied."""
    folder = tmp_path_factory.mktemp("printer")
    (folder / "printer.toml").write_text(SPEC)
    files = ("--database", str(folder / "autotune.db"), "--json", str(folder / "out.json"))
    assert run(("tune-external", str(folder / "printer.toml"), *USUAL, *files)) == 0
    return folder


@pytest.fixture
def done_cli(cli: Any, done_once: Path) -> Any:
    """Runs commands in a folder where the run has ended."""
    shutil.copytree(done_once, cli.folder, dirs_exist_ok=True)
    return cli


def test_the_best_configuration_is_shown_and_written(done_cli: Any) -> None:
    report = json.loads((done_cli.folder / "out.json").read_text())
    done = tune(done_cli)  # from the records
    assert "best configuration: n=3, m=1, mode=\n" in done.stdout
    assert "default configuration (external)" in done.stdout
    assert report["configuration"] == {
        "values": {"n": 3, "m": 1, "mode": ""},
        "value": pytest.approx(3.1),
        "unit": "ms",
    }
    assert report["baseline"]["name"] == "default configuration"
    assert report["trials"] == 12 and report["outcomes"]["ok"] == 12


def test_other_commands_show_values_for_loop_nests(done_cli: Any) -> None:
    cli = done_cli
    assert "n=3, m=1, mode=" in cli("best").stdout
    (best,) = json.loads(cli("best", "--json", "-").stdout)
    assert best["configuration"] == {"n": 3, "m": 1, "mode": ""}
    shown = cli("show").stdout
    assert "Configuration\n\nn = 3\nm = 1\nmode = ''\n" in shown
    assert "Loop nest" not in shown and "Steps" not in shown
    assert "no symbolic nest" in cli("show", "--part", "nest").stdout
    listed = cli("records", "list").stdout
    assert "default configuration 5.40 ms" in listed and "naive" not in listed
    assert cli("records", "check").status == 0
    explained = cli("explain")
    assert explained.status == 2 and "has no symbolic loop nest" in explained.stderr
    run = json.loads((cli.folder / "out.json").read_text())["run"]["id"]
    untuned = f"{run}/untuned"
    assert "n = 5\nm = 4\n" in cli("show", "--record", untuned).stdout


@pytest.mark.needs("report")
def test_a_page_has_the_configuration(done_cli: Any) -> None:
    done = done_cli("report", "-o", "page.html")
    assert done.status == 0, done.stderr
    page = (done_cli.folder / "page.html").read_text()
    assert "n = 3" in page and "default configuration" in page
    assert "Roofline" not in page and "Loop nest" not in page


def test_records_travel(done_cli: Any) -> None:
    cli = done_cli
    assert cli("records", "export", "records.jsonl").status == 0
    assert cli("records", "import", "records.jsonl", "--database", "other.db").status == 0
    assert "n = 3" in cli("show", "--database", "other.db").stdout


def test_values_are_narrowed(cli: Any) -> None:
    done = tune(cli, SPEC, "--set", "n=4,5", "--set", "mode=", "--json", "-")
    assert done.status == 2 and "--set 'mode=' is not of the form" in done.stderr
    done = tune(cli, SPEC, "--set", "n=4,5", "--json", "-")
    report = json.loads(done.stdout)
    assert report["configuration"]["values"] == {"n": 4, "m": 1, "mode": ""}
    assert report["trials"] == 8


def test_rounds_are_small_unless_given(cli: Any) -> None:
    done = tune(cli, SPEC, "--json", "-", "--log", "a.log")
    assert done.status == 0 and _round_sizes(cli) == {1}
    done = tune(cli, SPEC, "--json", "-", "--log", "a.log", "--fresh", "--round-size", "6")
    assert done.status == 0 and _round_sizes(cli) == {1, 6}


def _round_sizes(cli: Any) -> set[int]:
    events = map(json.loads, (cli.folder / "a.log").read_text().splitlines())
    return {event["candidates"] for event in events if event["event"] == "round_started"}


def test_a_rate_is_shown_in_its_unit(cli: Any) -> None:
    done = tune(cli, SPEC.replace('unit = "ms"', 'unit = "1/us"'))
    assert "best configuration: n=5, m=4, mode=\n" in done.stdout
    assert "its result: 5.4 1/us" in done.stdout


def test_a_parameter_without_a_placeholder_is_warned_of(cli: Any) -> None:
    done = tune(cli, SPEC.replace(', "{mode}"', ""))
    assert done.status == 0
    assert "warning: no command has a placeholder {mode}" in done.stderr


@pytest.mark.parametrize(
    "old,new,message",
    [
        ("{mode}", "{mod}", "unknown placeholder in run.command: 'mod'"),
        ("n + m <= 9", "n + m < 2", "no configuration satisfies 'n + m < 2'"),
        ("took (", "gave (", "the default configuration (n=5, m=4, mode=) ends in invalid"),
        ("[parameters]", "[paramters]", "Did you mean 'parameters'?"),
    ],
)
def test_bad_input_is_one_line(old: str, new: str, message: str, cli: Any) -> None:
    assert old in SPEC
    done = tune(cli, SPEC.replace(old, new))
    assert done.status == 2
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    "arguments,message",
    [
        (("gone.toml",), "cannot read spec 'gone.toml'"),
        ((), "Missing argument 'SPEC'"),
        (("printer.toml", "--set", "n=7"), "--set n=7 leaves out the default 5"),
        (("printer.toml", "--set", "k=7"), "unknown parameter of --set 'k'"),
        (("printer.toml", "--set", "n=5", "--set", "n=4"), "--set names 'n' twice"),
        (("printer.toml", "--strategy", "felix-none"), "unknown strategy 'felix-none'"),
    ],
)
def test_bad_arguments_are_one_line(arguments: tuple[str, ...], message: str, cli: Any) -> None:
    (cli.folder / "printer.toml").write_text(SPEC)
    done = cli("tune-external", *arguments)
    assert done.status == 2
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_all_that_fails_is_no_result(cli: Any) -> None:
    spec = SPEC.replace("default = ", "defaults = ").replace("echo", "exit 3; echo")
    assert tune(cli, spec).status == 2  # no such key
    spec = SPEC.replace(", default = 5", "").replace("echo", "exit 3; echo")
    done = tune(cli, spec)
    assert done.status == 1
    assert "none of 12 candidates was valid (12 crash)" in done.stderr
    assert "exited with status 3 in run" in done.stderr
