"""Operators one by one: tuned by us and by MetaSchedule, untuned, and in torch.

The operators of TVM's own suite and those of networks beside them (`operator_rows.py`), on one
thread and on all cores: 64 trials of ours, TVM's program that nobody scheduled, MetaSchedule with
as many trials (one shape of each operator), torch eager, in channels-last layout and compiled, and
what the machine could do at best (`peak.py`). All are timed in turns, each in a process of its
own, and what they compute is compared with torch's, or where torch is missing with numpy's, as
tuning does for every candidate.

It is resumable: what is done stays in ``--work``, and the same command goes on from there; what
failed is tried again. Remove the folder to start over. What is refused is a row with its reason.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from support.common import SUPPORT, Report, Turns, compare, cores, environment
from support.operator_report import (
    METASCHEDULE,
    OURS,
    ROOFLINE,
    UNTUNED,
    Measured,
    bars_of,
    print_table,
    write_csv,
)
from support.operator_rows import Row, all_rows, is_with_metaschedule
from support.steps import StepFailed, kept, output_of

TRIALS, QUICK_TRIALS = 64, 24
# Samples as short as a scheduler lets a thread run: on a busy machine some are not disturbed.
TURNS = Turns(rounds=7, samples=12, sample_seconds=0.003)
# What a step takes: seconds of each, for the estimate.
TUNING_SECONDS = {"trial": 0.5, "start": 8.0}
TURN_SECONDS, METASCHEDULE_TRIAL_SECONDS = 45.0, 2.5
RATE_SECONDS = 0.2
# Of floating-point types.
EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-7}


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    print(f"{len(options.rows)} rows, about {expected_minutes(options):.0f} minutes", flush=True)
    rates = {threads: ceilings(options, threads) for threads in options.threads}
    measured = []
    for threads in options.threads:
        for row in options.rows:
            measured.append(run_row(options, row, threads))
    print_table(measured)
    if options.csv is not None:
        write_csv(options.csv, measured)
    if options.plot is not None:
        from support.operator_plot import save_plot

        save_plot(options.plot, measured, rates)
    data = {
        "options": {"trials": options.trials, "quick": options.quick},
        "rates": rates,
        "rows": [one.to_json() for one in measured],
    }
    return Report(data, bars_of(measured))


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with those that depend on each other filled in and the rows that are meant."""
    from peak import MEMORY, sizes_of

    from autotune.targets import detect_cpu

    path: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    parser.add_argument("--csv", **path, help="write one line for each row there")
    parser.add_argument("--plot", **path, help="draw the roofline there, such as operators.svg")
    parser.add_argument(
        "--work", type=Path, default=Path("build/operators"), help="where steps are kept"
    )
    parser.add_argument("--rows", nargs="+", metavar="GROUP", help="these operators, such as C2D")
    parser.add_argument("--shapes", type=int, nargs="+", help="these shapes of each, from 0")
    parser.add_argument("--threads", type=int, nargs="+", help="1 (--quick), or 1 and all cores")
    parser.add_argument("--trials", type=int, help=f"{TRIALS}, or {QUICK_TRIALS} with --quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--metaschedule", choices=("one", "all", "none"), help="shapes of each operator"
    )
    parser.add_argument(
        "--metaschedule-python",
        default=sys.executable,
        metavar="PATH",
        help="that has xgboost, cloudpickle and psutil",
    )
    options = parser.parse_args(arguments)
    # Now, and not after hours.
    if not Path(options.metaschedule_python).exists():
        parser.error(f"--metaschedule-python: there is no {options.metaschedule_python}")
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot: matplotlib is not installed")
    quick = options.quick
    options.threads = options.threads or ([1] if quick else sorted({1, cores()}))
    options.trials = options.trials or (QUICK_TRIALS if quick else TRIALS)
    options.metaschedule = options.metaschedule or ("none" if quick else "one")
    known = all_rows(sizes_of(detect_cpu(), 1)[MEMORY])
    groups = list(dict.fromkeys(row.group for row in known))
    for group in options.rows or ():
        if group not in groups:
            parser.error(f"--rows: there is no {group}; choose of {', '.join(groups)}")
    reduced = quick and not (options.rows or options.shapes)
    options.rows = [
        row
        for row in known
        if row.group in (options.rows or groups)
        and (options.shapes is None or row.position in options.shapes)
        and (row.quick or not reduced)
    ]
    options.work = options.work.absolute() / f"{options.trials}-trials"
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def expected_minutes(options: argparse.Namespace) -> float:
    """About what is left to do takes, where every step is still to be done."""
    tuning = TUNING_SECONDS["start"] + options.trials * TUNING_SECONDS["trial"]
    theirs = sum(is_with_metaschedule(row, options.metaschedule) for row in options.rows)
    seconds = len(options.rows) * (tuning + TURN_SECONDS)
    seconds += theirs * options.trials * METASCHEDULE_TRIAL_SECONDS
    return len(options.threads) * seconds / 60


def ceilings(options: argparse.Namespace, threads: int) -> Any:
    """The rates of `peak.py`, for the plot."""
    import peak

    from autotune.targets import detect_cpu

    def measure() -> Any:
        found = peak.measure(detect_cpu(), threads, RATE_SECONDS)
        return [asdict(rate) for rate in found]

    return kept(options.work / f"rates-{threads}.json", {}, f"rates, {threads} threads", measure)


def run_row(options: argparse.Namespace, row: Row, threads: int) -> Measured:
    """Everything about one row; what fails is named, and the rest goes on."""
    print(f"\n{row.name}, {'1 thread' if threads == 1 else f'{threads} threads'}", flush=True)
    folder = options.work / f"{row.name.replace(' ', '-')}-{threads}"
    folder.mkdir(exist_ok=True)
    measured = Measured(row, threads)
    errors = measured.errors
    program = folder / "program.json"

    def step(file: str, name: str, make: Callable[[], Any]) -> Any:
        return kept(folder / f"{file}.json", errors, name, lambda: guarded(make))

    described = step("described", "program", lambda: describe(row, program))
    if described is None:
        return measured
    measured.described = described
    measured.tuned = step("tuned", OURS, lambda: tune(options, program, folder, threads))
    if is_with_metaschedule(row, options.metaschedule):
        measured.metaschedule = step(
            METASCHEDULE,
            METASCHEDULE,
            lambda: metaschedule(options, row, program, folder, threads),
        )
    # Timed again once something is there that was not before.
    tuners = "-".join(["timed", *measured.tuners])
    timed = step(tuners, "timing", lambda: timing(options, measured, folder))
    if timed is not None:
        measured.final, measured.differences = timed["final"], timed["differences"]
        errors.update(timed["errors"])
    measured.print()
    return measured


def guarded(make: Callable[[], Any]) -> Any:
    """A step whose unforeseen errors are failures, too: the other rows go on.

    Raises:
        StepFailed: it failed.
    """
    try:
        return make()
    except (KeyError, MemoryError, OSError, ValueError) as error:
        lines = str(error).splitlines() or [""]
        raise StepFailed(f"{type(error).__name__}: {lines[0]}") from error


def describe(row: Row, program: Path) -> Any:
    """Make TVM's program of a row.

    Raises:
        StepFailed: TVM cannot.
    """
    fields = json.dumps(asdict(row))
    command = [sys.executable, str(SUPPORT / "operator_task.py"), "describe", fields]
    return json.loads(output_of([*command, "--program", str(program)], environment()))


def tune(options: argparse.Namespace, program: Path, folder: Path, threads: int) -> Any:
    """Tune it.

    Raises:
        StepFailed: it is refused, or no candidate is valid.
    """
    command = [
        sys.executable,
        str(SUPPORT / "operator_task.py"),
        "tune",
        "--program",
        str(program),
    ]
    command += ["--folder", str(folder), "--threads", str(threads)]
    command += ["--trials", str(options.trials), "--seed", str(options.seed)]
    answer = json.loads(output_of(command, environment(threads=threads)).splitlines()[-1])
    if answer["refused"]:
        raise StepFailed(answer["refused"])
    return answer


def metaschedule(
    options: argparse.Namespace, row: Row, program: Path, folder: Path, threads: int
) -> Any:
    """Tune it with MetaSchedule; its program goes into a file of its own.

    Raises:
        StepFailed: it fails, or none of its candidates ran.
    """
    script, found = SUPPORT / "metaschedule.py", folder / "metaschedule-found.json"
    command = [options.metaschedule_python, str(script), "--program", str(program)]
    command += ["--trials", str(options.trials), "--seed", str(options.seed)]
    command += ["--threads", str(threads), "--json", str(found)]
    for position, below in row.bounds.items():
        command += ["--index", f"{position}={below}"]
    output_of(command, environment(threads=threads))
    answer = json.loads(found.read_text(encoding="utf-8"))
    if not answer["module"]:
        raise StepFailed("none of its candidates ran")
    (folder / "metaschedule-module.json").write_text(answer.pop("module"), encoding="utf-8")
    return answer


def timing(options: argparse.Namespace, measured: Measured, folder: Path) -> Any:
    """Time all contenders in turns, and compare what they compute."""
    row = measured.row
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        requests = contenders(options, measured, folder, Path(scratch))
        final, errors = compare(requests, TURNS)
        outputs = {name: Path(scratch) / f"{name}.npy" for name in requests}
        return {"final": final, "errors": errors, "differences": differences(outputs, row.dtype)}


def contenders(
    options: argparse.Namespace, measured: Measured, folder: Path, scratch: Path
) -> dict[str, tuple[dict[str, Any], str]]:
    """Requests and interpreters, by contender."""
    row, described = measured.row, measured.described
    shared = {"kind": "operator", "threads": measured.threads, **described}
    found: dict[str, tuple[dict[str, Any], str]] = {}

    def add(name: str, request: Mapping[str, Any], python: str = sys.executable) -> None:
        found[name] = ({**shared, "output": str(scratch / f"{name}.npy"), **request}, python)

    if measured.tuned is not None:
        record = {"folder": str(folder), "digest": measured.tuned["digest"]}
        add(OURS, {"contender": "autotune", **record})
    if measured.metaschedule is not None:
        module = str(folder / "metaschedule-module.json")
        add(METASCHEDULE, {"contender": "tvm", "module": module})
    if not options.quick:
        module = str(folder / "program.json")
        add(UNTUNED, {"contender": "tvm", "module": module, "skip_slow": True})
    operator = {"operator": row.kind, "arguments": row.arguments, "contender": "torch"}
    for name, variant in measured.torch_variants.items():
        add(name, {**operator, "variant": variant}, options.torch_python)
    limits = {"flop": row.flop, "dtype": row.dtype, "read": measured.read}
    add(ROOFLINE, {"contender": "roofline", **limits, "written": measured.written})
    return found


def differences(outputs: Mapping[str, Path], dtype: str) -> dict[str, float]:
    """The largest difference from torch's over what is allowed, by contender.

    An element may be off by twice the root of its type's ``eps``, times its own size and the root
    mean square of its tensor, as outputs of networks may; integers must be equal.

    Args:
        outputs: Files of what each computed.
        dtype: Of the operator; that of the files may be wider.
    """
    wanted = next((path for name, path in outputs.items() if name.startswith("torch")), None)
    if wanted is None or not wanted.exists():
        return {}
    reference = np.load(wanted)
    return {
        name: difference(np.load(path), reference, EPSILON.get(dtype, 0.0))
        for name, path in outputs.items()
        if path != wanted and path.exists()
    }


def difference(output: Any, reference: Any, epsilon: float) -> float:
    """Of one output; infinite where it is of another shape or not finite."""
    if output.shape != reference.shape:
        return float("inf")
    if reference.dtype.kind != "f":
        return 0.0 if np.array_equal(output, reference) else float("inf")
    exact = reference.astype(np.float64)
    allowed = 2 * np.sqrt(epsilon) * (np.abs(exact) + np.sqrt(np.mean(exact**2)))
    found = float(np.max(np.abs(output - exact) / np.maximum(allowed, 1e-30), initial=0.0))
    return found if np.isfinite(found) else float("inf")


if __name__ == "__main__":
    from bench import main

    sys.exit(main(["operators", *sys.argv[1:]]))
