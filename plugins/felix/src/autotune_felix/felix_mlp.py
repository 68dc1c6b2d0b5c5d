"""The cost model ``felix-mlp``: the analytic estimate plus a learned residual, differentiable."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from autotune.models import ModelContext
from autotune.models.cost import TrainingGroup, read_model, write_model
from autotune.models.features import RELAXED_COLUMNS
from autotune.plugins.options import read_options
from autotune.sketches import CandidateBatch, Sketch
from autotune_felix.labelled import Labelled, Scale
from autotune_felix.learning import BLOCK, TorchModel, torch
from autotune_felix.options import FelixMlpOptions
from autotune_felix.program_columns import ProgramColumns
from autotune_felix.residual_network import (
    MlpWeights,
    ResidualEnsemble,
    TrainingSettings,
    bounded,
    one_thread,
    train,
)

__all__ = ["FelixMlp"]

Values = NDArray[np.float64]

_LOG = logging.getLogger("autotune.models.cost")

# Programs of a training that a file keeps, to be replayed beside new ones.
_REPLAYED = 1024
_FIT_BATCH = 128
_NOTHING = "nothing to learn from: no task has two programs with a latency"


class FelixMlp(TorchModel[MlpWeights]):
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

    def __init__(self, context: ModelContext) -> None:
        self.options = read_options(f"cost model {self.name!r}", FelixMlpOptions, context.options)
        self._seed = context.seed
        self._columns = ProgramColumns(context.target, self.options.smoothing == "published")
        self._version = self._columns.version
        self._beside = len(self._columns.components)
        self._dtype = torch.float64 if self.options.precision == "double" else torch.float32
        self._forget()

    def _forget(self) -> None:
        super()._forget()
        self._replayed = self._own
        self._scaled_at = 0
        self._said = False

    def warm_up(self) -> None:
        """Let torch load what it loads at the first training."""
        blank = np.zeros((4, 1, len(RELAXED_COLUMNS))), np.zeros((4, self._beside))
        data = Labelled.of(*blank, np.arange(4), 0)
        with one_thread():
            scales = Scale.of(data.statements), Scale.of(data.programs)
            train(self._network(None), data, data.take(np.arange(0)), scales, TrainingSettings(1))

    def relaxed(self, sketch: Sketch, rows: Values) -> tuple[Values, Values]:
        """The logarithm of the predicted seconds, up to a constant, and its gradient."""
        return self._evaluated(sketch, rows, slopes=True)

    def predict(self, batch: CandidateBatch) -> Values:
        """Minus the logarithm of the predicted seconds, up to a constant, [n]."""
        parts = [
            self._evaluated(sketch, matrix.astype(np.float64), slopes=False)[0]
            for sketch, matrix in batch.parts
        ]
        return -np.concatenate([np.zeros(0), *parts])

    def feature_slopes(
        self, sketch: Sketch, rows: Values
    ) -> tuple[tuple[str, ...], Values, Values]:
        """Seconds of the estimate's components, and relaxed columns of each statement.

        The networks see the components relative to the estimate; the slopes count both ways.
        """
        if self._weights is None or not len(rows):
            seconds, _, shares = self._columns.estimated(sketch, rows)
            return self._columns.components, seconds, shares * np.log(2.0)
        points = self._columns.at(sketch, rows)
        return points.slopes(*self._residuals(points.statements, points.beside, slopes=True)[1:])

    def _evaluated(self, sketch: Sketch, rows: Values, *, slopes: bool) -> tuple[Values, Values]:
        if self._weights is None or not len(rows):
            seconds, latency, shares = self._columns.estimated(sketch, rows)
            if not slopes:
                return latency, rows
            return latency, self._columns.estimate.gradient(sketch, rows, seconds, shares)
        points = self._columns.at(sketch, rows)
        residuals, *by_columns = self._residuals(points.statements, points.beside, slopes=slopes)
        return points.latency + residuals, points.gradient(*by_columns) if slopes else rows

    def _residuals(
        self, statements: Values, beside: Values, *, slopes: bool
    ) -> tuple[Values, Values, Values]:
        """Cautious residuals ``[n]``, and their derivatives by both inputs where asked for."""
        if self._weights is None:
            raise RuntimeError("a network predicts once it has weights")
        if self._predictor is None:
            # Derivatives are by its inputs: those by its weights would be half of the work.
            self._predictor = self._network(self._weights).to(self._dtype).requires_grad_(False)
        found, count = [], len(statements)
        with one_thread(), torch.set_grad_enabled(slopes):
            for start in range(0, count, BLOCK):
                places = np.resize(np.arange(start, min(start + BLOCK, count)), BLOCK)
                inputs = [
                    torch.tensor(
                        (values[places] - scale.mean) / scale.spread, dtype=self._dtype
                    ).requires_grad_(slopes)
                    for values, scale in zip(
                        (statements, beside), self._weights.scales, strict=True
                    )
                ]
                residuals = self._cautious(bounded(self._predictor(*inputs)))
                if slopes:
                    residuals.sum().backward()
                kept = min(BLOCK, count - start)
                found.append(
                    [residuals.detach().numpy()[:kept]]
                    + [each.grad.numpy()[:kept] for each in inputs if each.grad is not None]
                )
        joined = [np.concatenate(each).astype(np.float64) for each in zip(*found, strict=True)]
        if not slopes:
            return joined[0], statements, beside
        scales = self._weights.scales
        return joined[0], joined[1] / scales[0].spread, joined[2] / scales[1].spread

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

    def _programs(self, batch: CandidateBatch, tasks: dict[str, int]) -> list[Labelled]:
        parts = []
        for sketch, matrix in batch.parts:
            points = self._columns.at(sketch, matrix.astype(np.float64))
            number = tasks.setdefault(sketch.workload.digest, len(tasks))
            parts.append(Labelled.of(points.statements, points.beside, -points.latency, number))
        return parts

    def _trained(
        self,
        own: Labelled,
        replayed: Labelled,
        start: MlpWeights | None,
        settings: TrainingSettings,
    ) -> Mapping[str, float]:
        """Train from weights, or from initial ones on rescaled columns, and predict so."""
        scales = (
            (Scale.of(own.statements), Scale.of(own.programs)) if start is None else start.scales
        )
        network = self._network(start)
        with one_thread():
            course = train(network, own, replayed, scales, settings)
        self._weights, self._predictor = MlpWeights.of(network, scales), None
        return {"loss before": course.before, "loss": course.best}

    def _network(self, weights: MlpWeights | None) -> ResidualEnsemble:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            network = ResidualEnsemble(
                self.options.members,
                len(RELAXED_COLUMNS),
                self._beside,
                self.options.width,
            )
        if weights is not None:
            weights.apply(network)
        return network

    def fit(self, groups: Sequence[TrainingGroup]) -> Mapping[str, float]:
        """Train from first weights on outcomes of many tasks; all that was learned is forgotten.

        Some are held out, whole tasks where there are ten; the best weights on those are kept.
        Groups of the same workload are one task.

        Returns:
            Huber losses of the held-out residuals, without and with the networks.
        """
        tasks: dict[str, int] = {}
        parts = []
        for group in groups:
            valid = [pair for pair in group.outcomes if pair[1].latency]
            if valid:
                parts.append(self._labelled(valid, tasks))
        data = Labelled.joined(parts) if parts else self._own.take(np.arange(0))
        if not data.teaches():
            self._say_nothing()
            return {}
        self._forget()
        steps = max(20, self.options.fit_epochs * len(data) // _FIT_BATCH)
        settings = TrainingSettings(steps, batch=_FIT_BATCH, seed=self._seed)
        found = self._trained(data, data.take(np.arange(0)), None, settings)
        rng = np.random.default_rng(self._seed)
        kept = np.sort(rng.permutation(len(data))[:_REPLAYED])
        self._replayed = data.take(kept).of_other_tasks()
        self._base = self._weights
        return {"tasks": float(len(tasks)), "programs": float(len(data)), **found}

    def save(self, stream: BinaryIO) -> None:
        """Write the weights, and programs to replay; nothing but the header if there are none."""
        arrays: dict[str, NDArray[Any]] = {}
        if self._weights is not None:
            replayed = self._replayed if len(self._replayed) else self._own.of_other_tasks()
            arrays = self._weights.to_arrays()
            arrays |= {f"replay.{name}": each for name, each in replayed.to_arrays().items()}
        write_model(stream, self.name, self._version, arrays)

    def load(self, stream: BinaryIO) -> None:
        """Begin with what :meth:`save` wrote; all that was learned is forgotten.

        Raises:
            InvalidValueError: the file is damaged, of another model, of other options, or its
                features have another version, which is named together with the own one.
        """
        arrays = read_model(stream, self.name, self._version).arrays
        weights = MlpWeights.from_arrays(arrays) if arrays else None
        replayed = None
        if weights is not None:
            self._network(weights)
            prefix = "replay."
            replayed = Labelled.from_arrays(
                {
                    n.removeprefix(prefix): each
                    for n, each in arrays.items()
                    if n.startswith(prefix)
                }
            )
        self._forget()
        if weights is not None and replayed is not None:
            self._weights = self._base = weights
            self._replayed = replayed

    def _arrays(self, weights: MlpWeights) -> dict[str, NDArray[Any]]:
        return weights.to_arrays()

    def _of_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> MlpWeights:
        return MlpWeights.from_arrays(arrays)

    def state(self) -> dict[str, Any]:
        """See :meth:`TorchModel.state`; plus what the columns were scaled by."""
        return {**super().state(), "scaled_at": self._scaled_at}

    def load_state(self, state: dict[str, Any]) -> None:
        """See :meth:`TorchModel.load_state`."""
        replayed = self._replayed
        super().load_state(state)
        self._replayed, self._scaled_at = replayed, int(state["scaled_at"])
