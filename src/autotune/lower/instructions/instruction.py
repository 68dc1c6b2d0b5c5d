"""The interface of instructions, and finding that of a declaration."""

from __future__ import annotations

from abc import ABC, abstractmethod

from autotune.errors import InvalidValueError
from autotune.lower.instructions.call import Call
from autotune.lower.state import State
from autotune.sketches.intrinsics import Intrinsic

__all__ = ["Instruction", "instruction_of"]


class Instruction(ABC):
    """The implementation of a declared instruction."""

    @property
    def tile_rows(self) -> int:
        """Rows of the tile registers that it takes configured; 0: it takes none."""
        return 0

    @abstractmethod
    def print(self, state: State, call: Call) -> None:
        """Print a call where the loops around it are."""

    @abstractmethod
    def begin(self, state: State, call: Call) -> None:
        """Print what comes before calls that add to the same sums."""

    @abstractmethod
    def finish(self, state: State, call: Call) -> None:
        """Print what comes after calls that add to the same sums."""


def instruction_of(intrinsic: Intrinsic) -> Instruction:
    """The implementation of a declaration.

    Raises:
        InvalidValueError: it has none that is printed.
    """
    found = intrinsic.implementation("native")(intrinsic)
    if not isinstance(found, Instruction):
        raise InvalidValueError(f"intrinsic {intrinsic.name!r} is implemented by {found!r}")
    return found
