"""On a CUDA device: tuned programs beside torch, TVM's default schedules and TVM's own tuner.

Each row (`cuda_rows.py`) is tuned for so many seconds. Torch is timed by the same protocol, in
CUDA graphs on a warm device: eager, in the faster of its layouts, and for softmax, norms and
attention compiled as well (``max-autotune-no-cudagraphs``). It uses TF32 in rows for a target that
allows it, and in no others. With ``--metaschedule-python``, an interpreter that `metaschedule.py`
runs in, MetaSchedule has as many seconds of wall clock as ``autotune tune`` took; its latency is
the least that it measured.

It is resumable: each step of a row stays in ``--work``, under the name of the device, and the
same command goes on from there, within tuning, too. ``--limit`` begins no step that would end
later, for machines that are lent for some minutes. What failed is tried again with ``--retry``
only. The database of each row keeps every candidate.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from support.common import Report, TuningFailed, tune
from support.cuda_metaschedule import run_metaschedule
from support.cuda_report import COMPILED, DEFAULT, EAGER, METASCHEDULE, TUNED, Row, bars_of
from support.cuda_rows import CASES, Case, chosen
from support.steps import StepFailed, kept

from autotune.errors import AutotuneError
from autotune.measure import MeasureProtocol
from autotune.measure.vendor import ask_torch, torch_latency
from autotune.targets import cuda_devices, load_driver, resolve

SECONDS, QUICK_SECONDS = 60.0, 20.0
MOST_TRIALS = 1_000_000
# What a step takes beyond the seconds of tuning, for estimates.
STARTING_SECONDS, EAGER_SECONDS, COMPILED_SECONDS = 20.0, 25.0, 90.0
INTERRUPTED = 130
DISTRIBUTIONS = ("tensor-autotune", "apache-tvm", "torch", "nvidia-cuda-nvrtc")


@dataclass(frozen=True)
class Session:
    """The work of a call.

    Attributes:
        cases: The rows.
        folder: Of the device, in the folder of the work.
        budget: Seconds of tuning a row.
        metaschedule: The interpreter of MetaSchedule, or None.
        tuned_by_both: Names of the rows that it tunes.
        end: By `clock`, when every step has to have ended.
        torch: Its version, empty where there is none.
        retry: Whether what failed is tried again.
        clock: In seconds.
    """

    cases: Sequence[Case]
    folder: Path
    budget: float
    metaschedule: str | None
    tuned_by_both: frozenset[str]
    end: float
    torch: str
    retry: bool
    clock: Callable[[], float]

    def steps(self, case: Case) -> tuple[str, ...]:
        """Steps of a row, in order."""
        steps = (TUNED, EAGER) + ((COMPILED,) if case.is_compiled else ())
        with_theirs = self.metaschedule is not None and case.name in self.tuned_by_both
        return steps + ((METASCHEDULE,) if with_theirs else ())

    def place(self, case: Case) -> Path:
        """Folder of a row: another workload of the same name has another one."""
        return self.folder / f"{case.name}-{case.made().digest[:8]}"

    def file(self, case: Case, step: str) -> Path:
        """The file of a step's result; its name has what that depends on."""
        by = f"{self.budget:g}s" if step in (TUNED, METASCHEDULE) else f"torch-{self.torch}"
        return self.place(case) / f"{step}-{by}.json"

    def expected(self, step: str) -> float:
        """About how many seconds a step takes."""
        fixed = {EAGER: EAGER_SECONDS, COMPILED: COMPILED_SECONDS}
        return fixed.get(step, self.budget + STARTING_SECONDS)

    def row(self, case: Case) -> Row:
        """The row, as far as it was measured."""
        row = Row(case, self.steps(case))
        for step in row.steps:
            path = self.file(case, step)
            if path.exists():
                row.add(step, kept(path, {}, step, _nothing))
        return row

    def seconds_left(self) -> float:
        """About what takes all that is left to do."""
        return sum(self.expected(step) for case in self.cases for step in self.row(case).left)


def run(options: argparse.Namespace, clock: Callable[[], float] = time.monotonic) -> Report:
    """Measure by a clock of seconds.

    Raises:
        AutotuneError: there is no device.
    """
    devices = [device.name for device in cuda_devices(load_driver())]
    session = session_of(options, devices[0], clock)
    minutes = session.seconds_left() / 60
    print(f"on {devices[0]}: {len(session.cases)} rows, about {minutes:.0f} minutes left")
    status = None
    try:
        run_all(session)
    except KeyboardInterrupt:
        print("\ninterrupted: the same command goes on from here", flush=True)
        status = INTERRUPTED
    rows = [session.row(case) for case in session.cases]
    print_rows(rows)
    found = {
        "device": devices[0],
        "versions": {name: version_of(name) for name in DISTRIBUTIONS},
        "seconds": session.budget,
        "rows": [row.to_json() for row in rows],
    }
    return Report(found, bars_of(rows), status)


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; ``cases`` are the rows that it means."""
    parser.add_argument("--time", type=_positive, help="seconds of tuning for each row")
    parser.add_argument(
        "--rows", nargs="+", metavar="NAME", help="rows, or sets: fp32, half, memory, other"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("build/cuda_device"), help="where steps are kept"
    )
    parser.add_argument(
        "--limit", type=_positive, metavar="SECONDS", help="begin nothing that would end later"
    )
    parser.add_argument("--retry", action="store_true", help="what failed before, too")
    parser.add_argument("--metaschedule-python", metavar="PATH", help="run MetaSchedule by that")
    parser.add_argument(
        "--metaschedule-rows", nargs="+", metavar="NAME", help="rows, in place of three"
    )
    options = parser.parse_args(arguments)
    if options.metaschedule_python and not Path(options.metaschedule_python).exists():
        parser.error(f"--metaschedule-python: there is no {options.metaschedule_python}")
    if options.metaschedule_rows and not options.metaschedule_python:
        parser.error("--metaschedule-rows needs --metaschedule-python")
    try:
        options.cases = chosen(options.rows) if options.rows else rows_of(options.quick)
        theirs = chosen(options.metaschedule_rows or ())
    except AutotuneError as error:
        parser.error(str(error))
    rounded = [case.name for case in theirs if case.target != "cuda"]
    if rounded:
        parser.error(f"--metaschedule-rows: MetaSchedule has no TF32, so cannot tune {rounded[0]}")
    options.theirs = theirs or [case for case in CASES if case.metaschedule]
    return options


def _positive(text: str) -> float:
    """Seconds above 0."""
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds


def rows_of(quick: bool) -> list[Case]:
    """The reduced set, or all."""
    return [case for case in CASES if case.quick or not quick]


def session_of(options: argparse.Namespace, device: str, clock: Callable[[], float]) -> Session:
    """The session that options ask for on a device of this name."""
    return Session(
        cases=options.cases,
        folder=options.work.absolute() / re.sub(r"[^A-Za-z0-9]+", "-", device),
        budget=options.time or (QUICK_SECONDS if options.quick else SECONDS),
        metaschedule=options.metaschedule_python,
        tuned_by_both=frozenset(case.name for case in options.theirs),
        end=clock() + (options.limit or float("inf")),
        torch=version_of("torch"),
        retry=options.retry,
        clock=clock,
    )


def version_of(distribution: str) -> str:
    """The installed version; empty where there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def run_all(session: Session) -> None:
    """Do the steps that are left and fit into the time; a line for each row that went on."""
    for case in session.cases:
        if session.retry:
            for step in session.row(case).errors:
                session.file(case, step).unlink()
        done = [step for step in session.row(case).left if run_step(session, case, step)]
        if done:
            session.row(case).print()


def run_step(session: Session, case: Case, step: str) -> bool:
    """Do a step and keep what it gave, be it why it failed; returns whether there was time."""
    waits = step == METASCHEDULE and TUNED in session.row(case).left
    if waits or session.clock() + session.expected(step) > session.end:
        return False
    print(f"{case.name}: {step}", flush=True)
    path = session.file(case, step)
    path.parent.mkdir(parents=True, exist_ok=True)

    def settled() -> Any:
        try:
            return STEPS[step](session, case)
        except (StepFailed, AutotuneError, OSError, ValueError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            return {"error": lines[-1]}

    kept(path, {}, step, settled)
    return True


def tuning(session: Session, case: Case) -> dict[str, Any]:
    """Tune; an interrupted run is continued by the same call on the same database.

    Raises:
        StepFailed: it fails, or nothing was measured.
    """
    workload, shape, arguments = case.tuned()
    database = session.place(case) / f"records-{session.budget:g}s.db"
    try:
        result, seconds = tune(
            *(workload, shape, MOST_TRIALS, 0, database),
            arguments=[*arguments, "--time", f"{session.budget:g}"],
        )
    except TuningFailed as error:
        raise StepFailed(str(error).splitlines()[-1]) from error
    if result["best"] is None or result["best"]["latency"] is None:
        raise StepFailed(f"none of {result['trials']} candidates ran")
    return {
        "latency": result["best"]["latency"],
        DEFAULT: (result["baseline"] or {}).get("latency"),
        # An interrupted run has the seconds of its earlier sessions, too.
        "seconds": max(seconds, result["seconds"]["total"]),
        "trials": result["trials"],
    }


def timing(case: Case, *, compiled: bool) -> dict[str, Any]:
    """Time torch.

    Raises:
        StepFailed: it has no routine, or fails.
    """
    asked: tuple[Any, ...] = (case.made(), resolve(case.target), MeasureProtocol())
    if case.has_builder:
        outcome = torch_latency(*asked, compiled=compiled)
    else:
        outcome = ask_torch("support.cuda_torch", *asked, compiled=compiled)
    if outcome is None:
        raise StepFailed("torch has no routine")
    if outcome.latency is None:
        raise StepFailed(outcome.message)
    return {"latency": outcome.latency}


def theirs(session: Session, case: Case) -> dict[str, Any]:
    """Let MetaSchedule tune for as long as we did.

    Raises:
        StepFailed: we did not, or none of its candidates ran.
    """
    row = session.row(case)
    if TUNED not in row.latencies:
        raise StepFailed("it has the wall clock of our tuning, which failed")
    folder = session.place(case) / f"metaschedule-{session.budget:g}s"
    assert session.metaschedule is not None
    return run_metaschedule(case, session.metaschedule, row.seconds, folder)


STEPS: dict[str, Callable[[Session, Case], dict[str, Any]]] = {
    TUNED: tuning,
    EAGER: lambda _, case: timing(case, compiled=False),
    COMPILED: lambda _, case: timing(case, compiled=True),
    METASCHEDULE: theirs,
}


def print_rows(rows: Sequence[Row]) -> None:
    """All that was found, and what is left."""
    print()
    for row in rows:
        row.print()
    left = [row.case.name for row in rows if row.left]
    failed = sum(bool(row.errors) for row in rows)
    print(f"{len(rows) - len(left)} of {len(rows)} rows are done, {failed} with an error", end="")
    print(f"; left: {', '.join(left)}" if left else "", flush=True)


def _nothing() -> Any:
    raise StepFailed("it is gone")
