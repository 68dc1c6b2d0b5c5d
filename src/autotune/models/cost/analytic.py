"""An analytical cost model: estimates from the loop nest, with a few weights to learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models.context import ModelContext
from autotune.models.cost.cost_model import DifferentiableCostModel
from autotune.models.cost.model_file import check_model
from autotune.plugins.options import NoOptions, read_options
from autotune.sketches import Candidate, CandidateBatch, Sketch, per_sketch
from autotune.sketches.candidates import in_order
from autotune.store.records import Outcome

if TYPE_CHECKING:
    from autotune.nest.relaxed import RelaxedTape
    from autotune.targets import Target

__all__ = ["AnalyticCostModel", "AnalyticEstimate"]

Values = NDArray[np.float64]

# Estimates of a CPU add up, as its draft model has it; a GPU overlaps what it does: components
# are joined by a norm of this order, whose limits are the sum (1) and the largest.
_ORDER = {"cpu": 1.0, "cuda": 3.0}
_SECONDS = {"cpu": 1.0 / (100 * 3e9), "cuda": 1e-15}

# Weights are factors; how sure one is of 1, in units of the scatter of one outcome.
_PRIOR = 25.0
_STEPS = 12
_LARGEST = 3.0


class AnalyticEstimate:
    """Components of the time of a program, and their derivatives, for any sketch.

    Args:
        target: What the programs are for.

    Attributes:
        components: Names of what the time is made of.
    """

    def __init__(self, target: Target) -> None:
        # Here, because naming the model must not cost loading the loop nest.
        from autotune.models.cost.components import CPU_COMPONENTS, GPU_COMPONENTS

        self._target = target
        self.components: tuple[str, ...] = (
            GPU_COMPONENTS if target.kind == "cuda" else CPU_COMPONENTS
        )
        self._order = _ORDER.get(target.kind, _ORDER["cpu"])
        self._tape = per_sketch(self._derive, exact=True)

    def _derive(self, sketch: Sketch) -> RelaxedTape:
        from autotune.models.cost.components import cpu_components, gpu_components
        from autotune.nest import build_tape
        from autotune.nest.relaxed import RelaxedTape, param_bounds

        derive = gpu_components if self._target.kind == "cuda" else cpu_components
        outputs = dict(zip(self.components, derive(sketch, self._target), strict=True))
        tape = build_tape(sketch.param_names, outputs)
        return RelaxedTape(tape, "relaxed", param_bounds(sketch))

    def seconds(self, sketch: Sketch, rows: Values) -> Values:
        """Seconds of each component alone, ``[n, components]``, at points ``[n, params]``.

        Raises:
            InvalidValueError: the points do not fit the sketch or are outside its bounds.
        """
        scale = _SECONDS.get(self._target.kind, _SECONDS["cpu"])
        return np.maximum(self._tape(sketch).values(rows) * scale, 1e-15)

    def joined(self, seconds: Values, weights: Values) -> tuple[Values, Values]:
        """Logarithm of the time of all components together, and their shares in it.

        Args:
            seconds: ``[n, components]``.
            weights: Logarithms of factors, ``[components]``.

        Returns:
            ``[n]``, and the derivative of it by the logarithms of components,
            ``[n, components]``, which is positive and adds up to 1.
        """
        powers = self._order * (np.log(seconds) + weights)
        highest = powers.max(axis=1, keepdims=True)
        shares = np.exp(powers - highest)
        total = shares.sum(axis=1, keepdims=True)
        return ((highest + np.log(total)) / self._order)[:, 0], shares / total

    def gradient(self, sketch: Sketch, rows: Values, seconds: Values, shares: Values) -> Values:
        """Gradient ``[n, params]`` of a function whose derivative by log components is given."""
        scale = _SECONDS.get(self._target.kind, _SECONDS["cpu"])
        return self._tape(sketch).vjp(rows, shares / seconds * scale)


class AnalyticCostModel(DifferentiableCostModel):
    """Estimates the time of a program from its loop nest, differentiably.

    Useful before the first outcome. From outcomes it learns how much each component of the
    estimate weighs (a factor for each, close to 1 until much speaks for another); latencies of a
    workload are compared with each other only.

    Args:
        context: The target that candidates are for.

    Raises:
        InvalidValueError: an option is given, or the target lacks a rate.
    """

    name = "analytic"

    def __init__(self, context: ModelContext) -> None:
        read_options(f"cost model {self.name!r}", NoOptions, context.options)
        self._estimate = AnalyticEstimate(context.target)
        self._weights = np.zeros(len(self._estimate.components))
        self._seconds: list[list[float]] = []
        self._latencies: list[float] = []
        self._workloads: list[str] = []

    @property
    def weights(self) -> Mapping[str, float]:
        """The factor of each component."""
        return dict(zip(self._estimate.components, np.exp(self._weights).tolist(), strict=True))

    def relaxed(self, sketch: Sketch, rows: Values) -> tuple[Values, Values]:
        """The logarithm of the estimated seconds, and its gradient."""
        seconds = self._estimate.seconds(sketch, rows)
        latency, shares = self._estimate.joined(seconds, self._weights)
        return latency, self._estimate.gradient(sketch, rows, seconds, shares)

    def predict(self, batch: CandidateBatch) -> Values:
        """Minus the logarithm of the estimated seconds, [n]."""
        seconds = self._seconds_of(batch)
        return -self._estimate.joined(seconds, self._weights)[0] if len(batch) else np.zeros(0)

    def _seconds_of(self, batch: CandidateBatch) -> Values:
        """Seconds of each component alone, [n, components]."""
        return batch.each(lambda sketch, rows: self._estimate.seconds(sketch, rows.astype(float)))

    def feature_slopes(
        self, sketch: Sketch, rows: Values
    ) -> tuple[tuple[str, ...], Values, Values]:
        """Seconds of the components, weighted, and their shares."""
        seconds = self._estimate.seconds(sketch, rows)
        _, shares = self._estimate.joined(seconds, self._weights)
        return self._estimate.components, seconds * np.exp(self._weights), shares * np.log(2.0)

    def update(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Learn from what has a latency."""
        valid = [(each, outcome) for each, outcome in outcomes if outcome.latency is not None]
        if not valid:
            return
        candidates = [candidate for candidate, _ in valid]
        self._seconds += in_order(candidates, self._seconds_of).tolist()
        self._latencies += [float(outcome.latency) for _, outcome in valid if outcome.latency]
        self._workloads += [each.sketch.workload.digest for each in candidates]
        self._weights = self._fitted()

    def _fitted(self) -> Values:
        """Weights that explain the outcomes best: damped Gauss-Newton steps from no weights.

        Least squares of logarithms, each workload's own mean left out, with a pull to 0.
        """
        seconds, weights = np.array(self._seconds), np.zeros_like(self._weights)
        target = np.log(np.array(self._latencies))
        _, group = np.unique(self._workloads, return_inverse=True)
        pull = _PRIOR * np.eye(len(weights))
        for _ in range(_STEPS):
            predicted, shares = self._estimate.joined(seconds, weights)
            missing, slopes = _centred(target - predicted, group), _centred(shares, group)
            scatter = max(float(np.mean(missing**2)), 1e-4)
            normal = slopes.T @ slopes / scatter + pull
            step = np.linalg.solve(normal, slopes.T @ missing / scatter - pull @ weights)
            weights = np.clip(weights + 0.5 * step, -_LARGEST, _LARGEST)
        return weights

    def state(self) -> dict[str, Any]:
        """A JSON object with what was learned from."""
        return {
            "model": self.name,
            "components": list(self._estimate.components),
            "seconds": [list(row) for row in self._seconds],
            "latencies": list(self._latencies),
            "workloads": list(self._workloads),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another model, or of another kind of target.
        """
        check_model(self.name, state)
        if tuple(state["components"]) != self._estimate.components:
            raise InvalidValueError(
                f"the state has the components {state['components']}, this target has "
                f"{list(self._estimate.components)}"
            )
        self._seconds = [list(row) for row in state["seconds"]]
        self._latencies = list(state["latencies"])
        self._workloads = list(state["workloads"])
        self._weights = self._fitted() if self._seconds else np.zeros_like(self._weights)


def _centred(values: Values, group: NDArray[np.int64]) -> Values:
    """Values ``[n, ...]`` without the mean of their group, whose numbers are ``[n]``."""
    columns = values.reshape(len(values), -1)
    counts = np.bincount(group)
    sums = np.zeros((len(counts), columns.shape[1]))
    np.add.at(sums, group, columns)
    means = sums / counts[:, None]
    return np.asarray((columns - means[group]).reshape(values.shape))
