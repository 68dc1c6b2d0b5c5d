"""Search by a surrogate of the latency over the parameters alone.

Regression by a Gaussian process whose length scales are found by marginal likelihood.

Formulas are those of Rasmussen and Williams, Gaussian Processes for Machine Learning (2006):
covariance 4.17, prediction 2.25 and 2.26, marginal likelihood 5.8 and its derivative 5.9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.plugins.options import option, read_options
from autotune.process.blas_threads import one_blas_thread
from autotune.search.strategies.annealing import FeasibleMoves, reference_rows
from autotune.search.strategies.sampling import whole_space
from autotune.search.strategies.strategy import RecordedStrategy, StrategyContext, check_count
from autotune.sketches import Candidate, CandidateBatch, Categorical, Param, Sketch
from autotune.sketches.candidates import Matrix, row_key
from autotune.spaces.parameters import column_scale
from autotune.store.records import Outcome

__all__ = [
    "AutoOptions",
    "AutoStrategy",
    "Covariance",
    "Cross",
    "Factorised",
    "Observation",
    "Surrogate",
    "encoding_for",
    "fit_covariance",
    "log_expected_improvement",
]

Array = NDArray[np.floating[Any]]

_LOG_WEIGHT = (-1.0, 1.0)
"""Mean and standard deviation of the prior of the logarithm of a coordinate's weight."""
_LOG_NOISE = (math.log(1e-3), 2.0)
_FARTHEST = 4.0
_FIRST_STEP, _LARGEST_STEP = 0.3, 1.0
_SMALLEST_PIVOT = 1e-8


def _array(values: object) -> Array:
    return np.asarray(values, dtype=np.float64)


@frozen(eq=False)
class Covariance:
    """Matern 5/2 of a weighted distance, relative to the signal's variance.

    Attributes:
        log_weights: Logarithm of the weight of each group of coordinates, [groups].
        log_noise: Logarithm of the variance of the noise.
    """

    log_weights: Array = field(converter=_array)
    log_noise: float = _LOG_NOISE[0]

    @staticmethod
    def prior(groups: int) -> Covariance:
        """The mean of the prior."""
        return Covariance(np.full(groups, _LOG_WEIGHT[0]), _LOG_NOISE[0])

    @property
    def noise(self) -> float:
        """The variance of the noise."""
        return math.exp(self.log_noise)

    def scaled(self, points: Array, groups: NDArray[np.int64]) -> Array:
        """Points whose plain distance is the weighted one."""
        return np.asarray(points * np.exp(0.5 * self.log_weights)[groups])


def _squared_distances(left: Array, right: Array) -> Array:
    """Between rows; [left, right], in the precision of the arguments."""
    product: Array = left @ right.T
    product *= -2
    product += (left * left).sum(axis=1)[:, None]
    product += (right * right).sum(axis=1)
    return np.maximum(product, 0, out=product)


def _matern(squared: Array) -> Array:
    """The covariance at squared distances, which are overwritten."""
    squared *= 5
    scaled = np.sqrt(squared)
    squared /= 3
    squared += scaled
    squared += 1
    squared *= np.exp(np.negative(scaled, out=scaled), out=scaled)
    return squared


def _matern_and_slope(squared: Array) -> tuple[Array, Array]:
    """The covariance, and its derivative by the squared distance."""
    scaled = np.sqrt(5 * squared)
    decay = np.exp(-scaled)
    slope = (-5 / 6) * (1 + scaled) * decay
    return decay * (1 + scaled + (5 / 3) * squared), slope


def fit_covariance(
    points: Array, values: Array, groups: NDArray[np.int64], start: Covariance, steps: int
) -> Covariance:
    """The most probable covariance of some observations, by ``steps`` steps of Rprop.

    The variance of the signal is the best one for each set of weights. Priors are log-normal.

    Args:
        points: [n, coordinates], n at least 1.
        values: [n], of mean zero.
        groups: The group of each coordinate.
        start: Where to begin.
        steps: Evaluations of likelihood and gradient, each cubic in n.
    """
    means = np.append(np.full(len(start.log_weights), _LOG_WEIGHT[0]), _LOG_NOISE[0])
    deviations = np.append(np.full(len(start.log_weights), _LOG_WEIGHT[1]), _LOG_NOISE[1])
    theta = np.append(start.log_weights, start.log_noise)
    best, least = theta, math.inf
    sizes, before = np.full(len(theta), _FIRST_STEP), np.zeros(len(theta))
    for _ in range(steps):
        loss, gradient = _likelihood(points, values, groups, theta)
        loss += 0.5 * float((((theta - means) / deviations) ** 2).sum())
        gradient += (theta - means) / deviations**2
        if loss < least:
            best, least = theta, loss
        agreement = gradient * before
        sizes = np.where(agreement > 0, np.minimum(sizes * 1.3, _LARGEST_STEP), sizes)
        sizes = np.where(agreement < 0, sizes * 0.5, sizes)
        before = np.where(agreement < 0, 0.0, gradient)
        reach = _FARTHEST * deviations
        theta = np.clip(theta - np.sign(before) * sizes, means - reach, means + reach)
    return Covariance(best[:-1], float(best[-1]))


def _likelihood(
    points: Array, values: Array, groups: NDArray[np.int64], theta: Array
) -> tuple[float, Array]:
    """Minus the logarithm of the marginal likelihood but for a constant, and its gradient."""
    n, covariance = len(values), Covariance(theta[:-1], float(theta[-1]))
    scaled = covariance.scaled(points, groups)
    squared = _squared_distances(scaled, scaled)
    gram, slope = _matern_and_slope(squared)
    gram[np.diag_indices(n)] = 1 + covariance.noise
    factor = np.linalg.cholesky(gram)
    half = np.linalg.inv(factor)
    inverse = half.T @ half
    dual = inverse @ values
    variance = max(float(values @ dual) / n, np.finfo(float).tiny)
    loss = 0.5 * n * math.log(variance) + float(np.log(np.diag(factor)).sum())
    outer = inverse - np.outer(dual, dual) / variance
    slopes = outer * slope
    # Sum over i, j of slopes * (x_i - x_j)**2, halved, for each coordinate.
    by_coordinate = (scaled * scaled * slopes.sum(axis=1)[:, None]).sum(axis=0)
    by_coordinate -= (scaled * (slopes @ scaled)).sum(axis=0)
    gradient = np.bincount(groups, by_coordinate, minlength=len(theta) - 1)
    return loss, np.append(gradient, 0.5 * covariance.noise * np.trace(outer))


class Factorised:
    """The Cholesky factor of the covariance between observed points, which may be added to.

    Args:
        covariance: Their covariance.
        groups: The group of each coordinate.
        points: The first ones, [n, coordinates].
    """

    def __init__(self, covariance: Covariance, groups: NDArray[np.int64], points: Array) -> None:
        self.covariance = covariance
        self.groups = groups
        self.first = len(points)
        self.scaled = covariance.scaled(points, groups)
        gram = _matern(_squared_distances(self.scaled, self.scaled))
        gram[np.diag_indices(len(points))] = 1 + covariance.noise
        self.factor: Array = np.linalg.cholesky(gram)
        self.inverse: Array = np.linalg.inv(self.factor)

    def __len__(self) -> int:
        return len(self.scaled)

    def add(self, point: Array) -> None:
        """Append one point, [coordinates]."""
        n = len(self)
        scaled = self.covariance.scaled(point, self.groups)[None]
        row = self.inverse @ _matern(_squared_distances(self.scaled, scaled))[:, 0]
        pivot = math.sqrt(max(1 + self.covariance.noise - float(row @ row), _SMALLEST_PIVOT))
        self.factor = _grown(self.factor, row, pivot)
        self.inverse = _grown(self.inverse, -(row @ self.inverse) / pivot, 1 / pivot)
        self.scaled = np.concatenate([self.scaled, scaled])
        assert len(self.factor) == n + 1

    def truncate(self, n: int) -> None:
        """Forget all but the first ``n`` points."""
        self.scaled = self.scaled[:n]
        self.factor, self.inverse = self.factor[:n, :n], self.inverse[:n, :n]

    def whitened(self, values: Array, known: NDArray[np.bool_]) -> Array:
        """The solution of ``factor @ x = values`` for the first of the points; [values].

        Where ``known`` is false the value is taken to be what those before it predict, so that
        the mean stays as it is and only the variance falls.
        """
        n = len(values)
        if known.all():
            return np.asarray(self.inverse[:n, :n] @ values)
        result = np.zeros(n)
        inner = self.factor[:n, :n][np.ix_(known, known)]
        result[known] = np.linalg.solve(inner, values[known])
        return result


def _grown(matrix: Array, row: Array, corner: float) -> Array:
    n = len(matrix)
    grown = np.zeros((n + 1, n + 1))
    grown[:n, :n], grown[n, :n], grown[n, n] = matrix, row, corner
    return grown


class Cross:
    """Covariances of fixed candidates with the observed points, whitened, in single precision.

    Args:
        points: The candidates, [n, coordinates].
        observed: The observed points; the covariances with its first ones are computed at once,
            those with later ones when :meth:`extend` is called, each linear in candidates and
            observed points.
    """

    def __init__(self, points: Array, observed: Factorised) -> None:
        scaled = observed.covariance.scaled(points, observed.groups)
        self._points = scaled.astype(np.float32)
        self._norms = (self._points * self._points).sum(axis=1)
        first = observed.first
        inner = observed.scaled[:first].astype(np.float32)
        covariances = _matern(_squared_distances(inner, self._points))
        self._rows: Array = np.empty((2 * first + 16, len(points)), dtype=np.float32)
        np.matmul(
            observed.inverse[:first, :first].astype(np.float32),
            covariances,
            out=self._rows[:first],
        )
        self._used = first
        #: Variance that is left of a signal of variance 1, by candidate.
        self.variances: Array = 1 - np.einsum("ij,ij->j", self._rows[:first], self._rows[:first])

    def extend(self, observed: Factorised) -> None:
        """Take in the points that were added since."""
        for n in range(self._used, len(observed)):
            if n == len(self._rows):
                self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            point = observed.scaled[n].astype(np.float32)
            squared = self._norms + (point @ point) - 2 * (self._points @ point)
            row = _matern(np.maximum(squared, 0, out=squared))
            row -= observed.factor[n, :n].astype(np.float32) @ self._rows[:n]
            row /= np.float32(observed.factor[n, n])
            self._rows[n] = row
            self.variances = self.variances - row * row
            self._used = n + 1

    def truncate(self, n: int, variances: Array) -> None:
        """Forget all but the first ``n`` points; ``variances`` are those of then."""
        self._used, self.variances = n, variances

    def mean(self, whitened: Array) -> Array:
        """The prediction for each candidate, from :meth:`Factorised.whitened`."""
        return np.asarray(whitened.astype(np.float32) @ self._rows[: len(whitened)])


_CELLS = 24_000_000
"""Candidates times observations, beyond which a sample stands for the whole space."""
_LEAST_VALID = 2
_ELITES = 4


@frozen
class AutoOptions:
    """Options of :class:`AutoStrategy`.

    Attributes:
        initial: Candidates that are sampled before the model has its say.
        growth: Ratio of observed candidates at which the length scales are fitted again.
        fit_steps: Steps of each fit.
        pool: Candidates that are sampled and scored for each request in a space that is too large
            to be scored as a whole.
        most_observed: Observed candidates that the model takes in: half of them the fastest, the
            others the latest.
    """

    initial: int = option(8, low=2, high=1_000_000)
    growth: float = option(1.15, low=1.01, high=100.0)
    fit_steps: int = option(15, low=1, high=1000)
    pool: int = option(1024, low=16, high=1_000_000)
    most_observed: int = option(512, low=16, high=4096)


class AutoStrategy(RecordedStrategy):
    """Asks for the candidates that are expected to improve most on the fastest one so far.

    After ``initial`` samples, a Gaussian process predicts the logarithm of the latency from the
    parameters (:class:`~autotune.search.strategies.auto.Encoding`), and another one, from
    failures as 1 and the rest as 0, the probability of failure. Asked for is what has the largest
    product of expected improvement and chance to work: of the whole space where it has at most
    65536 candidates, else of a sample and the surroundings of the fastest. A candidate whose
    outcome is not known yet is believed to turn out as predicted ("kriging believer": Ginsbourger,
    Le Riche, Carraro 2010), so that those asked for together differ.

    It needs neither a cost model nor a pruning model.
    """

    name = "auto"

    def __init__(self, context: StrategyContext) -> None:
        """Raises InvalidValueError for an unknown option or value."""
        self.options = read_options(f"strategy {self.name!r}", AutoOptions, context.options)
        super().__init__(context)
        self._cross: tuple[Factorised, Cross] | None = None
        self._open: NDArray[np.bool_] | None = None

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates, the most promising first; fewer only when none are left."""
        check_count(n)
        if n == 0:
            return []
        outcomes = self._history.outcomes()
        valid = sum(latency is not None for _, _, latency in outcomes)
        sampled = n if valid < _LEAST_VALID else min(n, self.options.initial - len(self._history))
        chosen = self._drawn(max(sampled, 0))
        if len(chosen) < n and valid >= _LEAST_VALID:
            with one_blas_thread():
                observed = self._surrogate.learn(outcomes)
                chosen += self._most_promising(n - len(chosen), observed)
        return chosen + self._drawn(n - len(chosen))

    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Remember the outcomes.

        Raises:
            InvalidValueError: a candidate's sketch is not one of the space.
        """
        super().tell(outcomes)
        self._close([candidate for candidate, _ in outcomes])

    def state(self) -> dict[str, Any]:
        """Return the state of other strategies, with that of the model."""
        return {**super().state(), "surrogate": self._surrogate.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another strategy, space or kind of generator.
        """
        super().load_state(state)
        self._surrogate.load_state(state["surrogate"])
        self._cross, self._open = None, None

    @cached_property
    def _rows(self) -> CandidateBatch | None:
        """All rows of the space, or None where there are too many."""
        return whole_space(self._space)

    @cached_property
    def _reference(self) -> CandidateBatch:
        return reference_rows(self._space) if self._rows is None else self._rows

    @cached_property
    def _encoding(self) -> Encoding:
        return encoding_for(self._reference)

    @cached_property
    def _surrogate(self) -> Surrogate:
        options = self.options
        return Surrogate(self._encoding, options.growth, options.fit_steps, options.most_observed)

    @cached_property
    def _moves(self) -> FeasibleMoves:
        return FeasibleMoves(self._space, self._reference)

    @cached_property
    def _points(self) -> NDArray[np.float64]:
        """Points of all rows."""
        return self._encoding.encode(self._reference)

    @cached_property
    def _positions(self) -> dict[bytes, int]:
        """Positions of all rows."""
        return {key: position for position, key in enumerate(self._reference.keys)}

    def _drawn(self, n: int) -> list[Candidate]:
        drawn = self._sampler.draw(n)
        self._close(drawn)
        return drawn

    def _close(self, candidates: Sequence[Candidate]) -> None:
        """Note in the whole space that these are no longer to be asked for."""
        if self._open is not None:
            for candidate in candidates:
                sketch = self._history.sketch_index(candidate.sketch)
                position = self._positions.get(row_key(sketch, candidate.values))
                if position is not None:
                    self._open[position] = False

    def _most_promising(self, n: int, observed: Factorised) -> list[Candidate]:
        rows = self._rows
        width = len(observed) + len(self._history.pending()) + n
        if rows is not None and len(rows) * width <= _CELLS:
            if self._cross is None or self._cross[0] is not observed:
                self._cross = observed, Cross(self._points, observed)
            if self._open is None:
                self._open = ~self._history.is_asked(rows)
            cross, points, is_open = self._cross[1], self._points, self._open
        else:
            self._cross = None
            rows = self._pool()
            points = self._encoding.encode(rows)
            cross, is_open = Cross(points, observed), np.ones(len(rows), dtype=np.bool_)
        cross.extend(observed)
        chosen = rows.take(self._picked(n, observed, cross, points, is_open))
        self._history.add(chosen)
        return chosen

    def _pool(self) -> CandidateBatch:
        """New rows of a space that is too large to be scored: a sample, and near the fastest."""
        found = self._sampler.sample(self.options.pool)
        elites = self._history.best(_ELITES)
        for sketch, matrix in enumerate(elites.matrices):
            for row in matrix:
                found += self._moves.around(sketch, row, self._context.rng)
        return self._history.unseen(found)

    def _picked(
        self,
        n: int,
        observed: Factorised,
        cross: Cross,
        points: NDArray[np.float64],
        is_open: NDArray[np.bool_],
    ) -> list[int]:
        """Positions of up to ``n`` open rows, which are closed."""
        known, variances = len(observed), cross.variances
        for sketch, values in self._history.pending():
            observed.add(self._surrogate.point(sketch, values))
        picked: list[int] = []
        while len(picked) < n and is_open.any():
            cross.extend(observed)
            scores = np.where(is_open, self._surrogate.scores(cross), -np.inf)
            position = int(np.argmax(scores))
            picked.append(position)
            is_open[position] = False
            if len(picked) < n:
                observed.add(points[position])
        observed.truncate(known)
        cross.truncate(known, variances)
        return picked


Observation = tuple[int, tuple[int, ...], float | None]
"""Number of the sketch, values, and the latency in seconds; None for a failure."""

_LEAST_CHANCE = 1e-6
_LEAST_DEVIATION = 1e-9
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


@frozen
class _Fit:
    """A covariance, the numbers of the observations that it stands on, and how many there were."""

    covariance: Covariance
    members: tuple[int, ...] = ()
    told: int = 0


class Surrogate:
    """Two Gaussian processes with one covariance: logarithm of the latency, and failures.

    A failure says nothing about latencies: there, the process of latencies is given what it
    predicts itself. The process of failures has 0 where a candidate worked, 1 where it failed.

    Args:
        encoding: Where configurations are.
        growth: Ratio of observations at which the covariance is fitted again.
        fit_steps: Steps of each fit.
        most_observed: Observations that a fit takes in: half of them the fastest, the others the
            latest.
    """

    def __init__(
        self, encoding: Encoding, growth: float, fit_steps: int, most_observed: int
    ) -> None:
        self._encoding = encoding
        self._growth, self._fit_steps, self._most = growth, fit_steps, most_observed
        self._fit = _Fit(Covariance.prior(int(encoding.groups.max(initial=-1)) + 1))
        self._points: list[NDArray[np.float64]] = []
        self._members: list[int] = []
        self._values, self._known = np.zeros(0), np.zeros(0, dtype=np.bool_)
        self.observed: Factorised | None = None
        """The observations, another object after each fit."""

    def learn(self, outcomes: Sequence[Observation]) -> Factorised:
        """Take in all outcomes, at least one of them a latency; those of before in the order
        of before."""
        for sketch, values, _ in outcomes[len(self._points) :]:
            self._points.append(self.point(sketch, values))
        if len(outcomes) - self._fit.told >= (self._growth - 1) * len(self._fit.members):
            self._refit(outcomes)
        elif self.observed is None:
            self._begin()
        assert self.observed is not None
        for number in range(self._told(), len(outcomes)):
            self._members.append(number)
            self.observed.add(self._points[number])
        self._set_values([outcomes[number][2] for number in self._members])
        return self.observed

    def _told(self) -> int:
        """Number of observations that are taken in, or were left out of the fit."""
        return self._fit.told + len(self._members) - len(self._fit.members)

    def point(self, sketch: int, values: Sequence[int]) -> NDArray[np.float64]:
        """Position of a configuration of a sketch; [coordinates]."""
        rows: list[list[Sequence[int]]] = [[] for _ in self._encoding.sketches]
        rows[sketch].append(values)
        batch = CandidateBatch.of_rows(self._encoding.sketches, rows)
        return np.asarray(self._encoding.encode(batch)[0])

    def _refit(self, outcomes: Sequence[Observation]) -> None:
        valid = [number for number, it in enumerate(outcomes) if it[2] is not None]
        failed = [number for number, it in enumerate(outcomes) if it[2] is None]
        if len(outcomes) > self._most:
            fastest = sorted(valid, key=lambda number: outcomes[number][2] or 0.0)
            kept = {*fastest[: self._most // 2]}
            rest = [number for number in range(len(outcomes)) if number not in kept]
            kept |= {*rest[len(kept) - self._most :]}
            valid = [number for number in valid if number in kept]
            failed = [number for number in failed if number in kept]
        self._set_values([outcomes[number][2] for number in valid])
        covariance = fit_covariance(
            np.array([self._points[number] for number in valid]),
            self._values,
            self._encoding.groups,
            self._fit.covariance,
            self._fit_steps,
        )
        # Failures last: at them, all latencies of now are what is predicted from.
        self._fit = _Fit(covariance, (*valid, *failed), len(outcomes))
        self._begin()

    def _begin(self) -> None:
        self._members = list(self._fit.members)
        points = np.array([self._points[number] for number in self._members])
        self.observed = Factorised(self._fit.covariance, self._encoding.groups, points)

    def _set_values(self, latencies: Sequence[float | None]) -> None:
        self._known = np.array([it is not None for it in latencies])
        logs = np.log([it for it in latencies if it is not None])
        self._values = np.zeros(len(latencies))
        self._values[self._known] = (logs - logs.mean()) / max(logs.std(), _LEAST_DEVIATION)

    def scores(self, cross: Cross) -> NDArray[np.float32]:
        """Logarithm of the expected improvement, failures counted as none, for each candidate.

        ``cross`` may have been extended by points beyond those observed, which then only lower
        the variance.
        """
        assert self.observed is not None
        whitened = self.observed.whitened(self._values, self._known)
        variance = float(whitened @ whitened) / max(int(self._known.sum()), 1)
        deviations = np.sqrt(np.maximum(cross.variances * variance, _LEAST_DEVIATION))
        best = self._values[self._known].min()
        scores = log_expected_improvement(best - cross.mean(whitened), deviations)
        if not self._known.all():
            failed = (~self._known).astype(np.float64)
            share, everywhere = failed.mean(), np.ones(len(failed), dtype=np.bool_)
            excess = cross.mean(self.observed.whitened(failed - share, everywhere))
            chances = 1 - share - excess
            scores += np.log(np.clip(chances, _LEAST_CHANCE, 1))
        return scores

    def state(self) -> dict[str, Any]:
        """A JSON object: the last fit, which depends on those before it."""
        return {
            "log_weights": self._fit.covariance.log_weights.tolist(),
            "log_noise": self._fit.covariance.log_noise,
            "members": list(self._fit.members),
            "told": self._fit.told,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` returned, once the outcomes are given to
        :meth:`learn`."""
        covariance = Covariance(state["log_weights"], state["log_noise"])
        self._fit = _Fit(covariance, tuple(state["members"]), state["told"])
        self._points, self._members, self.observed = [], [], None


def log_expected_improvement(
    gains: NDArray[np.float32], deviations: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Logarithm of the expectation of max(0, gain) of normal gains, up to 10 %.

    With u = gain / deviation it is deviation * (phi(u) + u * Phi(u)), which for u < 0 is
    phi(u) / (u**2 + 0.905 |u| + 1), exact for u = 0 and within 10 % from there to -8, and for
    u > 0 as much plus u. So nothing underflows far from what is promising.

    Args:
        gains: Expected gains, [n].
        deviations: Their standard deviations, [n].
    """
    u = gains / deviations
    size = np.abs(u)
    log_tail = -0.5 * u * u - np.float32(_LOG_ROOT_2PI) - np.log(u * u + 0.905 * size + 1)
    above = np.maximum(u, np.float32(0)) + np.exp(np.maximum(log_tail, np.float32(-80)))
    log_ratio = np.where(u > 0, np.log(above), log_tail)
    return np.asarray(log_ratio + np.log(deviations))


Points = NDArray[np.float64]
_ABSENT = 0.5
_MOST_SIZES = 12
"""Of more sizes no products are formed: there would be too many for their weights to be found."""
_SIMPLEX = 0.5**0.5  # Two different choices are at distance 1.


@frozen(eq=False)
class _Feature:
    """Coordinates that are computed from one parameter or more; low is moved to 0, high to 1.

    ``places`` has, for each sketch, the columns of these parameters; none where it lacks one.
    """

    places: tuple[tuple[int, ...], ...]
    columns: Callable[[Matrix], Points]
    low: float = 0.0
    high: float = 1.0

    def block(self, part: int, matrix: Matrix) -> Points:
        """The coordinates of rows of a sketch; [n, coordinates]."""
        places = self.places[part]
        if not places:
            return np.full((len(matrix), self.width), _ABSENT)
        return (self.columns(matrix[:, places]) - self.low) / (self.high - self.low)

    @cached_property
    def width(self) -> int:
        """Number of coordinates."""
        count = max(map(len, self.places))
        return int(self.columns(np.zeros((1, count), dtype=np.int64)).shape[1])


@frozen(eq=False)
class Encoding:
    """Maps configurations of several sketches to points.

    A number becomes its binary logarithm where all its values are positive (sizes act by ratios),
    scaled to [0, 1]; of whole numbers the exponent of two in them is a coordinate of its own,
    since alignment and bank conflicts depend on it. So is the product of every two sizes: threads
    of a block, elements of a tile. An unordered choice, the sketch among them, becomes a corner of
    a simplex. What a sketch lacks is in the middle.

    Attributes:
        sketches: The sketches, in order.
        groups: For each coordinate the number of what it describes; those of a simplex share one.
    """

    sketches: tuple[Sketch, ...]
    groups: NDArray[np.int64]
    _features: tuple[_Feature, ...]

    def encode(self, batch: CandidateBatch) -> Points:
        """The point of each row; [n, coordinates]."""
        batch = batch.over(self.sketches)
        blocks = [
            np.concatenate(
                [feature.block(part, matrix) for part, matrix in enumerate(batch.matrices)]
            )
            for feature in self._features
        ]
        if len(self.sketches) > 1:
            blocks.append(_SIMPLEX * np.eye(len(self.sketches))[batch.owners])
        return np.concatenate([np.zeros((len(batch), 0)), *blocks], axis=1)


def encoding_for(reference: CandidateBatch) -> Encoding:
    """The encoding of a space, scaled by some or all of its rows; constants get no coordinate."""
    features: list[_Feature] = []
    sizes: list[_Feature] = []
    for param, places in _params(reference):
        columns = [
            matrix[:, own] for own, matrix in zip(places, reference.matrices, strict=True) if own
        ]
        values = np.unique(np.concatenate(columns))
        if len(values) > 1:
            found = list(_features_of(param, places, values[:, None]))
            features += found
            if len(values) > 2 and _is_size(param, values):
                sizes.append(found[0])
    if len(sizes) <= _MOST_SIZES:
        products = (_product(one, other, reference) for one, other in combinations(sizes, 2))
        features += [it for it in products if it is not None]
    widths = [feature.width for feature in features]
    if len(reference.sketches) > 1:
        widths.append(len(reference.sketches))
    groups = np.repeat(np.arange(len(widths)), np.array(widths, dtype=np.int64))
    return Encoding(reference.sketches, groups, tuple(features))


def _params(reference: CandidateBatch) -> list[tuple[Param, tuple[tuple[int, ...], ...]]]:
    """Each parameter once, with its column in each sketch; those of one name are one parameter,
    unless they have other labels."""
    found: dict[tuple[str, object], tuple[Param, dict[int, int]]] = {}
    for part, sketch in enumerate(reference.sketches):
        for place, param in enumerate(sketch.params):
            key = (param.name, param.labels if isinstance(param, Categorical) else None)
            found.setdefault(key, (param, {}))[1][part] = place
    parts = range(len(reference.sketches))
    return [
        (param, tuple((at[part],) if part in at else () for part in parts))
        for param, at in found.values()
    ]


def _numbers(param: Param, column: Matrix) -> Points | None:
    """Numbers that values stand for; None for an unordered choice."""
    if not isinstance(param, Categorical):
        return column.astype(np.float64)
    scale = column_scale(param)
    return None if scale is None else scale[column]


def _is_size(param: Param, values: NDArray[np.int64]) -> bool:
    numbers = _numbers(param, values)
    return numbers is not None and bool(numbers.min() > 0)


def _features_of(
    param: Param, places: tuple[tuple[int, ...], ...], values: Matrix
) -> Iterator[_Feature]:
    """The features of one parameter alone; ``values`` are those that it has, [values, 1]."""
    numbers = _numbers(param, values)
    if numbers is None:
        corners = _SIMPLEX * np.eye(len(param.values or ()))
        yield _Feature(places, lambda column: corners[column[:, 0]])
        return
    least = numbers.min()

    def size(column: Matrix) -> Points:
        own = _numbers(param, column)
        assert own is not None
        if least < 0:
            return own
        # Cut off for values outside of the reference rows; what starts at 0 is shifted.
        return np.asarray(np.log2(np.maximum(own, least) + (least == 0)))

    def power_of_two(column: Matrix) -> Points:
        own = _numbers(param, column)
        assert own is not None
        whole = own.astype(np.int64)
        return np.asarray(np.log2(np.maximum(whole & -whole, 1).astype(np.float64)))

    sizes = size(values)
    yield _Feature(places, size, sizes.min(), sizes.max())
    if least > 0 and len(values) > 2 and not (numbers % 1).any():
        powers = power_of_two(values)
        if np.ptp(powers) > 0 and not np.allclose(_unit(powers), _unit(sizes)):
            yield _Feature(places, power_of_two, powers.min(), powers.max())


def _product(one: _Feature, other: _Feature, reference: CandidateBatch) -> _Feature | None:
    """The product of two sizes; None where they are in no sketch together, or it is constant."""
    places = tuple(
        left + right if left and right else ()
        for left, right in zip(one.places, other.places, strict=True)
    )

    def columns(pair: Matrix) -> Points:
        return one.columns(pair[:, :1]) + other.columns(pair[:, 1:])

    found = [
        columns(matrix[:, own])
        for own, matrix in zip(places, reference.matrices, strict=True)
        if own and len(matrix)
    ]
    if not found:
        return None
    low, high = min(map(np.min, found)), max(map(np.max, found))
    return _Feature(places, columns, low, high) if low < high else None


def _unit(column: Points) -> Points:
    return np.asarray((column - column.min()) / np.ptp(column))
