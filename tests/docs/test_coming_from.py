"""Every row of the page for those who come from another tuner, run with a tiny budget.

Operators are tuned by the reference backend in this process, and networks are the three layers of
the reference frontend: what a row shows is that its options work together, whatever compiles.
"""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from command_lines import IN_PROCESS
from model_lines import MODEL
from toy_parts import REFERENCE_BACKEND

from autotune.cli.app import command_group, run
from autotune.plugins.known_names import IN_REPOSITORY
from autotune.plugins.manager import manager

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "coming-from.md").read_text(encoding="utf-8")
ROWS = sorted(set(re.findall(r"`(autotune [^`]+)`", PAGE)))
COMMANDS = [row for row in ROWS if " --" in row or "model-tasks" in row]
OPERATORS = [row for row in COMMANDS if row.startswith("autotune tune gemm")]
NETWORKS = [row for row in COMMANDS if " --network " in row]
SMALL = ("--shape", "m=8,n=8,k=8")
BUDGET = {"--trials": "12", "--round-size": "4"}
WITHOUT = ("--runner", "--rpc-tracker", "--rpc-key")
PARTS = {
    "--strategy": "strategy",
    "--cost-model": "cost_model",
    "--pruning-model": "pruning_model",
    "--preset": "preset",
    "--runner": "runner",
    "--load-cost-model": "trained_model",
}


def replaced(words: Sequence[str], values: dict[str, str]) -> list[str]:
    """A command line with other values of options that it has, and with those that it lacks."""
    found = list(words)
    for option, value in values.items():
        if option in found:
            found[found.index(option) + 1] = value
        else:
            found += [option, value]
    return found


def needed(row: str) -> list[str]:
    """Distributions of this repository whose parts a row names."""
    words = shlex.split(row)
    named = [
        (PARTS[option], name)
        for option, value in zip(words, words[1:], strict=False)
        if option in PARTS
        for name in [value]
    ]
    return [
        folder
        for folder, parts in IN_REPOSITORY.items()
        if any(name in parts.get(kind, ()) for kind, name in named)
    ]


LEARNED = re.compile(r"pruner|tenset-mlp|felix-published")


def case(row: str, *, slow: bool = False) -> object:
    """A row to be run, with what it needs beside the core."""
    folders = {"felix", "heron", "mlir", "pruner", "tvm"}.intersection(needed(row))
    learns = LEARNED.search(row) or "felix-mlp" in row or "pacm" in row
    found = {*folders, *(["torch"] if learns else []), *(["heron"] if "--tasks" in row else [])}
    marks = [pytest.mark.needs(*sorted(found))] if found else []
    return pytest.param(row, id=row, marks=[*marks, *[pytest.mark.slow] * slow])


# One for each kind of option; models that learn in torch take seconds.
QUICK = re.compile(r" gemm .*(deadlines\.build|grid|patience|ansor|heron)|total-latency")


def tuned(rows: Sequence[str]) -> list[object]:
    """Rows to be run, of which a few are at every change."""
    return [case(row, slow=QUICK.search(row) is None) for row in rows]


def test_the_page_has_the_rows_that_are_asked_for() -> None:
    assert len(COMMANDS) >= 35 and len(OPERATORS) >= 15 and len(NETWORKS) >= 9
    for word in (
        *('--cost-model pam --target "cuda --model=a100" --psa a100_40', "pam-siamese-update"),
        *("--cost-model mlp", "pam-no-update", "run.py -p dlboost -c quick_start.json"),
        *("felix_tune_network.py", "extract_tasks", "RecordToFile", "ApplyHistoryBest"),
        *("LogEstimatedLatency", "PreloadMeasuredStates", "LocalRPCMeasureContext"),
        *("EmptyBuilder", "RandomTuner", "GridSearchTuner", "GATuner", "XGBTuner"),
    ):
        assert word in PAGE, word


@pytest.mark.parametrize("row", COMMANDS)
def test_its_options_and_parts_exist(row: str) -> None:
    _, *words = shlex.split(row)
    command: click.Command = command_group
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None
        command = found
    command.make_context("autotune", words)
    for option, value in zip(words, words[1:], strict=False):
        if option in PARTS and value != "none":
            kind = PARTS[option]
            known = set(manager().names(kind))
            known |= {name for parts in IN_REPOSITORY.values() for name in parts.get(kind, ())}
            assert value in known


def less_training(row: str) -> list[str]:
    """Options that keep Felix's network from training on 30,000 programs in each round."""
    return ["--cost-model-option", "programs=200"] * ("felix-published" in row)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("row", tuned([row for row in OPERATORS if "--runner" not in row]))
def test_an_operator_is_tuned(row: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = replaced(shlex.split(row)[1:], {**BUDGET, "--shape": SMALL[1], "--threads": "1"})
    words = [*words, "--backend", REFERENCE_BACKEND, *IN_PROCESS, *less_training(row)]
    assert run(words) == 0, capfd.readouterr().err
    shown = capfd.readouterr().out
    assert re.search(r"trials: \d+ \(\d+ ok\)", shown), shown


@pytest.mark.parametrize("row", tuned([row for row in NETWORKS if " tune-model " in row]))
def test_a_network_is_tuned(row: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = replaced(shlex.split(row)[1:], {"--trials": "24", "--round-size": "4"})
    place = words.index("--network")
    words[place : place + 2] = MODEL
    words += [*IN_PROCESS, *less_training(row), "--quiet"]
    assert run(words) in (0, 3), capfd.readouterr().err
    assert "tuned: " in capfd.readouterr().out
    if "--total-latency" in words:
        assert (folder / "total_latency.tsv").read_text().startswith("seconds\ttrials\t")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with records of a product and of a network, and with the files of the examples."""
    folder = tmp_path_factory.mktemp("recorded")
    for file in (
        DOCS / "examples" / "quick_start.toml",
        *(DOCS / "examples/external").glob("*.*"),
    ):
        (folder / file.name).write_bytes(file.read_bytes())
    database = ("--database", str(folder / "records.db"), "--quiet")
    product = ("gemm", "--shape", "m=8,n=8,k=8", "--threads", "1", "--backend", REFERENCE_BACKEND)
    usual = ("--strategy", "random", "--trials", "12", *IN_PROCESS, *database)
    assert run(["tune", *product, *usual]) == 0
    assert run(["tune-model", *MODEL, *usual]) in (0, 3)
    return folder


OTHERS = {
    "autotune show": ("--backend", REFERENCE_BACKEND),
    "autotune records export": (),
    "autotune model-tasks": MODEL,
    "autotune build-model": MODEL,
    "autotune train fit": (),
    "autotune tune --tasks": ("--backend", REFERENCE_BACKEND, "--trials", "4", *IN_PROCESS),
    "autotune compare": ("--backend", REFERENCE_BACKEND, "--round-size", "4", "--seeds", "1"),
    "autotune tune-external": (),
}
SLOW = ("autotune train fit", "autotune compare")


def others() -> list[object]:
    rows = [row for row in COMMANDS if row not in OPERATORS and " tune-model " not in row]
    return [case(row, slow=row.startswith(SLOW)) for row in rows]


@pytest.mark.parametrize("row", others())
def test_another_command_does_what_it_says(
    row: str,
    recorded: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(recorded)
    beginning = next(it for it in OTHERS if row.startswith(it))
    words = shlex.split(row)[1:]
    if "--trials" in words:
        words = replaced(words, {"--trials": "4"})
    if "--network" in words:
        place = words.index("--network")
        del words[place : place + 2]
    if "--shape" in words and "--target" not in words:
        words = replaced(words, {"--shape": SMALL[1]})
    status = run([*words, *OTHERS[beginning]])
    captured = capfd.readouterr()
    assert status == 0, captured.err
    assert captured.out.strip()


@pytest.mark.needs("tvm")
@pytest.mark.parametrize("row", [row for row in OPERATORS if "--runner rpc" in row])
def test_a_runner_that_nobody_listens_for_is_refused_in_one_line(
    row: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # A tracker may listen at the address that the page names.
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        unused = f"127.0.0.1:{reserved.getsockname()[1]}"
    words = replaced(shlex.split(row)[1:], {"--rpc-tracker": unused})
    assert run([*words, "--backend", "tvm"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert unused in line
