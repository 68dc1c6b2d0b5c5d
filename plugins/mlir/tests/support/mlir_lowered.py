"""What a schedule makes of a program: its loops, and the buffers that it allocates.

Used to hold the symbolic loop nest against the truth. Only the part of a schedule that makes loops
and buffers is applied (``@structure``); what the rest turns into vectors and unrolled code is then
still a structured operation, whose iterations say how far it goes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, field, frozen
from autotune_mlir import bindings
from autotune_mlir.parsing import parse_payload
from autotune_mlir.transform_scripts import apply_schedule

__all__ = ["COMPUTED", "LoweredBuffer", "LoweredNest", "LoweredStatement", "lowered_nest"]

COMPUTED = -1
"""An extent that is computed when the program runs."""

# Drops what has been computed elsewhere, and makes numbers of what loops begin and end at.
_CLEANUP = ("canonicalize",)
# From tensors to buffers. Empty tensors become allocations before equal ones are merged, or stages
# whose results are never needed at the same time would share one. What is only copied to where it
# is already is found after equal addresses have been merged.
_TO_BUFFERS = (
    "eliminate-empty-tensors",
    "empty-tensor-to-alloc-tensor",
    "cse",
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map}",
    "canonicalize",
    "cse",
    "canonicalize",
)
_ROLES = {
    "autotune.stage": "compute",
    "autotune.init": "init",
    "autotune.pack": "pack",
    "autotune.margin": "margin",
}
_ALLOCATIONS = ("memref.alloc", "memref.alloca")
# Found by attributes like structured operations.
_PADDING = "tensor.pad"
_COPY = "memref.copy"


@frozen
class LoweredStatement:
    """A structured operation, with the loops around it.

    Loops of extent 1 are left out; the dimensions of a loop on several threads are one. An extent
    that differs from one iteration of the loops around it to another is ``COMPUTED``.

    Attributes:
        role: compute, init, or pack; ``""`` for an operation that no schedule asked for.
        name: The stage, or ``STAGE.OPERAND`` for a copied operand.
        loops: Extents of the loops around it, outermost first.
        iterations: Extents of its own iterators, those of 1 included.
    """

    role: str
    name: str
    loops: tuple[int, ...]
    iterations: tuple[int, ...]


@frozen
class LoweredBuffer:
    """An allocation.

    Attributes:
        shape: Its extents, without those of 1; ``COMPUTED`` like those of loops.
        element: Type of its elements, as MLIR writes it.
        loops: Extents of the loops around it, outermost first.
    """

    shape: tuple[int, ...]
    element: str
    loops: tuple[int, ...]


@frozen
class LoweredNest:
    """What a program consists of, in program order.

    Attributes:
        statements: Structured operations on tensors; not those that were vectorized.
        buffers: What is allocated where tensors become buffers.
        copies: Copies between buffers that this takes, which no schedule asked for.
    """

    statements: tuple[LoweredStatement, ...]
    buffers: tuple[LoweredBuffer, ...]
    copies: tuple[LoweredStatement, ...]


def lowered_nest(payload: str, schedule: str | None, sequence: str = "structure") -> LoweredNest:
    """Statements, allocations and copies of a scheduled program.

    Args:
        payload: Text of a module with the function ``@kernel``.
        schedule: Text of a module with the sequence; None leaves the program as it is.
        sequence: Its name. That of the whole schedule shows the buffers that the program really
            has; vectorized ones need none.

    Raises:
        InvalidSchedule: the schedule cannot be applied.
    """
    module = parse_payload(payload)
    if schedule is not None:
        apply_schedule(module, schedule, sequence)
    loaded = bindings.load()
    with module.context, loaded.ir.Location.unknown():
        readers = []
        for passes in (_CLEANUP, _TO_BUFFERS):
            manager = loaded.passmanager.PassManager.parse(f"builtin.module({','.join(passes)})")
            manager.run(module.operation)
            readers.append(_Reader(loaded.ir))
            readers[-1].visit(module.operation, ())
    before, after = readers
    return LoweredNest(tuple(before.statements), tuple(after.buffers), tuple(after.copies))


@define(eq=False)
class _Reader:
    """Walks a program."""

    ir: Any
    statements: list[LoweredStatement] = field(factory=list)
    buffers: list[LoweredBuffer] = field(factory=list)
    copies: list[LoweredStatement] = field(factory=list)

    def visit(self, operation: Any, loops: tuple[int, ...]) -> None:
        """Note an operation and what is inside it.

        Args:
            operation: The operation.
            loops: Extents of the loops around it.
        """
        name = operation.name
        if name in _ALLOCATIONS:
            kind = operation.results[0].type
            shape = _without_ones(_shape(kind))
            self.buffers.append(LoweredBuffer(shape, str(kind.element_type), loops))
        elif name == _COPY:
            self.copies.append(self._statement(operation, loops))
        elif name.startswith("linalg.") or name == _PADDING:
            self.statements.append(self._statement(operation, loops))
        else:
            for inner in _operations(operation):
                self.visit(inner, (*loops, *_without_ones(self._extents(operation))))

    def _statement(self, operation: Any, loops: tuple[int, ...]) -> LoweredStatement:
        role = name = ""
        for attribute, meaning in _ROLES.items():
            if attribute in operation.attributes:
                role, name = meaning, self.ir.StringAttr(operation.attributes[attribute]).value
        return LoweredStatement(role, name, loops, _iterations(operation))

    def _extents(self, operation: Any) -> tuple[int, ...]:
        """Iterations of a loop; nothing for any other operation."""
        if operation.name == "scf.for":
            low, high, step = (_constant(self.ir, value) for value in list(operation.operands)[:3])
            if low is None or high is None or step is None:
                return (COMPUTED,)
            return (_trips(low, high, step),)
        if operation.name == "scf.forall":
            names = ("staticLowerBound", "staticUpperBound", "staticStep")
            extents = map(_trips, *(list(operation.attributes[name]) for name in names))
            return (math.prod(extents),)
        return ()


def _iterations(operation: Any) -> tuple[int, ...]:
    """Extents of the iterators of a structured operation."""
    values = operation.results if operation.name == _PADDING else operation.operands
    shapes = [_shape(kind) for kind in (value.type for value in values) if hasattr(kind, "shape")]
    if operation.name == "linalg.reduce":
        reduced = list(operation.attributes["dimensions"])
        kept = [axis for axis in range(len(shapes[0])) if axis not in reduced]
        return tuple(shapes[0][axis] for axis in (*kept, *reduced))
    if operation.name != "linalg.generic":
        return tuple(shapes[-1])
    maps = [attribute.value for attribute in operation.attributes["indexing_maps"]]
    extents: dict[int, int] = {}
    for shape, indexing in zip(shapes, maps, strict=True):
        for extent, result in zip(shape, indexing.results, strict=True):
            # A dimension by itself; the ways to ask for its kind differ between releases.
            dimension = re.fullmatch(r"d(\d+)", str(result))
            if dimension:
                extents[int(dimension[1])] = extent
    return tuple(extents[position] for position in range(maps[0].n_dims))


def _shape(kind: Any) -> list[int]:
    """Extents of a tensor or a buffer."""
    return [
        COMPUTED if kind.is_dynamic_dim(axis) else extent for axis, extent in enumerate(kind.shape)
    ]


def _operations(operation: Any) -> Iterator[Any]:
    """The operations directly inside an operation."""
    for region in operation.regions:
        for block in region:
            for inner in block.operations:
                yield inner.operation


def _constant(ir: Any, value: Any) -> int | None:
    """The number that a value is; None if it is computed."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return int(owner.attributes["value"].value)


def _trips(low: int, high: int, step: int) -> int:
    return -((low - high) // step)


def _without_ones(extents: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(extent) for extent in extents if extent != 1)
