"""The strategy ``felix``: descent along the cost model's gradient on relaxed schedules.

Felix (ASPLOS'24) relaxes the sketches of a task, lets many points descend at once along the
predicted latency and penalties, rounds all that they pass and measures what is predicted best.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.models.cost import require_differentiable
from autotune.nest.relaxed import param_bounds
from autotune.search.strategies import RecordedStrategy, StrategyContext
from autotune.search.strategies.sampling import spread
from autotune.search.strategies.strategy import check_count
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.sketches.candidates import Positions
from autotune_felix.descent import (
    Objective,
    Trajectories,
    descend,
    independently_rounded,
    one_sided,
)
from autotune_felix.options import FelixOptions, checked_options
from autotune_felix.penalties import Penalties, Repairer
from autotune_felix.relaxation import Frame, Relaxation
from autotune_felix.simplex import Reals, Whole

__all__ = ["DIFFERENTIABLE", "FelixStrategy", "collect_candidates", "starting_points"]

DIFFERENTIABLE = ("analytic", "felix-gp", "felix-mlp")
"""Cost models with a gradient, for messages."""

# Configurations of each sketch that are sampled in a round: the choices that points begin with,
# what sketches are compared by, and where repairs end that find no way.
_SAMPLE = 64

_LATER = 4  # Rounds of a sketch after its first have so many times fewer steps, as in Felix.

_log = logging.getLogger("autotune.search.strategies")


class FelixStrategy(RecordedStrategy):
    """Descends in some of the sketches each round and asks for the best of what points passed.

    Half of a round's sketches are the most promising, by the predictions of a sample and of the
    best measured; the other half those with the fewest candidates, until each had
    ``sketch_trials``. A round's picks are the best predictions of rows that were never asked for,
    apart from each other, at most a share of them of one sketch while others have any, and a
    random share. Until there are outcomes all sketches get equally many, in part of a sample.
    """

    name = "felix"

    def __init__(self, context: StrategyContext) -> None:
        """Raises.

        InvalidValueError: an option is unknown or has a value that it may not have; the cost
            model has no gradient, or none of these sketches; or a sketch cannot be relaxed.
        """
        self.options = checked_options(self.name, context.options)
        self._model = require_differentiable(context.cost_model, DIFFERENTIABLE)
        super().__init__(context)
        self._repairers = [
            Repairer(Penalties(Relaxation(sketch))) for sketch in context.space.sketches()
        ]
        for sketch in context.space.sketches():
            # Of no points: a model in a process of its own says only now that it has no gradient,
            # and any model that it knows no gradient of this sketch.
            self._model.relaxed(sketch, np.zeros((0, len(sketch.params))))
        self._descents = [0 for _ in self._repairers]
        self._has_warned = False

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates, best prediction first; fewer only when none are left."""
        check_count(n)
        if n == 0:
            return []
        # Rounded up or down at random, so that the share holds for small rounds too.
        greedy = n - int(self.options.epsilon * n + self._context.rng.random())
        chosen = self._picked(greedy)
        return chosen + self._sampler.draw(n - len(chosen))

    def state(self) -> dict[str, Any]:
        """Return the state of a sampling strategy, and how often points descended."""
        return {**super().state(), "descents": list(self._descents)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another strategy, space or kind of generator.
        """
        super().load_state(state)
        self._descents = [int(count) for count in state["descents"]]

    def _picked(self, n: int) -> list[Candidate]:
        """The best ``n`` that one round of descents finds, with what sketches are owed.

        While there are no outcomes, some of them are the best of a sample.
        """
        sketches = self._history.sketches
        sample = self._space.sample(_SAMPLE * len(sketches), self._context.rng)
        sample = sample.over(sketches)
        measured = self._history.best(self.options.seeds)
        rows = [np.zeros((0, len(sketch.params)), dtype=np.int64) for sketch in sketches]
        scores = [np.zeros(0) for _ in sketches]
        for index in self._chosen(sample, measured):
            collected = self._descended(index, sample.matrices[index], measured.matrices[index])
            rows[index], scores[index] = self._polished(
                index, collected.rows, self._ranked_by(index, collected)
            )
        drafted = int(self.options.sampled_drafts * n) if self._is_drafting else 0
        found = CandidateBatch.of_rows(sketches, rows), np.concatenate([np.zeros(0), *scores])
        chosen = self._best(*found, n - drafted)
        self._history.add(chosen)
        if drafted:
            fresh = self._history.unseen(sample)
            others = self._best(fresh, self._scores(fresh.without_empty()), drafted)
            self._history.add(others)
            chosen += others
        return chosen

    @property
    def _is_drafting(self) -> bool:
        """True if nothing is known of any candidate."""
        return not len(self._history.best(1))

    def _chosen(self, sample: CandidateBatch, measured: CandidateBatch) -> list[int]:
        """Sketches to descend in: the most promising, and beside them those owed candidates."""
        known = sample + measured
        promise = np.full(len(known.sketches), -np.inf)
        np.maximum.at(promise, known.owners, self._scores(known.without_empty()))
        usable = [index for index, rows in enumerate(sample.matrices) if len(rows)]
        best = sorted(usable, key=lambda index: -promise[index])
        most = self.options.sketches
        chosen = best[: (most + 1) // 2]
        counts = np.minimum(self._history.counts, self.options.sketch_trials)
        others = sorted(
            set(best) - set(chosen), key=lambda index: (counts[index], -promise[index])
        )
        return sorted([*chosen, *others[: most - len(chosen)]])

    def _scores(self, batch: CandidateBatch) -> Reals:
        """Predictions [n]; what is no finite number is minus infinity."""
        if not len(batch):
            return np.zeros(0)
        scores = np.asarray(self._model.predict(batch), dtype=np.float64)
        finite = np.isfinite(scores)
        if not finite.all() and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "cost model %r predicts no finite latency for %d of %d candidates; such are "
                "sampled only",
                self._model.name,
                int((~finite).sum()),
                len(scores),
            )
        return np.where(finite, scores, -np.inf)

    def _descended(self, index: int, sample: Whole, measured: Whole) -> Collected:
        options, repairer, rng = self.options, self._repairers[index], self._context.rng
        steps = options.steps // (_LATER if self._descents[index] else 1)
        self._descents[index] += 1
        sketch, penalties = repairer.relaxation.sketch, repairer.penalties
        objective = partial(self._model.relaxed, sketch)
        start, frame = starting_points(penalties, objective, sample, measured, options, rng)
        trajectories = descend(penalties, objective, start, frame, steps, options)
        contains = partial(self._contains, sketch)
        feasible = np.concatenate([sample, measured])
        return collect_candidates(repairer, trajectories, frame, contains, feasible, options, rng)

    def _polished(self, index: int, rows: Whole, scores: Reals) -> tuple[Whole, Reals]:
        """The rows and scores, and those of configurations one move from the best, repeatedly.

        Relaxed, a model is smooth where whole numbers matter, such as how blocks fill a machine:
        the best configuration is seldom the one nearest to the best point.
        """
        sketch, repairer = self._history.sketches[index], self._repairers[index]
        for _ in range(self.options.polish):
            best = np.argsort(-scores, kind="stable")[: self.options.seeds]
            moved = new_rows(repairer.neighbours(rows[best]), rows)
            moved = moved[self._contains(sketch, moved)]
            rows = np.concatenate([rows, moved])
            scores = np.concatenate([scores, self._scores(CandidateBatch(((sketch, moved),)))])
        return rows, scores

    def _contains(self, sketch: Sketch, rows: Whole) -> Any:
        return self._space.contains(CandidateBatch(((sketch, rows),)))

    def _ranked_by(self, index: int, collected: Collected) -> Reals:
        """Scores that rank the rows of collected candidates: their predictions, [m]."""
        sketch, ranked = self._history.sketches[index], collected.rows
        if self.options.ranking == "misaligned":
            # Configurations outside of the space, too: as near to them as a model can look.
            bounds = param_bounds(sketch)
            limits = [bounds[name] for name in sketch.param_names]
            low, high = np.array(limits, dtype=np.int64).T
            ranked = np.clip(collected.passed, low, high)
        return self._scores(CandidateBatch(((sketch, ranked),)))[: len(collected.rows)]

    def _best(self, batch: CandidateBatch, scores: Reals, n: int) -> list[Candidate]:
        """The best of rows that were never asked for, half of them for sketches that are owed."""
        order = np.lexsort((self._context.rng.random(len(scores)), -scores))
        usable = np.isfinite(scores) & ~self._history.is_asked(batch)
        order = _apart(order[usable[order]], batch, n, self.options.spacing)
        counts = self._history.counts
        is_draft = self.options.even_drafts and self._is_drafting
        owed = [n if is_draft else max(0, self.options.sketch_trials - it) for it in counts]
        queues = [own[:most] for own, most in zip(batch.by_part(order), owed, strict=True)]
        chosen = spread(counts, queues, n if is_draft else (n + 1) // 2)
        rest = order[~np.isin(order, chosen)]
        most = max(1, math.ceil(self.options.sketch_share * (n - len(chosen))))
        rest = _shared(rest, batch.owners[rest], most)
        return batch.take([*chosen, *rest[: n - len(chosen)].tolist()])


def _apart(order: Positions, batch: CandidateBatch, n: int, spacing: float) -> Positions:
    """The order with the first ``n`` of each sketch so far apart that follow, then the others.

    Distances are sums of octaves over the parameters.
    """
    is_kept = np.zeros(len(order), dtype=np.bool_)
    owners = batch.owners[order]
    for index, matrix in enumerate(batch.matrices):
        places = np.flatnonzero(owners == index)
        octaves = np.log2(np.maximum(matrix[order[places] - batch.starts[index]], 0.5))
        is_open = np.ones(len(places), dtype=np.bool_)
        for _ in range(n):
            if not is_open.any():
                break
            first = int(is_open.argmax())
            is_kept[places[first]] = True
            is_open &= np.abs(octaves - octaves[first]).sum(axis=1) >= spacing
            is_open[first] = False
    return np.concatenate([order[is_kept], order[~is_kept]])


def _shared(order: Positions, owners: Positions, most: int) -> Positions:
    """The order with all but the first ``most`` of each sketch behind the others."""
    is_early = np.zeros(len(order), dtype=np.bool_)
    for owner in np.unique(owners):
        is_early[np.flatnonzero(owners == owner)[:most]] = True
    return np.concatenate([order[is_early], order[~is_early]])


Contains = Callable[[Whole], NDArray[np.bool_]]
"""Membership of configurations [n, params] of the sketch in the space, [n]."""


@frozen(eq=False)
class Collected:
    """Distinct configurations of a sketch.

    Attributes:
        rows: Those in the space, [m, params].
        passed: All that were passed, also those outside of the space, [k, params]; the ones
            inside are in ``rows`` in the same order.
    """

    rows: Whole
    passed: Whole


def collect_candidates(
    repairer: Repairer,
    trajectories: Trajectories,
    frame: Frame,
    contains: Contains,
    feasible: Whole,
    options: FelixOptions,
    rng: np.random.Generator,
) -> Collected:
    """The configurations that points passed at any step, and what repairs make of the others.

    Args:
        repairer: Of the sketch.
        trajectories: Where points have been.
        frame: What they kept.
        contains: Says what is in the space.
        feasible: Configurations in the space, for repairs that find no way, [m, params].
        options: ``rounding``, ``roundings`` and ``repairs``.
        rng: Draws remainders for all but the first rounding of a point.
    """
    relaxation, (steps, n, _) = repairer.relaxation, trajectories.points.shape
    points = trajectories.points.reshape(steps * n, relaxation.size)
    frames = frame.select(np.tile(np.arange(n), steps))
    costs = trajectories.costs.reshape(-1)
    if options.rounding == "independent":
        rows, whole = independently_rounded(relaxation, points, frames)
        rows, costs = rows[whole], costs[whole]
    else:
        draws = [None] + [rng] * (options.roundings - 1)
        rows = np.concatenate([relaxation.rounded(points, frames, each) for each in draws])
        costs = np.tile(costs, len(draws))
    order = np.argsort(costs, kind="stable")
    passed = rows[order][_firsts(rows[order])]
    inside = contains(passed)
    found = passed[inside]
    outside = passed[~inside][: options.repairs]
    if len(outside):
        repaired = repairer.repaired(outside, feasible)
        found = np.concatenate([found, repaired[contains(repaired)]])
        found = found[_firsts(found)]
    return Collected(found, passed)


def new_rows(rows: Whole, known: Whole) -> Whole:
    """Rows [n, params] that are not known and do not occur before, [m, params]."""
    both = np.concatenate([known, rows])
    firsts = _firsts(both)
    return both[firsts[firsts >= len(known)]]


def _firsts(rows: Whole) -> NDArray[np.int64]:
    """Positions of rows that do not occur before, ascending."""
    if not rows.size:
        return np.arange(min(len(rows), 1))
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * 8))).ravel()
    return np.sort(np.unique(keys, return_index=True)[1])


def starting_points(
    penalties: Penalties,
    objective: Objective,
    sample: Whole,
    measured: Whole,
    options: FelixOptions,
    rng: np.random.Generator,
) -> tuple[Reals, Frame]:
    """Points [seeds, size] and what they keep.

    Args:
        penalties: Of the sketch.
        objective: What points that compete are compared by.
        sample: Feasible configurations, [m, params] with m > 0; others take their choices of
            extents from them, so that these are as frequent as in the space.
        measured: The best measured configurations, [k, params], best first.
        options: ``seeds``, ``measured_share``, ``noise``, ``tournament`` and ``sampler``.
        rng: Where chance comes from.
    """
    relaxation = penalties.relaxation
    near = int(options.seeds * options.measured_share) if len(measured) else 0
    rows = measured[np.arange(near) % max(1, len(measured))]
    frame = relaxation.frame(rows)
    points = relaxation.encode(rows, frame)
    points = relaxation.project(points + rng.normal(0.0, options.noise, points.shape), frame)
    fresh, fresh_frame = _fresh(penalties, sample, options.seeds - near, options, rng)
    if options.tournament > 1 and len(fresh):
        cost = objective(relaxation.decode(fresh, fresh_frame))[0].reshape(-1, options.tournament)
        best = np.where(np.isfinite(cost), cost, np.inf).argmin(axis=1)
        winners = best + options.tournament * np.arange(len(best))
        fresh, fresh_frame = fresh[winners], fresh_frame.select(winners)
    # Frames follow from configurations alone.
    return (
        np.concatenate([points, fresh]),
        relaxation.frame(np.concatenate([rows, fresh_frame.base])),
    )


def _fresh(
    penalties: Penalties,
    sample: Whole,
    n: int,
    options: FelixOptions,
    rng: np.random.Generator,
) -> tuple[Reals, Frame]:
    """``n`` points, ``tournament`` times: uniform on the simplices where this is feasible."""
    relaxation, count = penalties.relaxation, n * options.tournament
    if options.sampler == "one-sided":
        # One extent for all: there, extents are not chosen.
        frame = relaxation.frame(np.repeat(sample[rng.integers(len(sample), size=1)], count, 0))
        return one_sided(relaxation, frame, rng), frame
    rows = sample[rng.integers(len(sample), size=count)]
    frame = relaxation.frame(rows)
    points = relaxation.uniform(frame, rng)
    broken = penalties.of_points(points, relaxation.decode(points, frame), frame)[0] > 0
    points[broken] = relaxation.encode(rows, frame)[broken]
    return points, frame
