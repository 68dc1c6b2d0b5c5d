"""Results that are written past the caches, in programs of LLVM's dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from autotune_mlir.entry import Shape
from autotune_mlir.traversal import operations_in

__all__ = ["STREAM", "mark_of", "stream_stores"]

STREAM = "autotune.stream"
"""Attribute of a function: which arguments are written so, and how their stores are aligned."""

_LEAST_BYTES = 16
_FENCE = 'llvm.call_intrinsic "llvm.x86.sse.sfence"() : () -> ()'


def mark_of(alignments: Mapping[int, int]) -> str:
    """The value of the attribute.

    Args:
        alignments: By position among the arguments of the function on buffers, the bytes that
            addresses of all whole vectors of this argument are multiples of.
    """
    return ",".join(f"{argument}:{alignment}" for argument, alignment in alignments.items())


def stream_stores(ir: Any, module: Any, kernel: Any, shapes: Sequence[Shape]) -> None:
    """Have the vectors of marked arguments stored past the caches.

    Every thread waits for its stores before others are told that it is done. Single elements, and
    vectors that are shorter than the processor's shortest, are stored as usual.

    Args:
        ir: The ``ir`` module of the bindings.
        module: The program; the attribute is taken away from all its functions, wrappers included.
        kernel: The ``llvm.func`` that stores.
        shapes: Shapes of the buffers that it was a function of.
    """
    if STREAM not in kernel.attributes:
        return
    marks = [mark.split(":") for mark in kernel.attributes[STREAM].value.split(",")]
    for function in module.body.operations:
        if STREAM in function.attributes:
            del function.attributes[STREAM]
    arguments = kernel.regions[0].blocks[0].arguments
    pointers = [
        (arguments[_position(int(argument), shapes)], int(alignment))
        for argument, alignment in marks
    ]
    ends: list[Any] = []
    changed = False
    for operation in list(operations_in(kernel)):
        if operation.name == "llvm.store":
            changed |= any(_stream(ir, operation, *pointer) for pointer in pointers)
        elif operation.name in ("llvm.return", "omp.terminator"):
            ends.append(operation)
    for end in ends if changed else ():
        with ir.InsertionPoint(end), end.location:
            ir.InsertionPoint(end).insert(ir.Operation.parse(_FENCE))


def _position(argument: int, shapes: Sequence[Shape]) -> int:
    """Where the pointer to the elements of a buffer is among the arguments.

    A buffer is two pointers, an offset, sizes and strides; the second one is to the elements.
    """
    return sum(3 + 2 * len(shape) for shape in shapes[:argument]) + 1


def _stream(ir: Any, store: Any, pointer: Any, alignment: int) -> bool:
    """Change a store if it is of whole vectors into what ``pointer`` points to."""
    value, address = store.operands
    width = _bytes(str(value.type))
    if width == 0 or width % min(alignment, _LEAST_BYTES) or alignment < _LEAST_BYTES:
        return False
    if not _points_into(address, pointer):
        return False
    store.attributes["nontemporal"] = ir.UnitAttr.get()
    integer = ir.IntegerType.get_signless(64)
    store.attributes["alignment"] = ir.IntegerAttr.get(integer, alignment)
    return True


def _points_into(address: Any, pointer: Any) -> bool:
    """Whether an address is computed from a pointer alone."""
    while address != pointer:
        owner = address.owner
        if getattr(owner, "name", None) != "llvm.getelementptr":
            return False
        address = owner.operands[0]
    return True


def _bytes(kind: str) -> int:
    """Bytes of a vector type; 0 for any other."""
    found = re.fullmatch(r"vector<(\d+)x[a-z]+(\d+)>", kind)
    return int(found[1]) * int(found[2]) // 8 if found else 0
