"""Shared by rows: options, processes, interleaved timing, bars.

Nothing is imported here that the contenders use: every one of them runs in processes of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from support.bars import REACHABLE, Bar, median_of

SUPPORT = Path(__file__).resolve().parent
HERE = SUPPORT.parent
# What a tuner that is interrupted may take to save its run.
SAVING_SECONDS = 20.0


@dataclass(frozen=True)
class Turns:
    """Order and length of the turns of contenders.

    Attributes:
        rounds: In each of which every contender has one turn.
        pause: Seconds before a turn: the threads of the contender before it stop polling for work.
        samples: Of a turn, of which the least counts.
        sample_seconds: What each of them takes.
    """

    rounds: int = 15
    pause: float = 0.15
    samples: int = 10
    sample_seconds: float = 0.01


@dataclass
class Trial:
    """A workload with one seed: both tuners, and the final timing side by side.

    Attributes:
        seed: Seed of both tuners.
        tuned: What ``autotune tune --json`` wrote.
        seconds: Wall seconds of that command.
        metaschedule: What `metaschedule.py` wrote, without the module; None if it failed.
        final: Seconds per call of each contender in each round.
        errors: Why a contender is missing.
    """

    seed: int
    tuned: dict[str, Any]
    seconds: float
    metaschedule: dict[str, Any] | None
    final: dict[str, list[float]]
    errors: dict[str, str] = field(default_factory=dict)

    def ratio(self, contender: str, to: str = "autotune") -> float | None:
        """Speed of ``to`` over a contender's: the median over the rounds."""
        if contender not in self.final or to not in self.final:
            return None
        pairs = zip(self.final[contender], self.final[to], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    def latency(self, contender: str) -> float | None:
        """Median seconds per call of a contender."""
        return statistics.median(self.final[contender]) if contender in self.final else None

    def share(self, activity: str) -> float:
        """Share of the tuning run's seconds that an activity took."""
        return float(self.tuned["seconds"][activity] / self.tuned["seconds"]["total"])


@dataclass(frozen=True)
class Report:
    """The outcome of a row.

    Attributes:
        data: Every number, for ``--json``.
        bars: Promises, with what was measured.
        status: Exit status, in place of that which the bars give.
    """

    data: Mapping[str, Any]
    bars: Sequence[Bar] = ()
    status: int | None = None


def basic_parser(description: str) -> argparse.ArgumentParser:
    """A parser with the options of every script here."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a reduced set, under 10 minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar falls short")
    return parser


def add_tuning_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of rows that tune beside MetaSchedule."""
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (one with --quick)")
    parser.add_argument(
        "--metaschedule-python",
        default=sys.executable,
        metavar="PATH",
        help="interpreter with TVM, xgboost, cloudpickle and psutil, better without torch",
    )


def tuning_options(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> argparse.Namespace:
    """The command line of a row that tunes beside MetaSchedule."""
    add_tuning_options(parser)
    return parser.parse_args(arguments)


def bench(row: str) -> list[str]:
    """The command that runs a row in another process."""
    return [sys.executable, str(HERE / "bench.py"), row]


def shape_text(shape: Mapping[str, int]) -> str:
    """``m=512,n=512,k=512``."""
    return ",".join(f"{key}={value}" for key, value in shape.items())


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def environment(backend: str | None = None, threads: int | None = None) -> dict[str, str]:
    """Of a contender: its threads, and a backend's runtime as the workers of a run have it.

    Args:
        backend: Name of the backend; by default TVM's where it is installed, whose variables are
            nothing to others.
        threads: Threads to run on; one per core where it is None.
    """
    from autotune.plugins.parts import create_part

    if backend is None:
        backend = "native" if find_spec("autotune_tvm") is None else "tvm"
    threads = cores() if threads is None else threads
    count = str(threads)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    libraries = dict.fromkeys(names, count)
    paths = [str(Path(entry).resolve()) for entry in sys.path[1:] if entry]
    found = os.pathsep.join(dict.fromkeys([str(HERE), *_own(paths)]))
    inherited = {**os.environ, "PYTHONPATH": found}
    return {
        **inherited,
        **libraries,
        **create_part("backend", backend).worker_environment(threads),
    }


def _own(paths: list[str]) -> list[str]:
    """Paths of this process that PYTHONPATH gave: other interpreters need them."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    wanted = {str(Path(entry).resolve()) for entry in given if entry}
    return [path for path in paths if path in wanted]


class TuningFailed(SystemExit):
    """A tuning run ended with an error, which ends the script unless it goes on without."""


def tune(
    workload: str,
    shape: Mapping[str, int],
    trials: int,
    seed: int,
    database: Path,
    *,
    backend: str | None = None,
    threads: int | None = None,
    arguments: Sequence[str] = (),
) -> tuple[dict[str, Any], float]:
    """Tune in a fresh process; returns the result's JSON and the wall seconds of the command.

    Modules of this folder can be named in what it is given.

    Args:
        workload: Name of the builder, or what an importer of the arguments reads.
        shape: Arguments of the builder; an importer is given none.
        trials: Trial budget.
        seed: Seed of the run.
        database: Where the records go.
        backend: Name of the backend; by default that of `autotune tune`.
        threads: Threads of the programs; one per core where it is None.
        arguments: What else ``autotune tune`` is given.

    Raises:
        TuningFailed: the run ended with an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "autotune", "tune", workload]
        command += ["--trials", str(trials), "--seed", str(seed)]
        command += ["--shape", shape_text(shape)] if shape else []
        command += ["--database", str(database), "--quiet", "--json", str(result)]
        command += [] if backend is None else ["--backend", backend]
        command += [] if threads is None else ["--threads", str(threads)]
        command += arguments
        begin = time.perf_counter()
        status, said = _ended(command, {**os.environ, "PYTHONPATH": with_this_folder()})
        seconds = time.perf_counter() - begin
        if status != 0:
            raise TuningFailed(f"tuning failed: {said.strip()}")
        data: dict[str, Any] = json.loads(result.read_text())
        return data, seconds


def _ended(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
    """Exit status and errors of a tuner; on an interrupt it is given time to save its run."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables) as process:
        try:
            said = process.communicate()[1]
        except KeyboardInterrupt:
            process.terminate()
            try:
                process.communicate(timeout=SAVING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            raise
    return process.returncode, said


def with_this_folder() -> str:
    """``PYTHONPATH`` of processes that import modules of this folder."""
    return os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])


def metaschedule(
    python: str,
    workload: str,
    shape: Mapping[str, int],
    trials: int,
    seed: int,
    threads: int | None = None,
) -> tuple[dict[str, Any] | None, str]:
    """Run MetaSchedule in a process of its own; returns its JSON, or None and why.

    Its programs have so many ``threads``, one per core where it is None.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [
            python,
            str(SUPPORT / "metaschedule.py"),
            workload,
            "--shape",
            shape_text(shape),
        ]
        command += ["--trials", str(trials), "--seed", str(seed), "--json", str(result)]
        command += [] if threads is None else ["--threads", str(threads)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=environment(threads=threads),
        )
        if done.returncode != 0:
            return None, (done.stderr.strip().splitlines() or ["no message"])[-1]
        data: dict[str, Any] = json.loads(result.read_text())
        return data, "" if data["module"] else "none of its candidates ran"


class ContenderEnded(Exception):
    """A contender gave no time in its turn; says why."""


class Contender:
    """A process that times one program when asked; see `serve.py`.

    Its environment is that of the request's ``backend`` and ``threads``, where it has them, and
    what it has under ``environment``.
    """

    def __init__(self, request: Mapping[str, Any], python: str = sys.executable) -> None:
        self.process = subprocess.Popen(
            [python, str(SUPPORT / "serve.py"), json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **environment(request.get("backend"), request.get("threads")),
                **request.get("environment", {}),
            },
        )
        ready = self._line()
        self.error = "" if ready.get("ready") else str(ready.get("error", "it did not start"))

    def __enter__(self) -> Contender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def seconds(self, turns: Turns) -> float:
        """Seconds per call, now.

        Raises:
            ContenderEnded: the process has ended.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{turns.samples} {turns.sample_seconds}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ContenderEnded("it ended before its turn") from None
        answer = self._line()
        if "seconds" not in answer:
            raise ContenderEnded(f"in its turn: {answer['error']}")
        return float(answer["seconds"])

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            # What one that has ended was not given is still in the buffer.
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        data: dict[str, Any] = json.loads(text) if text else {"error": "it ended"}
        return data


def compare(
    requests: Mapping[str, tuple[Mapping[str, Any], str]], turns: Turns = Turns()
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Time contenders in turns; returns seconds per call by round, and why some are missing.

    As many as there are cores start at once; turns begin when all have.

    Args:
        requests: What to serve and with which interpreter, by contender.
        turns: How many turns they take, and how long these are.
    """
    contenders: dict[str, Contender] = {}
    errors: dict[str, str] = {}
    final: dict[str, list[float]] = {}
    with ThreadPoolExecutor(cores()) as pool:
        started = {name: pool.submit(Contender, *asked) for name, asked in requests.items()}
    try:
        for name, starting in started.items():
            contender = starting.result()
            if contender.error:
                errors[name] = contender.error
                contender.close()
            else:
                contenders[name] = contender
                final[name] = []
        for number in range(turns.rounds):
            order = list(contenders) if number % 2 == 0 else list(reversed(contenders))
            for name in order:
                time.sleep(turns.pause)
                try:
                    final[name].append(contenders[name].seconds(turns))
                except ContenderEnded as error:
                    errors[name] = str(error)
                    contenders.pop(name).close()
                    del final[name]
    finally:
        for starting in started.values():
            if starting.exception() is None:
                starting.result().close()
    return final, errors


def run_trial(
    options: argparse.Namespace,
    workload: str,
    shape: Mapping[str, int],
    seed: int,
    vendor: tuple[Mapping[str, Any], str],
) -> Trial:
    """Tune a workload with both tuners, then time both results and the vendor's in turns.

    Args:
        options: The script's options.
        workload: Name of the builder.
        shape: Its arguments.
        seed: Seed of both tuners.
        vendor: What `serve.py` is to serve as the vendor's, and with which interpreter.
    """
    from autotune import Workload

    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "benchmark.db"
        tuned, seconds = tune(workload, shape, options.trials, seed, database)
        print(f"  seed {seed}: autotune {tuned['best']['latency'] * 1e3:.3f} ms", end=" ")
        print(f"in {seconds:.1f} s", flush=True)
        theirs, why = metaschedule(
            options.metaschedule_python, workload, shape, options.trials, seed
        )
        described = tuned["task"]["workload"]
        record = {"kind": "record", "database": str(database), "workload": described}
        requests = {"autotune": (record, sys.executable), "vendor": vendor}
        flop = Workload.from_json(described).flop
        requests["peak"] = ({"kind": "peak", "flop": flop}, sys.executable)
        if theirs is not None and theirs["module"]:
            module = {"kind": "module", "module": theirs["module"], "workload": described}
            requests["metaschedule"] = ({**module, "threads": cores()}, sys.executable)
        final, errors = compare(requests)
    if theirs is not None:
        theirs = {key: value for key, value in theirs.items() if key != "module"}
    if why:
        errors["metaschedule"] = why
    trial = Trial(seed, tuned, seconds, theirs, final, errors)
    _print_trial(trial)
    return trial


def _print_trial(trial: Trial) -> None:
    for name in trial.final:
        latency, ratio = trial.latency(name), trial.ratio(name)
        if latency is not None and ratio is not None:
            print(f"    {name:<12} {latency * 1e3:8.3f} ms   {ratio:6.2f}x")
    for name, why in trial.errors.items():
        print(f"    {name:<12} not measured: {why}")
    if trial.metaschedule is not None:
        theirs = trial.metaschedule["seconds"]
        print(f"    tuning: {trial.seconds:.1f} s, MetaSchedule {theirs:.1f} s")
    split = ", ".join(f"{name} {trial.share(name):.0%}" for name in ("build", "run", "model"))
    print(f"    of the tuning time: {split}", flush=True)


def tuning_time_ratio(trials: Sequence[Trial]) -> float | None:
    """Tuning seconds over MetaSchedule's, the median over the seeds."""
    return median_of(
        [t.seconds / t.metaschedule["seconds"] if t.metaschedule else None for t in trials]
    )


def share_of_the_rest(trials: Sequence[Trial]) -> float | None:
    """Share of a run that is neither start-up nor build nor run, the median over the seeds."""
    return median_of(
        [sum(trial.share(name) for name in ("search", "model", "other")) for trial in trials]
    )


def metaschedule_ceiling(trials: Sequence[Trial]) -> float | None:
    """Speed over MetaSchedule's that a program could at best have here; None if unknown.

    The peak has its turns between those of the programs: the machine is as slow for it.
    """
    peak = median_of([trial.ratio("metaschedule", "peak") for trial in trials])
    return None if peak is None else REACHABLE * peak


def machine() -> dict[str, Any]:
    """The machine that numbers are measured on."""
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"processor": model, "cores": cores(), "load": os.getloadavg()[0]}


def report_of(
    options: argparse.Namespace,
    trials: Mapping[str, Sequence[Trial]],
    bars: Sequence[Bar],
) -> Report:
    """The report of a row that tunes beside MetaSchedule."""
    data = {
        "options": {"trials": options.trials, "quick": options.quick},
        "trials": {name: [asdict(trial) for trial in found] for name, found in trials.items()},
    }
    return Report(data, bars)


def finish_with(options: argparse.Namespace, data: Mapping[str, Any], bars: Sequence[Bar]) -> int:
    """Print the bars, write ``data`` and the bars; returns the exit status."""
    print()
    for bar in bars:
        print(bar)
    if options.json is not None:
        # What promises nothing here is neither kept nor broken.
        written = [{**asdict(bar), "holds": bar.holds if bar.applies else None} for bar in bars]
        options.json.write_text(json.dumps({**data, "bars": written}, indent=1))
    kept = all(bar.holds for bar in bars)
    return 1 if options.check and not kept else 0
