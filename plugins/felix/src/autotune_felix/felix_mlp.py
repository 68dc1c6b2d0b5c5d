"""The cost model ``felix-mlp``: the analytic estimate plus a learned residual, differentiable."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models import ModelContext
from autotune.models.features import RELAXED_COLUMNS
from autotune.plugins.options import read_options
from autotune.sketches import Sketch
from autotune_felix.labelled import Labelled, Scale
from autotune_felix.learning import TorchModel, Weights, in_blocks, torch
from autotune_felix.options import FelixMlpOptions
from autotune_felix.program_columns import Adding, CorrectedEstimate, ProgramPoints
from autotune_felix.residual_network import ResidualEnsemble, TrainingSettings, bounded, train

__all__ = ["FelixMlp"]

Values = NDArray[np.float64]

_LOG = logging.getLogger("autotune.models.cost")

# Programs of a training that a file keeps, to be replayed beside new ones.
_REPLAYED = 1024
_FIT_BATCH = 128
_SCALED = ("statements", "programs")
_NOTHING = "nothing to learn from: no task has two programs with a latency"


class FelixMlp(CorrectedEstimate, TorchModel):
    """Predicts the logarithm of latency: an estimate from the nest, and what networks add to it.

    The networks read relaxed statement features and the components of the estimate; the
    estimate alone predicts until there are outcomes. A prediction is the mean of the members plus
    a share of their disagreement. What is trained on, ranked by and descended along is one
    function (Felix, ASPLOS'24, trains on its smoothed features for the same reason).

    After each update it is trained on its own outcomes; one that was trained beforehand sees as
    many of those programs in each batch. Weights that do best on held-out outcomes are kept.

    Args:
        context: The target that candidates are for, the seed of the first weights and of the
            order of training data, and options; see
            :class:`autotune_felix.options.FelixMlpOptions`. Threads are not used: networks
            this small are fastest on one.

    Raises:
        InvalidValueError: an option is unknown or out of its bounds.
    """

    name = "felix-mlp"
    _prefix, _sized_by, _replays = "network.", "other options (members, width)", True

    def __init__(self, context: ModelContext) -> None:
        self.options = read_options(f"cost model {self.name!r}", FelixMlpOptions, context.options)
        super().__init__(context.target, self.options.smoothing == "published")
        self._seed = context.seed
        self._beside = len(self._estimate.components)
        self._dtype = torch.float64 if self.options.precision == "double" else torch.float32
        self._forget()

    def _forget(self) -> None:
        super()._forget()
        self._scaled_at = 0
        self._said = False

    def warm_up(self) -> None:
        """Let torch load what it loads at the first training."""
        blank = np.zeros((4, 1, len(RELAXED_COLUMNS))), np.zeros((4, self._beside))
        data = Labelled.of(*blank, np.arange(4), 0)
        scales = Scale.of(data.statements), Scale.of(data.programs)
        train(self._network(None), data, data.take(np.arange(0)), scales, TrainingSettings(1))

    def _adding(self, sketch: Sketch) -> Adding | None:
        return None if self._weights is None else self._residuals

    def _residuals(self, points: ProgramPoints, slopes: bool) -> list[Values]:
        """Cautious residuals ``[n]``, and their derivatives by both inputs where asked for."""
        network, scales = self._predicting(self._dtype), _scales(self._weights or {})
        residuals, *found = in_blocks(
            lambda *given: self._cautious(bounded(network(*given))),
            [
                (values - scale.mean) / scale.spread
                for values, scale in zip((points.statements, points.beside), scales, strict=True)
            ],
            self._dtype,
            slopes=slopes,
        )
        return [residuals, *(it / scale.spread for it, scale in zip(found, scales, strict=False))]

    def _cautious(self, residuals: torch.Tensor) -> torch.Tensor:
        """Mean over the members, and a share of their standard deviation."""
        mean = residuals.mean(dim=0)
        # Smooth where members agree.
        spread = torch.sqrt(((residuals - mean) ** 2).mean(dim=0) + 1e-6)
        result: torch.Tensor = mean + self.options.caution * spread
        return result

    def _learn(self) -> None:
        if not self._own.teaches():
            self._say_nothing()
            return
        fresh = self._base is None and len(self._own) >= 2 * self._scaled_at
        start = None if fresh else self._weights
        steps = self.options.steps * (3 if fresh else 1)
        if fresh:
            self._scaled_at = len(self._own)
        settings = TrainingSettings(steps, seed=self._seed + self._updates)
        self._trained(self._own, self._replayed, start, settings)

    def _say_nothing(self) -> None:
        if not self._said:
            self._said = True
            _LOG.warning("cost model %r has %s", self.name, _NOTHING)

    def _program(self, sketch: Sketch, rows: Values) -> tuple[Values, Values, Values]:
        points = self._at(sketch, rows)
        return points.statements, points.beside, points.latency

    def _trained(
        self,
        own: Labelled,
        replayed: Labelled,
        start: Weights | None,
        settings: TrainingSettings,
    ) -> Mapping[str, float]:
        """Train from weights, or from initial ones on rescaled columns, and predict so."""
        if start is None:
            scales = Scale.of(own.statements), Scale.of(own.programs)
        else:
            scales = _scales(start)
        network = self._network(start)
        before, best = train(network, own, replayed, scales, settings)
        named = zip(_SCALED, scales, strict=True)
        self._become(
            network,
            **{
                f"scale.{name}.{part}": each
                for name, scale in named
                for part, each in (("mean", scale.mean), ("spread", scale.spread))
            },
        )
        return {"loss before": before, "loss": best}

    def _new_network(self) -> ResidualEnsemble:
        options = self.options
        return ResidualEnsemble(options.members, len(RELAXED_COLUMNS), self._beside, options.width)

    def _network(self, weights: Weights | None) -> Any:
        if weights is not None:
            _scales(weights)
        return super()._network(weights)

    def _fitted(self, data: Labelled) -> Mapping[str, float] | None:
        """Train on data of which some are held out, whole tasks where there are ten.

        The best weights on those are kept. Losses are Huber's of the residuals, without and with
        the networks.
        """
        if not data.teaches():
            self._say_nothing()
            return None
        self._forget()
        steps = max(20, self.options.fit_epochs * len(data) // _FIT_BATCH)
        settings = TrainingSettings(steps, batch=_FIT_BATCH, seed=self._seed)
        found = self._trained(data, data.take(np.arange(0)), None, settings)
        rng = np.random.default_rng(self._seed)
        kept = np.sort(rng.permutation(len(data))[:_REPLAYED])
        self._replayed = data.take(kept).of_other_tasks()
        return found

    def state(self) -> dict[str, Any]:
        """See :meth:`TorchModel.state`; plus what the columns were scaled by."""
        return {**super().state(), "scaled_at": self._scaled_at}

    def load_state(self, state: dict[str, Any]) -> None:
        """See :meth:`TorchModel.load_state`."""
        super().load_state(state)
        self._scaled_at = int(state["scaled_at"])


def _scales(weights: Weights) -> tuple[Scale, Scale]:
    """Scales of the columns of statements and of programs.

    Raises:
        InvalidValueError: they are not among the weights.
    """
    try:
        statements, programs = (
            Scale(weights[f"scale.{name}.mean"], weights[f"scale.{name}.spread"])
            for name in _SCALED
        )
    except KeyError as error:
        raise InvalidValueError(f"the weights lack {error}") from error
    return statements, programs
