"""Tensors of torch as values, in the memory in which they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import ELEMENT_TYPES
from autotune.networks.graph import Value
from autotune.networks.readers.torch.operators.complex_pairs import Pair

__all__ = ["as_tensor", "kept", "plain_array", "stored_value", "type_name"]

Array = NDArray[Any]


def type_name(dtype: torch.dtype) -> str:
    """The name of an element type.

    Raises:
        UnsupportedWorkload: networks have no such type.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in ELEMENT_TYPES:
        raise UnsupportedWorkload(
            f"tensors of {name} are not supported; there are {', '.join(ELEMENT_TYPES)}"
        )
    return name


def plain_array(tensor: torch.Tensor) -> Array:
    """A tensor's elements as programs have them (bfloat16 as ``uint16``), not copied.

    Raises:
        UnsupportedWorkload: it is sparse, or of a type that networks do not have.
    """
    name = type_name(tensor.dtype)
    if tensor.layout != torch.strided:
        raise UnsupportedWorkload(f"tensors of layout {tensor.layout} are not supported")
    held = tensor.detach().cpu().resolve_conj().resolve_neg()
    if name == "bfloat16":
        return np.asarray(held.view(torch.int16).numpy()).view(np.uint16)
    return np.asarray(held.numpy())


def stored_value(tensor: torch.Tensor, name: str = "") -> Value | Pair:
    """A constant that shares the memory of a tensor; of complex numbers two."""
    if tensor.is_complex():
        held = torch.view_as_real(tensor.detach().resolve_conj())
        real, imaginary = (stored_value(held.select(-1, at), name) for at in (0, 1))
        assert isinstance(real, Value) and isinstance(imaginary, Value)
        return Pair(real, imaginary)
    return Value(tuple(tensor.shape), type_name(tensor.dtype), name, plain_array(tensor))


@contextmanager
def kept(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Tensors hold afterwards what they held before."""
    before = [(it, it.detach().clone()) for it in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)


def as_tensor(array: Array) -> torch.Tensor:
    """A copy of an array, of bfloat16 of ``ml_dtypes``, as a tensor."""
    native = array.astype(array.dtype.newbyteorder("="))
    if str(native.dtype) == "bfloat16":
        return torch.from_numpy(native.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(native.copy())
