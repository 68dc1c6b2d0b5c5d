"""Does it pick well: how pruning models rank random candidates that are then measured.

    python benchmarks/draft.py [--quick] [--json FILE] [--check] [--save FILE | --load FILE]

Of every operator, random candidates are measured by the project's own measurer, on all cores, once
in each of a few passes: a machine that is slow for a while is so for some candidates of a pass,
and the best of the passes counts. A model is held against these latencies: rank correlation over
all of them, and within the fastest quarter; and how much slower the best of the tenth that it
ranks first is than the best of all. One pass held against the others says how well anything could
rank. The measurements can be saved, and other models held against them later.
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
from autotune.ir.workloads import Workload
from autotune.measure import LocalMeasurer
from autotune.models import ModelContext
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.sketches.candidates import order_of
from autotune.spaces import SpaceContext
from autotune.store.records import Outcome
from autotune.targets import detect_cpu

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
JUDGED, OTHER, NOISE = "psa", "roofline", "(one pass)"
PASSES = 3
QUICK_PASSES = 2

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
    passes: list[list[Outcome]]

    def valid(self) -> tuple[list[Candidate], Array]:
        """Candidates that ran in every pass, and their latencies in seconds, [passes, n]."""
        columns = list(zip(*self.passes, strict=True))
        kept = [all(outcome.latency is not None for outcome in column) for column in columns]
        latencies = [
            [o.latency or 0.0 for o in c] for c, ok in zip(columns, kept, strict=True) if ok
        ]
        candidates = [c for c, ok in zip(self.candidates, kept, strict=True) if ok]
        return candidates, np.array(latencies).reshape(len(candidates), len(self.passes)).T

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads back; every sketch once."""
        sketches = {candidate.sketch.digest: candidate.sketch for candidate in self.candidates}
        return {
            "workload": self.workload.to_json(),
            "target": self.target.to_json(),
            "sketches": {digest: sketch.to_json() for digest, sketch in sketches.items()},
            "candidates": [[c.sketch.digest, c.config] for c in self.candidates],
            "passes": [[outcome.to_json() for outcome in found] for found in self.passes],
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
            [[Outcome.from_json(outcome) for outcome in found] for found in data["passes"]],
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


def score(model: str, candidates: Sequence[Candidate], target: Target) -> Array:
    """Scores of the candidates, in their order."""
    made = create_part("pruning_model", model, ModelContext(target=target))
    scores: Array = made.score(CandidateBatch.of(candidates))
    return scores[order_of(candidates)]


def draw(name: str, count: int, seed: int) -> tuple[Workload, Target, list[Candidate]]:
    """Different random candidates of an operator, in random order."""
    builder, shape = OPERATORS[name]
    workload, target = make_workload(builder, shape), detect_cpu()
    backend = create_part("backend", "tvm")
    limits = backend.limits(target)
    context = SpaceContext(workload=workload, target=target, limits=limits)
    space = create_part("search_space", "sketch", context)
    rng = np.random.default_rng(seed)
    drawn: dict[str, Candidate] = {}
    while len(drawn) < min(count, space.count()):
        for candidate in space.sample(count, rng):
            drawn.setdefault(candidate.digest, candidate)
    distinct = list(drawn.values())
    order = rng.permutation(len(distinct))[:count]
    return workload, target, [distinct[index] for index in order]


def measure(name: str, count: int, passes: int, seed: int) -> Measured:
    """Measure random candidates of an operator, once in each pass."""
    workload, target, candidates = draw(name, count, seed)
    with LocalMeasurer("tvm", target, cores(), workload) as measurer:
        outcomes = [measurer.measure(candidates) for _ in range(passes)]
    return Measured(workload, target, candidates, outcomes)


def judge_all(name: str, measured: Measured, models: Sequence[str]) -> dict[str, Judgement]:
    """Every model on one operator, printed; with random rankings and those of one pass."""
    candidates, by_pass = measured.valid()
    latencies = by_pass.min(axis=0)
    failed = len(measured.candidates) - len(candidates)
    print(
        f"{name}: {len(candidates)} candidates, {latencies.min() * 1e3:.3f} to "
        f"{latencies.max() * 1e3:.3f} ms" + (f", {failed} failed" if failed else ""),
        flush=True,
    )
    found = {
        model: judge(score(model, candidates, measured.target), latencies) for model in models
    }
    found["random"] = judge_random(latencies, 0)
    if len(by_pass) > 1:
        found[NOISE] = judge(-by_pass[0], by_pass[1:].min(axis=0))
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
        values = [getattr(j[NOISE], attribute) for j in found.values() if NOISE in j]
        return f"one pass of measuring reaches {geometric_mean(values):.2f}" if values else ""

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
    parser.add_argument("--passes", type=int, default=None, help=f"by default {PASSES}")
    parser.add_argument("--seed", type=int, default=0)
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--save", type=Path, metavar="FILE", help="write the measurements there")
    files.add_argument("--load", type=Path, metavar="FILE", help="measurements to judge instead")
    options = parser.parse_args(arguments)
    if options.candidates is None:
        options.candidates = QUICK_CANDIDATES if options.quick else CANDIDATES
    if options.passes is None:
        options.passes = QUICK_PASSES if options.quick else PASSES
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
            measured = measure(name, options.candidates, options.passes, options.seed)
            saved[name] = measured.to_json()
            if options.save is not None:
                options.save.write_text(json.dumps({"machine": here, "measured": saved}))
        found[name] = judge_all(name, measured, models)
    data = {
        "machine": here,
        "options": {
            "candidates": options.candidates,
            "passes": options.passes,
            "seed": options.seed,
        },
        "judgements": {
            name: {model: asdict(judgement) for model, judgement in judgements.items()}
            for name, judgements in found.items()
        },
    }
    return finish_with(options, data, bars_of(found))


if __name__ == "__main__":
    sys.exit(main())
