"""The function that is called from outside, and how it hands the arguments on.

What MLIR makes of ``@kernel`` takes every memref as pointers, offset, sizes and strides. Callers
get ``int run(void **arrays)`` instead: the arrays in the workload's order, and 0 for success, as
native calls are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autotune.backends import ALIGNMENT

__all__ = [
    "ADDRESS",
    "ENTRY",
    "KERNEL",
    "Shape",
    "address_text",
    "entry_text",
    "kernel_types",
]

KERNEL = "kernel"
"""The function of a program, by the name that it has in the text."""

ENTRY = "run"
"""``int run(void **arrays)``, which returns 0."""

ADDRESS = "_address"
"""Ends the name of the function that returns the address of an entry: the JIT compiler tells
addresses of wrappers only."""

Shape = tuple[int, ...]

_ATTRIBUTES = f"{{llvm.align = {ALIGNMENT} : i64, llvm.noalias, llvm.noundef}}"


def address_text(entry: str) -> str:
    """The function that returns the address of an entry."""
    return (
        f"llvm.func @{entry}{ADDRESS}() -> !llvm.ptr {{\n"
        f"  %address = llvm.mlir.addressof @{entry} : !llvm.ptr\n"
        "  llvm.return %address : !llvm.ptr\n}"
    )


def kernel_types(shapes: Sequence[Shape]) -> list[str]:
    """Types of the arguments of ``@kernel`` in LLVM's dialect, for memrefs of these shapes."""
    return [
        kind for shape in shapes for kind in ["!llvm.ptr"] * 2 + ["i64"] * (1 + 2 * len(shape))
    ]


def entry_text(shapes: Sequence[Shape]) -> str:
    """A module in LLVM's dialect that calls ``@kernel``.

    Args:
        shapes: Of the arguments, in order; they are arrays in row-major order.
    """
    lines = ["  %zero = llvm.mlir.constant(0 : i32) : i32"]
    numbers = {0, *(extent for shape in shapes for extent in (*shape, *_strides(shape)))}
    lines += [
        f"  %n{number} = llvm.mlir.constant({number} : i64) : i64" for number in sorted(numbers)
    ]
    arguments: list[str] = []
    for position, shape in enumerate(shapes):
        lines += [
            f"  %slot{position} = llvm.getelementptr %arrays[{position}] "
            ": (!llvm.ptr) -> !llvm.ptr, !llvm.ptr",
            f"  %array{position} = llvm.load %slot{position} : !llvm.ptr -> !llvm.ptr",
        ]
        words = [f"%n{number}" for number in (0, *shape, *_strides(shape))]
        arguments += [f"%array{position}", f"%array{position}", *words]
    types = ", ".join(kernel_types(shapes))
    call = f"  llvm.call @{KERNEL}({', '.join(arguments)}) : ({types}) -> ()"
    return "\n".join(
        [
            "module {",
            f"llvm.func @{KERNEL}({types})",
            f"llvm.func @{ENTRY}(%arrays: !llvm.ptr) -> i32 {{",
            *lines,
            call,
            "  llvm.return %zero : i32",
            "}",
            address_text(ENTRY),
            "}",
        ]
    )


def argument_attributes(shapes: Sequence[Shape]) -> str:
    """Attributes of the arguments of ``@kernel``: arrays lie apart from each other."""
    attributes = []
    for shape in shapes:
        attributes += [_ATTRIBUTES] * 2 + ["{}"] * (1 + 2 * len(shape))
    return f"[{', '.join(attributes)}]"


def _strides(shape: Shape) -> list[int]:
    return [prod(shape[position + 1 :]) for position in range(len(shape))]
