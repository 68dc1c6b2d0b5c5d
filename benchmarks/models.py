"""Whole networks: tuned in minutes, beside what else runs them, and MetaSchedule.

Each network of the package is tuned for 5 and for 20 minutes in all, and timed in turns with torch
eager, torch.compile, ONNX Runtime, OpenVINO and TVM's default schedules; what was built after 5
and after 20 minutes, and by MetaSchedule in 20 minutes (ResNet-50 and BERT), is timed in turns,
too. Needs torch, and MetaSchedule the plugin for TVM; ONNX Runtime, OpenVINO and TVM take part
where they are installed.

It is resumable: what is done stays in ``--work``, and the same command goes on from there; remove
the folder to start over. ``--quick`` tunes two small networks in so many trials each, whatever
else the machine does, on one thread, and times them in short turns beside torch eager, ONNX
Runtime and OpenVINO; it has the bars on outputs and coverage only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from support.bars import REACHABLE, geometric_mean
from support.common import SUPPORT, Bar, Report, Turns, compare, environment
from support.metaschedule_network import LIBRARY, RECORDS
from support.steps import StepFailed, kept, output_of, session_within

# Times as fast as torch eager, each network.
EAGER_RATIO = 1.0
# Times as fast as the best of the others: the geometric mean over the networks, and each.
BEST_RATIO = 1.0
LEAST_RATIO = 0.85
METASCHEDULE_RATIO = 1.5
# Seconds after the smaller budget over those after the larger one.
EARLY_RATIO = 1.1
# Share of the flop that our own space can express.
COVERAGE = 0.99
# Share of a network's tuning that workers take to start.
STARTUP_SHARE = 0.1
# Share of the budget that a network's tuning uses; the rest is kept to build, check and time it.
TIME_USED = 0.8
WITH_METASCHEDULE = ("resnet_50", "bert_base")
BUDGETS, QUICK_TRIALS = (300, 1200), 128
# Threads of other programs that wait for one another take seconds for a call where cores are busy.
QUICK_THREADS = ("--threads", "1")
QUICK_BENCH = (
    *("--only", "autotune,torch eager,onnxruntime,openvino"),
    *("--turns", "3", "--seconds", "0.3"),
)
QUICK: Mapping[str, Mapping[str, int]] = {"mobilenet_v2": {}, "bert_base": {"layers": 2}}
OURS, EAGER = "autotune", "torch eager"
# A call takes milliseconds to a second.
TURNS = Turns(rounds=7, samples=3, sample_seconds=0.05)
HOLDING_BACK = 5


@dataclass
class Measured:
    """A network.

    Attributes:
        network: Its name.
        sizes: Its sizes that are not the published ones.
        coverage: What ``autotune model-tasks --json`` wrote.
        tuned: What ``autotune tune-model --json`` wrote, by its budget.
        bench: What ``autotune bench-model --json`` wrote after the largest budget.
        metaschedule: How many functions there are, and how many MetaSchedule tuned.
        final: Seconds per call of each library in each round: budgets, ``metaschedule``, and
            ``peak``: what its multiply-adds alone take.
        errors: Why something is missing.
        unit: Of budgets: seconds, or trials.
    """

    network: str
    sizes: Mapping[str, int]
    coverage: dict[str, Any] | None = None
    tuned: dict[int, dict[str, Any]] = field(default_factory=dict)
    bench: dict[str, Any] | None = None
    metaschedule: dict[str, Any] | None = None
    final: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    unit: str = "s"

    def runtime(self, name: str) -> dict[str, Any]:
        """Results of a runtime; nothing where it took no part."""
        rows = [] if self.bench is None else self.bench["runtimes"]
        return next((row for row in rows if row["runtime"] == name), {})

    def latency(self, runtime: str) -> float | None:
        """Seconds of an inference."""
        return self.runtime(runtime).get("latency")

    def speed_beside(self, runtime: str) -> float | None:
        """Times as fast as a runtime."""
        ours, theirs = self.latency(OURS), self.latency(runtime)
        return theirs / ours if ours and theirs else None

    def best_other(self) -> str | None:
        """The fastest of the other runtimes whose outputs are right."""
        rows = [] if self.bench is None else self.bench["runtimes"]
        others = {
            row["runtime"]: row["latency"]
            for row in rows
            if row["runtime"] != OURS and row["latency"] and not row["problem"]
        }
        return min(others, key=lambda name: others[name], default=None)

    def ratio(self, one: str, other: str) -> float | None:
        """Seconds of a library over those of another: the median over the rounds."""
        if one not in self.final or other not in self.final:
            return None
        pairs = zip(self.final[one], self.final[other], strict=True)
        return statistics.median(this / that for this, that in pairs)


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    budgets = sorted(options.budgets or ((QUICK_TRIALS,) if options.quick else BUDGETS))
    measured = [
        run_network(options, name, sizes, budgets) for name, sizes in options.networks.items()
    ]
    print_table(measured)
    data = {"networks": [asdict(one) for one in measured]}
    bars = quick_bars(measured) if options.quick else all_bars(measured, budgets)
    return Report(data, bars)


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with the networks that are meant."""
    parser.add_argument(
        "--work", type=Path, default=Path("build/models"), help="where steps are kept"
    )
    parser.add_argument("--only", nargs="+", metavar="NETWORK", help="these networks")
    parser.add_argument(
        "--budgets",
        type=positive,
        nargs="+",
        metavar="SECONDS",
        help=f"tune each network for so long (default: {' and '.join(map(str, BUDGETS))})",
    )
    parser.add_argument(
        "--metaschedule-python",
        default=sys.executable,
        metavar="PATH",
        help="interpreter with TVM, xgboost, cloudpickle and psutil, better without torch",
    )
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("torch") is None:
        parser.error("networks are built with torch: run this with an interpreter that has it")
    import autotune_zoo as zoo

    known = QUICK if options.quick else {name: {} for name in zoo.names()}
    for name in options.only or ():
        if name not in known:
            parser.error(f"--only: there is no network {name}; choose of {', '.join(known)}")
    options.networks = {
        name: sizes for name, sizes in known.items() if name in (options.only or known)
    }
    return options


def positive(text: str) -> int:
    """A number of seconds.

    Raises:
        ArgumentTypeError: it is none, or not positive.
    """
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return int(text)


def run_network(
    options: argparse.Namespace, name: str, sizes: Mapping[str, int], budgets: Sequence[int]
) -> Measured:
    """Everything about one network; what fails is named, and the rest goes on."""
    print(f"\n{name}", *(f"{key}={value}" for key, value in sizes.items()), flush=True)
    kind = "quick" if options.quick else "full"
    folder = options.work.absolute() / kind / name
    folder.mkdir(parents=True, exist_ok=True)
    in_trials = options.quick and not options.budgets
    measured = Measured(name, sizes, unit="trials" if in_trials else "s")
    model = ["--network", name, *(f"--size={key}={value}" for key, value in sizes.items())]
    model += QUICK_THREADS if options.quick else ()
    limit = "--trials" if in_trials else "--time"
    database = ["--database", str(folder / "records.db")]

    def done(step: str, make: Callable[[], Any]) -> Any:
        return kept(folder / f"{step}.json", measured.errors, step, make)

    measured.coverage = done("coverage", lambda: autotune("model-tasks", *model))
    libraries = {}
    for budget in budgets:
        library = folder / f"tuned-{budget}.so"
        arguments = [*model, *database, limit, str(budget), "-o", str(library), "--quiet"]
        tuned = done(f"tuned-{budget}", lambda given=arguments: autotune("tune-model", *given))
        if tuned is not None:
            measured.tuned[budget] = tuned
            libraries[str(budget)] = library
    if libraries:
        beside = [*model, *database, "--quiet", *(QUICK_BENCH if options.quick else ())]
        measured.bench = done("bench", lambda: autotune("bench-model", *beside))
    if name in WITH_METASCHEDULE and not options.quick:
        measured.metaschedule = done(
            "metaschedule",
            lambda: metaschedule(options, folder / "metaschedule", model, budgets[-1]),
        )
        if measured.metaschedule is not None:
            libraries["metaschedule"] = folder / "metaschedule" / LIBRARY
    if len(libraries) > 1:
        tensors = next(iter(measured.tuned.values()))["network"]["inputs"]
        flop = next(iter(measured.tuned.values()))["network"]["flop"]
        measured.final = done("final", lambda: in_turns(libraries, tensors, flop)) or {}
    print_network(measured)
    return measured


def autotune(command: str, *arguments: str) -> Any:
    """The JSON of one of our commands.

    Raises:
        StepFailed: it failed.
    """
    given = [sys.executable, "-m", "autotune", command, *arguments, "--json", "-"]
    return json.loads(output_of(given, environment()))


def metaschedule(
    options: argparse.Namespace, folder: Path, model: Sequence[str], seconds: float
) -> dict[str, Any]:
    """Tune a network with MetaSchedule for so long, and build it.

    Raises:
        StepFailed: a step failed, or nothing was measured.
    """
    script = str(SUPPORT / "metaschedule_network.py")
    size = [part.replace("--size=", "") for part in model[2:]]
    sizes = [text for one in size for text in ("--size", one)]
    prepare = [sys.executable, script, "prepare", str(folder), "--network", model[1], *sizes]
    output_of(prepare, environment())
    tune = [options.metaschedule_python, script, "tune", str(folder)]
    run_for(tune, seconds)
    measured = folder / RECORDS / "database_tuning_record.json"
    if not measured.exists() or not measured.stat().st_size:
        raise StepFailed(f"MetaSchedule has measured nothing in {seconds:g} s")
    built: dict[str, Any] = json.loads(
        output_of([sys.executable, script, "build", str(folder)], environment())
    )
    return built


def run_for(command: Sequence[str], seconds: float) -> None:
    """Run a command that does not end by itself for so long, with all processes that it starts.

    Raises:
        StepFailed: it ended before.
    """
    ended = session_within(command, seconds, environment())
    if ended is not None:
        raise StepFailed(ended[1] or "it ended too soon")


def in_turns(
    libraries: Mapping[str, Path], inputs: Sequence[Mapping[str, Any]], flop: int
) -> dict[str, list[float]]:
    """Seconds per call of libraries of one network, and of its multiply-adds alone, in turns.

    Raises:
        StepFailed: one of them does not run.
    """
    requests = {
        name: ({"kind": "library", "library": str(path), "inputs": list(inputs)}, sys.executable)
        for name, path in libraries.items()
    }
    requests["peak"] = ({"kind": "peak", "flop": flop}, sys.executable)
    final, errors = compare(requests, TURNS)
    if errors:
        raise StepFailed("; ".join(f"{name}: {why}" for name, why in errors.items()))
    return final


def print_network(measured: Measured) -> None:
    """Every runtime, what tuning cost, and what holds the network back where it is slow."""
    for row in [] if measured.bench is None else measured.bench["runtimes"]:
        latency = row["latency"]
        text = "not timed" if latency is None else f"{1e3 * latency:9.2f} ms"
        problem = f"   {row['problem']}" if row["problem"] else ""
        print(f"    {row['runtime']:<14} {text}{problem}", flush=True)
    for budget, tuned in measured.tuned.items():
        share = startup_share(tuned)
        print(
            f"    {budget} {measured.unit}: {tuned['trials']} trials, start-up "
            f"{'unknown' if share is None else f'{share:.0%}'}, "
            f"estimated {milliseconds(tuned['latency'])}",
            flush=True,
        )
    for name, seconds in measured.final.items():
        print(f"    in turns: {name:<14} {1e3 * statistics.median(seconds):9.2f} ms", flush=True)
    ratio = measured.speed_beside(measured.best_other() or "")
    if ratio is not None and ratio < 1.0:
        print_what_holds_back(measured)


def print_what_holds_back(measured: Measured) -> None:
    """The tasks that take most of the time, and what each is run by."""
    if not measured.tuned:
        return
    tuned = measured.tuned[max(measured.tuned)]
    whole = sum(task["total"] or 0.0 for task in tuned["tasks"])
    slowest = sorted(tuned["tasks"], key=lambda task: -(task["total"] or 0.0))[:HOLDING_BACK]
    for task in slowest:
        seconds = task["total"] or 0.0
        rate = task["flop"] * task["occurrences"] / seconds / 1e9 if seconds else 0.0
        reason = f": {task['reason']}" if task["reason"] else ""
        print(
            f"      {task['name'][:48]:<48} {seconds / whole:5.0%} {rate:7.1f} Gflop/s, "
            f"{task['trials']} trials, {task['run_by']}{reason}",
            flush=True,
        )


def print_table(measured: Sequence[Measured]) -> None:
    """A line for each network, in milliseconds."""
    runtimes = list(
        dict.fromkeys(
            row["runtime"]
            for one in measured
            if one.bench is not None
            for row in one.bench["runtimes"]
        )
    )
    print("\n" + f"{'ms per inference':<20}" + "".join(f"{name:>15}" for name in runtimes))
    for one in measured:
        cells = [milliseconds(one.latency(name)) for name in runtimes]
        print(f"{one.network:<20}" + "".join(f"{cell:>15}" for cell in cells), flush=True)


def milliseconds(seconds: float | None) -> str:
    """A cell of the table."""
    return "-" if seconds is None else f"{1e3 * seconds:.2f} ms"


def startup_share(tuned: Mapping[str, Any]) -> float | None:
    """Share of a network's tuning that workers took to start."""
    total = tuned["seconds"].get("total")
    return tuned["seconds"]["startup"] / total if total else None


def quick_bars(measured: Sequence[Measured]) -> list[Bar]:
    """Outputs equal the model's, and our own space has the flop."""
    bars = []
    for one in measured:
        row = one.runtime(OURS)
        note = row.get("problem") or "; ".join(f"{k}: {v}" for k, v in one.errors.items())
        name = f"{one.network}, error of the outputs over what is allowed"
        bars.append(Bar(name, row.get("error"), 1.0, at_most=True, note=note))
        found = one.coverage
        share = found["tunable_flop"] / found["flop"] if found else None
        bars.append(Bar(f"{one.network}, share of flop in our space", share, COVERAGE))
    return bars


def all_bars(measured: Sequence[Measured], budgets: Sequence[int]) -> list[Bar]:
    """Promises of whole networks."""
    bars = quick_bars(measured)
    early, late = map(str, (min(budgets), max(budgets)))
    for one in measured:
        bars.append(Bar(f"{one.network}, times eager", one.speed_beside(EAGER), EAGER_RATIO))
        beside_best = one.speed_beside(one.best_other() or "")
        bars.append(Bar(f"{one.network}, times the best of the others", beside_best, LEAST_RATIO))
        if early != late:
            name = f"{one.network}, seconds after {early} s of tuning over those after {late} s"
            bars.append(Bar(name, one.ratio(early, late), EARLY_RATIO, at_most=True))
        tuned = one.tuned.get(max(budgets))
        share = None if tuned is None else startup_share(tuned)
        name = f"{one.network}, share of start-up in tuning"
        bars.append(Bar(name, share, STARTUP_SHARE, at_most=True))
        used = None if tuned is None else tuned["seconds"]["total"] / max(budgets)
        bars.append(Bar(f"{one.network}, share of {late} s that is used", used, TIME_USED))
        if one.network in WITH_METASCHEDULE:
            name = f"{one.network}, times MetaSchedule in {late} s"
            peak = one.ratio("metaschedule", "peak")
            ceiling = None if peak is None else REACHABLE * peak
            ratio = one.ratio("metaschedule", late)
            bars.append(Bar(name, ratio, METASCHEDULE_RATIO, ceiling=ceiling))
    others = [one.speed_beside(one.best_other() or "") for one in measured]
    bars.append(
        Bar("times the best of the others, geometric mean", geometric_mean(others), BEST_RATIO)
    )
    return bars


if __name__ == "__main__":
    from bench import main

    sys.exit(main(["models", *sys.argv[1:]]))
