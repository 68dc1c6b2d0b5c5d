"""The cost model ``felix-mlp``: the analytic estimate plus a learned residual, differentiable."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from autotune.errors import PluginError
from autotune.models import ModelContext
from autotune.models.cost import (
    DifferentiableCostModel,
    Observation,
    TrainableCostModel,
    TrainingGroup,
    read_model,
    write_model,
)
from autotune.models.features import RELAXED_COLUMNS
from autotune.plugins.installing import install_extra
from autotune.sketches import CandidateBatch, Sketch
from autotune.sketches.candidates import order_of
from autotune_felix.labelled import Labelled, Scale
from autotune_felix.mlp_options import FelixMlpOptions, checked_mlp_options
from autotune_felix.mlp_state import check_mlp_state
from autotune_felix.observation_log import ObservationLog
from autotune_felix.program_columns import ProgramColumns

try:
    import torch
except ImportError as error:
    raise PluginError(
        "it learns in torch, which is not installed: run "
        f"{install_extra('felix-mlp', 'autotune-felix')}, or choose felix-gp, which needs none"
    ) from error
from autotune_felix.mlp_weights import MlpWeights
from autotune_felix.residual_network import ResidualEnsemble
from autotune_felix.residual_training import TrainingSettings, bounded, one_thread, train

__all__ = ["FelixMlp"]

Values = NDArray[np.float64]

_LOG = logging.getLogger("autotune.models.cost")

# Points that go through the network at once, always so many: what a matrix product rounds to
# depends on its size, and a prediction must not depend on the rest of the batch.
_BLOCK = 32
# Programs of a training that a file keeps, to be replayed beside new ones.
_REPLAYED = 1024
_FIT_BATCH = 128
_NOTHING = "nothing to learn from: no task has two programs with a latency"


class FelixMlp(DifferentiableCostModel, TrainableCostModel):
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
            :class:`autotune_felix.mlp_options.FelixMlpOptions`. Threads are not used: networks
            this small are fastest on one.

    Raises:
        InvalidValueError: an option is unknown or out of its bounds.
    """

    name = "felix-mlp"

    def __init__(self, context: ModelContext) -> None:
        self.options = checked_mlp_options(self.name, FelixMlpOptions, context.options)
        self._seed = context.seed
        self._columns = ProgramColumns(context.target, self.options.smoothing == "published")
        self._program_columns = len(self._columns.components)
        self._dtype = torch.float64 if self.options.precision == "double" else torch.float32
        self._forget()

    def _forget(self) -> None:
        """Become as when made."""
        self._log = ObservationLog()
        self._own = Labelled.none(len(RELAXED_COLUMNS), self._program_columns)
        self._replayed = self._own
        self._tasks: dict[str, int] = {}
        self._updates = 0
        self._scaled_at = 0
        self._said = False
        self._weights: MlpWeights | None = None
        self._base: MlpWeights | None = None
        self._file = ""
        self._predictor: ResidualEnsemble | None = None
        self._text: tuple[MlpWeights, dict[str, Any]] | None = None

    def warm_up(self) -> None:
        """Let torch load what it loads at the first training."""
        data = Labelled.none(len(RELAXED_COLUMNS), self._program_columns)
        data = Labelled(
            np.zeros((4, data.statements.shape[1]), np.float32),
            np.ones(4, np.int64),
            np.zeros((4, data.programs.shape[1]), np.float32),
            np.arange(4, dtype=np.float32),
            np.zeros(4, np.int64),
        )
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
            for start in range(0, count, _BLOCK):
                places = np.resize(np.arange(start, min(start + _BLOCK, count)), _BLOCK)
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
                kept = min(_BLOCK, count - start)
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

    def update(self, outcomes: Sequence[Observation]) -> None:
        """Learn from candidates with a latency, old observations included."""
        valid = [pair for pair in outcomes if pair[1].latency]
        if not valid:
            return
        self._add(valid)
        self._updates += 1
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

    def _add(self, valid: Sequence[Observation]) -> None:
        self._log.add(valid)
        self._own = Labelled.joined([self._own, self._labelled(valid, self._tasks)])

    def _labelled(self, told: Sequence[Observation], tasks: dict[str, int]) -> Labelled:
        """Columns and labels of candidates with a latency; new tasks get new numbers."""
        candidates = [candidate for candidate, _ in told]
        parts = []
        for sketch, matrix in CandidateBatch.of(candidates).parts:
            points = self._columns.at(sketch, matrix.astype(np.float64))
            statements = points.statements.astype(np.float32)
            number = tasks.setdefault(sketch.workload.digest, len(tasks))
            parts.append(
                Labelled(
                    statements.reshape(-1, statements.shape[2]),
                    np.full(len(matrix), statements.shape[1], dtype=np.int64),
                    points.beside.astype(np.float32),
                    -points.latency.astype(np.float32),
                    np.full(len(matrix), number, dtype=np.int64),
                )
            )
        found = Labelled.joined(parts).take(np.array(order_of(candidates), dtype=np.int64))
        found.labels[:] += np.log([float(outcome.latency or 1.0) for _, outcome in told])
        return found

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
        """A network with these weights, or with first ones that depend on the seed only."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            network = ResidualEnsemble(
                self.options.members,
                len(RELAXED_COLUMNS),
                self._program_columns,
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
        self._file = "" if self._weights is None else self._weights.digest
        return {"tasks": float(len(tasks)), "programs": float(len(data)), **found}

    def save(self, stream: BinaryIO) -> None:
        """Write the weights, and programs to replay; nothing but the header if there are none."""
        arrays: dict[str, NDArray[Any]] = {}
        if self._weights is not None:
            replayed = self._replayed if len(self._replayed) else self._own.of_other_tasks()
            arrays = self._weights.to_arrays()
            arrays |= {f"replay.{name}": each for name, each in replayed.to_arrays().items()}
        write_model(stream, self.name, self._columns.version, arrays)

    def load(self, stream: BinaryIO) -> None:
        """Begin with what :meth:`save` wrote; all that was learned is forgotten.

        Raises:
            InvalidValueError: the file is damaged, of another model, of other options, or its
                features have another version, which is named together with the own one.
        """
        arrays = read_model(stream, self.name, self._columns.version).arrays
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
            self._replayed, self._file = replayed, weights.digest

    def state(self) -> dict[str, Any]:
        """A JSON object with weights as text and what the model was told, without features.

        Weights of a file are not in it: it is loaded into a model that has them.
        """
        weights = None if self._weights is None or self._weights is self._base else self._weights
        if weights is not None and (self._text is None or self._text[0] is not weights):
            self._text = weights, weights.to_json()
        return {
            "model": self.name,
            "feature_version": self._columns.version,
            "seed": self._seed,
            "file": self._file,
            "updates": self._updates,
            "scaled_at": self._scaled_at,
            "weights": None if weights is None or self._text is None else self._text[1],
            "told": self._log.to_json(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another model or other features, or continues from
                another file.
        """
        check_mlp_state(self.name, state, self._columns.version, self._file)
        weights = None if state["weights"] is None else MlpWeights.from_json(state["weights"])
        self._network(weights)
        told = ObservationLog.read(state["told"])
        base, replayed, file = self._base, self._replayed, self._file
        self._forget()
        self._base, self._replayed, self._file = base, replayed, file
        self._seed, self._updates = int(state["seed"]), int(state["updates"])
        self._scaled_at = int(state["scaled_at"])
        self._weights = base if weights is None else weights
        if told:
            self._add(told)
