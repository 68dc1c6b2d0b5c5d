"""On a CUDA device: a whole network, tuned with 2000 trials, beside what else runs it.

In float32 and in half precision, batch 1: ``autotune tune-model``, then ``bench-model`` times the
network in turns with TVM's default schedules, torch eager and ``torch.compile``, each as one CUDA
graph on a warm device. With ``--metaschedule-python``, an interpreter that MetaSchedule runs in,
it tunes the same functions with as many trials; its network is timed by itself, the same way.

It is resumable: a call works for about ``--seconds``, and says what is left to do; the same
command goes on from what is in ``--work``. ``--check`` has bars on what was computed and timed;
there are none on speed beside others, which was not measured on a device yet. Needs torch with
CUDA.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from support.common import SUPPORT, Bar, Report, environment
from support.metaschedule_network import recorded_trials
from support.steps import StepFailed, kept, output_of, session_within

from autotune.targets import load_driver, matching_device, resolve

SECONDS, LEAST_SECONDS = 540.0, 60.0
TRIALS, QUICK_TRIALS = 2000, 128
QUICK_SIZES = {"image": 64, "blocks": 1}
PRECISIONS = ("float32", "float16", "bfloat16")
OURS, UNTUNED, EAGER, COMPILED = "autotune", "untuned", "torch eager", "torch.compile"
# A tuned network is no slower than without tuning.
DEFAULT_RATIO = 1.0
NOT_DONE = 3


@dataclass
class Measured:
    """A network in one precision; seconds everywhere.

    Attributes:
        precision: Its name.
        tuned: The last session of tuning: ``done``, ``seconds`` of all, and its ``result``.
        bench: What ``autotune bench-model --json`` wrote.
        metaschedule: What `metaschedule_network.py` said of its network: ``latency``, ``call``,
            ``trials``, ``tuned`` and ``functions``, ``error``, and ``seconds`` of tuning.
        errors: Why something is missing.
    """

    precision: str
    tuned: dict[str, Any] | None = None
    bench: dict[str, Any] | None = None
    metaschedule: dict[str, Any] | None = None
    errors: dict[str, str] = field(default_factory=dict)

    def runtime(self, name: str) -> dict[str, Any]:
        """Results of a runtime; nothing where it took no part."""
        rows = [] if self.bench is None else self.bench["runtimes"]
        return next((row for row in rows if row["runtime"] == name), {})

    def ratio(self, name: str) -> float | None:
        """Times as fast as a runtime."""
        ours = self.runtime(OURS).get("latency")
        if name == "metaschedule":
            theirs = (self.metaschedule or {}).get("latency")
        else:
            theirs = self.runtime(name).get("latency")
        return theirs / ours if ours and theirs else None

    @property
    def error(self) -> float | None:
        """The largest difference of all outputs, over what is allowed."""
        found = [self.runtime(name).get("error") for name in (OURS, UNTUNED, EAGER, COMPILED)]
        if self.metaschedule is not None:
            found.append(self.metaschedule["error"])
        return None if None in found else max(map(float, filter(_is_known, found)), default=None)


def _is_known(value: object) -> bool:
    return value is not None


class NotDone(Exception):
    """The time of this call is over before all is done; says what is left."""


def run(options: argparse.Namespace) -> Report | None:
    """Measure; None for a session, and where there is something left to do.

    Raises:
        AutotuneError: there is no such device.
    """
    if options.session is not None:
        print(json.dumps(session(options)))
        return None
    matching_device(resolve(options.target), load_driver())
    end = time.monotonic() + options.seconds
    measured = [Measured(name) for name in options.precisions]
    try:
        for one in measured:
            run_precision(options, one, lambda: end - time.monotonic())
    except NotDone as left:
        print(f"{left}: the same command goes on from {options.work}", flush=True)
        return Report({}, (), NOT_DONE)
    print_table(measured)
    data = {"network": options.network, "rows": [*map(asdict, measured)]}
    return Report(data, bars_of(measured))


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser.add_argument("--network", default="resnet_50", help="of this package")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--trials", type=int, help=f"default {TRIALS}, {QUICK_TRIALS} if quick")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS[:2])
    parser.add_argument("--work", type=Path, default=Path("build/cuda_network"))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of this call")
    parser.add_argument("--metaschedule-python", metavar="PATH", help="run MetaSchedule by that")
    parser.add_argument("--session", metavar="PRECISION", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.sizes = QUICK_SIZES if options.quick else {}
    options.trials = options.trials or (QUICK_TRIALS if options.quick else TRIALS)
    options.work = options.work.absolute() / ("quick" if options.quick else "full")
    return options


def run_precision(options: argparse.Namespace, one: Measured, left: Callable[[], float]) -> None:
    """Everything in one precision; what fails is named, and the rest goes on.

    Raises:
        NotDone: there is no time left for the next part.
    """
    print(f"\n{options.network}, {one.precision}", flush=True)
    folder = options.work / options.network / one.precision
    folder.mkdir(parents=True, exist_ok=True)
    one.tuned = tuned(options, one, folder, left)
    if options.metaschedule_python:
        one.metaschedule = with_metaschedule(options, one, folder, left)
    # Compiled ahead: what Inductor has found is kept, and is what takes long of the turns.
    for step, runtimes in (("compiled", COMPILED), ("bench", "")):
        check_time(left, f"{one.precision}: {step}")
        arguments = ["--only", runtimes, "--turns", "1"] if runtimes else []
        found = kept(
            folder / f"{step}.json",
            one.errors,
            step,
            lambda given=arguments: bench(options, one, folder, given),
        )
        one.bench = found


def check_time(left: Callable[[], float], what: str) -> None:
    """Raise `NotDone` where a part that is not cut in pieces is better begun in another call."""
    if left() < LEAST_SECONDS:
        raise NotDone(what)


def named(options: argparse.Namespace, precision: str) -> list[str]:
    """Arguments that name the network, its sizes and precision."""
    sizes = [f"--size={key}={value}" for key, value in options.sizes.items()]
    converted = [] if precision == "float32" else ["--precision", precision]
    return ["--network", options.network, *sizes, *converted]


def bench(
    options: argparse.Namespace, one: Measured, folder: Path, arguments: Sequence[str]
) -> dict[str, Any]:
    """The result of `autotune bench-model`."""
    command = [sys.executable, "-m", "autotune", "bench-model", *named(options, one.precision)]
    command += ["--target", options.target, "--database", str(folder / "records.db")]
    command += ["--quiet", "--json", "-", *arguments]
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    found: dict[str, Any] = json.loads(output_of(command, {**environment(), **cache}))
    return found


def tuned(
    options: argparse.Namespace, one: Measured, folder: Path, left: Callable[[], float]
) -> dict[str, Any] | None:
    """The result of tuning, in as many sessions as it takes.

    Raises:
        NotDone: another session is needed.
    """
    path, spent = folder / "tuned.json", 0.0
    while True:
        known = json.loads(path.read_text()) if path.exists() else {"done": False, "seconds": 0.0}
        if known["done"]:
            return dict(known)
        check_time(left, f"{one.precision}: {known.get('trials', 0)} of {options.trials} trials")
        spent = float(known["seconds"])
        command = [*bench("cuda_network"), "--session", one.precision]
        command += ["--network", options.network, "--target", options.target]
        command += ["--trials", str(options.trials), "--seconds", str(left() - LEAST_SECONDS / 2)]
        command += ["--work", str(folder), *(["--quick"] if options.quick else [])]
        try:
            found = json.loads(output_of(command, environment()))
        except StepFailed as error:
            one.errors["tuned"] = str(error)
            print(f"    tuning failed: {error}", flush=True)
            return None
        found["seconds"] += spent
        path.write_text(json.dumps(found))
        print(f"    {found['trials']} trials after {found['seconds']:.0f} s", flush=True)


def session(options: argparse.Namespace) -> dict[str, Any]:
    """Tune for so many seconds, in this process; the network is built and timed at the end."""
    from autotune.networks.api import ModelOptions, run_model
    from autotune.networks.source import in_precision, read_network
    from autotune.tuning.budget import TIME_OVER
    from autotune.tuning.options import TuneOptions

    begin = time.monotonic()
    converted = None if options.session == "float32" else options.session
    source = in_precision(read_network(options.network, options.sizes), converted)
    asked = TuneOptions(
        target=options.target,
        trials=options.trials,
        session_time=options.seconds,
        database=options.work.parent / "records.db",
    )
    result = run_model(source, ModelOptions(), asked)
    done = result.trials >= options.trials or result.reason != TIME_OVER
    seconds = time.monotonic() - begin
    if done:
        result = result.timed(result.build())
    return {
        "done": done,
        "seconds": seconds,
        "trials": result.trials,
        "result": result.to_json() if done else None,
    }


def with_metaschedule(
    options: argparse.Namespace, one: Measured, folder: Path, left: Callable[[], float]
) -> dict[str, Any] | None:
    """Tune the same functions with MetaSchedule, in as many calls as it takes, and time them.

    Raises:
        NotDone: another call is needed.
    """
    place, state = folder / "metaschedule", folder / "metaschedule-seconds.json"
    script = [str(SUPPORT / "metaschedule_network.py")]
    about = ["--target", options.target, *named(options, one.precision)]
    about = [part for it in about for part in it.replace("--size=", "--size ").split(" ", 1)]

    def done(step: str, command: Sequence[str]) -> Any:
        return kept(
            folder / f"metaschedule-{step}.json",
            one.errors,
            f"metaschedule {step}",
            lambda: json.loads(output_of(command, environment()) or "{}"),
        )

    check_time(left, f"{one.precision}: MetaSchedule")
    if done("prepare", [sys.executable, *script, "prepare", str(place), *about]) is None:
        return None
    spent = float(json.loads(state.read_text())) if state.exists() else 0.0
    while (found := recorded_trials(place)) < options.trials:
        check_time(left, f"{one.precision}: {found} of {options.trials} trials of MetaSchedule")
        command = [options.metaschedule_python, *script, "tune", str(place), *about[:2]]
        begin = time.monotonic()
        try:
            run_at_most([*command, "--trials", str(options.trials)], left() - LEAST_SECONDS / 2)
        except StepFailed as error:
            one.errors["metaschedule"] = str(error)
            print(f"    MetaSchedule failed: {error}", flush=True)
            return None
        spent += time.monotonic() - begin
        state.write_text(json.dumps(spent))
        if recorded_trials(place) == found and left() > LEAST_SECONDS:
            one.errors["metaschedule"] = "it ended without measuring anything more"
            break
    check_time(left, f"{one.precision}: MetaSchedule's network")
    built = done("build", [sys.executable, *script, "build", str(place), *about])
    timed = built and done("time", [sys.executable, *script, "time", str(place), *about])
    return timed and {**built, **timed, "trials": recorded_trials(place), "seconds": spent}


def run_at_most(command: Sequence[str], seconds: float) -> None:
    """Run a command, with all processes that it starts, until it ends or the time is over.

    Raises:
        StepFailed: it failed.
    """
    ended = session_within(command, max(1.0, seconds), environment())
    if ended is not None and ended[0] != 0:
        raise StepFailed(ended[1] or "no message")


def print_table(measured: Sequence[Measured]) -> None:
    """Print the latency of each runtime, in each precision."""
    for one in measured:
        print(f"\n{one.precision}")
        result = None if one.tuned is None else one.tuned["result"]
        if one.tuned is not None and result is not None:
            print(
                f"    tuned in {one.tuned['seconds']:.0f} s, {one.tuned['trials']} trials: "
                f"{milliseconds(result['latency'])} by the sum of its tasks"
            )
        rows = [] if one.bench is None else list(one.bench["runtimes"])
        if one.metaschedule is not None:
            rows.append({**one.metaschedule, "runtime": "metaschedule", "problem": ""})
        for row in rows:
            ratio = one.ratio(row["runtime"])
            beside = "" if ratio is None else f"{ratio:6.2f}x"
            print(
                f"    {row['runtime']:<14} {milliseconds(row.get('latency')):>12} "
                f"called {milliseconds(row.get('call')):>12} {beside} {row['problem']}",
                flush=True,
            )
        for step, why in one.errors.items():
            print(f"    {step}: {why}", flush=True)


def milliseconds(seconds: float | None) -> str:
    """A cell of the table."""
    return "-" if seconds is None or math.isnan(seconds) else f"{1e3 * seconds:.3f} ms"


def bars_of(measured: Sequence[Measured]) -> list[Bar]:
    """Everything computes what the model does, was timed, and tuning costs nothing."""
    found = []
    for one in measured:
        timed = sum(bool(one.runtime(name).get("latency")) for name in (EAGER, COMPILED))
        found += [
            Bar(f"{one.precision}: error over what is allowed", one.error, 1.0, at_most=True),
            Bar(f"{one.precision}: runtimes of torch that were timed", timed, 2),
            Bar(
                f"{one.precision}: times TVM's default schedules",
                one.ratio(UNTUNED),
                DEFAULT_RATIO,
            ),
        ]
    return found
