"""The commands on whole networks."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_lines import Done, refused
from model_lines import BUILD_MODEL, MODEL, MODEL_TASKS, TUNE_MODEL
from onnx_models import model_of
from python_processes import python_environment

from autotune import load_network
from autotune.cli.progress import (
    LiveNetworkProgress,
    PlainNetworkProgress,
    total_latency_log,
)
from autotune.errors import UnsupportedTarget
from autotune.store.records import Outcome
from autotune.store.sqlite import open_database
from autotune.targets import Target
from autotune.testing.reference_backend import ReferenceBackend
from autotune.tuning.events import (
    BaselineMeasured,
    Event,
    NetworkLoaded,
    NetworkTaskFacts,
    PassFinished,
    RunFinished,
    RunStarted,
    WarningRaised,
    read_events,
)

MODELS = """
import attrs
from autotune.testing.reference_frontend import three_layers
def number(): return 5
def unsupported(): return attrs.evolve(three_layers()[0], unsupported="scale")
def short(): return three_layers()[0], three_layers()[1][0][:3]
def slow():
    while True: pass
def dead(): raise ValueError("weights are missing")
def quits(): raise SystemExit(3)
"""


def error_line(done: Done) -> str:
    """The one line of a command that failed, beside warnings."""
    assert done.status == 2 and done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert line.startswith("autotune: error: ")
    return line


def test_the_tasks_of_a_model(cli: Any) -> None:
    done = cli(*MODEL_TASKS, "-v", "--json", "tasks.json")
    assert done.status == 0, done.stderr
    assert "can be tuned: 2 of 2 tasks, 3 of 3 calls, 100 % of the flop" in done.stdout
    assert "pass check, " in done.stderr and "pass number, " in done.stderr
    data = json.loads(Path("tasks.json").read_text())
    assert [(it["name"], it["occurrences"]) for it in data["tasks"]] == [
        ("first", 2),
        ("scale", 1),
    ]
    assert data["tunable_flop"] == data["flop"] and data["space"] == "sketch"
    (line,) = cli(*MODEL_TASKS).stderr.splitlines()
    assert line.endswith("three_layers: read; its graph is being prepared")


def test_a_model_is_tuned_built_and_built_again(cli: Any) -> None:
    outputs = ("--json", "model.json", "--total-latency", "totals.tsv", "--log", "run.jsonl")
    done = cli(*TUNE_MODEL, *outputs, "-o", "model.so")
    assert done.status == 0, done.stderr
    assert "tuned: 2 of 2 tasks" in done.stdout and "in network" in done.stdout
    assert "12/12 trials" in done.stderr and "total latency" in done.stderr
    data = json.loads(Path("model.json").read_text())
    assert data["schema"] == "autotune.model_result" and data["trials"] == 12
    assert data["measured"]["latency"] > 0
    head, *lines = Path("totals.tsv").read_text().splitlines()
    assert head.split("\t") == ["seconds", "trials", "total_latency"]
    assert float(lines[-1].split("\t")[2]) == pytest.approx(data["latency"])
    kinds = [type(event) for event in read_events(Path("run.jsonl").read_text().splitlines())]
    assert kinds.index(NetworkLoaded) == kinds.count(PassFinished) == 2
    assert "three_layers: read; its graph is being prepared" in done.stderr
    saved = Path("model.so").read_text()
    again = cli(*BUILD_MODEL, "-o", "again.so")
    assert again.status == 0, again.stderr
    assert Path("again.so").read_text() == saved
    answered = cli(*TUNE_MODEL, "--total-latency", "totals.tsv")
    assert "answered from run" in answered.stderr and answered.status == 0
    assert Path("totals.tsv").read_text().count("seconds") == 1, "one heading"


def test_progress_can_be_left_out(cli: Any) -> None:
    done = cli(*TUNE_MODEL, "--quiet", "--json", "-")
    assert done.status == 0 and "trials" in json.loads(done.stdout)
    assert "12/12" not in done.stderr and "run by" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'SOURCE'"),
        (("missing.onnx",), "there is no file 'missing.onnx'"),
        (("given_sources:number",), "int is no model that can be read"),
        (("given_sources:unsupported",), "node 'scale': operator 'reference.unknown' cannot be"),
        (
            ("given_sources:short",),
            "axis 0 of input 'A' of three_layers is of length 16, and 3 in [3, 16]",
        ),
        (("given_sources:dead",), "given_sources:dead failed: ValueError: weights are missing"),
        (("given_sources:quits",), "given_sources:quits failed: SystemExit: 3"),
        (("folder.onnx",), "'folder.onnx' is no file; name a model file"),
        (("folders.onnx",), "there is no file 'folders.onnx'; name a file, or a function"),
        (("--network", "mobilnet_v2"), "unknown network 'mobilnet_v2'; available: .*mobilenet_v2"),
        (("x.onnx", "--network", "gpt2"), "--network gpt2 and SOURCE 'x.onnx' exclude each other"),
        (("x.onnx", "--size", "layers=2"), "--size needs the network that it is of"),
        pytest.param(
            ("--network", "gpt2", "--size", "layers=two"),
            "layers must be a whole number",
            marks=pytest.mark.needs("zoo"),
        ),
    ],
)
@pytest.mark.parametrize("command", ["tune-model", "build-model", "model-tasks"])
def test_a_model_that_cannot_be_read_is_one_line(
    command: str, arguments: tuple[str, ...], message: str, cli: Any
) -> None:
    Path("given_sources.py").write_text(MODELS)
    Path("folder.onnx").mkdir()
    (frontend,) = [MODEL_TASKS[at + 1] for at, it in enumerate(MODEL_TASKS) if it == "--frontend"]
    if command == "build-model":
        cli(*TUNE_MODEL, "--quiet", "--no-check")
    done = cli(command, *arguments, "--frontend", frontend, "--threads", "1")
    line = error_line(done)
    assert re.search(message.replace("[", r"\[").replace("(", r"\("), line), line


REFUSED = "there is no such device here"


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs can be compiled for the target, and not be timed."""

    def refuse(backend: ReferenceBackend, target: Target, threads: int = 1) -> None:
        raise UnsupportedTarget(REFUSED)

    monkeypatch.setattr(ReferenceBackend, "check_measuring", refuse)


@pytest.mark.usefixtures("no_device")
def test_tasks_are_listed_without_the_device_that_they_are_for(cli: Any) -> None:
    done = cli(*MODEL_TASKS)
    assert done.status == 0 and "can be tuned: 2 of 2 tasks" in done.stdout


@pytest.mark.usefixtures("no_device")
def test_a_network_is_built_without_the_device_that_it_is_for(cli: Any) -> None:
    with open_database(cli.folder / "autotune.db"):
        pass
    assert cli(*BUILD_MODEL).status == 0


@pytest.mark.usefixtures("no_device")
def test_a_device_that_is_not_here_is_said_before_the_model_is_made(cli: Any) -> None:
    """The model would fail, too: what is said first is what was looked at first."""
    Path("given_sources.py").write_text(MODELS)
    done = cli(*("given_sources:dead" if it == MODEL[0] else it for it in TUNE_MODEL))
    assert (done.status, done.stderr) == (2, f"autotune: error: {REFUSED}\n")


UNUSABLE = [
    ((*BUILD_MODEL, "--backend", "native"), "are built by backend .*, and not by 'native'"),
    ((*MODEL_TASKS, "--space-option", "rulse=1"), "'sketch' has no option 'rulse'"),
    ((*MODEL_TASKS, "--space", "no_such_module:Space"), "'no_such_module:Space' .*be imported"),
    ((*TUNE_MODEL, "--backend", "native"), "are built by backend .*, and not by 'native'"),
    ((*TUNE_MODEL, "--space-option", "rulse=1"), "'sketch' has no option 'rulse'"),
]


@pytest.mark.parametrize(("line", "said"), UNUSABLE)
def test_a_part_that_cannot_be_used_is_said_before_the_model_is_read(
    line: tuple[str, ...], said: str, cli: Any
) -> None:
    with open_database(cli.folder / "autotune.db"):
        pass
    assert re.search(said, refused(cli(*line)))


def test_a_missing_database_is_said_before_the_model_is_made(cli: Any) -> None:
    Path("given_sources.py").write_text(MODELS)
    arguments = ("given_sources:dead" if it == MODEL[0] else it for it in BUILD_MODEL)
    done = cli(*arguments, "--database", "none.db")
    assert done.status == 2
    assert done.stderr == "autotune: error: database 'none.db': there is no such file\n"


def test_a_model_that_takes_all_the_time_to_be_made_is_one_line(cli: Any) -> None:
    Path("given_sources.py").write_text(MODELS)
    done = cli("tune-model", "given_sources:slow", "--time", "0.3", "--threads", "1", "--quiet")
    line = error_line(done)
    assert line.startswith("autotune: error: given_sources:slow: no time was left to tune: 0.3 s")
    assert "while it was made; give it more time (--time)" in line


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--input", "a=16,16"), "unknown input of three_layers 'a'; available: A"),
        (("--input", "A=16"), "input 'A' has the axes .16, 16., and not one element"),
        (("--input", "A=8,16"), "axis 0 of input 'A' of .* is of length 16, and 8"),
        (("--input", "A=none.npy"), "input 'A': 'none.npy' cannot be read as an array"),
        (("--input", "A"), "--input 'A' is not of the form NAME=SHAPE, NAME=FILE.npy or"),
        (("--dim", "batch=1"), "unknown axis of three_layers 'batch'; available: none"),
        (("--dim", "batch=one"), "--dim: batch must be a whole number, not 'one'"),
    ],
)
@pytest.mark.parametrize("command", ["tune-model", "model-tasks"])
def test_lengths_and_inputs_are_checked(
    command: str, given: tuple[str, ...], message: str, cli: Any
) -> None:
    done = cli(command, *MODEL, *given)
    assert re.search(message, error_line(done)), done.stderr


def test_a_warm_start_contradicts_fresh(cli: Any) -> None:
    done = cli(*TUNE_MODEL, "--fresh", "--warm-start")
    assert done.status == 2 and "leave out one of them" in done.stderr and cli.files() == set()


NATIVE = """
import hashlib, pathlib, time
def endless():
    pathlib.Path("began").write_text(str(time.process_time()))
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""

# Imports are no part of its time here: on a busy machine they take longer than all the rest.
COMMAND = """
import autotune.cli.tune_model, autotune.networks.api, autotune.testing.reference_frontend
from autotune.cli.app import run
raise SystemExit(run(["tune-model", "native_code:endless", "--time", "5", "--quiet"]))
"""


def processor_seconds() -> float:
    """Of processes that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.slow
@pytest.mark.promise(
    "native code holds up the import of a network for longer than `--time`",
    "within five seconds after it one line says what was being done, and the exit status is 2",
)
def test_native_code_that_outlasts_the_call_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "native_code.py").write_text(NATIVE)
    before = processor_seconds()
    done = subprocess.run(
        [sys.executable, "-c", COMMAND],
        cwd=tmp_path,
        env=python_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2 and done.stdout == ""
    # It computes all the time: what counts is how long it could, not what others took from it.
    used = processor_seconds() - before - float((tmp_path / "began").read_text())
    assert used < 5 + 5
    (line,) = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert "native_code:endless: no time was left to tune: 5 s were over while it was made" in line


OBJECTIVES = """
limit = 3.0
def total(latencies): return sum(latencies.values())
def decoder(latencies): return latencies["decoder"]
def nothing(latencies): return None
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("total", "--objective 'total' is neither a function, package.module:function, nor"),
        ("objectives:totl", "'objectives' has no 'totl'; did you mean 'total'"),
        ("objectives:limit", "is of type float; name a function that takes the latencies"),
        ("objectives:decoder", "objective objectives:decoder failed .*KeyError: 'decoder'"),
        ("objectives:nothing", "objectives:nothing returned None .*a finite number"),
        ("scale=0", "--objective: scale must be a positive number, not '0'"),
        ("scael=2", "unknown task 'scael'.* Did you mean 'scale'"),
    ],
)
def test_an_objective_that_cannot_be_used_is_one_line(text: str, message: str, cli: Any) -> None:
    Path("objectives.py").write_text(OBJECTIVES)
    done = cli(*TUNE_MODEL, "--objective", text, "--no-check", "--quiet")
    assert re.search(message, error_line(done)), done.stderr


@pytest.mark.parametrize("text", ["objectives:total", "scale=5"])
def test_the_budget_follows_the_objective(text: str, cli: Any) -> None:
    Path("objectives.py").write_text(OBJECTIVES)
    done = cli(*TUNE_MODEL, "--objective", text, "--no-check")
    assert done.status == 0, done.stderr
    assert "12/12 trials" in done.stderr


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("operator", ["Reshape", "TopK"])
def test_a_model_with_nothing_to_tune_is_built_all_the_same(operator: str, cli: Any) -> None:
    names = ["y"] if operator == "Reshape" else ["largest", "places"]
    types = ("float32", "int64")
    shape = (8, 2) if operator == "Reshape" else (4, 2)
    model = model_of(
        [onnx.helper.make_node(operator, ["x", "of"], names)],
        {"x": ("float32", (4, 4))},
        {name: (kind, shape) for name, kind in zip(names, types, strict=False)},
        {"of": np.array(shape if operator == "Reshape" else [2])},
    )
    onnx.save(model, "moved.onnx")
    done = cli("tune-model", "moved.onnx", "--trials", "4", "--threads", "1", "-o", "moved.so")
    assert done.status == 0, done.stderr
    assert "there is nothing to tune" in done.stdout and "an inference" in done.stdout
    given = np.random.default_rng(0).permutation(16).reshape(4, 4).astype(np.float32)
    found = np.asarray(load_network("moved.so")(given)[0])
    wanted = given.reshape(shape) if operator == "Reshape" else -np.sort(-given)[:, :2]
    np.testing.assert_array_equal(found, wanted)
    listed = cli("model-tasks", "moved.onnx", "--threads", "1")
    assert listed.status == 0 and "0 of 0 tasks" in listed.stdout


def test_without_records_there_is_nothing_to_build(cli: Any) -> None:
    done = cli(*BUILD_MODEL)
    assert done.status == 2 and "autotune.db" in done.stderr


def events() -> list[Event]:
    facts = (
        NetworkTaskFacts("small", 1, 10.0, True),
        NetworkTaskFacts("large", 3, 1e6, True),
        NetworkTaskFacts("view", 1, 0.0, False),
    )

    def started(task: str) -> RunStarted:
        return RunStarted("run", task, "aa", 1, 8, None, 0, {}, {}, None, 2.5, "db", 1, 1)

    return [
        PassFinished("net", "fuse", 0.5, "3 functions"),
        NetworkLoaded("net", facts),
        started("small"),
        started("large"),
        WarningRaised("large", "something odd"),
        BaselineMeasured("small", Outcome("ok", 1e-3)),
        BaselineMeasured("large", Outcome("ok", 2e-3)),
        RunFinished("run", "small", 0, "the time is over", None),
        RunFinished("run", "large", 0, "the time is over", None),
    ]


PREPARED = "net: read; its graph is being prepared"


@pytest.mark.parametrize("verbose", [False, True])
def test_what_is_worth_a_line_is_said_once(verbose: bool) -> None:
    stream = io.StringIO()
    progress = PlainNetworkProgress(stream, verbose)
    for event in events():
        progress(event)
    lines = stream.getvalue().splitlines()
    passes = ["net: pass fuse, 500 ms: 3 functions"] if verbose else [PREPARED]
    assert lines == [
        *passes,
        "net: 5 calls of 3 tasks, of which 1 is not tuned",
        "net: resuming run run after 2.50 s",
        "large: warning: something odd",
        "net: done: the time is over",
    ]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (events()[:2], "no task was tuned"),
        (
            [it for it in events() if not isinstance(it, BaselineMeasured)],
            "2 tasks that were tuned got no latency",
        ),
        (events(), ""),
    ],
)
def test_totals_that_are_not_written_are_said(
    seen: list[Event], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "totals.tsv"
    with total_latency_log(str(path)) as (log,):
        for event in seen:
            log(event)
    stderr = capfd.readouterr().err
    assert path.exists() is not bool(said)
    assert (f"{str(path)!r}: nothing was written: {said}" in stderr) is bool(said)


def test_the_display_has_the_largest_share_first() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with LiveNetworkProgress(stream, clock=lambda: 0.0) as live:
        live._console.width = 120
        for event in events():
            live(event)
        shown = live._console.render_lines(live._render())
    text = ["".join(part.text for part in line).rstrip() for line in shown]
    rows = [line.split() for line in text]
    (large,) = [at for at, row in enumerate(rows) if row and row[0] == "large"]
    assert rows[large][:6] == ["large", "3", "86", "%", "0", "2.00"]
    assert rows[large + 1][0] == "small"
    assert any(line == "total latency 7.00 ms estimated" for line in text)


def test_what_a_package_logs_is_no_second_line(spawn: Any, tmp_path: Path) -> None:
    text = "import logging\ndef model(): logging.error('a trace'); raise ValueError('no weights')"
    (tmp_path / "logging_source.py").write_text(text)
    stdout, stderr = spawn("model-tasks", "logging_source:model").communicate(timeout=300)
    assert stdout == "" and stderr.splitlines() == [
        "autotune: error: logging_source:model failed: ValueError: no weights"
    ]
