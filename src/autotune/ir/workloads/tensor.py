"""A tensor of a workload, its checks and its JSON form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.converter import json_forms, list_form
from autotune.ir.element_types import ElementType, element_type

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["Tensor", "validate_dtype", "validate_tensor"]


@frozen
class Tensor:
    """A dense row-major array.

    Attributes:
        name: Name.
        shape: Extents.
        dtype: Name of the element type.
        constant: Of an input: whether it holds the same in all calls of a program, as the weights
            of a network do. What only rearranges it need not be part of a call.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False

    def __repr__(self) -> str:
        """Look as of old for what is no constant: digests are made from looks."""
        marked = ", constant=True" if self.constant else ""
        return f"Tensor(name={self.name!r}, shape={self.shape!r}, dtype={self.dtype!r}{marked})"

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * self.element.bytes

    @property
    def element(self) -> ElementType:
        """Type of its elements."""
        return element_type(self.dtype)


@json_forms
def _forms(converter: Converter) -> None:
    write_whole, _ = list_form(converter, Tensor)
    # What is no constant is written as before there were any, and so has the digest of then.
    converter.register_unstructure_hook(
        Tensor, lambda tensor: write_whole(tensor)[: None if tensor.constant else -1]
    )


def validate_tensor(tensor: Tensor, known: Mapping[str, Tensor]) -> None:
    """Check a tensor by itself, and that no other has its name.

    Args:
        tensor: The tensor.
        known: The others, by name.

    Raises:
        InvalidValueError: its name is taken, its type is unknown or an extent not positive.
    """
    if tensor.name in known:
        raise InvalidValueError(f"two tensors are called {tensor.name!r}")
    validate_dtype(f"tensor {tensor.name!r}", tensor.dtype)
    if not all(isinstance(extent, int) and extent > 0 for extent in tensor.shape):
        raise InvalidValueError(f"tensor {tensor.name!r} has shape {tensor.shape}")


def validate_dtype(where: str, dtype: str) -> None:
    """Check the name of an element type.

    Args:
        where: Whose it is, for the message.
        dtype: The name.

    Raises:
        InvalidValueError: there is no such type; names the nearest.
    """
    try:
        element_type(dtype)
    except UnknownNameError as error:
        raise InvalidValueError(f"{where}: {error}") from error
