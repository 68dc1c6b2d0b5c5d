"""Base of the models that learn in torch: what they were told, their weights and their state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, PluginError
from autotune.models.cost import (
    DifferentiableCostModel,
    Observation,
    ObservationLog,
    TrainableCostModel,
    TrainingGroup,
    arrays_digest,
    arrays_from_json,
    arrays_to_json,
    check_model,
    read_model,
    write_model,
)
from autotune.models.features import RELAXED_COLUMNS
from autotune.plugins.installing import install_extra
from autotune.sketches import CandidateBatch, Sketch
from autotune.sketches.candidates import order_of
from autotune_felix.labelled import Labelled

try:
    import torch
except ImportError as error:
    raise PluginError(
        "it learns in torch, which is not installed: run "
        f"{install_extra('felix-mlp', 'autotune-felix')}, or choose felix-gp, which needs none"
    ) from error

__all__ = ["TorchModel", "Weights", "in_blocks", "one_thread", "torch"]

Values = NDArray[np.float64]

Weights = Mapping[str, NDArray[Any]]
"""Arrays by name: those of a network, and whatever else it takes to predict."""

# Points that go through a network at once, always so many: what a matrix product rounds to
# depends on its size, and a prediction must not depend on the rest of the batch.
_BLOCK = 32
_REPLAY = "replay."


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread: results then are the same everywhere."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def in_blocks(
    network: Callable[..., torch.Tensor],
    inputs: Sequence[Values],
    dtype: torch.dtype,
    *,
    slopes: bool,
) -> list[Values]:
    """Outputs ``[n]`` of a network, and their derivatives by each input where asked for.

    Args:
        network: Maps as many tensors as there are inputs to one number for each row.
        inputs: ``[n, ...]``, with n > 0.
        dtype: What the network computes with.
        slopes: Whether derivatives are asked for.
    """
    found, count = [], len(inputs[0])
    with one_thread(), torch.set_grad_enabled(slopes):
        for start in range(0, count, _BLOCK):
            places = np.resize(np.arange(start, min(start + _BLOCK, count)), _BLOCK)
            given = [
                torch.tensor(values[places], dtype=dtype).requires_grad_(slopes)
                for values in inputs
            ]
            output = network(*given)
            if slopes:
                output.sum().backward()
            parts = [output.detach(), *(it.grad for it in given if it.grad is not None)]
            found.append([part.numpy()[: min(_BLOCK, count - start)] for part in parts])
    return [np.concatenate(each).astype(np.float64) for each in zip(*found, strict=True)]


class TorchModel(DifferentiableCostModel, TrainableCostModel):
    """Learns from all outcomes with a latency so far, and begins with what a file holds.

    A subclass sets ``_seed``, ``_version`` and ``_beside``, the columns that a program has beside
    those of its statements, and then forgets what it never knew.
    """

    _seed: int
    _version: str
    _beside: int
    # What names of the network's own arrays begin with, and which options decide their shapes.
    _prefix: ClassVar[str] = ""
    _sized_by: ClassVar[str]
    # Whether programs of a training beforehand are in the file, to be trained on again.
    _replays: ClassVar[bool] = False

    def _forget(self) -> None:
        """Become as when made."""
        self._log = ObservationLog()
        self._own = self._replayed = Labelled.none(len(RELAXED_COLUMNS), self._beside)
        self._tasks: dict[str, int] = {}
        self._updates = 0
        self._weights: Weights | None = None
        self._base: Weights | None = None
        self._predictor: Any = None
        self._text: tuple[Weights, dict[str, Any]] | None = None

    @abstractmethod
    def _new_network(self) -> Any:
        """A network with first weights by torch's generator."""

    @abstractmethod
    def _program(self, sketch: Sketch, rows: Values) -> tuple[Values, Values, Values]:
        """Columns of statements and of programs, and what labels are relative to, ``[n]``."""

    @abstractmethod
    def _learn(self) -> None:
        """Learn from what is known, after an update."""

    @abstractmethod
    def _fitted(self, data: Labelled) -> Mapping[str, float] | None:
        """Forget everything and learn from data of many tasks; None where they teach nothing."""

    def _network(self, weights: Weights | None) -> Any:
        """A network with these weights, or with first ones that depend on the seed only.

        Raises:
            InvalidValueError: they are of a network of another size, or of other numbers.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            network = self._new_network()
        if weights is None:
            return network
        if not all(value.dtype == np.float32 for value in weights.values()):
            raise InvalidValueError("weights are of float32")
        tensors = {
            name.removeprefix(self._prefix): torch.from_numpy(value.copy())
            for name, value in weights.items()
            if name.startswith(self._prefix)
        }
        try:
            network.load_state_dict(tensors)
        except RuntimeError as error:
            first = str(error).strip().splitlines()[-1].strip()
            raise InvalidValueError(
                f"the weights are of a network with {self._sized_by} or columns: {first}"
            ) from error
        return network

    def _become(self, network: Any, **others: NDArray[Any]) -> None:
        """Predict with the weights of a network, and with other arrays, from now on."""
        own = {
            f"{self._prefix}{name}": value.detach().to(torch.float32).numpy().copy()
            for name, value in network.state_dict().items()
        }
        self._weights, self._predictor = {**own, **others}, None

    def _predicting(self, dtype: torch.dtype) -> Any:
        """The network that predicts, for derivatives by its inputs only: half of the work."""
        if self._predictor is None:
            self._predictor = self._network(self._weights).to(dtype).requires_grad_(False)
        return self._predictor

    @property
    def _file(self) -> str:
        """Identity of the weights of a file, or of a training beforehand; empty without any."""
        return "" if self._base is None else arrays_digest(self._base)

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
        parts = [Labelled.none(len(RELAXED_COLUMNS), self._beside)]
        for sketch, matrix in CandidateBatch.of(candidates).parts:
            statements, programs, expected = self._program(sketch, matrix.astype(np.float64))
            number = tasks.setdefault(sketch.workload.digest, len(tasks))
            parts.append(Labelled.of(statements, programs, -expected, number))
        found = Labelled.joined(parts).take(np.array(order_of(candidates), dtype=np.int64))
        found.labels[:] += np.log([float(outcome.latency or 1.0) for _, outcome in told])
        return found

    def fit(self, groups: Sequence[TrainingGroup]) -> Mapping[str, float]:
        """Train from first weights on outcomes of many tasks; all that was learned is forgotten.

        Groups of the same workload are one task.

        Returns:
            Numbers of tasks and programs, and losses on what is held out, before and at best.
        """
        tasks: dict[str, int] = {}
        told = [pair for group in groups for pair in group.outcomes if pair[1].latency]
        data = self._labelled(told, tasks)
        figures = self._fitted(data)
        if figures is None:
            return {}
        self._base = self._weights
        return {"tasks": float(len(tasks)), "programs": float(len(data)), **figures}

    def save(self, stream: BinaryIO) -> None:
        """Write the weights, and programs to replay; nothing but the header if there are none."""
        arrays = dict(self._weights or {})
        if arrays and self._replays:
            kept = self._replayed if len(self._replayed) else self._own.of_other_tasks()
            arrays |= {f"{_REPLAY}{name}": each for name, each in kept.to_arrays().items()}
        write_model(stream, self.name, self._version, arrays)

    def load(self, stream: BinaryIO) -> None:
        """Begin with what :meth:`save` wrote; all that was learned is forgotten.

        Raises:
            InvalidValueError: the file is damaged, of another model, of other options, or its
                features have another version, which is named together with the own one.
        """
        arrays = dict(read_model(stream, self.name, self._version).arrays)
        programs = {
            name.removeprefix(_REPLAY): arrays.pop(name)
            for name in [*arrays]
            if name.startswith(_REPLAY)
        }
        if arrays:
            self._network(arrays)
        replayed = Labelled.from_arrays(programs) if arrays and self._replays else None
        self._forget()
        self._weights = self._base = arrays or None
        if replayed is not None:
            self._replayed = replayed

    def state(self) -> dict[str, Any]:
        """A JSON object with weights as text and what the model was told, without features.

        Weights of a file are not in it: it is loaded into a model that has them.
        """
        weights = None if self._weights is self._base else self._weights
        if weights is not None and (self._text is None or self._text[0] is not weights):
            self._text = weights, arrays_to_json(weights)
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
        weights = None if given is None else arrays_from_json(given)
        self._network(weights)
        told = ObservationLog.read(state["told"])
        base, replayed = self._base, self._replayed
        self._forget()
        self._base, self._replayed = base, replayed
        self._seed, self._updates = int(state["seed"]), int(state["updates"])
        self._weights = base if weights is None else weights
        if told:
            self._add(told)
