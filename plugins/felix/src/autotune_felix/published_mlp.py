"""The cost model ``felix-mlp-published``: Felix's own network over its own kind of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.models import ModelContext
from autotune.models.cost import Observation
from autotune.models.features import (
    RELAXED_COLUMNS,
    RELAXED_RAW_COLUMNS,
    RELAXED_VERSION,
    RelaxedFeatures,
)
from autotune.nest.relaxed import FELIX
from autotune.plugins.options import read_options
from autotune.sketches import Sketch
from autotune_felix.labelled import Labelled
from autotune_felix.learning import TorchModel, in_blocks, torch
from autotune_felix.options import PublishedMlpOptions
from autotune_felix.published_network import (
    FINE_TUNING_RATE,
    PRETRAINING_RATE,
    PublishedNetwork,
    fine_tune,
    pretrain,
)

__all__ = ["PublishedMlp"]

Values = NDArray[np.float64]

# Felix drops programs with larger features.
_LARGEST = 100.0
# Its features are natural logarithms, ours are logarithms to base 2.
_SCALES = np.where(np.isin(RELAXED_COLUMNS, RELAXED_RAW_COLUMNS), 1.0, np.log(2.0))


class PublishedMlp(TorchModel):
    """Predicts the logarithm of latency from 154 smoothed features of each statement.

    The network, its loss and its two trainings are those of Felix (ASPLOS'24): beforehand from
    random weights, and between rounds on all outcomes so far, pooled over the tasks. There is no
    estimate from the nest and no scaling of columns; weights trained beforehand do not come with
    the distribution. Without any it predicts the same for everything until there are outcomes,
    and then begins with the rate of a training beforehand.

    Args:
        context: The target that candidates are for, the seed of the first weights and of the
            order of training data, and options; see
            :class:`autotune_felix.options.PublishedMlpOptions`.

    Raises:
        InvalidValueError: an option is unknown or out of its bounds.
    """

    name = "felix-mlp-published"
    _sized_by = "another width"

    def __init__(self, context: ModelContext) -> None:
        self.options = read_options(
            f"cost model {self.name!r}", PublishedMlpOptions, context.options
        )
        self._seed = context.seed
        is_wide = self.options.smoothing == "published"
        self._features = RelaxedFeatures(context.target, FELIX if is_wide else None)
        self._version = f"{RELAXED_VERSION}+ln{'+felix' if is_wide else ''}"
        self._beside = 0
        self._dtype = torch.float64 if self.options.precision == "double" else torch.float32
        self._forget()

    def warm_up(self) -> None:
        """Let torch load what it loads at the first training."""
        blank = np.zeros((2, 1, len(RELAXED_COLUMNS))), np.zeros((2, 0)), np.zeros(2)
        fine_tune(self._network(None), Labelled.of(*blank, 0), 2, FINE_TUNING_RATE, 0)

    def relaxed(self, sketch: Sketch, rows: Values) -> tuple[Values, Values]:
        """The logarithm of the predicted seconds, and its gradient."""
        if rows.shape == (0, len(sketch.params)):
            return np.zeros(0), np.zeros(rows.shape)
        points = self._features.at(sketch, rows)
        latencies, slopes = self._evaluated(points.values)
        return latencies, points.gradient(slopes)

    def feature_slopes(
        self, sketch: Sketch, rows: Values
    ) -> tuple[tuple[str, ...], Values, Values]:
        """Relaxed columns of each statement."""
        points = self._features.at(sketch, rows)
        places = range(points.values.shape[1])
        names = tuple(f"statement {at}: {name}" for at in places for name in RELAXED_COLUMNS)
        flat = len(rows), len(names)
        slopes = self._evaluated(points.values)[1]
        return names, points.values.reshape(flat), slopes.reshape(flat)

    def _evaluated(self, values: Values) -> tuple[Values, Values]:
        """Logarithms of latency ``[n]`` at features ``[n, statements, columns]``, and slopes."""
        if self._weights is None or not len(values):
            return np.zeros(len(values)), np.zeros_like(values)
        network, present = self._predicting(self._dtype), torch.ones((1, 1, 1), dtype=self._dtype)
        latencies, slopes = in_blocks(
            lambda statements: -network(statements, present),
            [values * _SCALES],
            self._dtype,
            slopes=True,
        )
        return latencies, slopes * _SCALES

    def _learn(self) -> None:
        least = 1 if self._base is None else self.options.least_outcomes
        if len(self._own) < least:
            return
        network = self._network(self._weights)
        rate = PRETRAINING_RATE if self._weights is None else FINE_TUNING_RATE
        fine_tune(network, self._own, self.options.programs, rate, self._seed + self._updates)
        self._become(network)

    def _fitted(self, data: Labelled) -> Mapping[str, float] | None:
        """Train on all tasks together; mean squared errors on a tenth of the programs."""
        if len(data) < 2:
            return None
        self._forget()
        network = self._network(None)
        losses = pretrain(network, data, self.options.fit_epochs, self._seed)
        self._become(network)
        return {"loss before": losses[0], "loss": min(losses)}

    def _program(self, sketch: Sketch, rows: Values) -> tuple[Values, Values, Values]:
        values = self._features.at(sketch, rows).values * _SCALES
        return values, np.zeros((len(rows), 0)), np.zeros(len(rows))

    def _labelled(self, told: Sequence[Observation], tasks: dict[str, int]) -> Labelled:
        """Columns and logarithms of latency, of programs whose columns are not too large."""
        found = super()._labelled(told, tasks)
        owners = np.repeat(np.arange(len(found)), found.counts)
        usable = np.abs(found.statements).max(axis=1, initial=0.0) <= _LARGEST
        return found.take(np.setdiff1d(np.arange(len(found)), owners[~usable]))

    def _new_network(self) -> PublishedNetwork:
        return PublishedNetwork(len(RELAXED_COLUMNS), self.options.width)
