"""The function that is called from outside, and how it hands the arguments on.

What MLIR makes of ``@kernel`` takes every memref as pointers, offset, sizes and strides. Callers
get ``int run(void **arrays)`` instead: the arrays in the workload's order, and 0 for success, as
native calls are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autotune.backends import ALIGNMENT
from autotune.sketches.intrinsics.tile_registers import REQUEST

__all__ = [
    "ADDRESS",
    "ENTRY",
    "KERNEL",
    "REQUEST_TEXT",
    "Shape",
    "address_text",
    "entry_text",
    "kernel_types",
    "request_lines",
]

KERNEL = "kernel"
"""The function of a program, by the name that it has in the text."""

ENTRY = "run"
"""``int run(void **arrays)``: 0, or 1 where tile registers are refused."""

ADDRESS = "_address"
"""Ends the name of the function that returns the address of an entry: the JIT compiler tells
addresses of wrappers only."""

Shape = tuple[int, ...]

_REQUESTING = "autotune_request_tiles"
_WORDS = "\n".join(
    f"  %word{at} = llvm.mlir.constant({word} : i64) : i64" for at, word in enumerate(REQUEST)
)
# Whether the registers are given is known from the first call on.
REQUEST_TEXT = f"""\
llvm.mlir.global internal @{_REQUESTING}_granted(0 : i8) : i8
llvm.func @syscall(i64, ...) -> i64
llvm.func internal @{_REQUESTING}() -> i1 {{
  %place = llvm.mlir.addressof @{_REQUESTING}_granted : !llvm.ptr
  %before = llvm.load %place : !llvm.ptr -> i8
  %known = llvm.trunc %before : i8 to i1
  llvm.cond_br %known, ^done(%known : i1), ^ask
^ask:
{_WORDS}
  %refused = llvm.call @syscall(%word0, %word1, %word2) vararg(!llvm.func<i64 (i64, ...)>)
    : (i64, i64, i64) -> i64
  %none = llvm.mlir.constant(0 : i64) : i64
  %granted = llvm.icmp "eq" %refused, %none : i64
  %remembered = llvm.zext %granted : i1 to i8
  llvm.store %remembered, %place : i8, !llvm.ptr
  llvm.br ^done(%granted : i1)
^done(%is: i1):
  llvm.return %is : i1
}}"""
"""The function that asks Linux for tile registers, and remembers that they are given."""
_ASK = f"""\
  %given = llvm.call @{_REQUESTING}() : () -> i1
  llvm.cond_br %given, ^run, ^refused
^refused:
  %one = llvm.mlir.constant(1 : i32) : i32
  llvm.return %one : i32
^run:"""
_ATTRIBUTES = f"{{llvm.align = {ALIGNMENT} : i64, llvm.noalias, llvm.noundef}}"


def address_text(entry: str) -> str:
    """The function that returns the address of an entry."""
    return (
        f"llvm.func @{entry}{ADDRESS}() -> !llvm.ptr {{\n"
        f"  %address = llvm.mlir.addressof @{entry} : !llvm.ptr\n"
        "  llvm.return %address : !llvm.ptr\n}"
    )


def request_lines() -> list[str]:
    """Lines that begin an entry that needs tile registers, beside :data:`REQUEST_TEXT`."""
    return _ASK.splitlines()


def kernel_types(shapes: Sequence[Shape]) -> list[str]:
    """Types of the arguments of ``@kernel`` in LLVM's dialect, for memrefs of these shapes."""
    return [
        kind for shape in shapes for kind in ["!llvm.ptr"] * 2 + ["i64"] * (1 + 2 * len(shape))
    ]


def entry_text(shapes: Sequence[Shape], *, asks_for_tiles: bool = False) -> str:
    """A module in LLVM's dialect that calls ``@kernel``.

    Args:
        shapes: Of the arguments, in order; they are arrays in row-major order.
        asks_for_tiles: Whether it asks Linux for the tile registers of AMX before the first call,
            and returns 1 where they are refused.
    """
    lines = ["  %zero = llvm.mlir.constant(0 : i32) : i32"]
    if asks_for_tiles:
        lines += request_lines()
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
            *(REQUEST_TEXT.splitlines() if asks_for_tiles else ()),
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
