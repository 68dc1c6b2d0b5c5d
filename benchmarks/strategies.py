"""Comparison of strategies on real programs, for equal trials and for equal wall time.

Every contender tunes every workload with several seeds, each in a fresh process with an empty
database. After each run everything that was its best program for a while is built again and timed
in turns: that tells when it had found what. When all runs of a workload are there, their winners
take turns, too: by these latencies runs are compared. A run, and the turns of a workload, are
pieces: they are appended to ``--results``, and what is there already is not done again.
``--report`` shows what is there and measures nothing.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.common import Report, Turns, compare, cores, machine, shape_text
from support.common import metaschedule as run_metaschedule
from support.strategy_report import (
    ABLATIONS,
    METASCHEDULE,
    ROUND_SIZE,
    Study,
    bars_of,
    print_report,
)

from autotune import make_workload
from autotune.evaluation.compare import (
    RunFailed,
    append_piece,
    named_arguments,
    read_pieces,
    tune_once,
)
from autotune.plugins.manager import manager

TRIALS, SEEDS, METASCHEDULE_SEEDS, QUICK_SEEDS = 200, 5, 3, 1


@dataclass(frozen=True)
class Workload:
    """An operator to tune.

    Attributes:
        builder: Name of its builder.
        shape: Arguments of the builder.
        compute_bound: Whether arithmetic limits it, and not memory.
        quick: Whether it is in the reduced set.
    """

    builder: str
    shape: Mapping[str, int]
    compute_bound: bool = True
    quick: bool = False


# No data that a shipped model is trained on has these shapes: see docs/datasets.md.
WORKLOADS = {
    "gmm": Workload("gemm", {"m": 512, "n": 512, "k": 512}, quick=True),
    "bmm": Workload("batch_matmul", {"b": 12, "m": 128, "k": 64, "n": 128}),
    "c2d": Workload("conv2d", {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1}),
    "cbr": Workload(
        "conv2d",
        {"h": 56, "w": 56, "ci": 64, "co": 128, "pad": 1, "stride": 2, "bias": 1, "relu": 1},
    ),
    "dep": Workload(
        "depthwise_conv2d",
        {"h": 14, "w": 14, "c": 512, "pad": 1, "stride": 2},
        compute_bound=False,
    ),
    "sfm": Workload("softmax", {"m": 512, "n": 512}, compute_bound=False, quick=True),
}
COMPUTE_BOUND = tuple(name for name, workload in WORKLOADS.items() if workload.compute_bound)

# What `autotune tune` is given. Any other strategy joins with --contender.
STRATEGIES: dict[str, tuple[str, ...]] = {
    name: ("--strategy", name)
    for name in (
        *("random", "evolutionary", "pruner", "moa-pruner"),
        *("felix", "heron", "heron-random", "heron-ga"),
    )
}
CHECKPOINTED = "moa-pruner"
CHECKPOINT = "pacm-cpu"


@dataclass(frozen=True)
class Piece:
    """A run of one contender on one workload with one seed."""

    workload: str
    contender: str
    seed: int
    trials: int

    @staticmethod
    def of(data: Mapping[str, Any]) -> Piece:
        """The piece that a line of the results is."""
        return Piece(data["workload"], data["contender"], data["seed"], data["trials"])

    @property
    def label(self) -> str:
        """Among all runs of a workload."""
        return f"{self.contender}/{self.seed}"


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        results = options.results or Path(folder) / "strategies.jsonl"
        wanted = wanted_pieces(options, results)
        if not options.report:
            measure_all(options, wanted, results)
        study = Study.read(read_pieces(results), options.trials)
    study = study.only({(p.workload, p.contender, p.seed) for p in wanted})
    print_report(study)
    expected = {(p.workload, p.contender): 0 for p in wanted}
    for piece in wanted:
        expected[piece.workload, piece.contender] += 1
    bars = bars_of(study, expected, COMPUTE_BOUND) if options.trials == TRIALS else []
    return Report(study.to_json(), bars)


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser.add_argument("--results", type=Path, metavar="FILE", help="where the pieces are")
    parser.add_argument("--report", action="store_true", help="only show what is in --results")
    parser.add_argument("--workloads", help=f"which of {', '.join(WORKLOADS)}")
    parser.add_argument("--contenders", help="which; by default all that are installed")
    parser.add_argument(
        "--contender",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "ARGUMENTS"),
        help="another, such as: grid '--strategy grid'",
    )
    parser.add_argument(
        "--checkpoint",
        default=CHECKPOINT,
        metavar="FILE|NAME",
        help=f"trained model that {CHECKPOINTED} begins with; {CHECKPOINT}, which comes with it",
    )
    parser.add_argument("--threads", type=int, help="of all programs; default one per core")
    parser.add_argument("--trials", type=int, default=TRIALS, help="budget; bars need the default")
    parser.add_argument("--seeds", type=int, help=f"{SEEDS}, or {QUICK_SEEDS} with --quick")
    parser.add_argument("--metaschedule-seeds", type=int, default=METASCHEDULE_SEEDS)
    parser.add_argument("--metaschedule-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--time", type=float, help="seconds after which no piece is begun")
    options = parser.parse_args(arguments)
    options.seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    if options.report and (options.results is None or not options.results.exists()):
        parser.error("--report needs a file of --results that exists")
    if options.check and options.trials != TRIALS:
        parser.error(f"--check needs {TRIALS} trials: the bars are about them")
    options.own = {name: tuple(shlex.split(text)) for name, text in options.contender}
    for name in sorted({*STRATEGIES, METASCHEDULE} & set(options.own)):
        parser.error(f"--contender {name}: that name is taken")
    quick = [name for name, it in WORKLOADS.items() if it.quick or not options.quick]
    options.workloads = options.workloads.split(",") if options.workloads else quick
    if options.contenders:
        options.contenders = [*options.contenders.split(","), *options.own]
    strategies = {it for it in STRATEGIES if it in manager().names("strategy")}
    allowed = {*strategies, METASCHEDULE, *options.own}
    for given, known in ((options.workloads, WORKLOADS), (options.contenders or (), allowed)):
        unknown = sorted(set(given) - set(known))
        if unknown and not (options.report and known is allowed):
            parser.error(f"there is no {unknown[0]!r} here, only {', '.join(sorted(known))}")
    return options


def wanted_pieces(options: argparse.Namespace, results: Path) -> list[Piece]:
    """The runs that are asked for, all contenders in turns, so that none has the quiet hours."""
    contenders = options.contenders
    if contenders is None and options.report:
        found = [Piece.of(line) for line in read_pieces(results) if line["kind"] == "run"]
        contenders = list(dict.fromkeys(piece.contender for piece in found))
    elif contenders is None:
        contenders = [*installed(options), *options.own]
    return [
        Piece(workload, contender, seed, options.trials)
        for seed in range(max(options.seeds, options.metaschedule_seeds))
        for workload in options.workloads
        for contender in contenders
        if seed < (options.metaschedule_seeds if contender == METASCHEDULE else options.seeds)
    ]


def installed(options: argparse.Namespace) -> list[str]:
    """Contenders that are installed; no ablations nor MetaSchedule where it has to be quick."""
    known = manager().names("strategy")
    names = [name for name in STRATEGIES if name in known]
    if options.quick:
        ablations = {it for found in ABLATIONS.values() for it in found}
        names = [name for name in names if name not in ablations]
    return names if options.quick else [*names, METASCHEDULE]


def arguments_of(options: argparse.Namespace, contender: str) -> list[str]:
    """Arguments of `autotune tune` for a contender."""
    arguments = ["--round-size", str(ROUND_SIZE), *threads_of(options)]
    if contender in options.own:
        return [*arguments, *options.own[contender]]
    arguments += STRATEGIES[contender]
    if contender == CHECKPOINTED:
        arguments += ["--load-cost-model", options.checkpoint]
    return arguments


def threads_of(options: argparse.Namespace) -> list[str]:
    """Arguments of contenders about threads: none where they have all cores."""
    return [] if options.threads is None else ["--threads", str(options.threads)]


def told_arguments(options: argparse.Namespace, contender: str) -> list[str]:
    """The same for the results."""
    if contender == METASCHEDULE:
        return threads_of(options)
    return list(named_arguments(arguments_of(options, contender)))


def measure_all(options: argparse.Namespace, wanted: Sequence[Piece], results: Path) -> None:
    """Do the pieces that are missing, and time the winners of workloads that are complete."""
    print("{processor}, {cores} cores, load {load:.1f}".format(**machine()), flush=True)
    began = time.monotonic()
    named = {
        contender: told_arguments(options, contender)
        for contender in {piece.contender for piece in wanted}
    }
    check_same_arguments(read_pieces(results), named)
    for piece in wanted:
        if options.time is not None and time.monotonic() - began > options.time:
            return
        done = [Piece.of(line) for line in read_pieces(results) if line["kind"] == "run"]
        if piece not in done and (line := run_piece(options, piece)) is not None:
            line = {"kind": "run", **vars(piece), "arguments": named[piece.contender], **line}
            append_piece(results, {**line, "machine": machine()})
    for workload in options.workloads:
        if options.time is not None and time.monotonic() - began > options.time:
            return
        time_winners(options, workload, [p for p in wanted if p.workload == workload], results)


def check_same_arguments(lines: Sequence[Mapping[str, Any]], named: Mapping[str, Any]) -> None:
    """Refuse to mix runs of one name that are not of one kind."""
    for line in lines:
        if line["kind"] == "run":
            name = line["contender"]
            if line["arguments"] != named.get(name, line["arguments"]):
                raise SystemExit(
                    f"the results have runs of {name} with {shlex.join(line['arguments'])}, not "
                    f"{shlex.join(named[name])}: use another file, or another name"
                )


def run_piece(options: argparse.Namespace, piece: Piece) -> dict[str, Any] | None:
    """Do one run; returns what is kept of it, or None where it failed, which is printed."""
    workload = WORKLOADS[piece.workload]
    print(f"{piece.workload} {piece.label}", end=": ", flush=True)
    if piece.contender == METASCHEDULE:
        line, why = run_metaschedule(
            options.metaschedule_python,
            workload.builder,
            workload.shape,
            piece.trials,
            piece.seed,
            options.threads,
        )
        if line is None:
            print(why, flush=True)
            return None
        kept = {"wall": line["seconds"], "latency": line["latency"], "module": line["module"]}
        kept["history"] = [[line["trials"] - 1, line["seconds"], line["latency"]]]
    else:
        try:
            kept = run_strategy(options, piece, workload)
        except RunFailed as error:
            print(error, flush=True)
            return None
    latency = kept["latency"]
    shown = "nothing valid" if latency is None else f"{latency * 1e3:.4g} ms"
    print(f"{shown} in {kept['wall']:.0f} s", flush=True)
    return kept


def run_strategy(options: argparse.Namespace, piece: Piece, workload: Workload) -> dict[str, Any]:
    """Tune with a strategy; returns what is kept of the run."""
    asked = [workload.builder, "--shape", shape_text(workload.shape), "--backend", "tvm"]
    asked += ["--trials", str(piece.trials), "--seed", str(piece.seed)]
    kept = tune_once([*asked, *arguments_of(options, piece.contender)])
    return {**kept, "rounds": -(-len(kept["history"]) // ROUND_SIZE)}


def time_winners(
    options: argparse.Namespace, workload: str, wanted: Sequence[Piece], results: Path
) -> None:
    """Time the winners of a workload's runs in turns, once all are there."""
    lines = read_pieces(results)
    runs = {Piece.of(line): line for line in lines if line["kind"] == "run"}
    missing = [piece.label for piece in wanted if piece not in runs]
    if missing:
        print(f"{workload}: no turns before there is {', '.join(missing)}", flush=True)
        return
    # Also of contenders that were not asked for now: latencies compare within one set of turns.
    winners = {
        piece.label: line
        for piece, line in runs.items()
        if piece.workload == workload and piece.trials == options.trials and line["latency"]
    }
    for line in lines:
        of_it = line["kind"] == "turns" and line["workload"] == workload
        if of_it and line["trials"] == options.trials and set(winners) <= set(line["turns"]):
            return
    if not winners:
        return
    print(f"{workload}: {len(winners)} winners take turns", flush=True)
    threads = options.threads or cores()
    turns, errors = compare(
        {label: request_of(line, threads) for label, line in winners.items()},
        turns_of(threads),
    )
    for label, why in errors.items():
        print(f"    {label} was not timed: {why}", flush=True)
    head = {"kind": "turns", "workload": workload, "trials": options.trials}
    append_piece(results, {**head, "turns": turns, "errors": errors, "machine": machine()})


def turns_of(threads: int) -> Turns:
    """Many short turns: a machine that others use changes its speed within one that is long.

    Only threads that poll for work need a pause, in which they stop; programs of one have none.
    """
    pause = 0.0 if threads == 1 else Turns.pause
    return Turns(rounds=100, pause=pause, samples=3, sample_seconds=2e-3)


def request_of(line: Mapping[str, Any], threads: int) -> tuple[dict[str, Any], str]:
    """Request for the programs of a run, on so many threads."""
    if line.get("schedule") is not None:
        request = {"kind": "schedule", "schedule": line["schedule"], "threads": threads}
        return request, sys.executable
    workload = WORKLOADS[line["workload"]]
    described = make_workload(workload.builder, workload.shape).to_json()
    request = {"kind": "module", "module": line["module"], "workload": described}
    return {**request, "threads": threads}, sys.executable
