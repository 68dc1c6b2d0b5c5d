"""Constants that are packed when a program is bound to them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from autotune.backends.arrays import aligned_empty

__all__ = ["PackedConstants"]

Array = NDArray[Any]


class PackedConstants:
    """Constants of a program as they were packed last.

    Bindings to the same numbers share it, for weights may be large.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, list[Array]]] = {}

    def packed(
        self,
        position: int,
        constant: Array,
        arrays: Sequence[tuple[Sequence[int], DTypeLike]],
        pack: Callable[[list[Array]], None],
    ) -> list[Array]:
        """The arrays that are packed of a constant.

        Args:
            position: Of the constant among the tensors of the program.
            constant: Its elements, in row-major order.
            arrays: Shape and element type of each array that is packed of it.
            pack: Writes them, where these elements were not packed last.
        """
        digest = hashlib.blake2b(constant.reshape(-1).view(np.uint8).data).digest()
        known = self._known.get(position)
        if known is None or known[0] != digest:
            made = [aligned_empty(shape, dtype) for shape, dtype in arrays]
            for array in made:
                # Elements that nothing writes are read by none that matters, and are no NaN.
                array.reshape(-1).view(np.uint8).fill(0)
            pack(made)
            known = self._known[position] = digest, made
        return known[1]
