"""The cost model ``felix-gp``: the analytic estimate plus a Gaussian process, differentiable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.converter import JsonForm
from autotune.models import ModelContext
from autotune.models.cost import Observation, ObservationLog, check_model
from autotune.plugins.options import option, read_options
from autotune.sketches import Sketch
from autotune.sketches.candidates import in_order
from autotune_felix.program_columns import Adding, CorrectedEstimate, ProgramPoints

__all__ = ["FelixGp", "FelixGpOptions"]

Values = NDArray[np.float64]

# Of what was told of a workload, after the columns of programs: number of the sketch, logarithms
# of the estimate and of the latency.
_GROUP, _ESTIMATE, _LATENCY = -3, -2, -1


@frozen
class FelixGpOptions:
    """Options of ``felix-gp``.

    Attributes:
        caution: Standard deviations that are added to the logarithm of latency: what outcomes say
            little of is not taken for a gain.
        outcomes: Most outcomes of a task that it reasons from: the fastest half and the latest.
    """

    caution: float = option(0.5, low=0.0, high=10.0)
    outcomes: int = option(512, low=2, high=4096)


class FelixGp(CorrectedEstimate):
    """Predicts the logarithm of latency: an estimate from the nest, and what outcomes add to it.

    What is measured over what was estimated is taken for a Gaussian process over the relaxed
    columns of a program, with something in common for each sketch. A prediction is what the
    process expects, and a share of how unsure it is. Far from all outcomes that is the estimate.
    Latencies of one workload carry no information about another.

    Args:
        context: The target that candidates are for, and options; see :class:`FelixGpOptions`.

    Raises:
        InvalidValueError: an option is unknown or out of its bounds.
    """

    name = "felix-gp"

    def __init__(self, context: ModelContext) -> None:
        self.options = read_options(f"cost model {self.name!r}", FelixGpOptions, context.options)
        super().__init__(context.target)
        self._forget()

    def _forget(self) -> None:
        self._log = ObservationLog()
        self._sketches: dict[str, int] = {}
        self._learned: dict[str, Values] = {}
        self._scales: dict[str, Scales] = {}
        self._processes: dict[str, Process] = {}

    def _adding(self, sketch: Sketch) -> Adding | None:
        process = self._processes.get(sketch.workload.digest)
        return None if process is None else partial(self._added, process, sketch)

    def _added(
        self, process: Process, sketch: Sketch, points: ProgramPoints, _slopes: bool
    ) -> tuple[Values, Values, Values]:
        """Contribution of the process, ``[n]``, and its derivatives by both kinds of columns."""
        group = self._sketches.get(sketch.digest, -1)
        added, slope = process.predicted(_pooled(points), group, self.options.caution)
        width = points.statements.shape[2]
        by_statement = np.broadcast_to(slope[:, None, :width], points.statements.shape)
        return added, by_statement, slope[:, width:]

    def update(self, outcomes: Sequence[Observation]) -> None:
        """Learn from what has a latency."""
        valid = [pair for pair in outcomes if pair[1].latency]
        if valid:
            self._log.add(valid)
            for workload in self._add(valid):
                self._reason(workload, fitted)

    def _add(self, valid: Sequence[Observation]) -> list[str]:
        """Note outcomes, in their order; returns the workloads that they are of."""
        candidates = [candidate for candidate, _ in valid]
        found = in_order(candidates, lambda batch: batch.each(self._told_of))
        found[:, _LATENCY] = np.log([float(outcome.latency or 1.0) for _, outcome in valid])
        workloads = np.array([candidate.sketch.workload.digest for candidate in candidates])
        told = list(dict.fromkeys(workloads.tolist()))
        for workload in told:
            known = [self._learned[workload]] if workload in self._learned else []
            self._learned[workload] = np.concatenate([*known, found[workloads == workload]])
        return told

    def _told_of(self, sketch: Sketch, matrix: NDArray[np.int64]) -> Values:
        """Columns of programs, and what is kept beside them but for the latency."""
        points = self._at(sketch, matrix.astype(np.float64))
        group = self._sketches.setdefault(sketch.digest, len(self._sketches))
        beside = np.full(len(matrix), group), points.latency, np.zeros(len(matrix))
        return np.column_stack([_pooled(points), *beside])

    def _reason(self, workload: str, fit: Fit) -> None:
        """Rebuild the process of a workload from its earlier scales."""
        learned = self._learned[workload]
        learned = learned[_kept(learned[:, _LATENCY], self.options.outcomes)]
        columns = np.ascontiguousarray(learned[:, :_GROUP])
        width = len(self._estimate.components)
        others = columns.shape[1] - width
        # Components of the estimate count as much together as all columns of statements do.
        shares = np.concatenate([np.full(others, 1.0 / others), np.full(width, 1.0 / width)])
        self._processes[workload] = process = fit(
            columns,
            shares,
            learned[:, _GROUP].astype(np.int64),
            learned[:, _LATENCY] - learned[:, _ESTIMATE],
            self._scales.get(workload, Scales()),
        )
        self._scales[workload] = process.scales

    def state(self) -> dict[str, Any]:
        """A JSON object with the model's observations, without features."""
        return {
            "model": self.name,
            "feature_version": self._version,
            "scales": {name: scales.to_json() for name, scales in self._scales.items()},
            "told": self._log.to_json(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another model or other features.
        """
        check_model(self.name, state, self._version)
        told = ObservationLog.read(state["told"])
        self._forget()
        self._scales = {name: Scales.from_json(each) for name, each in state["scales"].items()}
        if told:
            self._log.add(told)
            for workload in self._add(told):
                self._reason(workload, conditioned)


def _pooled(points: ProgramPoints) -> Values:
    """Columns of programs: the sum over their statements, and the components, ``[n, columns]``."""
    return np.concatenate([points.statements.sum(axis=1), points.beside], axis=1)


def _kept(latencies: Values, most: int) -> NDArray[np.int64]:
    """Places of the latest half of ``most`` and of the fastest others, ascending."""
    earlier = max(0, len(latencies) - (most + 1) // 2)
    fastest = np.argsort(latencies[:earlier], kind="stable")[: most // 2]
    return np.concatenate([np.sort(fastest), np.arange(earlier, len(latencies))])


Groups = NDArray[np.int64]

# Each scale is a power of two times its first value, at most so many octaves from it; how far
# it is expected to be, as a standard deviation.
_OCTAVES, _EXPECTED = 3, 1.5
# Most times that all scales are tried one up and one down: nearly always, four are enough.
_SWEEPS = 4
# Variance of the level of all outcomes, which is not known beforehand.
_LEVEL = 1.0
# A column that varies by less than this is scaled as if it varied by one: it must not count more
# where it does vary.
_LEAST_SPREAD = 0.1
_LEAST_VARIANCE = 1e-9


@frozen
class Scales(JsonForm):
    """Scales at which outcomes are expected to be alike; of natural logarithms.

    Attributes:
        length: Root mean square distance of scaled columns over which outcomes differ.
        smooth: Deviation of what depends on the columns.
        group: Deviation of what all of a group have in common.
        noise: Deviation of what each outcome has alone.
    """

    length: float = 1.0
    smooth: float = 0.4
    group: float = 0.3
    noise: float = 0.1

    def moved(self, name: str, octaves: int) -> Scales:
        """With one of them so many octaves up."""
        return attrs.evolve(self, **{name: getattr(self, name) * 2.0**octaves})

    @property
    def octaves(self) -> Values:
        """Distance of each of them from its first value."""
        first = attrs.astuple(Scales())
        return np.asarray(np.log2(np.divide(attrs.astuple(self), first)))


@frozen(eq=False)
class Process:
    """The posterior over programs, given outcomes.

    Attributes:
        scales: What it was fitted with.
        evidence: Logarithm of the density of the outcomes with these scales, and of the scales.
    """

    scales: Scales
    evidence: float
    _centre: Values  # [columns]
    _weights: Values  # [columns]: columns are multiplied by these
    _points: Values  # [n, columns]: centred and weighted
    _groups: Groups  # [n]
    _level: float
    _whitener: Values  # [n, n]: of the covariance of the outcomes
    _answers: Values  # [n]: its inverse times the outcomes

    def predicted(self, columns: Values, group: int, caution: float) -> tuple[Values, Values]:
        """Expectation plus ``caution`` deviations of it, ``[m]``, and its gradient.

        Args:
            columns: Of programs, ``[m, columns]``.
            group: Of all of them.
            caution: Standard deviations.

        Returns:
            ``[m]``, and derivatives by the columns, ``[m, columns]``.
        """
        scales = self.scales
        points = (columns - self._centre) * self._weights
        alike = scales.smooth**2 * np.exp(-0.5 * _squares(points, self._points) / scales.length**2)
        cross = alike + scales.group**2 * (self._groups == group) + _LEVEL
        white = cross @ self._whitener.T
        before = scales.smooth**2 + scales.group**2 + _LEVEL
        variance = np.maximum(before - (white**2).sum(axis=1), _LEAST_VARIANCE)
        deviation = np.sqrt(variance)
        value = self._level + cross @ self._answers + caution * deviation
        # Derivative by each covariance; that of the variance is -2 times its inverse's product.
        by_cross = self._answers - caution * (white @ self._whitener) / deviation[:, None]
        pull = by_cross * alike / scales.length**2
        slope = pull @ self._points - pull.sum(axis=1, keepdims=True) * points
        return value, slope * self._weights


Fit = Callable[[Values, Values, Groups, Values, Scales], Process]
"""Maker of a process of outcomes: :func:`conditioned`, or :func:`fitted`."""


def conditioned(
    columns: Values, shares: Values, groups: Groups, labels: Values, scales: Scales
) -> Process:
    """The process with these scales that has had the outcomes.

    Args:
        columns: Of programs with an outcome, ``[n, columns]`` with n > 0.
        shares: What each column counts in a squared distance, ``[columns]``.
        groups: Of each program, ``[n]``.
        labels: Its outcome, ``[n]``.
        scales: How alike outcomes are.
    """
    spread = columns.std(axis=0)
    weights = np.sqrt(shares) / np.where(spread < _LEAST_SPREAD, 1.0, spread)
    centre, level = columns.mean(axis=0), float(labels.mean())
    points = (columns - centre) * weights
    squares = _squares(points, points)
    covariance = scales.smooth**2 * np.exp(-0.5 * squares / scales.length**2)
    covariance += scales.group**2 * (groups[:, None] == groups) + _LEVEL
    covariance[np.diag_indices_from(covariance)] += scales.noise**2
    root = np.linalg.cholesky(covariance)
    whitener = np.linalg.inv(root)
    white = whitener @ (labels - level)
    fit = -0.5 * float(white @ white) - float(np.log(np.diag(root)).sum())
    evidence = fit - 0.5 * float((scales.octaves**2).sum()) / _EXPECTED**2
    answers = whitener.T @ white
    return Process(scales, evidence, centre, weights, points, groups, level, whitener, answers)


def fitted(
    columns: Values, shares: Values, groups: Groups, labels: Values, start: Scales
) -> Process:
    """The same with scales near ``start`` that make the outcomes more likely, one at a time."""
    best = conditioned(columns, shares, groups, labels, start)
    for _ in range(_SWEEPS):
        before = best
        for name in ("length", "smooth", "group", "noise"):
            for octaves in (-1, 1):
                scales = best.scales.moved(name, octaves)
                if np.abs(scales.octaves).max() <= _OCTAVES:
                    other = conditioned(columns, shares, groups, labels, scales)
                    best = max(best, other, key=lambda process: process.evidence)
        if best is before:
            break
    return best


def _squares(one: Values, other: Values) -> Values:
    """Squared distances of all pairs of rows."""
    found = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2.0 * one @ other.T
    return np.asarray(np.maximum(found, 0.0))
