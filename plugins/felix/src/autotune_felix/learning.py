"""Base of the models that learn in torch: what they were told, their weights and their state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, PluginError
from autotune.models.cost import (
    DifferentiableCostModel,
    Observation,
    ObservationLog,
    TrainableCostModel,
    arrays_digest,
    arrays_from_json,
    arrays_to_json,
    check_model,
)
from autotune.models.features import RELAXED_COLUMNS
from autotune.plugins.installing import install_extra
from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import order_of
from autotune_felix.labelled import Labelled

try:
    import torch
except ImportError as error:
    raise PluginError(
        "it learns in torch, which is not installed: run "
        f"{install_extra('felix-mlp', 'autotune-felix')}, or choose felix-gp, which needs none"
    ) from error

__all__ = ["BLOCK", "TorchModel", "give_arrays", "state_arrays", "torch"]

BLOCK = 32
"""Points that go through a network at once, always so many: what a matrix product rounds to
depends on its size, and a prediction must not depend on the rest of the batch."""

_Weights = TypeVar("_Weights")


def state_arrays(network: Any) -> dict[str, NDArray[np.float32]]:
    """Copy the weights of a network, in single precision, by its own names."""
    return {
        name: value.detach().to(torch.float32).numpy().copy()
        for name, value in network.state_dict().items()
    }


def give_arrays(network: Any, arrays: Mapping[str, NDArray[Any]], other: str) -> None:
    """Give weights to a network.

    Raises:
        InvalidValueError: they are of a network of another size: with another ``other``.
    """
    tensors = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[-1].strip()
        raise InvalidValueError(
            f"the weights are of a network with {other} or columns: {first}"
        ) from error


class TorchModel(DifferentiableCostModel, TrainableCostModel, Generic[_Weights]):
    """Learns from all outcomes with a latency so far, and begins with what a file holds.

    A subclass sets ``_seed``, ``_version`` and ``_beside``, the columns that a program has beside
    those of its statements, and then forgets what it never knew.
    """

    _seed: int
    _version: str
    _beside: int

    def _forget(self) -> None:
        """Become as when made."""
        self._log = ObservationLog()
        self._own = Labelled.none(len(RELAXED_COLUMNS), self._beside)
        self._tasks: dict[str, int] = {}
        self._updates = 0
        self._weights: _Weights | None = None
        self._base: _Weights | None = None
        self._predictor: Any = None
        self._text: tuple[_Weights, dict[str, Any]] | None = None

    @abstractmethod
    def _network(self, weights: _Weights | None) -> Any:
        """A network with these weights, or with first ones that depend on the seed only."""

    @abstractmethod
    def _arrays(self, weights: _Weights) -> dict[str, NDArray[Any]]:
        """Weights as arrays by name."""

    @abstractmethod
    def _of_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> _Weights:
        """Weights that :meth:`_arrays` gave."""

    @abstractmethod
    def _programs(self, batch: CandidateBatch, tasks: dict[str, int]) -> list[Labelled]:
        """Columns of candidates, by sketch, labelled as of 1 s; new tasks get numbers."""

    @abstractmethod
    def _learn(self) -> None:
        """Learn from what is known, after an update."""

    @property
    def _file(self) -> str:
        """Identity of the weights of a file, or of a training beforehand; empty without any."""
        return "" if self._base is None else arrays_digest(self._arrays(self._base))

    def update(self, outcomes: Sequence[Observation]) -> None:
        """Learn from candidates with a latency, old observations included."""
        valid = [pair for pair in outcomes if pair[1].latency]
        if valid:
            self._add(valid)
            self._updates += 1
            self._learn()

    def _add(self, valid: Sequence[Observation]) -> None:
        self._log.add(valid)
        self._own = Labelled.joined([self._own, self._labelled(valid, self._tasks)])

    def _labelled(self, told: Sequence[Observation], tasks: dict[str, int]) -> Labelled:
        """Columns and labels of candidates with a latency; new tasks get new numbers."""
        candidates = [candidate for candidate, _ in told]
        parts = self._programs(CandidateBatch.of(candidates), tasks)
        found = Labelled.joined(parts).take(np.array(order_of(candidates), dtype=np.int64))
        found.labels[:] += np.log([float(outcome.latency or 1.0) for _, outcome in told])
        return found

    def state(self) -> dict[str, Any]:
        """A JSON object with weights as text and what the model was told, without features.

        Weights of a file are not in it: it is loaded into a model that has them.
        """
        weights = None if self._weights is self._base else self._weights
        if weights is not None and (self._text is None or self._text[0] is not weights):
            self._text = weights, arrays_to_json(self._arrays(weights))
        return {
            "model": self.name,
            "feature_version": self._version,
            "seed": self._seed,
            "file": self._file,
            "updates": self._updates,
            "weights": None if weights is None or self._text is None else self._text[1],
            "told": self._log.to_json(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another model or other features, or continues from
                another file.
        """
        check_model(self.name, state, self._version, self._file)
        given = state["weights"]
        weights = None if given is None else self._of_arrays(arrays_from_json(given))
        self._network(weights)
        told = ObservationLog.read(state["told"])
        base = self._base
        self._forget()
        self._base = base
        self._seed, self._updates = int(state["seed"]), int(state["updates"])
        self._weights = base if weights is None else weights
        if told:
            self._add(told)
