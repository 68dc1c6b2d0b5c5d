"""The cost model ``felix-mlp-published``: Felix's own network over its own kind of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, PluginError
from autotune.models import ModelContext
from autotune.models.cost import (
    DifferentiableCostModel,
    Observation,
    TrainableCostModel,
    TrainingGroup,
    read_model,
    write_model,
)
from autotune.models.features import (
    RELAXED_COLUMNS,
    RELAXED_RAW_COLUMNS,
    RELAXED_VERSION,
    RelaxedFeatures,
)
from autotune.nest.relaxed import FELIX
from autotune.plugins.installing import install_extra
from autotune.sketches import CandidateBatch, Sketch
from autotune.sketches.candidates import order_of
from autotune_felix.array_text import arrays_digest, arrays_from_json, arrays_to_json
from autotune_felix.labelled import Labelled
from autotune_felix.mlp_options import PublishedMlpOptions, checked_mlp_options
from autotune_felix.mlp_state import check_mlp_state
from autotune_felix.observation_log import ObservationLog

try:
    import torch
except ImportError as error:
    raise PluginError(
        "it learns in torch, which is not installed: run "
        f"{install_extra('felix-mlp', 'autotune-felix')}, or choose felix-gp, which needs none"
    ) from error
from autotune_felix.published_network import (
    FINE_TUNING_RATE,
    PRETRAINING_RATE,
    PublishedNetwork,
    fine_tune,
    pretrain,
)
from autotune_felix.residual_training import one_thread

__all__ = ["PublishedMlp"]

Values = NDArray[np.float64]
Weights = Mapping[str, NDArray[np.float32]]

# As in `felix_mlp`: what a matrix product rounds to depends on its size.
_BLOCK = 32
# Felix drops programs with larger features.
_LARGEST = 100.0
# Its features are natural logarithms, ours are logarithms to base 2.
_SCALES = np.where(np.isin(RELAXED_COLUMNS, RELAXED_RAW_COLUMNS), 1.0, np.log(2.0))


class PublishedMlp(DifferentiableCostModel, TrainableCostModel):
    """Predicts the logarithm of latency from 154 smoothed features of each statement.

    The network, its loss and its two trainings are those of Felix (ASPLOS'24): beforehand from
    random weights, and between rounds on all outcomes so far, pooled over the tasks. There is no
    estimate from the nest and no scaling of columns; weights trained beforehand do not come with
    the distribution. Without any it predicts the same for everything until there are outcomes,
    and then begins with the rate of a training beforehand.

    Args:
        context: The target that candidates are for, the seed of the first weights and of the
            order of training data, and options; see
            :class:`autotune_felix.mlp_options.PublishedMlpOptions`.

    Raises:
        InvalidValueError: an option is unknown or out of its bounds.
    """

    name = "felix-mlp-published"

    def __init__(self, context: ModelContext) -> None:
        self.options = checked_mlp_options(self.name, PublishedMlpOptions, context.options)
        self._seed = context.seed
        is_wide = self.options.smoothing == "published"
        self._features = RelaxedFeatures(context.target, FELIX if is_wide else None)
        self._version = f"{RELAXED_VERSION}+ln{'+felix' if is_wide else ''}"
        self._dtype = torch.float64 if self.options.precision == "double" else torch.float32
        self._forget()

    def _forget(self) -> None:
        """Become as when made."""
        self._log = ObservationLog()
        self._own = Labelled.none(len(RELAXED_COLUMNS), 0)
        self._updates = 0
        self._weights: Weights | None = None
        self._base: Weights | None = None
        self._predictor: PublishedNetwork | None = None

    def warm_up(self) -> None:
        """Let torch load what it loads at the first training."""
        columns = len(RELAXED_COLUMNS)
        blank = Labelled(
            np.zeros((2, columns), np.float32),
            np.ones(2, np.int64),
            np.zeros((2, 0), np.float32),
            np.zeros(2, np.float32),
            np.zeros(2, np.int64),
        )
        fine_tune(self._network(None), blank, 2, FINE_TUNING_RATE, 0)

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
        n = len(values)
        if self._weights is None:
            return np.zeros(n), np.zeros_like(values)
        if self._predictor is None:
            network = self._network(self._weights)
            self._predictor = network.to(self._dtype).requires_grad_(False)
        latencies, slopes = np.empty(n), np.empty_like(values)
        present = torch.ones((_BLOCK, values.shape[1], 1), dtype=self._dtype)
        with one_thread(), torch.enable_grad():
            for start in range(0, n, _BLOCK):
                places = np.arange(start, min(start + _BLOCK, n))
                block = values[np.resize(places, _BLOCK)] * _SCALES
                inputs = torch.tensor(block, dtype=self._dtype).requires_grad_()
                found = -self._predictor(inputs, present)
                found.sum().backward()
                latencies[places] = found.detach().numpy()[: len(places)]
                if inputs.grad is not None:
                    slopes[places] = inputs.grad.numpy()[: len(places)] * _SCALES
        return latencies, slopes

    def update(self, outcomes: Sequence[Observation]) -> None:
        """Learn from all candidates with a latency so far."""
        valid = [pair for pair in outcomes if pair[1].latency]
        if not valid:
            return
        self._add(valid)
        self._updates += 1
        least = 1 if self._base is None else self.options.least_outcomes
        if len(self._own) < least:
            return
        network = self._network(self._weights)
        rate = PRETRAINING_RATE if self._weights is None else FINE_TUNING_RATE
        with one_thread():
            fine_tune(network, self._own, self.options.programs, rate, self._seed + self._updates)
        self._become(network)

    def _add(self, valid: Sequence[Observation]) -> None:
        self._log.add(valid)
        self._own = Labelled.joined([self._own, self._labelled(valid)])

    def _labelled(self, told: Sequence[Observation]) -> Labelled:
        """Columns and logarithms of latency of candidates that have one."""
        candidates = [candidate for candidate, _ in told]
        parts = []
        for sketch, matrix in CandidateBatch.of(candidates).parts:
            values = self._features.at(sketch, matrix.astype(np.float64)).values * _SCALES
            n, each, columns = values.shape
            parts.append(
                Labelled(
                    values.astype(np.float32).reshape(n * each, columns),
                    np.full(n, each, dtype=np.int64),
                    np.zeros((n, 0), dtype=np.float32),
                    np.zeros(n, dtype=np.float32),
                    np.zeros(n, dtype=np.int64),
                )
            )
        found = Labelled.joined(parts).take(np.array(order_of(candidates), dtype=np.int64))
        found.labels[:] = np.log([float(outcome.latency or 1.0) for _, outcome in told])
        owners = np.repeat(np.arange(len(found)), found.counts)
        usable = np.abs(found.statements).max(axis=1, initial=0.0) <= _LARGEST
        return found.take(np.setdiff1d(np.arange(len(found)), owners[~usable]))

    def _become(self, network: PublishedNetwork) -> None:
        """Predict with these weights from now on."""
        self._weights = {
            name: value.detach().to(torch.float32).numpy().copy()
            for name, value in network.state_dict().items()
        }
        self._predictor = None

    def _network(self, weights: Weights | None) -> PublishedNetwork:
        """A network with these weights, or with first ones that depend on the seed only.

        Raises:
            InvalidValueError: the weights are of a network of another size.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            network = PublishedNetwork(len(RELAXED_COLUMNS), self.options.width)
        if weights is not None:
            tensors = {name: torch.from_numpy(value.copy()) for name, value in weights.items()}
            try:
                network.load_state_dict(tensors)
            except RuntimeError as error:
                first = str(error).strip().splitlines()[-1].strip()
                raise InvalidValueError(
                    f"the weights are of a network with another width or columns: {first}"
                ) from error
        return network

    def fit(self, groups: Sequence[TrainingGroup]) -> Mapping[str, float]:
        """Train from first weights on outcomes of many tasks; all that was learned is forgotten.

        Returns:
            Mean squared errors of the logarithm on a tenth of the programs, at first and at best.
        """
        told = [pair for group in groups for pair in group.outcomes if pair[1].latency]
        data = self._labelled(told) if told else self._own.take(np.arange(0))
        if len(data) < 2:
            return {}
        self._forget()
        network = self._network(None)
        losses = pretrain(network, data, self.options.fit_epochs, self._seed)
        self._become(network)
        self._base = self._weights
        figures = {"programs": float(len(data)), "loss before": losses[0], "loss": min(losses)}
        return {"tasks": float(len({group.workload for group in groups})), **figures}

    def save(self, stream: BinaryIO) -> None:
        """Write the weights; nothing but the header if there are none."""
        write_model(stream, self.name, self._version, dict(self._weights or {}))

    def load(self, stream: BinaryIO) -> None:
        """Begin with what :meth:`save` wrote; all that was learned is forgotten.

        Raises:
            InvalidValueError: the file is damaged, of another model, of other options, or its
                features have another version, which is named together with the own one.
        """
        arrays = read_model(stream, self.name, self._version).arrays
        if arrays:
            self._network(arrays)
        self._forget()
        self._weights = self._base = arrays or None

    @property
    def _file(self) -> str:
        """Identity of the file's weights; empty without a file."""
        return "" if self._base is None else arrays_digest(self._base)

    def state(self) -> dict[str, Any]:
        """A JSON object with weights as text and what the model was told, without features.

        Weights of a file are not in it: it is loaded into a model that has them.
        """
        is_own = self._weights is not None and self._weights is not self._base
        return {
            "model": self.name,
            "feature_version": self._version,
            "seed": self._seed,
            "file": self._file,
            "updates": self._updates,
            "weights": arrays_to_json(self._weights or {}) if is_own else None,
            "told": self._log.to_json(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another model or other features, or continues from
                another file.
        """
        check_mlp_state(self.name, state, self._version, self._file)
        weights = None if state["weights"] is None else arrays_from_json(state["weights"])
        self._network(weights)
        told = ObservationLog.read(state["told"])
        base = self._base
        self._forget()
        self._seed, self._updates = int(state["seed"]), int(state["updates"])
        self._base = base
        self._weights = base if weights is None else weights
        if told:
            self._add(told)
