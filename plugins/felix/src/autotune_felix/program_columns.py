"""Columns of relaxed programs for learned models, with derivatives by the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.models.cost.analytic import AnalyticEstimate
from autotune.models.features import (
    RELAXED_COLUMNS,
    RELAXED_VERSION,
    RelaxedFeatures,
    RelaxedPoints,
)
from autotune.nest.relaxed import FELIX
from autotune.sketches import Sketch

if TYPE_CHECKING:
    from autotune.targets import Target
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.models.cost import Observation
from autotune.sketches import Candidate
from autotune.store.records import Outcome

__all__ = ["ObservationLog", "ProgramColumns", "ProgramPoints"]

Values = NDArray[np.float64]


@frozen(eq=False)
class ProgramPoints:
    """The estimate at points of one sketch, and what models add to it by.

    Attributes:
        seconds: What each component of the estimate takes, ``[n, components]``.
        latency: Logarithm of the estimate, ``[n]``.
        shares: Derivative of it by the logarithms of the components, ``[n, components]``.
        statements: Relaxed columns of each statement, ``[n, statements, columns]``.
    """

    seconds: Values
    latency: Values
    shares: Values
    _features: RelaxedPoints
    _rows: Values
    _sketch: Sketch
    _estimate: AnalyticEstimate

    @property
    def statements(self) -> Values:
        """Relaxed columns of each statement, ``[n, statements, columns]``."""
        return self._features.values

    @property
    def beside(self) -> Values:
        """Logarithms of the components relative to the estimate, ``[n, components]``."""
        return np.asarray(np.log(self.seconds) - self.latency[:, None])

    def weights(self, by_beside: Values) -> Values:
        """Derivative by the logarithms of components of the estimate plus what is added to it.

        Args:
            by_beside: Derivative of what is added by :attr:`beside`, which moves with the
                estimate, ``[n, components]``.
        """
        total = by_beside.sum(axis=1, keepdims=True)
        return np.asarray(self.shares + by_beside - self.shares * total)

    def gradient(self, by_statement: Values, by_beside: Values) -> Values:
        """Gradient ``[n, params]`` of the estimate plus what is added to it.

        Args:
            by_statement: Derivative of what is added by :attr:`statements`.
            by_beside: The same by :attr:`beside`.
        """
        weights = self.weights(by_beside)
        own = self._estimate.gradient(self._sketch, self._rows, self.seconds, weights)
        return own + self._features.gradient(by_statement)

    def slopes(
        self, by_statement: Values, by_beside: Values
    ) -> tuple[tuple[str, ...], Values, Values]:
        """Names, values and slopes by doubling of all that is read, for `autotune explain`."""
        count, places, _ = self.statements.shape
        columns = tuple(
            f"statement {place}: {name}" for place in range(places) for name in RELAXED_COLUMNS
        )
        flat = self.statements.reshape(count, -1), by_statement.reshape(count, -1)
        return (
            (*self._estimate.components, *columns),
            np.concatenate([self.seconds, flat[0]], axis=1),
            np.concatenate([self.weights(by_beside) * np.log(2.0), flat[1]], axis=1),
        )


class ProgramColumns:
    """The analytic estimate and relaxed features of any sketch for one target.

    Args:
        target: What the programs are for.
        published: Whether features are as smooth as Felix has them.
    """

    def __init__(self, target: Target, published: bool = False) -> None:
        self.estimate = AnalyticEstimate(target)
        self._published = published
        self._features = RelaxedFeatures(target, FELIX if published else None)

    @property
    def version(self) -> str:
        """Meaning of the columns; what was learned from others is not to be used."""
        smoothing = "+felix" if self._published else ""
        return f"{RELAXED_VERSION}{smoothing}+{'-'.join(self.estimate.components)}"

    @property
    def components(self) -> tuple[str, ...]:
        """Names of what the estimate is made of."""
        return self.estimate.components

    def estimated(self, sketch: Sketch, rows: Values) -> tuple[Values, Values, Values]:
        """Seconds of the components, logarithm of the estimate, and shares; see the points."""
        seconds = self.estimate.seconds(sketch, rows)
        return (seconds, *self.estimate.joined(seconds, np.zeros(len(self.components))))

    def at(self, sketch: Sketch, rows: Values) -> ProgramPoints:
        """Points ``[n, params]`` of a sketch.

        Raises:
            InvalidValueError: the points do not fit the sketch or are outside its bounds, or the
                sketch cannot be relaxed.
        """
        features = self._features.at(sketch, rows)
        return ProgramPoints(*self.estimated(sketch, rows), features, rows, sketch, self.estimate)


class ObservationLog:
    """Candidates and their latencies, in order, each sketch once."""

    def __init__(self) -> None:
        self._sketches: dict[str, tuple[int, dict[str, Any]]] = {}
        self._rows: list[tuple[int, tuple[int, ...], float]] = []

    def add(self, observations: Sequence[Observation]) -> None:
        """Add candidates that have a latency."""
        for candidate, outcome in observations:
            content = candidate.sketch.to_json()
            key = f"{candidate.sketch.digest} {content['params']}"
            if key not in self._sketches:
                workload = candidate.sketch.workload.to_json()
                entry = {"sketch": content, "workload": workload}
                self._sketches[key] = len(self._sketches), entry
            values = tuple(int(value) for value in candidate.values)
            self._rows.append((self._sketches[key][0], values, float(outcome.latency or 0.0)))

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`read` reads back."""
        return {
            "sketches": [content for _, content in self._sketches.values()],
            "rows": [[number, list(values)] for number, values, _ in self._rows],
            "latencies": [latency for _, _, latency in self._rows],
        }

    @staticmethod
    def read(data: Mapping[str, Any]) -> list[Observation]:
        """The observations, in order.

        Raises:
            InvalidValueError: the object is not what :meth:`to_json` returns.
        """
        try:
            sketches = [
                Sketch.from_json(item["sketch"], Workload.from_json(item["workload"]))
                for item in data["sketches"]
            ]
            return [
                (Candidate(sketches[number], tuple(values)), Outcome("ok", float(latency)))
                for (number, values), latency in zip(data["rows"], data["latencies"], strict=True)
            ]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidValueError(f"not outcomes: {type(error).__name__}: {error}") from error
