"""Weights of the residual network and the scales of its columns, as arrays and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune_felix.array_text import arrays_digest, arrays_from_json, arrays_to_json
from autotune_felix.labelled import Scale
from autotune_felix.residual_network import ResidualEnsemble

__all__ = ["MlpWeights"]

_SCALES = ("statements", "programs")


@frozen(eq=False)
class MlpWeights:
    """Everything that the network is.

    Attributes:
        arrays: float32, by the network's own names.
        scales: Of the columns of statements and of programs.
    """

    arrays: Mapping[str, NDArray[np.float32]]
    scales: tuple[Scale, Scale]

    @staticmethod
    def of(network: ResidualEnsemble, scales: tuple[Scale, Scale]) -> MlpWeights:
        """Copy the weights of a network."""
        arrays = {
            name: value.detach().to(torch.float32).numpy().copy()
            for name, value in network.state_dict().items()
        }
        return MlpWeights(arrays, scales)

    def apply(self, network: ResidualEnsemble) -> None:
        """Give them to a network.

        Raises:
            InvalidValueError: they are of a network of another size.
        """
        tensors = {name: torch.from_numpy(value.copy()) for name, value in self.arrays.items()}
        try:
            network.load_state_dict(tensors)
        except RuntimeError as error:
            first = str(error).strip().splitlines()[-1].strip()
            raise InvalidValueError(
                "the weights are of a network with other options (members, width) or columns: "
                f"{first}"
            ) from error

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by name."""
        found: dict[str, NDArray[Any]] = {f"network.{n}": a for n, a in self.arrays.items()}
        for name, scale in zip(_SCALES, self.scales, strict=True):
            found[f"scale.{name}.mean"], found[f"scale.{name}.spread"] = scale.mean, scale.spread
        return found

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> MlpWeights:
        """Read what :meth:`to_arrays` gave; other names are passed over.

        Raises:
            InvalidValueError: something is missing, or is not of numbers.
        """
        try:
            scales = tuple(
                Scale(arrays[f"scale.{name}.mean"], arrays[f"scale.{name}.spread"])
                for name in _SCALES
            )
        except KeyError as error:
            raise InvalidValueError(f"the weights lack {error}") from error
        own = {
            name.partition(".")[2]: value
            for name, value in arrays.items()
            if name.startswith("network.")
        }
        if not all(value.dtype == np.float32 for value in own.values()):
            raise InvalidValueError("weights are of float32")
        return MlpWeights(own, (scales[0], scales[1]))

    def to_json(self) -> dict[str, Any]:
        """The arrays as text."""
        return arrays_to_json(self.to_arrays())

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> MlpWeights:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is none of weights.
        """
        return MlpWeights.from_arrays(arrays_from_json(data))

    @property
    def digest(self) -> str:
        """16 hexadecimal digits over everything."""
        return arrays_digest(self.to_arrays())
