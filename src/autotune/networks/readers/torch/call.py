"""A call of an operator of torch, as the functions of :mod:`.operators` are given it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import Value

__all__ = ["Call", "Item", "Operator", "Result"]

Item = Any
"""A :class:`Value`, a number, None, or a list of these."""


@frozen
class Result:
    """A tensor that a call gives, as torch says.

    Attributes:
        shape: Its extents.
        dtype: Name of its type.
    """

    shape: tuple[int, ...]
    dtype: str


@frozen(eq=False)
class Call:
    """A node with what it reads.

    Attributes:
        kind: Name of the operator without its overload, such as ``add``.
        overload: That of its overload, such as ``Tensor``.
        arguments: By the names of torch's schema, with its defaults: tensors as values, types by
            name.
        results: The tensors that it gives; None for what is no tensor.
        strides: Of the first tensor: steps in memory along its axes, as torch has it.
    """

    kind: str
    overload: str
    arguments: Mapping[str, Any]
    results: tuple[Result | None, ...]
    strides: tuple[int, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """An argument."""
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An argument; ``default`` where the operator has none of this name, or it is None."""
        found = self.arguments.get(name)
        return default if found is None else found

    @property
    def x(self) -> Value:
        """The first argument, which is a tensor.

        Raises:
            UnsupportedWorkload: it is none.
        """
        found = next(iter(self.arguments.values()))
        if not isinstance(found, Value):
            raise UnsupportedWorkload(f"its first argument is {found!r}, and no tensor")
        return found

    @property
    def result(self) -> Result:
        """The first tensor that it gives.

        Raises:
            UnsupportedWorkload: it gives none.
        """
        found = self.results[0] if self.results else None
        if found is None:
            raise UnsupportedWorkload("it gives no tensor")
        return found

    @property
    def dtype(self) -> str:
        """Type of the first tensor that it gives."""
        return self.result.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first tensor that it gives."""
        return self.result.shape

    def axes(self, name: str = "dim") -> list[int] | None:
        """Axes of the first tensor, from the first one; None where all are meant."""
        given = self.arguments.get(name)
        if given is None or (isinstance(given, Sequence) and not given):
            return None
        listed = [given] if isinstance(given, int) else list(given)
        return [axis % max(1, self.x.rank) for axis in listed]

    def axis(self, name: str = "dim", more: int = 0) -> int:
        """An axis of the first tensor, from the first one; ``more`` axes are added to it."""
        given: int = self.arguments[name]
        return given % max(1, self.x.rank + more)


Operator = Callable[[Call], Item]
"""What a call gives: a value, or a list with one for each of its results."""
