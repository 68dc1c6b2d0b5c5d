"""A call of an operator of torch, as the functions of :mod:`.operators` are given it.

Operands are brought to the type in which torch computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import Value
from autotune.networks.readers.forms import as_type, is_float

__all__ = [
    "Call",
    "Item",
    "Operator",
    "Result",
    "number",
    "operand",
    "promoted",
]

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
"""Reader of a call, which gives a value, or a list with one for each of its results;
``NotImplemented`` of a form that torch is asked to say in other operators."""


_DEFAULT_FLOAT = "float32"


def promoted(*operands: Any) -> str:
    """The type of torch's rules for tensors and numbers together.

    Tensors with axes decide unless one without, or a number, is of a higher category: truth,
    whole numbers, floats.
    """
    groups: list[str | None] = [None, None, None]
    for it in operands:
        if it is None:
            continue
        level = (0 if it.rank else 1) if isinstance(it, Value) else 2
        dtype = it.dtype if isinstance(it, Value) else _type_of(it)
        known = groups[level]
        groups[level] = dtype if known is None else _joined(known, dtype)
    found = _combined(groups[0], _combined(groups[1], groups[2]))
    return found or _DEFAULT_FLOAT


def _type_of(number: object) -> str:
    if isinstance(number, bool):
        return "bool"
    return "int64" if isinstance(number, int) else _DEFAULT_FLOAT


def _combined(higher: str | None, lower: str | None) -> str | None:
    """Two levels of operands: the higher one decides within a category."""
    if higher is None or lower is None:
        return higher or lower
    return _joined(higher, lower) if _category(lower) > _category(higher) else higher


def _category(dtype: str) -> int:
    return 0 if dtype == "bool" else 2 if is_float(dtype) else 1


def _joined(one: str, other: str) -> str:
    if one == other or other == "bool":
        return one
    if one == "bool":
        return other
    floats = [it for it in (one, other) if is_float(it)]
    if len(floats) == 2:
        sizes = [element_type(it).bytes for it in floats]
        return "float32" if sizes[0] == sizes[1] else floats[sizes.index(max(sizes))]
    return floats[0] if floats else np.promote_types(one, other).name


def number(value: Any, dtype: str) -> Any:
    """A number of Python in a type: whole numbers wrap around."""
    if dtype == "bool":
        return bool(value)
    if is_float(dtype):
        return float(value)
    return int(np.asarray(int(value) if np.isfinite(value) else 0).astype(dtype))


def operand(value: Any, dtype: str) -> Any:
    """A tensor or a number in a type."""
    return as_type(value, dtype) if isinstance(value, Value) else number(value, dtype)
