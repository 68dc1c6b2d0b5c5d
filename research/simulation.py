"""Tuning without a machine: outcomes of a truth that was learned from recorded ones.

A truth answers for any candidate of a task's space, at once and always alike, so that runs differ
in what strategies propose and in nothing else. It is no machine: far from what was recorded it
says what trees say there.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import lightgbm
import numpy as np
from model_quality import pam_table
from numpy.typing import NDArray

from autotune import Target
from autotune.ir.workloads import Workload
from autotune.models import ModelContext
from autotune.models.cost import CostModel, ModelFile, TrainingGroup
from autotune.models.features import pooled_features
from autotune.plugins.parts import create_part
from autotune.process.stopwatch import Stopwatch
from autotune.search.schedulers import SchedulerContext, TaskInfo
from autotune.search.search import Search
from autotune.search.strategies import StrategyContext
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.candidates import order_of
from autotune.spaces import SearchSpace, SpaceContext
from autotune.store.records import Outcome

__all__ = ["Fit", "Player", "Task", "Truth", "chosen_tasks", "fit_of", "grown", "play"]

Reals = NDArray[np.float64]

# Of a measurement of one program: sd of its logarithm. What a race leaves on a quiet machine.
NOISE = 0.015
# Of a task whose truth is worth searching: the share of the variance that trees explain, and the
# sd of what they do not among fast programs.
LEAST_EXPLAINED, MOST_OWN = 0.6, 0.2
FOLDS = 4
TREES = 200
# Forests of a truth, whose mean is smoother than each of them.
FORESTS = 2
PARAMETERS: Mapping[str, Any] = {
    "objective": "regression",
    "learning_rate": 0.07,
    "num_leaves": 31,
    "min_data_in_leaf": 4,
    "min_data_in_bin": 1,
    "feature_fraction": 0.3,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 0.5,
    "verbosity": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
}
# Share of the candidates among which a search works.
FAST = 1 / 3
# Median of the absolute deviations of a normal distribution whose sd is 1.
_MEDIAN_OF_NORMAL = 0.6745
# Hexadecimal digits of a digest that make a number.
_DIGITS = 13


@dataclass(frozen=True)
class Fit:
    """How well trees explain a task's outcomes that they were not grown from.

    Attributes:
        explained: Share of the variance of the natural logarithm of latency (R^2).
        residual: sd of what is left of it: the machine's noise when it was recorded, and what
            the features do not tell.
        own: The same where a search works: of the third that the trees take for the fastest,
            by the median of absolute deviations, as bursts of noise are not a program's own.
    """

    explained: float
    residual: float
    own: float

    @property
    def is_good(self) -> bool:
        """Whether a search on such a truth is about more than luck."""
        return self.explained >= LEAST_EXPLAINED and self.own <= MOST_OWN


@dataclass(frozen=True)
class Task:
    """What was recorded of a workload.

    Attributes:
        label: Its operator and its place in the database.
        workload: The workload.
        target: What it was recorded on.
        backend: Whose programs it were.
        candidates: Those that have a latency.
        logarithms: Of their seconds ``[n]``.
    """

    label: str
    workload: Workload
    target: Target
    backend: str
    candidates: tuple[Candidate, ...]
    logarithms: Reals

    @staticmethod
    def of(group: TrainingGroup, place: int, target: Target, backend: str) -> Task:
        """A task of a database."""
        told = [(it, outcome.latency) for it, outcome in group.outcomes if outcome.latency]
        workload = told[0][0].sketch.workload
        logarithms = np.log([latency for _, latency in told])
        candidates = tuple(it for it, _ in told)
        return Task(f"{workload.name}-{place}", workload, target, backend, candidates, logarithms)

    @property
    def digest(self) -> str:
        """Of what was recorded."""
        told = [[it.digest for it in self.candidates], self.logarithms.tolist()]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Truth:
    """A task whose latencies are known.

    Attributes:
        label: Of the task.
        workload, target, backend: What can be drawn is made for these.
        forests: Trees, as lightgbm's texts.
        own: sd of the part of a candidate's logarithm of latency that no feature tells.
    """

    label: str
    workload: Workload
    target: Target
    backend: str
    forests: tuple[str, ...]
    own: float

    def to_json(self) -> dict[str, Any]:
        """A JSON object, for another process."""
        parts = {"workload": self.workload.to_json(), "target": self.target.to_json()}
        others = {name: getattr(self, name) for name in ("label", "backend", "forests", "own")}
        return {**others, **parts}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Truth:
        """Read what :meth:`to_json` wrote."""
        return Truth(
            label=data["label"],
            workload=Workload.from_json(data["workload"]),
            target=Target.from_json(data["target"]),
            backend=data["backend"],
            forests=tuple(data["forests"]),
            own=data["own"],
        )

    @cached_property
    def space(self) -> SearchSpace:
        """What can be drawn."""
        return space_of(self.workload, self.target, self.backend)

    @cached_property
    def digest(self) -> str:
        """Of all that decides outcomes, but for the seed of a run."""
        sketches = [sketch.digest for sketch in self.space.sketches()]
        told = [sketches, self.forests, self.own, NOISE]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]

    @cached_property
    def _boosters(self) -> list[lightgbm.Booster]:
        return [lightgbm.Booster(model_str=text) for text in self.forests]

    def latencies(self, candidates: Sequence[Candidate]) -> Reals:
        """Seconds of each candidate ``[n]``, without the noise of measuring."""
        table = table_of(candidates, self.target, parameters_of(self.space))
        mean = np.mean([it.predict(table, num_threads=1) for it in self._boosters], axis=0)
        found: Reals = np.exp(mean + self.own * unexplained(candidates))
        return found


def space_of(workload: Workload, target: Target, backend: str) -> SearchSpace:
    """The space that a run with this backend searches."""
    limits = create_part("backend", backend).limits(target)
    space: SearchSpace = create_part(
        "search_space", "sketch", SpaceContext(workload=workload, target=target, limits=limits)
    )
    return space


def unexplained(candidates: Sequence[Candidate]) -> Reals:
    """What no feature tells of candidates ``[n]``: normally distributed, fixed for each."""
    normal = statistics.NormalDist()
    whole = 16**_DIGITS
    return np.array(
        [normal.inv_cdf((int(it.digest[:_DIGITS], 16) + 0.5) / whole) for it in candidates]
    )


def parameters_of(space: SearchSpace) -> list[str]:
    """The names of the parameters of all sketches of a space."""
    return sorted({name for sketch in space.sketches() for name in sketch.param_names})


def table_of(candidates: Sequence[Candidate], target: Target, names: Sequence[str]) -> Reals:
    """What trees see of candidates: features of the nest, PAM features, parameters.

    Args:
        candidates: Of one task.
        target: What they run on.
        names: All parameters; one that a candidate's sketch lacks is -1, others are ``log2``.

    Returns:
        ``[n, columns]``.
    """
    batch = CandidateBatch.of(candidates)
    own = []
    for sketch, matrix in batch.parts:
        values = np.full((len(matrix), len(names)), -1.0)
        columns = [names.index(name) for name in sketch.param_names]
        values[:, columns] = np.log2(np.maximum(matrix, 0.5))
        own.append(values)
    parts = [pooled_features(batch, target), pam_table(batch, target), np.concatenate(own)]
    return np.concatenate(parts, axis=1)[order_of(candidates)]


def fit_of(task: Task) -> Fit:
    """How well trees explain a task, by cross-validation over its candidates."""
    names = sorted({name for it in task.candidates for name in it.sketch.param_names})
    table = table_of(task.candidates, task.target, names)
    fold = np.random.default_rng(0).permutation(len(table)) % FOLDS
    told = np.empty_like(task.logarithms)
    for number in range(FOLDS):
        out = fold == number
        forest = _trained(table[~out], task.logarithms[~out], 0)
        told[out] = forest.predict(table[out], num_threads=1)
    left = task.logarithms - told
    residual = float(np.sqrt(np.mean(left**2)))
    fast = left[told <= np.quantile(told, FAST)]
    own = float(np.median(np.abs(fast - np.median(fast))) / _MEDIAN_OF_NORMAL)
    return Fit(float(1 - residual**2 / np.var(task.logarithms)), residual, own)


def grown(task: Task, fit: Fit) -> Truth:
    """The truth of a task, from all of its outcomes.

    Raises:
        SystemExit: the space no longer has the parameters of a recorded candidate.
    """
    names = parameters_of(space_of(task.workload, task.target, task.backend))
    for sketch in {it.sketch.digest: it.sketch for it in task.candidates}.values():
        for name in sorted(set(sketch.param_names) - set(names)):
            raise SystemExit(f"{task.label}: recorded with {name}, which its space lacks now")
    table = table_of(task.candidates, task.target, names)
    forests = [_trained(table, task.logarithms, seed).model_to_string() for seed in range(FORESTS)]
    return Truth(task.label, task.workload, task.target, task.backend, tuple(forests), fit.own)


def _trained(table: Reals, logarithms: Reals, seed: int) -> lightgbm.Booster:
    data = lightgbm.Dataset(table, logarithms)
    return lightgbm.train({**PARAMETERS, "seed": seed}, data, TREES)


def chosen_tasks(fits: Mapping[str, Fit], operators: Mapping[str, str], most: int) -> list[str]:
    """Tasks that trees explain best, of all operators in turns.

    Args:
        fits: Of each task.
        operators: Of each task.
        most: How many tasks are wanted.
    """
    ranked = sorted(
        (name for name, fit in fits.items() if fit.is_good),
        key=lambda name: -fits[name].explained,
    )
    turn: dict[str, int] = {}
    seen: dict[str, int] = {}
    for name in ranked:
        turn[name] = seen[operators[name]] = seen.get(operators[name], -1) + 1
    return sorted(ranked, key=lambda name: (turn[name], -fits[name].explained))[:most]


@dataclass(frozen=True)
class Player:
    """What tunes, as options of `autotune tune` name it.

    Attributes:
        strategy, cost_model, pruning_model: Names of parts.
        strategy_options, cost_model_options: Their options.
        model_file: What the cost model has learned before.
    """

    strategy: str
    cost_model: str
    pruning_model: str | None = "psa"
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    cost_model_options: Mapping[str, Any] = field(default_factory=dict)
    model_file: ModelFile | None = None


def play(truth: Truth, player: Player, seed: int, trials: int, round_size: int) -> dict[str, Any]:
    """Tune once, as the tuner does: the next round is proposed before the last one is known.

    Returns:
        ``steps``: where another candidate seemed to be the best, with its true latency;
        ``latency``: the true one of the last of these; ``wall`` and ``elapsed``: the processor's
        seconds, of which ``split`` are of proposing (``search``) and of learning (``model``);
        ``asked``: how many candidates there were, and the digest of all of them.
    """
    search, watch, noise = _search_of(truth, player, seed, round_size)
    steps: list[dict[str, Any]] = []
    best, asked = math.inf, hashlib.sha256()
    current, done = search.propose((), _never, _unknown), 0
    while current is not None:
        looks_ahead = len(current.asked) < trials - done
        upcoming = search.propose([0], _never, _unknown) if looks_ahead else None
        candidates = current.asked[: trials - done]
        true = truth.latencies(candidates)
        measured = true * np.exp(NOISE * noise.standard_normal(len(true)))
        for number, candidate in enumerate(candidates):
            asked.update(candidate.digest.encode())
            if measured[number] < best:
                best = float(measured[number])
                found = {"trial": done + number, "elapsed": watch.elapsed}
                steps.append({**found, "seconds": [float(true[number])]})
        done += len(candidates)
        if done >= trials:
            break
        outcomes = [Outcome("ok", float(value), (float(value),)) for value in measured]
        search.learn(current, outcomes, best, gone=False)
        current = upcoming or search.propose((), _never, _unknown)
    return {
        "steps": steps,
        "latency": steps[-1]["seconds"][0] if steps else None,
        "wall": watch.elapsed,
        "split": {name: watch.seconds[name] for name in ("search", "model")},
        "asked": [done, asked.hexdigest()[:16]],
    }


def _search_of(
    truth: Truth, player: Player, seed: int, round_size: int
) -> tuple[Search, Stopwatch, np.random.Generator]:
    """What proposes and learns; its clock is the processor's; what the noise is drawn from."""
    for_model, for_strategy, for_noise = np.random.SeedSequence(seed).spawn(3)
    of_model = ModelContext(
        target=truth.target,
        seed=int(for_model.generate_state(1)[0]),
        options=player.cost_model_options,
    )
    model: CostModel = create_part("cost_model", player.cost_model, of_model)
    if player.model_file is not None:
        model.load(player.model_file.open())  # type: ignore[attr-defined]
    pruning = None
    if player.pruning_model is not None:
        only_target = ModelContext(target=truth.target)
        pruning = create_part("pruning_model", player.pruning_model, only_target)
    rng = np.random.default_rng(for_strategy)
    options = dict(player.strategy_options)
    context = StrategyContext(truth.space, rng, model, pruning, options=options)
    strategy = create_part("strategy", player.strategy, context)
    watch = Stopwatch(time.process_time)
    tasks = [TaskInfo(weight=1.0, flop=1.0, group=truth.label)]
    scheduler = create_part("task_scheduler", "round-robin", SchedulerContext(tasks=tasks))
    search = Search([truth.space], [strategy], [model], scheduler, round_size, watch)
    return search, watch, np.random.default_rng(for_noise)


def _never(_task: int) -> bool:
    return False


def _unknown(_task: int) -> float | None:
    return None
