"""Proxies of cost and pruning models that live in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models.cost import DifferentiableCostModel, Observation
from autotune.models.host.model_host import MakeMessage, ModelFailed, ModelHost
from autotune.models.host.transport import pack_state, pieces, unpack_state
from autotune.models.pruning import PruningModel
from autotune.process import ATTACHMENTS, Message
from autotune.sketches import CandidateBatch, Sketch

__all__ = ["HostedCostModel", "HostedPruningModel"]

_GIVEN_UP = "given up"


class _Hosted:
    """A model of some kind in the host's process, by its own name."""

    kind: str

    def __init__(self, host: ModelHost) -> None:
        self._host = host
        self._model = host.model(self.kind)

    @property
    def name(self) -> str:
        """Name that the model gives itself."""
        return self._model.own_name or self._model.spec.name

    def _scores(self, what: str, batch: CandidateBatch) -> NDArray[np.float64]:
        """The model's scores of shape [n], or zeros once it was given up."""
        found = [self._piece_scores(what, piece) for piece in pieces(batch)]
        scores = [each for each in found if each is not None]
        return np.concatenate(scores) if len(scores) == len(found) else np.zeros(len(batch))

    def _piece_scores(self, what: str, batch: CandidateBatch) -> NDArray[np.float64] | None:
        return self._host.call(
            self._model,
            what,
            lambda sketches: {"op": "score", "model": self.kind, **sketches.batch(batch)},
            lambda answer: _read_scores(answer, len(batch)),
            len(batch),
        )


class HostedCostModel(_Hosted, DifferentiableCostModel):  # type: ignore[override]
    """A cost model in the host's process.

    One that has been given up answers like a model that has learned nothing, with zeros, and
    remains given up in a run that is resumed. Whether it has a gradient shows when it is asked
    for one.

    Args:
        host: Holds a cost model.
    """

    kind = "cost_model"

    def __init__(self, host: ModelHost) -> None:
        super().__init__(host)
        self._model.history = self._history
        self._state: dict[str, Any] | None = None
        self._since: list[Sequence[Observation]] = []

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """The model's scores of shape [n], or zeros once it was given up."""
        return self._scores("predict", batch)

    def relaxed(
        self, sketch: Sketch, rows: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The model's logarithms of latency ``[n]`` and gradient ``[n, params]``, or zeros.

        Raises:
            InvalidValueError: the model has no gradient, or as for the model itself.
        """
        if rows.ndim != 2 or rows.shape[1] != len(sketch.params):
            raise InvalidValueError(
                f"sketch {sketch.name!r} has {len(sketch.params)} parameters; got points "
                f"{rows.shape}"
            )
        found = self._host.call(
            self._model,
            "relaxed",
            lambda sketches: {"op": "relaxed", **sketches.points(sketch, rows)},
            lambda answer: _read_relaxed(answer, rows.shape),
            len(rows),
        )
        return (np.zeros(len(rows)), np.zeros(rows.shape)) if found is None else found

    def update(self, outcomes: Sequence[Observation]) -> None:
        """Let the model learn from outcomes."""
        told = list(outcomes)
        warnings = self._host.call(
            self._model, "update", _updating(told), _read_warnings, len(told)
        )
        if warnings is not None:
            self._since.append(told)
            for warning in warnings:
                self._host.on_warning(warning)

    def state(self) -> dict[str, Any]:
        """The model's own state, to be looked at only: the same object may be returned again.

        That of a model that was given up holds the reason and the last good one.
        """
        if self._state is None or self._since:
            state = self._host.call(self._model, "state", lambda _: {"op": "state"}, _read_state)
            if state is not None:
                self._state, self._since = state, []
        if self._model.failure is not None:
            return {_GIVEN_UP: self._model.failure, "state": self._state}
        if self._state is None:
            raise RuntimeError("a model that is in use has a state")
        return self._state

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned, or what such a model returned elsewhere.

        Raises:
            InvalidValueError: the state is of another model.
        """
        if _GIVEN_UP in state:
            self._state, self._since = state["state"], []
            self._host.give_up(self._model, str(state[_GIVEN_UP]))
            return
        done = self._host.call(self._model, "load_state", _loading(state), dict)
        if done is not None:
            self._state, self._since = state, []

    def _history(self) -> Iterator[MakeMessage]:
        """The last good state, then every update since."""
        if self._state is not None:
            yield _loading(self._state)
        yield from map(_updating, self._since)


class HostedPruningModel(_Hosted, PruningModel):  # type: ignore[override]
    """A pruning model in the host's process.

    One that has been given up scores everything the same.

    Args:
        host: Holds a pruning model.
    """

    kind = "pruning_model"

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """The model's scores of shape [n], or zeros once it was given up."""
        return self._scores("score", batch)


def _updating(told: Sequence[Observation]) -> MakeMessage:
    return lambda sketches: {"op": "update", **sketches.outcomes(told)}


def _loading(state: dict[str, Any]) -> MakeMessage:
    return lambda _: {"op": "load_state", **pack_state(state)}


def _read_scores(answer: Message, rows: int) -> NDArray[np.float64]:
    """The scores of an answer, if there is one number for each row."""
    shape = answer.get("shape")
    if shape != [rows]:
        raise ModelFailed(f"gave scores of shape {shape} for {rows} candidates")
    [scores] = _read_numbers(answer, "scores", [(rows,)])
    return scores


def _read_relaxed(
    answer: Message, shape: tuple[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values and gradient of an answer about points of a shape."""
    shapes, (rows, params) = answer.get("shapes"), shape
    if shapes != [[rows], [rows, params]]:
        raise ModelFailed(f"gave values and gradients of shapes {shapes} for {rows} points")
    values, gradient = _read_numbers(answer, "values", [(rows,), shape])
    return values, gradient


def _read_numbers(
    answer: Message, what: str, shapes: Sequence[tuple[int, ...]]
) -> list[NDArray[np.float64]]:
    """The attachments of an answer, of given shapes."""
    try:
        # Copies, because others may write to what they are given.
        found = [
            np.frombuffer(data, dtype="<f8").reshape(shape).astype(np.float64)
            for data, shape in zip(answer.get(ATTACHMENTS) or [], shapes, strict=True)
        ]
    except (TypeError, ValueError) as error:
        raise ModelFailed(f"gave {what} that are none: {error}") from error
    missing = sum(int(np.isnan(numbers).sum()) for numbers in found)
    if missing:
        total = sum(numbers.size for numbers in found)
        raise ModelFailed(f"gave {missing} {what} of {total} that are not numbers")
    return found


def _read_state(answer: Message) -> dict[str, Any]:
    try:
        return unpack_state(answer)
    except InvalidValueError as error:
        raise ModelFailed(str(error)) from error


def _read_warnings(answer: Message) -> list[str]:
    warnings = answer.get("warnings")
    if not isinstance(warnings, list):
        raise ModelFailed("gave no answer")
    return [str(warning) for warning in warnings]
