"""A call of an operator, as the functions of :mod:`.operators` are given it.

Results may be as long as data says: there is room for the most, and a count says how many rows are
valid. ``NonMaxSuppression`` returns one for each box that it keeps. What is computed of such rows
one by one has as many valid ones; what looks across them would see the others, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.ir.expressions import Gather, Load
from autotune.ir.workloads import Stage, Workload
from autotune.networks.graph import (
    Graph,
    HostOperator,
    Loop,
    Node,
    Value,
    constant,
    elementwise,
    minimum,
    reshape,
    select,
)
from autotune.networks.graph.graph import results_of

__all__ = [
    "Body",
    "Call",
    "Dequantised",
    "Item",
    "Operator",
    "RowTracker",
    "Rows",
    "ValueNeeded",
    "fill_of",
    "with_counts",
]

_SOURCE = "non_max_suppression"


@frozen(eq=False)
class Rows:
    """An axis that is longer than what is valid of it.

    Attributes:
        axis: The axis.
        count: How many elements of it are valid, from the first one (int64).
    """

    axis: int
    count: Value


@define(eq=False)
class RowTracker:
    """Finds the values whose rows are counted; remembers what it found.

    Attributes:
        has_sources: Whether there is an operator that returns such a value.
    """

    has_sources: bool = False
    _known: dict[tuple[object, int], Rows | None] = field(factory=dict, init=False)
    # Keys are of nodes that exist.
    _nodes: list[Node] = field(factory=list, init=False)

    def rows(self, value: Value) -> Rows | None:
        """The axis of a value that is longer than what is valid of it; None where there is none.

        Raises:
            UnsupportedWorkload: what computes it looks across such an axis.
        """
        if not self.has_sources or value.node is None or value.constant is not None:
            return None
        waiting = [value.node]
        while waiting:
            node = waiting[-1]
            missing = [
                it.node
                for it in node.operands
                if it.node is not None and it.constant is None and it.key not in self._known
            ]
            if missing and (id(node), 0) not in self._known:
                waiting.extend(missing)
                continue
            waiting.pop()
            if (id(node), 0) not in self._known:
                self._visit(node)
        return self._known[value.key]

    def _visit(self, node: Node) -> None:
        results = results_of(node)
        self._nodes.append(node)
        self._known.update({it.key: None for it in results})
        if isinstance(node.operation, HostOperator) and node.operation.kind == _SOURCE:
            self._known[results[0].key] = Rows(0, results[1])
            return
        if isinstance(node.operation, Loop):
            _check_body(node.operation.body)
        counted = [self._known.get(it.key) for it in node.operands]
        found = {id(it.count.node): it for it in counted if it is not None}
        if not found:
            return
        if len(found) > 1:
            raise _across(node)
        (rows,) = found.values()
        extent = next(
            value.shape[it.axis]
            for value, it in zip(node.operands, counted, strict=True)
            if it is not None
        )
        axes = [None if it is None else it.axis for it in counted]
        for result, axis in zip(results, _axes_behind(node, axes, extent), strict=True):
            if axis is not None:
                count, length = rows.count, result.shape[axis]
                if length < extent:
                    count = elementwise(lambda it, most=length: minimum(it, most), count)
                self._known[result.key] = Rows(axis, count)


def _axes_behind(node: Node, axes: Sequence[int | None], extent: int) -> list[int | None]:
    """By result of a node the axis that goes along with those of its operands."""
    operation = node.operation
    if isinstance(operation, Workload):
        given = {
            tensor.name: axis
            for tensor, axis in zip(operation.inputs, axes, strict=True)
            if axis is not None
        }
        for stage in operation.stages:
            axis = _axis_of_stage(node, stage, given, extent)
            if axis is not None:
                given[stage.name] = axis
        return [given.get(name) for name in operation.outputs]
    if node.is_reshape:
        (axis,) = axes
        assert axis is not None
        before, after = node.operands[0].shape, node.results[0][0]
        for place, length in enumerate(after):
            if length == before[axis] and prod(after[:place]) == prod(before[:axis]):
                return [place]
    raise _across(node)


def _axis_of_stage(node: Node, stage: Stage, given: Mapping[str, int], extent: int) -> int | None:
    """The axis of a stage's output along which it reads counted rows one by one."""
    found = {
        _moving(node, stage, read, given[read.tensor])
        for read in stage.accesses
        if read.tensor in given
    }
    if not found:
        return None
    axes = [it.name for it in stage.spatial_axes if it.kind == "spatial" and it.extent <= extent]
    (name,) = found if len(found) == 1 else [""]
    if name not in axes:
        raise _across(node)
    return [it.name for it in stage.spatial_axes].index(name)


def _moving(node: Node, stage: Stage, read: Load | Gather, dimension: int) -> str:
    """The axis of a stage that is the index of a dimension that it reads."""
    form = stage.forms(read)[dimension]
    if form.terms or form.constant or list(form.coefficients.values()) != [1]:
        raise _across(node)
    (name,) = form.coefficients
    return name


def _check_body(body: Graph) -> None:
    for node, _ in body.runs:
        if isinstance(node.operation, HostOperator) and node.operation.kind == _SOURCE:
            raise UnsupportedWorkload(
                f"{node.label}: how many boxes it keeps depends on data, and it is in a loop"
            )


def _across(node: Node) -> UnsupportedWorkload:
    return UnsupportedWorkload(
        f"{node.label}: it looks across boxes of which data says how many there are; a network "
        "takes them one by one, so end it before, and go on with its outputs"
    )


def with_counts(
    outputs: Mapping[str, Value], tracker: RowTracker
) -> tuple[dict[str, Value], dict[str, int]]:
    """Outputs, and behind them the count of each that is longer than what is valid of it.

    What is behind the valid elements is -1 of whole numbers that may be negative, else 0.

    Returns:
        The outputs, and by name of those that are counted their axis.

    Raises:
        UnsupportedWorkload: one is computed of what is not valid.
    """
    found: dict[str, Value] = {}
    counts: dict[str, Value] = {}
    axes: dict[str, int] = {}
    for name, value in outputs.items():
        rows = tracker.rows(value)
        found[name] = value if rows is None else _filled(value, rows)
        if rows is not None:
            axes[name] = rows.axis
            counts[f"{name} (count)"] = reshape(rows.count, ())
    return {**found, **counts}, axes


def _filled(value: Value, rows: Rows) -> Value:
    places = np.arange(value.shape[rows.axis]).reshape(-1, *[1] * (value.rank - rows.axis - 1))
    valid = elementwise(lambda at, count: at < count, constant(places), rows.count, dtype="bool")
    return select(valid, value, fill_of(value.dtype)).named(value.name)


def fill_of(dtype: str) -> int | bool:
    """The number behind the valid elements of a type."""
    if dtype == "bool":
        return False
    is_signed = not element_type(dtype).is_float and not dtype.startswith("u")
    return -1 if is_signed else 0


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
        """Return :meth:`known` as a list of whole numbers."""
        return [int(it) for it in self.known(position).ravel()]

    def number(self, position: int, default: float | None = None) -> Any:
        """Return :meth:`known` of a single element; ``default`` where the input is left out."""
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
