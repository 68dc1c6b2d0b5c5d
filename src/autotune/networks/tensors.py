"""Tensors that networks take and return."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NetworkTensor"]


class NetworkTensor(NamedTuple):
    """An input or an output of a network; ``dtype`` is a name of numpy or ``ml_dtypes``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
