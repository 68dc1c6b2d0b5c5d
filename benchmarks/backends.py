"""The backends through the same sketches: one strategy, one seed, one budget; numpy and torch.

Each operator is tuned with each backend in a fresh process with an empty database, for one thread
and for all cores. What was found is then built again and timed in turns with numpy and torch,
every one in a process of its own. ``--torch-python`` names an interpreter that has torch; where
torch is missing its column is empty.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from support.bars import median_of
from support.common import Bar, Report, TuningFailed, compare, cores, tune
from support.vendors import IN_NUMPY, IN_TORCH

OURS = "native"
OTHERS = ("tvm", "mlir")
BACKENDS = (OURS, *OTHERS)
CONTENDERS = (*BACKENDS, "numpy", "torch")

# A matrix product, times as fast as numpy's BLAS.
BLAS_RATIO = 0.95
# A program of another backend takes at most this much of what ours takes.
SLOWER_THAN_OURS = 1.3
# Rows that may take longer than that on several threads with MLIR, and why; printed with the row.
REASONS: Mapping[str, str] = MappingProxyType(
    {
        "depthwise 14x14x512, 3x3, stride 2": "of its 6 us, 1 to 3 us are OpenMP's parallel loop, "
        "which costs that much when it is empty"
    }
)


@dataclass(frozen=True)
class Row:
    """An operator to compare.

    Attributes:
        name: For people, and for ``--only``.
        workload: Name of its builder; those of `backend_workloads.py` are operators, too.
        shape: Arguments of the builder.
        quick: Whether it is in the reduced set.
        dtype: Of the factors, if it is another one than the builder's own.
    """

    name: str
    workload: str
    shape: Mapping[str, int]
    quick: bool = False
    dtype: str | None = None

    def made(self) -> Any:
        """The workload."""
        from support.backend_workloads import made

        return made(self.workload, self.shape, self.dtype)

    def tuned(self) -> tuple[str, Mapping[str, int], tuple[str, ...]]:
        """The workload, shape and further arguments of ``autotune tune``."""
        from support.backend_workloads import tuned

        return tuned(self.workload, self.shape, self.dtype)


ROWS = (
    Row("gemm 512^3", "gemm", {"m": 512, "n": 512, "k": 512}, quick=True),
    Row("gemm 1024^3", "gemm", {"m": 1024, "n": 1024, "k": 1024}),
    Row("odd gemm 511^3", "gemm", {"m": 511, "n": 511, "k": 511}),
    Row("batch_matmul 12x128x64x128", "batch_matmul", {"b": 12, "m": 128, "k": 64, "n": 128}),
    Row(
        "conv2d 56x56x64 -> 64, 3x3",
        "conv2d",
        {"h": 56, "w": 56, "ci": 64, "co": 64, "pad": 1},
    ),
    Row(
        "conv2d 14x14x256 -> 256, 3x3",
        "conv2d",
        {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1},
        quick=True,
    ),
    Row(
        "depthwise 14x14x512, 3x3, stride 2",
        "depthwise_conv2d",
        {"h": 14, "w": 14, "c": 512, "pad": 1, "stride": 2},
        quick=True,
    ),
    Row("softmax 512x512", "softmax", {"m": 512, "n": 512}, quick=True),
    Row("elementwise 2048x1024", "elementwise", {"m": 2048, "n": 1024}, quick=True),
    Row("layer norm 1024x1024", "layer_norm", {"m": 1024, "n": 1024}),
    Row("argmax 1024x1024", "argmax", {"m": 1024, "n": 1024}),
    Row("concat and transpose 512x768", "concat_transpose", {"m": 512, "n": 768}),
    Row("bfloat16 gemm 512^3", "gemm", {"m": 512, "n": 512, "k": 512}, dtype="bfloat16"),
    Row("int8 gemm 512^3", "gemm", {"m": 512, "n": 512, "k": 512}, dtype="int8"),
    Row(
        "conv2d 28x28, 4 groups of 32 -> 32, 3x3",
        "grouped_conv2d",
        {"h": 28, "w": 28, "g": 4, "ci": 32, "co": 32},
    ),
    Row(
        "transposed conv2d 14x14x64 -> 64, 4x4, stride 2",
        "transposed_conv2d",
        {"h": 14, "w": 14, "ci": 64, "co": 64},
    ),
    Row("causal attention 8x128x64", "attention", {"h": 8, "n": 128, "d": 64, "causal": 1}),
    Row(
        "attention 8x128x32 with 2 heads of keys",
        "shared_attention",
        {"h": 8, "g": 4, "n": 128, "d": 32},
    ),
    Row(
        "embedding bag 256x32x128",
        "embedding_bag",
        {"bags": 256, "most": 32, "words": 4096, "width": 128},
    ),
)


@dataclass
class Tuning:
    """Cost of a tuning run of one backend.

    Attributes:
        seconds: Wall seconds after the start-up.
        measured: Candidates that were measured, failures included.
        failures: How many candidates came to each kind of failure.
        messages: The first message of each kind.
        build_seconds: Median seconds of building a candidate.
        compiler: The compiler and its version.
    """

    seconds: float
    measured: int
    failures: dict[str, int]
    messages: dict[str, str]
    build_seconds: float
    compiler: str

    @property
    def per_second(self) -> float:
        """Candidates per second."""
        return self.measured / self.seconds


@dataclass
class Trial:
    """An operator with one seed, on a number of threads.

    Attributes:
        row: Name of the row.
        threads: Threads of all contenders.
        seed: Seed of all runs.
        tunings: What each backend's run cost.
        final: Seconds per call of each contender in each round of the final timing.
        errors: Why a contender is missing.
    """

    row: str
    threads: int
    seed: int
    tunings: dict[str, Tuning] = field(default_factory=dict)
    final: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def latency(self, contender: str) -> float | None:
        """Median seconds per call."""
        return statistics.median(self.final[contender]) if contender in self.final else None

    def ratio(self, contender: str, to: str) -> float | None:
        """Seconds of a contender over those of another: the median over the rounds."""
        if contender not in self.final or to not in self.final:
            return None
        pairs = zip(self.final[contender], self.final[to], strict=True)
        return statistics.median(one / other for one, other in pairs)


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    rows = [row for row in ROWS if row.quick or not options.quick]
    if options.only:
        rows = [row for row in ROWS if row.name in options.only]
    seeds = "1 seed" if options.seeds == 1 else f"{options.seeds} seeds"
    print(f"{options.trials} trials, {seeds}", flush=True)
    trials = []
    for threads in options.threads:
        for row in rows:
            print(f"\n{row.name}, {threads_text(threads)}", flush=True)
            for seed in range(options.seeds):
                trials.append(run_trial(options, row, threads, seed))
                print_trial(trials[-1])
            if reason := reason_of(row.name, threads):
                print(f"    {reason}", flush=True)
    print_table(trials)
    data = {"trials": [asdict(trial) for trial in trials], "reasons": dict(REASONS)}
    return Report(data, bars_of(trials))


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with defaults that depend on each other filled in."""
    parser.add_argument("--trials", type=int, default=64, help="budget of each run; default 64")
    parser.add_argument("--seeds", type=int, help="number of seeds; 3, or 1 with --quick")
    parser.add_argument("--threads", type=int, nargs="+", help="1 and all cores if not given")
    parser.add_argument(
        "--only", nargs="+", metavar="ROW", choices=[row.name for row in ROWS], help="these rows"
    )
    options = parser.parse_args(arguments)
    if options.seeds is None:
        options.seeds = 1 if options.quick else 3
    if options.threads is None:
        options.threads = sorted({1, cores()})
    return options


def reason_of(row: str, threads: int) -> str:
    """Say why a row may take longer than the bar allows; empty where it may not."""
    return REASONS.get(row, "") if threads > 1 else ""


def threads_text(threads: int) -> str:
    """``1 thread``."""
    return "1 thread" if threads == 1 else f"{threads} threads"


def run_trial(options: argparse.Namespace, row: Row, threads: int, seed: int) -> Trial:
    """Tune an operator with each backend, then time the results, numpy and torch in turns."""
    trial = Trial(row.name, threads, seed)
    workload = row.made()
    described = workload.to_json()
    with tempfile.TemporaryDirectory() as folder:
        requests: dict[str, tuple[dict[str, Any], str]] = {}
        for backend in BACKENDS:
            database = Path(folder) / f"{backend}.db"
            try:
                trial.tunings[backend] = run_tuning(options, row, threads, seed, backend, database)
            except TuningFailed as error:
                trial.errors[backend] = str(error)
                continue
            request = {"kind": "record", "database": str(database), "workload": described}
            requests[backend] = ({**request, "backend": backend}, sys.executable)
        if row.workload in IN_NUMPY and row.dtype is None:
            requests["numpy"] = ({"kind": "numpy", "workload": described}, sys.executable)
        if row.workload in IN_TORCH and row.dtype is None:
            call = {"workload": row.workload, "parameters": dict(workload.parameters)}
            requests["torch"] = ({"kind": "torch", **call}, options.torch_python)
        given = {
            name: ({**request, "threads": threads}, python)
            for name, (request, python) in requests.items()
        }
        trial.final, missing = compare(given)
    trial.errors.update(missing)
    return trial


def run_tuning(
    options: argparse.Namespace, row: Row, threads: int, seed: int, backend: str, database: Path
) -> Tuning:
    """Tune an operator with one backend; returns what it cost."""
    from autotune import RecordFilter, open_database

    workload, shape, arguments = row.tuned()
    result, _ = tune(
        workload,
        shape,
        options.trials,
        seed,
        database,
        backend=backend,
        threads=threads,
        arguments=arguments,
    )
    with open_database(database, read_only=True) as records:
        builds = [
            record.outcome.timings["build"]
            for record in records.records(RecordFilter())
            if "build" in record.outcome.timings and not record.outcome.duplicate_of
        ]
    counts: dict[str, int] = result["outcomes"]
    return Tuning(
        seconds=result["seconds"]["total"] - result["seconds"]["startup"],
        measured=result["trials"],
        failures={kind: count for kind, count in counts.items() if kind != "ok" and count},
        messages=result["failures"],
        build_seconds=statistics.median(builds),
        compiler=result["backend"]["compiler"],
    )


def print_trial(trial: Trial) -> None:
    """The contenders with their latency, and what the runs cost."""
    for name in CONTENDERS:
        if name in trial.errors:
            print(f"    {name:<6} not measured: {trial.errors[name]}", flush=True)
            continue
        latency, ratio = trial.latency(name), trial.ratio(name, OURS)
        if latency is None:
            continue
        of_ours = "" if ratio is None else f"{ratio:6.2f}x"
        print(f"    {name:<6} {latency * 1e3:9.3f} ms {of_ours:>7}", end="")
        if name in trial.tunings:
            tuning = trial.tunings[name]
            print(f"   build {tuning.build_seconds * 1e3:4.0f} ms", end="")
            print(f"   {tuning.per_second:5.1f} candidates/s", end="")
            print(f"   {failures_text(tuning)}", end="")
            for kind, message in tuning.messages.items():
                print(f"\n           {kind}: {message}", end="")
        print(flush=True)


def failures_text(tuning: Tuning) -> str:
    """``2 invalid, 1 timeout``."""
    named = ", ".join(f"{count} {kind}" for kind, count in tuning.failures.items())
    return named or "no failures"


def print_table(trials: Sequence[Trial]) -> None:
    """A line for each operator and number of threads: medians of the seeds, in milliseconds."""
    print("\nmedians of the seeds: ms per call; ms per build; candidates/s; failures in all")
    heads = [*CONTENDERS, *(f"{b}/{OURS}" for b in OTHERS), *(f"build {b}" for b in BACKENDS)]
    heads += [*(f"{backend}/s" for backend in BACKENDS), *(f"fail {b}" for b in BACKENDS)]
    print(f"{'':<46}" + "".join(f"{head:>12}" for head in heads))
    for label, group in groups(trials).items():
        cells = [in_milliseconds(of_all(group, name)) for name in CONTENDERS]
        for backend in OTHERS:
            slower = median_of([trial.ratio(backend, OURS) for trial in group])
            cells.append("" if slower is None else f"{slower:.2f}")
        for attribute, scale in (("build_seconds", 1e3), ("per_second", 1.0)):
            for backend in BACKENDS:
                tunings = [t.tunings[backend] for t in group if backend in t.tunings]
                middle = median_of([getattr(tuning, attribute) for tuning in tunings])
                cells.append("" if middle is None else f"{middle * scale:.1f}")
        for backend in BACKENDS:
            tunings = [t.tunings[backend] for t in group if backend in t.tunings]
            cells.append(str(sum(sum(tuning.failures.values()) for tuning in tunings)))
        print(f"{label:<46}" + "".join(f"{cell:>11}" for cell in cells), flush=True)


def groups(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The trials of each operator and number of threads."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(f"{trial.row}, {threads_text(trial.threads)}", []).append(trial)
    return found


def of_all(trials: Sequence[Trial], contender: str) -> float | None:
    """Median latency of a contender over the seeds."""
    return median_of([trial.latency(contender) for trial in trials])


def in_milliseconds(seconds: float | None) -> str:
    """A cell of the table."""
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def bars_of(trials: Sequence[Trial]) -> list[Bar]:
    """The promises: matrix products near numpy's BLAS, and no backend far behind ours."""
    bars = []
    for label, group in groups(trials).items():
        row = group[0].row
        if row.startswith("gemm"):
            value = median_of([trial.ratio("numpy", OURS) for trial in group])
            note = why_missing(group, OURS)
            bars.append(Bar(f"{label}, times numpy's BLAS", value, BLAS_RATIO, note=note))
        for backend in OTHERS:
            if backend == "mlir" and reason_of(row, group[0].threads):
                continue
            slower = median_of([trial.ratio(backend, OURS) for trial in group])
            name, note = f"{label}, seconds of {backend} over ours", why_missing(group, backend)
            bars.append(Bar(name, slower, SLOWER_THAN_OURS, at_most=True, note=note))
    return bars


def why_missing(trials: Sequence[Trial], backend: str) -> str:
    """Say why a backend has no program in one of several trials; empty where it has all."""
    return next((trial.errors[backend] for trial in trials if backend in trial.errors), "")


if __name__ == "__main__":
    from bench import main

    sys.exit(main(["backends", *sys.argv[1:]]))
