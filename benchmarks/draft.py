"""Does it pick well: how pruning models rank random candidates that are then measured.

    python benchmarks/draft.py [--quick] [--json FILE] [--check] [--save FILE | --load FILE]

Of every operator, random candidates are each measured once by the project's own measurer, on all
cores. A model is held against their latencies: rank correlation over all of them, and within the
fastest quarter; and how much slower the best of the tenth that it ranks first is than the best of
all. The measurements can be saved, and other models held against them later.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Bar, basic_parser, cores, finish_with, machine
from numpy.typing import NDArray

from autotune import Target, make_workload
from autotune.measure import LocalMeasurer
from autotune.parts import create_part
from autotune.plugins import manager
from autotune.records import Outcome
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.sketches.candidate import order_of
from autotune.workloads import Workload

Array = NDArray[np.float64]

OPERATORS: dict[str, tuple[str, dict[str, int]]] = {
    "gemm": ("gemm", {"m": 512, "n": 512, "k": 512}),
    "conv2d": ("conv2d", {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1}),
    "depthwise": ("depthwise_conv2d", {"h": 112, "w": 112, "c": 32, "pad": 1}),
    "softmax": ("softmax", {"m": 512, "n": 512}),
}
CANDIDATES = 200
QUICK_CANDIDATES = 80
SHUFFLES = 500
JUDGED, OTHER, NOISE = "psa", "roofline", "(other samples)"

SPEARMAN = 0.6
SPEARMAN_QUARTER = 0.3
BEST_OF_TENTH = 1.15
# Stands for correlations of nothing and below, which have no geometric mean.
_UNCORRELATED = 0.01


@dataclass
class Measured:
    """Random candidates of one workload, and what became of them."""

    workload: Workload
    target: Target
    candidates: list[Candidate]
    outcomes: list[Outcome]

    def valid(self) -> tuple[list[Candidate], Array]:
        """Candidates that ran, and their latencies in seconds."""
        pairs = zip(self.candidates, self.outcomes, strict=True)
        kept = [(c, o.latency) for c, o in pairs if o.latency is not None]
        return [c for c, _ in kept], np.array([latency for _, latency in kept])

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads back; every sketch once."""
        sketches = {candidate.sketch.digest: candidate.sketch for candidate in self.candidates}
        return {
            "workload": self.workload.to_json(),
            "target": self.target.to_json(),
            "sketches": {digest: sketch.to_json() for digest, sketch in sketches.items()},
            "candidates": [[c.sketch.digest, c.config] for c in self.candidates],
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Measured:
        """Read what :meth:`to_json` wrote."""
        workload = Workload.from_json(data["workload"])
        sketches = {
            digest: Sketch.from_json(sketch, workload)
            for digest, sketch in data["sketches"].items()
        }
        return Measured(
            workload,
            Target.from_json(data["target"]),
            [Candidate.from_config(sketches[d], config) for d, config in data["candidates"]],
            [Outcome.from_json(outcome) for outcome in data["outcomes"]],
        )


@dataclass
class Judgement:
    """How well scores rank latencies.

    Attributes:
        spearman: Rank correlation of the scores with speed.
        quarter: The same within the fastest quarter.
        best_of_tenth: Latency of the fastest of the tenth with the highest scores, over that of
            the fastest of all.
    """

    spearman: float
    quarter: float
    best_of_tenth: float


def ranks(values: Array) -> Array:
    """Ranks from 0, equal values sharing their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: Array = (ends - (counts + 1) / 2)[inverse]
    return shared


def spearman(left: Array, right: Array) -> float:
    """Rank correlation; 0 where one side does not vary."""
    a, b = ranks(left), ranks(right)
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else 0.0


def judge(scores: Array, latencies: Array) -> Judgement:
    """Hold scores (higher is better) against latencies in seconds."""
    by_speed = np.argsort(latencies, kind="stable")
    quarter = by_speed[: max(2, len(latencies) // 4)]
    chosen = np.argsort(-scores, kind="stable")[: max(1, len(latencies) // 10)]
    return Judgement(
        spearman(scores, -latencies),
        spearman(scores[quarter], -latencies[quarter]),
        float(latencies[chosen].min() / latencies.min()),
    )


def judge_random(latencies: Array, seed: int) -> Judgement:
    """The mean over many random rankings."""
    rng = np.random.default_rng(seed)
    found = [judge(rng.random(len(latencies)), latencies) for _ in range(SHUFFLES)]
    return Judgement(
        *(
            statistics.fmean(getattr(judgement, name) for judgement in found)
            for name in ("spearman", "quarter", "best_of_tenth")
        )
    )


def judge_samples(measured: Measured) -> Judgement:
    """Every other timed sample as the scores of the rest: what noise leaves to be ranked."""
    samples = [o.samples for o in measured.outcomes if o.ok and len(o.samples) > 1]
    even = np.array([statistics.median(values[::2]) for values in samples])
    odd = np.array([statistics.median(values[1::2]) for values in samples])
    return judge(-even, odd)


def score(model: str, candidates: Sequence[Candidate], target: Target) -> Array:
    """Scores of the candidates, in their order."""
    made = create_part("pruning_model", model, target=target)
    scores: Array = made.score(CandidateBatch.of(candidates))
    return scores[order_of(candidates)]


def measure(name: str, count: int, seed: int) -> Measured:
    """Measure random candidates of an operator, each once and in random order."""
    builder, shape = OPERATORS[name]
    workload, target = make_workload(builder, shape), Target.detect()
    backend = create_part("backend", "tvm")
    space = create_part(
        "search_space", "sketch", workload=workload, target=target, limits=backend.limits(target)
    )
    rng = np.random.default_rng(seed)
    drawn: dict[str, Candidate] = {}
    while len(drawn) < min(count, space.count()):
        for candidate in space.sample(count, rng):
            drawn.setdefault(candidate.digest, candidate)
    distinct = list(drawn.values())
    candidates = [distinct[index] for index in rng.permutation(len(distinct))[:count]]
    with LocalMeasurer("tvm", target, cores(), workload) as measurer:
        outcomes = measurer.measure(candidates)
    return Measured(workload, target, candidates, outcomes)


def judge_all(name: str, measured: Measured, models: Sequence[str]) -> dict[str, Judgement]:
    """Every model on one operator, printed; with random rankings and the measurement itself."""
    candidates, latencies = measured.valid()
    failed = len(measured.outcomes) - len(candidates)
    print(
        f"{name}: {len(candidates)} candidates, {latencies.min() * 1e3:.3f} to "
        f"{latencies.max() * 1e3:.3f} ms" + (f", {failed} failed" if failed else ""),
        flush=True,
    )
    found = {
        model: judge(score(model, candidates, measured.target), latencies) for model in models
    }
    found["random"] = judge_random(latencies, 0)
    found[NOISE] = judge_samples(measured)
    for model, judgement in found.items():
        print(
            f"  {model:<16} Spearman {judgement.spearman:5.2f}, fastest quarter "
            f"{judgement.quarter:5.2f}, best of the top tenth {judgement.best_of_tenth:.2f}x"
        )
    return found


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean, correlations of at most 0 counting as next to none."""
    return statistics.geometric_mean(max(value, _UNCORRELATED) for value in values)


def bars_of(found: dict[str, dict[str, Judgement]]) -> list[Bar]:
    """The promises, over the operators."""
    judged = [judgements.get(JUDGED) for judgements in found.values()]
    known = [judgement for judgement in judged if judgement is not None]
    whole = len(known) == len(judged)

    def mean(attribute: str) -> float | None:
        values = [getattr(judgement, attribute) for judgement in known]
        return geometric_mean(values) if whole else None

    def noise(attribute: str) -> str:
        values = [getattr(judgements[NOISE], attribute) for judgements in found.values()]
        return f"the measurement itself, repeated, reaches {geometric_mean(values):.2f}"

    bars = [
        Bar(f"{JUDGED}, Spearman", mean("spearman"), SPEARMAN, note=noise("spearman")),
        Bar(
            f"{JUDGED}, Spearman in the fastest quarter",
            mean("quarter"),
            SPEARMAN_QUARTER,
            note=noise("quarter"),
        ),
        Bar(
            f"{JUDGED}, best of the top tenth over the best",
            mean("best_of_tenth"),
            BEST_OF_TENTH,
            at_most=True,
        ),
    ]
    for name, judgements in found.items():
        both = [judgements.get(model) for model in (JUDGED, OTHER)]
        ahead = both[0].spearman - both[1].spearman if both[0] and both[1] else None
        bars.append(Bar(f"{name}: {JUDGED}'s Spearman minus {OTHER}'s", ahead, 0.0))
    return bars


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = basic_parser((__doc__ or "").splitlines()[0])
    known = sorted(manager().names("pruning_model"))
    parser.add_argument(
        "--models",
        default=",".join(known),
        help=f"pruning models, separated by commas (all of {', '.join(known)})",
    )
    parser.add_argument("--operators", default=",".join(OPERATORS), help="which, likewise")
    parser.add_argument("--candidates", type=int, default=None, help=f"by default {CANDIDATES}")
    parser.add_argument("--seed", type=int, default=0)
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--save", type=Path, metavar="FILE", help="write the measurements there")
    files.add_argument("--load", type=Path, metavar="FILE", help="measurements to judge instead")
    options = parser.parse_args(arguments)
    if options.candidates is None:
        options.candidates = QUICK_CANDIDATES if options.quick else CANDIDATES
    unknown = set(options.operators.split(",")) - set(OPERATORS)
    if unknown:
        parser.error(f"no operator {sorted(unknown)[0]!r}; operators: {', '.join(OPERATORS)}")
    return options


def main() -> int:
    """Run; returns the exit status."""
    options = options_of()
    operators, models = options.operators.split(","), options.models.split(",")
    here = machine()
    loaded: dict[str, Any] = {}
    if options.load is not None:
        loaded = json.loads(options.load.read_text())
        here = loaded["machine"]
        operators = [name for name in operators if name in loaded["measured"]]
    print("{processor}, {cores} cores, load {load:.1f}".format(**here), flush=True)
    found: dict[str, dict[str, Judgement]] = {}
    saved: dict[str, Any] = {}
    for name in operators:
        if loaded:
            measured = Measured.from_json(loaded["measured"][name])
        else:
            measured = measure(name, options.candidates, options.seed)
            saved[name] = measured.to_json()
            if options.save is not None:
                options.save.write_text(json.dumps({"machine": here, "measured": saved}))
        found[name] = judge_all(name, measured, models)
    data = {
        "machine": here,
        "options": {"candidates": options.candidates, "seed": options.seed},
        "judgements": {
            name: {model: asdict(judgement) for model, judgement in judgements.items()}
            for name, judgements in found.items()
        },
    }
    return finish_with(options, data, bars_of(found))


if __name__ == "__main__":
    sys.exit(main())
