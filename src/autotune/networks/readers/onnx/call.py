"""A call of an operator, as the functions of :mod:`.operators` are given it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import Value
from autotune.networks.readers.onnx.counted_rows import RowTracker

__all__ = ["Body", "Call", "Dequantised", "Item", "Operator", "ValueNeeded"]

Array = NDArray[Any]
Item = Value | tuple[Value, ...] | None
"""A tensor, a sequence of tensors, or what is left out."""


class ValueNeeded(UnsupportedWorkload):
    """An operator depends on a value in a way that has to be known to read it."""

    def __init__(self, message: str, value: Value) -> None:
        self.value = value
        super().__init__(message)


@frozen(eq=False)
class Body:
    """A graph that is an attribute of a node.

    Attributes:
        inputs: Names of its inputs.
        captured: Tensors around it that it reads and that are not known.
        run: From its inputs, and what stands in place of some that are captured, to its outputs.
    """

    inputs: tuple[str, ...]
    captured: tuple[Value, ...]
    run: Callable[[Sequence[Item], Mapping[tuple[object, int], Value]], list[Item]]


@frozen(eq=False)
class Dequantised:
    """The integers that a tensor of floats was before it was dequantised.

    Attributes:
        value: The floats.
        stored: The integers.
        scale: What they are multiplied with: one number, or one for each index of an axis.
        zero: What stands for 0; None for 0 itself.
        axis: That axis.
    """

    value: Value
    stored: Value
    scale: Value
    zero: Value | None
    axis: int

    @property
    def is_by_one(self) -> bool:
        """True if all elements have one scale and one zero point."""
        return self.scale.size == 1 and (self.zero is None or self.zero.size == 1)

    def is_by(self, scale: Value, zero: Value | None) -> bool:
        """Tell if it is one scale and one zero point, and these are known to be the same."""
        return (
            self.is_by_one
            and _same(self.scale, scale)
            and (_same(self.zero, zero) or (_is_zero(self.zero) and _is_zero(zero)))
        )


def _same(one: Value | None, other: Value | None) -> bool:
    if one is None or other is None or one.dtype != other.dtype or other.size != 1:
        return False
    if one.constant is None or other.constant is None:
        return one.key == other.key
    return bool(one.constant.reshape(()) == other.constant.reshape(()))


def _is_zero(value: Value | None) -> bool:
    return value is None or (value.constant is not None and not value.constant.any())


@frozen(eq=False)
class Call:
    """A node with what it reads.

    Attributes:
        kind: The operator.
        since: The version of its domain that the operator in force is of.
        inputs: What it reads, in order; None for what is left out.
        outputs: By output whether something reads it.
        attributes: What the node says, and of the others the operator's own defaults.
        bodies: Attributes that are graphs.
        folder: Where the model's file lies.
        dequantised: Tensors of the model that were dequantised, by :attr:`Value.key`.
        tracker: Finds tensors that are as long as data says.
    """

    kind: str
    since: int
    inputs: tuple[Item, ...]
    outputs: tuple[bool, ...]
    attributes: Mapping[str, Any]
    bodies: Mapping[str, Body]
    folder: Path | None
    dequantised: MutableMapping[tuple[object, int], Dequantised]
    tracker: RowTracker

    def get(self, position: int) -> Value | None:
        """An input; None where it is left out."""
        item = self.inputs[position] if position < len(self.inputs) else None
        if isinstance(item, tuple):
            raise UnsupportedWorkload(f"input {position} is a sequence, and not a tensor")
        return item

    def __getitem__(self, position: int) -> Value:
        """An input that has to be there.

        Raises:
            UnsupportedWorkload: it is left out, or a sequence.
        """
        found = self.get(position)
        if found is None:
            raise UnsupportedWorkload(f"input {position} is missing")
        return found

    def sequence(self, position: int) -> tuple[Value, ...]:
        """An input that is a sequence.

        Raises:
            UnsupportedWorkload: it is none.
        """
        item = self.inputs[position]
        if not isinstance(item, tuple):
            raise UnsupportedWorkload(f"input {position} is no sequence")
        return item

    @property
    def tensors(self) -> list[Value]:
        """All inputs, none of which may be left out."""
        return [self[position] for position in range(len(self.inputs))]

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute; ``default`` where neither the node nor the operator has one."""
        return self.attributes.get(name, default)

    def wants(self, position: int) -> bool:
        """Tell if an output is read."""
        return position < len(self.outputs) and self.outputs[position]

    def known(self, position: int) -> Array:
        """The numbers in an input that has to be known.

        Raises:
            ValueNeeded: it is computed from what a caller gives.
        """
        value = self[position]
        if value.constant is None:
            raise ValueNeeded(f"input {position} has to be known while the model is read", value)
        return np.asarray(element_type(value.dtype).numbers(value.constant))

    def ints(self, position: int) -> list[int]:
        """As :meth:`known`, as a list of whole numbers."""
        return [int(it) for it in self.known(position).ravel()]

    def number(self, position: int, default: float | None = None) -> Any:
        """As :meth:`known`, of one element; ``default`` where the input is left out."""
        if default is not None and self.get(position) is None:
            return default
        return self.known(position).reshape(-1)[0].item()

    def listed(self, name: str, position: int) -> list[int] | None:
        """Whole numbers that are an attribute in old versions and an input in new ones."""
        if name in self.attributes:
            return list(self.attributes[name])
        return None if self.get(position) is None else self.ints(position)


Operator = Callable[[Call], Item | Sequence[Item]]
"""The values that a node computes: one item, or a list with one for each output."""
