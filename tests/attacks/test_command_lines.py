"""Calls that are meant to break something end with one line and status 2, and leave nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from attack_cases import sampled
from command_lines import IN_PROCESS, TUNE, commands
from model_lines import BENCH_MODEL, BUILD_MODEL, MODEL_TASKS, TUNE_MODEL

from autotune.cli.app import command_group

pytestmark = pytest.mark.attack("bad command line")

HUGE = 10**30
DEEP = "deep.json"
LONG = "a" * 300
TUNED = (*TUNE, *IN_PROCESS, "--trials", "4", "--quiet")
COMMANDS: dict[str, tuple[str, ...]] = {
    "tune": TUNED,
    "tune-model": (*TUNE_MODEL, "--quiet"),
    "build-model": BUILD_MODEL,
    "model-tasks": MODEL_TASKS,
    "bench-model": BENCH_MODEL,
    "tune-external": ("tune-external", "spec.toml", "--trials", "2", "--quiet"),
    "compare": (*("compare", "gemm:m=8,n=8,k=8"), "--seeds", "1", "--trials", "4", "--quiet"),
    "replay": (*("replay", "space.t4.json"), "--strategies", "random", "--seeds", "1"),
    "report": ("report", "-o", "page.html"),
    "best": ("best", "gemm"),
    "show": ("show", "gemm"),
    "explain": ("explain", "gemm"),
    "export": ("export", "gemm.c", "gemm"),
    "records list": ("records", "list", "gemm"),
    "records runs": ("records", "runs"),
    "records export": ("records", "export", "out.jsonl", "gemm"),
    "records import": ("records", "import", "empty.jsonl"),
    "records convert": ("records", "convert", "space.t4.json", "out.t4.json"),
    "records check": ("records", "check"),
    "records failures": ("records", "failures", "gemm"),
    "train record": ("train", "record", "--tasks", "tasks.json", *TUNE[4:8], "--quiet"),
    "train fit": ("train", "fit", "--output", "model.npz"),
    "train info": ("train", "info"),
    "fleet": ("fleet", *TUNE[4:6]),
    "plugins": ("plugins",),
    "workloads": ("workloads",),
    "doctor": ("doctor",),
    "demo": ("demo", *TUNE[4:6], "--quiet"),
}
"""Calls that are right as far as they go, in the folder of these tests."""

NUMBERS = ("x", "1e3", "-1", "", str(HUGE), "nan")
PARTS = ("nope", "Random", "json:JSONDecoder", "no_module:thing", "toy_parts:nothing", "a b", "")
OPTIONS = ("x", "=1", "nope=1", "\x1b[2J=1", "")
FILES = ("missing", ".", DEEP, "binary", LONG)
PLACES = ("autotune.db", "empty/of/folders", ".", "notes", "autotune.db-wal", LONG, "/dev/zero")
VALUES: dict[str, tuple[str, ...]] = {
    "--shape": ("m", "m=x", "m=-1", "m=0", "q=1", "m=1_0", "m=\u0663", "m=8.5", "=", f"m={HUGE}"),
    "--dtype": ("float33", "os:getcwd", "\x1b[2J", ""),
    "--network": ("nope", "", "\x1b[2J"),
    "--size": ("layers", "layers=x", "=", f"layers={HUGE}"),
    "--frontend": PARTS,
    "--dim": ("batch", "batch=x", "batch=-1", "nope=1", "=", f"batch={HUGE}", "\x1b[2J=1", "=1"),
    "--input": (
        *("A", "A=", "=1", "A=x", "A=0,16", "A=-1,16", "A=16", "A=nan", "nope=16,16"),
        *("A=binary", "A=missing.npy", f"A={LONG}.npy", f"A={HUGE},16", "\x1b[2J=1", ""),
    ),
    "--precision": ("float32", "half", "", "\x1b[2J"),
    "--objective": ("x", "nope:nope", "x=", "=1", "x=y", "x=-1", "x=nan", "\x1b[2J=1"),
    "--pass": ("x", "x=", "=off", "x=on", "\x1b[2J=off", "nope=off", "check=nope:nope"),
    "--total-latency": PLACES,
    "--mlir": (*FILES, "/dev/zero"),
    "--target": (*FILES, "avx3", "cuda:99", "/dev/zero", ""),
    "--backend": PARTS,
    "--preset": ("nope", "", "\x1b[2J"),
    "--load-cost-model": (*FILES, "/dev/zero"),
    "--trials": (*NUMBERS, "0"),
    "--time": ("x", "-1", "nan", ""),
    "--seed": ("x", "1e3", "", str(HUGE)),
    "--threads": (*NUMBERS, "0"),
    "--database": ("loop.db", ".", "notes", "missing/of.db", LONG, "/dev/zero", ""),
    "--round-size": (*NUMBERS, "0"),
    "--first-round": (*NUMBERS, "0"),
    "--observe": PARTS,
    "--lookahead": NUMBERS,
    "--patience": (*NUMBERS, "0"),
    "--strategy": PARTS,
    "--strategy-option": OPTIONS,
    "--cost-model": PARTS,
    "--cost-model-option": OPTIONS,
    "--pruning-model": PARTS,
    "--pruning-model-option": OPTIONS,
    "--space": PARTS,
    "--space-option": OPTIONS,
    "--task-scheduler": PARTS,
    "--task-scheduler-option": OPTIONS,
    "--measurer": PARTS,
    "--measurer-option": OPTIONS,
    "--runner": PARTS,
    "--ray-address": ("nowhere", "ray://127.0.0.1:1", "127.0.0.1:0", ":6379", "127.0.0.1:x", ""),
    "--ray-num-workers": ("-1", "x", "", HUGE),
    "--runner-option": (*OPTIONS, "builders=-1", "builders=x", f"builders={HUGE}"),
    "--rpc-tracker": ("127.0.0.1", "127.0.0.1:x", ":", "127.0.0.1:0", f"127.0.0.1:{HUGE}", ""),
    "--rpc-key": ("a b", "a:b", "", "\x1b[2J"),
    "--rpc-priority": ("x", "-1", "1.5", str(HUGE)),
    "--session-timeout": ("x", "-1", "0", "nan", ""),
    "--progress": ("loud", ""),
    "--log": PLACES,
    "--json": PLACES,
    "--plot": PLACES,
    "--output": PLACES,
    "-o": PLACES,
    "--png": PLACES,
    "--rates": ("loud", ""),
    "--limit": (*NUMBERS, "0"),
    "--record": ("x", "x/y", "/", "no-run/0", "\x1b[2J/0", f"x/{HUGE}"),
    "--part": ("nope", ""),
    "--sketch": ("nope", "\x1b[2J"),
    "--config": (*FILES, "/dev/zero"),
    "--status": ("fine", ""),
    "--format": ("nope", "os:abort", ""),
    "--chance": ("x", "-1", "2", "nan"),
    "--tasks": (*FILES, ""),
    "--only": ("nope", ""),
    "--name": ("a b", "1a", "\x1b[2J", "int", ""),
    "--turns": (*NUMBERS, "0"),
    "--seconds": ("x", "-1", "0", "nan", ""),
    "--programs": (*NUMBERS, "0"),
    "--random-share": ("x", "-1", "2", "nan"),
    "--protocol": ("loud", ""),
    "--hold-out": ("nope", "-1", "0"),
    "--training-threads": (*NUMBERS, "0"),
    "--set": ("x", "=1", "nope=1", "\x1b[2J=1", "size", "size=", ""),
    "--strategies": ("nope", "random,nope", "\x1b[2J"),
    "--presets": ("nope", "\x1b[2J"),
    "--contender": ("x", "=--strategy random", "a=--strategy", "a=--nope 1", "a=--strategy 'x"),
    "--seeds": (*NUMBERS, "0"),
    "--budget": (*NUMBERS, "0"),
    "--jobs": (*NUMBERS, "0"),
    "--parameters": (*FILES, "/dev/zero"),
    "--unit": ("x", "=us", "nope=us", "space=parsec", "\x1b[2J=s"),
    "--against": ("nope", "\x1b[2J"),
    "--results": PLACES,
    "--csv": PLACES,
}
"""Values that are wrong for each option. Other options take anything, or nothing."""

# No value of these is wrong, or only together with another option.
ANYTHING = {"--function", "--importer", "--run", "--help", "--force"}
RIGHT = {
    # A task alone needs no scheduler, and the measurer of these tests observes nothing.
    *(("tune", flag, value) for flag in ("--task-scheduler", "--observe") for value in PARTS[2:5]),
    # Parts of these tests take any option.
    *(
        (name, flag, value)
        for name in ("tune", "train record")
        for flag in ("--space-option", "--measurer-option")
        for value in OPTIONS[2:4]
    ),
    *(("tune-model", "--measurer-option", value) for value in OPTIONS[2:4]),
    # As many as there are, and any number at all.
    *((name, "--limit", str(HUGE)) for name in ("best", "explain")),
    ("train fit", "--seed", str(HUGE)),
    ("train fit", "--hold-out", "0"),
}
"""Calls of the table that are right."""


SPEC = """
name = "nothing"
parameters = { size = [1, 2] }
run.command = "true {size}"
"""
SPACE = {
    "schema_version": "1.0.0",
    "metadata": {"timeunit": "milliseconds"},
    "results": [
        {
            "timestamp": "",
            "configuration": {"size": size},
            "times": {"compilation": 1.0, "runtimes": [float(size)]},
            "invalidity": "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": float(size), "unit": "ms"}],
            "objectives": ["time"],
        }
        for size in (1, 2, 4)
    ],
}


def calls() -> dict[str, tuple[str, ...]]:
    """Every command with every wrong value of its options, and what else is wrong with it."""
    found = {}
    for name, command in commands(command_group):
        call = COMMANDS[name]
        found[f"{name} --no-such-option"] = (*call, "--no-such-option")
        found[f"{name} too much"] = (*call, "much", "more", "of", "this")
        for param in command.params:
            flag = param.opts[0]
            if not isinstance(param, click.Option) or param.is_flag or flag in ANYTHING:
                continue
            found[f"{name} {flag}"] = (*call, flag)
            for value in VALUES[flag]:
                if (name, flag, value) not in RIGHT:
                    found[f"{name} {flag} {ascii(value)[:24]}"] = (*call, flag, value)
    return found


CALLS = calls()


@pytest.fixture
def refusing(with_database: Callable[..., Any]) -> Callable[..., Any]:
    """Runs commands where there are files of many kinds."""
    Path(DEEP).write_text("[" * 100_000)
    Path("binary").write_bytes(bytes(range(256)))
    Path("notes").write_text("notes\n" * 1000)
    Path("empty.jsonl").touch()
    Path("spec.toml").write_text(SPEC)
    Path("space.t4.json").write_text(json.dumps(SPACE))
    tasks = [{"name": "one", "workload": "gemm", "shape": {"m": 8, "n": 8, "k": 8}}]
    listed = {"schema": "autotune.tasks", "version": 1, "tasks": tasks}
    Path("tasks.json").write_text(json.dumps(listed))
    os.symlink("loop.db", "loop.db")
    return with_database


ASKED = {"--shape", "--dtype", "--backend", "--record", "--protocol"}
"""Options that say which records are meant. There may be none, of whatever name."""


@pytest.mark.parametrize("arguments", sampled(CALLS, now=60, slow=240, least=200))
@pytest.mark.promise("a wrong call", "one line that says what is wrong, and status 2")
def test_a_bad_call_is_one_line(
    arguments: tuple[str, ...], refusing: Callable[..., Any], verdict: Callable[[str], None]
) -> None:
    before = set(os.listdir("."))
    database = Path("autotune.db").read_bytes()
    done = refusing(*arguments)
    if done.status == 1 and arguments[-2] in ASKED:
        assert done.stdout == "" and "record in autotune.db matches" in done.stderr
        Path("out.jsonl").unlink(missing_ok=True)
        end = "nothing found"
    else:
        done.line()
        end = "refused"
    assert set(os.listdir(".")) == before
    assert Path("autotune.db").read_bytes() == database
    verdict(end)


# The toy space lists the divisors of a size.
SKETCH = ("--space", "sketch")


def square(size: int) -> tuple[str, ...]:
    """A call for matrices of so many rows and columns."""
    return ("tune", "gemm", "--shape", f"m={size},n={size},k={size}", *TUNED[4:], *SKETCH)


AIMED = {
    "more trials than SQLite counts": ((*TUNED, "--trials", str(HUGE)), "trials must be a whole"),
    "a backend that is none": (
        (*TUNED, "--backend", "json:JSONDecoder"),
        "JSONDecoder' failed",
    ),
    "a deep target": ((*TUNED, "--target", DEEP), "'deep.json' is not a JSON file"),
    "a model without end": ((*TUNED, "--load-cost-model", "/dev/zero"), "no regular file"),
    "a deep configuration": (("explain", "gemm", "--config", DEEP), "'deep.json' is not of the f"),
    "deep tasks": (("train", "record", "--tasks", DEEP), "'deep.json' is no JSON"),
    "a loop of links": (("best", "--database", "loop.db"), "there is no such file|Too many lev"),
    "a long name of a database": (("best", "--database", LONG), "File name too long"),
    "a long name of a report": (("best", "--json", LONG), "File name too long"),
    "other digits": (("best", "gemm", "--shape", "m=\u0663"), "m must be a whole number"),
    "an unknown command": (("tun",), "unknown command 'tun'.*Did you mean 'tune'"),
    "an unknown command of a group": (("records", "lst"), "unknown command 'lst'"),
    "a workload that is none": (("tune", "os:abort"), ""),
    "a binary program": (("tune", "binary"), ""),
    "tensors of 12 TiB": (square(2**20), f"its inputs and outputs are {3 * 4 * 2**40} bytes"),
    "tensors beyond 64 bits": (square(2**32), f"its inputs and outputs are {3 * 4 * 2**64} byt"),
}
"""Command lines that went wrong once, and the words that say it."""


@pytest.mark.parametrize("case", sampled(AIMED, now=len(AIMED)))
def test_what_is_wrong_is_said(
    case: tuple[tuple[str, ...], str],
    refusing: Callable[..., Any],
    verdict: Callable[[str], None],
) -> None:
    arguments, words = case
    line = refusing(*arguments).line()
    assert re.search(words, line), line
    verdict("refused")
