"""Is the gradient worth having: descent, evolution and random sampling on one cost model.

    python research/descent.py [--quick] [--cost-model NAME] [--weights FILE] [--seeds N]
                                 [--only TEXT] [--json FILE] [--check]

Nothing is measured: what counts is the prediction reached with equal numbers of predictions, and
the processor's seconds that a round of `felix` takes. Needs `autotune-felix`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
import numpy as np
from autotune_felix.felix_gp import FelixGp
from autotune_felix.felix_mlp import FelixMlp
from autotune_felix.strategy import DIFFERENTIABLE, FelixStrategy
from common import Bar, basic_parser, finish_with
from numpy.typing import NDArray

from autotune import Target, make_workload
from autotune.models import ModelContext
from autotune.models.cost import DifferentiableCostModel
from autotune.models.cost.analytic import AnalyticCostModel
from autotune.search.strategies import EvolutionaryStrategy, Strategy, StrategyContext
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.spaces import SketchSpace
from autotune.store.records import Outcome
from autotune.targets import preset
from autotune.testing.reference_backend import ReferenceBackend

Reals = NDArray[np.float64]

TASKS = {
    "gemm": {"m": 512, "n": 512, "k": 512},
    "conv2d": {"h": 56, "w": 56, "ci": 64, "co": 64, "pad": 1},
}
MACHINES = ("skylake-avx512", "a100")
PICKS = 16
# Outcomes that networks without weights for a machine are told.
TOLD = 64
GENERATIONS = 4

TOGGLES: Mapping[str, Mapping[str, Any]] = {
    "ours": {},
    "matched force": {"force": "matched"},
    "fixed force": {"force": "fixed"},
    "penalty for products": {"divisibility": "penalty", "rounding": "independent"},
    "independent rounding": {"rounding": "independent"},
    "misaligned ranking": {"ranking": "misaligned", "repairs": 0, "polish": 0},
    "one-sided sampler": {"sampler": "one-sided"},
    "no repair": {"repairs": 0},
    "no tournament": {"tournament": 1},
    "no polish": {"polish": 0},
    "four roundings": {"roundings": 4},
    "published": {"fidelity": "published"},
}
"""Options of `felix`, one at a time."""
ONLY_SCORES: Mapping[str, Any] = {
    "even_drafts": False,
    "sampled_drafts": 0.0,
    "spacing": 0.0,
    "sketch_share": 1.0,
}
"""Options with which a round's picks are the best of what points passed, as is compared here."""

ROUND_SECONDS = 2.0
SKETCH_SECONDS = 0.4


class Counted(DifferentiableCostModel):
    """A cost model whose predictions are counted and timed.

    Attributes:
        evaluations: Rows predicted, with a gradient or without.
        gradient_seconds: Processor's seconds of those with.
        prediction_seconds: Processor's seconds of those without.
    """

    name = "counted"

    def __init__(self, model: DifferentiableCostModel) -> None:
        self._model = model
        self.evaluations = 0
        self.gradient_seconds = self.prediction_seconds = 0.0

    def relaxed(self, sketch: Sketch, rows: Reals) -> tuple[Reals, Reals]:
        begun = time.process_time()
        found = self._model.relaxed(sketch, rows)
        self.gradient_seconds += time.process_time() - begun
        self.evaluations += len(rows)
        return found

    def predict(self, batch: CandidateBatch) -> Reals:
        begun = time.process_time()
        found = self._model.predict(batch)
        self.prediction_seconds += time.process_time() - begun
        self.evaluations += len(batch)
        return found

    def update(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Learn nothing: all contenders have the same model."""

    def state(self) -> dict[str, Any]:
        return {"model": self.name}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore nothing."""


def made(
    name: str, weights: Path | None, target: Target, space: SketchSpace
) -> DifferentiableCostModel:
    """The cost model of all contenders on one task.

    Models without weights for the machine are told what the estimate says, with noise: there
    is nothing to learn in that, but they cost what they cost.

    Args:
        name: Which.
        weights: File of `felix-mlp` for CPUs.
        target: The machine.
        space: The sketches of the task.
    """
    if name == AnalyticCostModel.name:
        return AnalyticCostModel(ModelContext(target=target))
    if name == FelixGp.name:
        return _told(FelixGp(ModelContext(target=target)), space)
    model = FelixMlp(ModelContext(target=target))
    if weights is not None and target.kind == "cpu":
        with weights.open("rb") as stream:
            model.load(stream)
        return model
    return _told(model, space)


def _told(model: DifferentiableCostModel, space: SketchSpace) -> DifferentiableCostModel:
    """The model after outcomes that are what it predicted, with noise."""
    rng = np.random.default_rng(0)
    sample = space.sample(TOLD, rng)
    latencies = np.exp(rng.normal(-model.predict(sample), 0.3)).tolist()
    outcomes = [Outcome("ok", latency, (latency,)) for latency in latencies]
    model.update(list(zip(sample, outcomes, strict=True)))
    return model


@dataclass
class Reached:
    """What one contender's first round gives, by seed.

    Attributes:
        best: Best predicted logarithm of seconds of its picks.
        median: Their median.
        evaluations: Predictions that it used.
        seconds: Processor's seconds of the round.
        gradient_seconds: Of these, gradients.
        prediction_seconds: Of these, predictions.
    """

    best: list[float] = field(default_factory=list)
    median: list[float] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    gradient_seconds: list[float] = field(default_factory=list)
    prediction_seconds: list[float] = field(default_factory=list)

    def add(self, model: Counted, batch: CandidateBatch, seconds: float) -> None:
        """Note one round."""
        self.evaluations.append(model.evaluations)
        self.seconds.append(seconds)
        self.gradient_seconds.append(model.gradient_seconds)
        self.prediction_seconds.append(model.prediction_seconds)
        found = -model.predict(batch)
        self.best.append(float(found.min()))
        self.median.append(float(np.median(found)))


def play(
    kind: type[Strategy], space: SketchSpace, model: Counted, seed: int, options: Mapping[str, Any]
) -> tuple[CandidateBatch, float]:
    """The picks of a first round, and its seconds; one outcome was told before."""
    context = StrategyContext(
        space, np.random.default_rng(seed), model, None, options={"epsilon": 0.0, **options}
    )
    strategy = kind(context)
    if kind is EvolutionaryStrategy:
        # Until something has a latency it does not ask the cost model.
        first = strategy.ask(1)
        strategy.tell([(first[0], Outcome("ok", 1.0, (1.0,)))])
    model.evaluations, model.gradient_seconds, model.prediction_seconds = 0, 0.0, 0.0
    begun = time.process_time()
    picks = strategy.ask(PICKS)
    return CandidateBatch.of(picks), time.process_time() - begun


def compare(name: str, machine: str, options: argparse.Namespace) -> dict[str, Reached]:
    """All contenders on one task: `felix` with each toggle, then the others with as much."""
    target = preset(machine)
    workload = make_workload(name, TASKS[name])
    space = SketchSpace(workload, target, ReferenceBackend().limits(target))
    shared = made(options.cost_model, options.weights, target, space)
    found = {label: Reached() for label in ("one sketch", *TOGGLES, "evolution", "random")}
    for seed in range(options.seeds):
        for label, toggled in {"one sketch": {"sketches": 1}, **TOGGLES}.items():
            model = Counted(shared)
            wanted = {**ONLY_SCORES, **toggled}
            found[label].add(model, *play(FelixStrategy, space, model, seed, wanted))
        budget = found["ours"].evaluations[-1]
        model = Counted(shared)
        sized = {"generations": GENERATIONS, "population": max(2, budget // (GENERATIONS + 1))}
        found["evolution"].add(model, *play(EvolutionaryStrategy, space, model, seed, sized))
        model = Counted(shared)
        sample = space.sample(budget, np.random.default_rng(seed))
        best = np.argsort(-model.predict(sample), kind="stable")[:PICKS]
        found["random"].add(model, CandidateBatch.of(sample.take(best)), 0.0)
    return found


def show(title: str, found: Mapping[str, Reached]) -> None:
    """A table: how much slower than the best of all, in per cent of the predicted time."""
    best = min(min(reached.best) for reached in found.values())
    print(f"\n{title}\n  {'':22} best    median  predictions  seconds (gradients, predictions)")
    for label, reached in found.items():
        print(
            f"  {label:22} {_percent(reached.best, best):6} {_percent(reached.median, best):7} "
            f"{statistics.median(reached.evaluations):10.0f}   "
            f"{statistics.median(reached.seconds):.3f} "
            f"({statistics.median(reached.gradient_seconds):.3f}, "
            f"{statistics.median(reached.prediction_seconds):.3f})",
            flush=True,
        )


def _percent(logarithms: Sequence[float], best: float) -> str:
    return f"{100.0 * (np.exp(statistics.median(logarithms) - best) - 1.0):+.1f} %"


def bars_of(found: Mapping[str, Mapping[str, Reached]]) -> list[Bar]:
    """The promises."""
    bars = []
    for title, reached in found.items():
        ours, one = reached["ours"], reached["one sketch"]
        seconds = statistics.median(ours.seconds)
        bars.append(Bar(f"{title}: seconds of a round", seconds, ROUND_SECONDS, at_most=True))
        seconds = statistics.median(one.seconds)
        bars.append(Bar(f"{title}: seconds of a sketch", seconds, SKETCH_SECONDS, at_most=True))
        for other in ("random", "evolution"):
            ratio = np.exp(statistics.median(ours.best) - statistics.median(reached[other].best))
            bars.append(Bar(f"{title}: predicted time over {other}'s", ratio, 1.02, at_most=True))
    return bars


def main() -> int:
    """Run; returns the exit status."""
    tasks = {f"{name}, {machine}": (name, machine) for machine in MACHINES for name in TASKS}
    parser = basic_parser(__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="number of seeds; 10, or 3 with --quick")
    parser.add_argument("--cost-model", choices=DIFFERENTIABLE, default=FelixMlp.name)
    parser.add_argument("--weights", type=Path, help="trained felix-mlp, for the tasks on CPUs")
    parser.add_argument("--only", metavar="TEXT", help="a part of the tasks' names")
    options = parser.parse_args()
    options.seeds = options.seeds or (3 if options.quick else 10)
    found = {}
    for title, (name, machine) in tasks.items():
        if options.only is None or options.only in title:
            found[title] = compare(name, machine, options)
            show(title, found[title])
    if not found:
        parser.error(f"--only {options.only}: there are {', '.join(tasks)}")
    data = {
        "cost model": options.cost_model,
        "reached": {
            title: {label: asdict(reached) for label, reached in contenders.items()}
            for title, contenders in found.items()
        },
    }
    return finish_with(options, data, bars_of(found))


if __name__ == "__main__":
    sys.exit(main())
