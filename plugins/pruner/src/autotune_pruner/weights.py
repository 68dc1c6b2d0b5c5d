"""Weights of a network: as arrays for a file, and as text in a state."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune_pruner.networks import Normaliser, RankingNetwork, Scale

__all__ = ["Weights"]

_PREFIX = "normaliser."


@frozen(eq=False)
class Weights:
    """Everything that a trained network is.

    Attributes:
        arrays: Parameters and buffers by name, as torch names them.
        normaliser: What it was trained with.
    """

    arrays: Mapping[str, NDArray[Any]]
    normaliser: Normaliser

    @staticmethod
    def of(network: RankingNetwork, normaliser: Normaliser) -> Weights:
        """The weights of a network, copied."""
        arrays = {
            name: tensor.detach().cpu().numpy().copy()
            for name, tensor in network.state_dict().items()
        }
        return Weights(arrays, normaliser)

    def apply(self, network: RankingNetwork) -> None:
        """Give a network these weights.

        Raises:
            InvalidValueError: they are of a network of another shape.
        """
        tensors = {name: torch.tensor(array) for name, array in self.arrays.items()}
        try:
            network.load_state_dict(tensors)
        except RuntimeError as error:
            kind = type(network).__name__
            raise InvalidValueError(f"the weights do not fit a {kind}: {error}") from error

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays, and those of the normaliser under names that torch gives nothing."""
        scales = {"statements": self.normaliser.statements, "dataflow": self.normaliser.dataflow}
        return {
            **self.arrays,
            **{f"{_PREFIX}{name}.shift": scale.shift for name, scale in scales.items()},
            **{f"{_PREFIX}{name}.width": scale.width for name, scale in scales.items()},
        }

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Weights:
        """Read what :meth:`to_arrays` gave.

        Raises:
            InvalidValueError: there is no normaliser among them.
        """
        rest = dict(arrays)
        try:
            statements, dataflow = (
                Scale(rest.pop(f"{_PREFIX}{name}.shift"), rest.pop(f"{_PREFIX}{name}.width"))
                for name in ("statements", "dataflow")
            )
        except KeyError as error:
            raise InvalidValueError(f"not weights: {error} is missing") from error
        return Weights(rest, Normaliser(statements, dataflow))

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the arrays as text; 4/3 of their bytes, and fast to read."""
        return {name: _array_to_json(array) for name, array in self.to_arrays().items()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Weights:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is none of weights.
        """
        try:
            arrays = {name: _array_from_json(item) for name, item in data.items()}
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"not weights: {type(error).__name__}: {error}") from error
        return Weights.from_arrays(arrays)


def _array_to_json(array: NDArray[Any]) -> list[Any]:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    text = base64.b64encode(little.tobytes()).decode("ascii")
    return [little.dtype.str, list(array.shape), text]


def _array_from_json(data: list[Any]) -> NDArray[Any]:
    kind, shape, text = data
    if kind not in ("<f4", "<i8"):
        raise ValueError(f"an array of type {kind!r}")
    found: NDArray[Any] = np.frombuffer(base64.b64decode(text), dtype=kind).reshape(shape)
    return found.astype(found.dtype.newbyteorder("="))
