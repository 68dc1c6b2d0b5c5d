"""Base of this plugin's cost models: a network, samples, and their state."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models import ModelContext
from autotune.models.cost import (
    Observation,
    ObservationLog,
    TrainableCostModel,
    TrainingGroup,
    arrays_digest,
    arrays_from_json,
    arrays_to_json,
    check_model,
    closeness,
    read_model,
    write_model,
)
from autotune.plugins.options import read_options
from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import order_of
from autotune.targets import Target
from autotune_pruner.networks import (
    DATAFLOW_WIDTH,
    FLOW_LENGTH,
    STATEMENT_WIDTH,
    Normaliser,
    RankingNetwork,
    Weights,
    folded,
    give_weights,
    normaliser_in,
    weights_of,
)
from autotune_pruner.options import CostModelOptions, MomentumOptions
from autotune_pruner.programs import (
    Programs,
    TrainingData,
    feature_version,
    featurise,
    normaliser_of,
)
from autotune_pruner.training import (
    NOTHING_TO_LEARN,
    History,
    TrainingSettings,
    deterministic,
    fit,
    scores_of,
)


class Samples:
    """Outcomes in order of arrival, of tasks in the order of appearance.

    Args:
        target: What the candidates are for.
        fidelity: Of the features; see :func:`autotune_pruner.programs.featurise`.
        threads: Of computing them.

    Attributes:
        log: The outcomes, for a state: features are ten times as large and are computed again.
    """

    def __init__(self, target: Target, fidelity: str, threads: int = 1) -> None:
        self._target = target
        self._fidelity = fidelity
        self._threads = threads
        self.log = ObservationLog()
        self._latencies: list[float | None] = []
        self._tasks: list[str] = []
        self._programs = Programs.joined(())

    def __len__(self) -> int:
        return len(self.log)

    def add(self, outcomes: Sequence[Observation]) -> None:
        """Add outcomes, failures included."""
        candidates = [candidate for candidate, _ in outcomes]
        found = featurise(
            CandidateBatch.of(candidates), self._target, self._fidelity, self._threads
        )
        order = np.array(order_of(candidates), dtype=np.int64)
        self._programs = Programs.joined([self._programs, found.take(order)])
        self.log.add(outcomes)
        self._latencies += [outcome.latency for _, outcome in outcomes]
        self._tasks += [candidate.sketch.workload.digest for candidate in candidates]

    def data(self) -> TrainingData:
        """Everything so far, with labels by what is the best of each task so far."""
        numbers = {task: number for number, task in enumerate(dict.fromkeys(self._tasks))}
        return TrainingData(
            self._programs,
            closeness(self._latencies, self._tasks).astype(np.float32),
            np.array([numbers[task] for task in self._tasks], dtype=np.int64),
        )


__all__ = ["RankingModel", "Samples"]

_LOG = logging.getLogger("autotune.models.cost")

# Below this, several threads cost more than they gain.
_PARALLEL_ROWS = 4096
_VALIDATION = 0.1
_FIT_EPOCHS = 30
_PUBLISHED_EPOCHS = 50


_Options = TypeVar("_Options", CostModelOptions, MomentumOptions)


class RankingModel(TrainableCostModel, Generic[_Options]):
    """A cost model that ranks with a network.

    Until it has learned something or was given weights, it predicts zeros. After that its scores
    order candidates of one task; their values and those of different tasks mean nothing.

    Args:
        context: The target that candidates are for, the seed of the first weights and of the order
            of training data, threads of torch and of features (reproducible for a fixed number),
            and options; see ``options_class``.

    Raises:
        InvalidValueError: an option is unknown or wrong, or torch cannot use the device.
        UnknownNameError: there is no such fidelity.
    """

    options_class: ClassVar[type[Any]]
    network_name: ClassVar[str]
    make_network: ClassVar[Callable[[], RankingNetwork]]

    _updates: int
    _said: bool
    # What trainings begin with, what predicts, and what came from a file.
    _base: Weights | None
    _current: Weights | None
    _loaded: Weights | None
    _predictor: RankingNetwork | None

    def __init__(self, context: ModelContext) -> None:
        owner = f"cost model {self.name!r}"
        options: _Options = read_options(owner, self.options_class, context.options)
        self._options: _Options = options
        self._target = context.target
        self._seed = context.seed
        self._threads = context.threads
        self._device = _usable_device(options.device)
        self._fidelity = options.fidelity
        self._version = feature_version(options.fidelity)
        self._fit_epochs = options.epochs
        self._texts: dict[int, tuple[Weights, dict[str, Any]]] = {}
        self._forget()

    def warm_up(self) -> None:
        """Let torch load what it loads at the first training: more than a second's worth."""
        programs = Programs.joined([_blank_program()] * 2)
        labels = np.array([0.0, 1.0], dtype=np.float32)
        data = TrainingData(programs, labels, np.zeros(2, dtype=np.int64))
        fit(self._network(None), data, normaliser_of(programs), TrainingSettings(epochs=1))

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]; zeros before there is anything to score with."""
        if self._current is None or not len(batch):
            return np.zeros(len(batch))
        programs = featurise(batch, self._target, self._fidelity, self._threads)
        with deterministic(1), torch.inference_mode():
            if self._predictor is None:
                network = self._network(self._current)
                self._predictor = folded(network, normaliser_in(self._current))
            return scores_of(self._predictor, programs, self._device)

    def update(self, outcomes: Sequence[Observation]) -> None:
        """Add outcomes, and learn from all there are so far.

        Nothing is learned, and the first time a message logged, while no task has two programs
        of which one is better.
        """
        if not outcomes:
            return
        self._samples.add(outcomes)
        self._updates += 1
        history = self._learn(len(outcomes))
        if history is not None and history.message and not self._said:
            self._said = True
            _LOG.warning("cost model %r has %s", self.name, history.message)

    @abstractmethod
    def _learn(self, fresh: int) -> History | None:
        """Learn after an update with ``fresh`` outcomes; None if it is not the time for it."""

    def fit(self, groups: Sequence[TrainingGroup]) -> Mapping[str, float]:
        """Train from first weights on outcomes of many tasks; all that was learned is forgotten.

        A tenth of the tasks, or of each if they are few, is held out, and the best weights on
        that are kept; as published, none is and the last weights are kept. Groups of the same
        workload are one task.

        Returns:
            Epochs, and the losses at the end; empty, and the reason is logged, where there was
            nothing to learn from and nothing changed.
        """
        samples = self._new_samples()
        told = [pair for group in groups for pair in group.outcomes]
        if told:
            samples.add(told)
        if not samples.data().teaches:
            _LOG.warning("cost model %r has %s", self.name, NOTHING_TO_LEARN)
            return {}
        self._forget()
        published = self._fidelity == "published"
        settings = TrainingSettings(
            epochs=self._fit_epochs or (_PUBLISHED_EPOCHS if published else _FIT_EPOCHS),
            validation=0.0 if published else _VALIDATION,
            mixed=published,
            seed=self._seed,
            threads=self._threads,
        )
        history = self._train(samples, settings, None)
        self._base = self._current
        found = {
            "epochs": float(len(history.losses)),
            "kept_epoch": float(history.kept_epoch),
            "loss": history.losses[history.kept_epoch],
        }
        if history.validation_losses:
            found["validation_loss"] = history.validation_losses[history.kept_epoch]
        return found

    def save(self, stream: BinaryIO) -> None:
        """Write the weights that predict; nothing but the header if there are none."""
        write_model(stream, self.network_name, self._version, self._current or {})

    def load(self, stream: BinaryIO) -> None:
        """Begin with what :meth:`save` wrote; all that was learned is forgotten.

        Raises:
            InvalidValueError: the file is damaged, of another network, or its features have
                another version, which is named together with the own one.
        """
        weights = read_model(stream, self.network_name, self._version).arrays or None
        self._network(weights)
        self._forget()
        self._base = self._current = self._loaded = weights

    def _forget(self) -> None:
        """Become as when made."""
        self._samples = self._new_samples()
        self._updates = 0
        self._said = False
        self._base = self._current = self._loaded = self._predictor = None

    @property
    def _file(self) -> str:
        """Identity of the weights of a file; empty without any."""
        return "" if self._loaded is None else arrays_digest(self._loaded)

    def _new_samples(self) -> Samples:
        return Samples(self._target, self._fidelity, self._threads)

    def state(self) -> dict[str, Any]:
        """A JSON object with weights as text and what the model was told, without features.

        Weights that came from a file are not in it: it is loaded into a model that has them.
        """
        return {
            "model": self.name,
            "feature_version": self._version,
            "seed": self._seed,
            "updates": self._updates,
            "file": self._file,
            "base": None if self._base is self._loaded else self._text(self._base),
            "current": None if self._current is self._base else self._text(self._current),
            "samples": self._samples.log.to_json(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another model, its features have another version,
                or it continues from another file.
        """
        check_model(self.name, state, self._version, self._file)
        base, current = self._from_text(state["base"]), self._from_text(state["current"])
        samples = self._new_samples()
        samples.add(ObservationLog.read(state["samples"]))
        self._samples = samples
        self._seed, self._updates = int(state["seed"]), int(state["updates"])
        self._base = self._loaded if base is None else base
        self._current = self._base if current is None else current
        self._predictor = None

    def _text(self, weights: Weights | None) -> dict[str, Any] | None:
        """Weights as JSON, written once: they are replaced and never changed."""
        if weights is None:
            return None
        kept = {id(item): item for item in (self._base, self._current) if item is not None}
        self._texts = {key: pair for key, pair in self._texts.items() if key in kept}
        if id(weights) not in self._texts:
            self._texts[id(weights)] = weights, arrays_to_json(weights)
        return self._texts[id(weights)][1]

    def _from_text(self, data: Mapping[str, Any] | None) -> Weights | None:
        if data is None:
            return None
        weights = arrays_from_json(data)
        self._network(weights)
        return weights

    def _network(self, weights: Weights | None) -> RankingNetwork:
        """A network with these weights, or with first ones that depend on the seed only."""
        # So few numbers are no work for several threads, which would only wait for each other.
        with deterministic(1), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            network = type(self).make_network()
            if weights is not None:
                give_weights(network, weights)
        placed: RankingNetwork = network.to(self._device)
        return placed

    def _epochs(self, asked: int) -> int:
        """Epochs of a training between rounds; 0 asks for as many as the fidelity has."""
        return asked or (_PUBLISHED_EPOCHS if self._fidelity == "published" else 20)

    def _settings(self, epochs: int, batch: int = 512) -> TrainingSettings:
        """Settings of training between rounds."""
        return TrainingSettings(
            epochs=epochs,
            batch=batch,
            mixed=self._fidelity == "published",
            seed=self._seed + self._updates,
            threads=self._threads if len(self._samples) >= _PARALLEL_ROWS else 1,
        )

    def _train(
        self,
        samples: Samples,
        settings: TrainingSettings,
        start: Weights | None,
        make_batches: Any = None,
        normaliser: Normaliser | None = None,
    ) -> History:
        """Train from weights, and predict with the result; nothing changes if none is learned.

        Args:
            samples: What to learn from.
            settings: How.
            start: Weights to start from; None for first ones.
            make_batches: As for :func:`autotune_pruner.training.fit`.
            normaliser: How columns are scaled; by default as ``start`` was trained with, or
                as fits the samples.
        """
        data = samples.data()
        if normaliser is None:
            fresh = normaliser_of(data.programs, self._fidelity)
            normaliser = fresh if start is None else normaliser_in(start)
        network = self._network(start)
        history = fit(network, data, normaliser, settings, make_batches)
        if not history.message:
            self._current = weights_of(network, normaliser)
            with deterministic(1):
                self._predictor = folded(network, normaliser)
        return history


def _blank_program() -> Programs:
    """Program of one statement, with zeros in all columns."""
    return Programs(
        np.zeros((1, STATEMENT_WIDTH), dtype=np.float32),
        np.array([0, 1], dtype=np.int64),
        np.zeros((1, FLOW_LENGTH, DATAFLOW_WIDTH), dtype=np.float32),
    )


def _usable_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError) as error:
        first = str(error).partition("\n")[0]
        raise InvalidValueError(f"torch cannot use the device {name!r}: {first}") from error
    return device
