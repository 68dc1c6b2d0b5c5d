"""Functions that are called from outside, as native calls are made: ``int run(void **arrays)``.

Arrays are in the workload's order; 0 stands for success.
"""

from __future__ import annotations

__all__ = ["ADDRESS", "ENTRY", "KERNEL", "call_text", "entry_text"]

KERNEL = "kernel"
"""The function of a program, by the name that it has in the text."""

ENTRY = "run"
"""``int run(void **arrays)``, which returns 0."""

ADDRESS = "_address"
"""Ends the name of the function that returns the address of an entry: the JIT compiler tells
addresses of wrappers only."""


def call_text(name: str, arrays: int, others: tuple[str, ...] = ()) -> str:
    """The call of a function of the addresses of all arrays and of integers."""
    given = [*(f"%array{number}" for number in range(arrays)), *others]
    kinds = ", ".join(["!llvm.ptr"] * arrays + ["i64"] * len(others))
    return f"llvm.call @{name}({', '.join(given)}) : ({kinds}) -> ()"


def entry_text(entry: str, called: str, arrays: int, attributes: str = "") -> str:
    """An entry that calls a function of so many addresses, and what returns the entry's own."""
    lines = [
        line
        for number in range(arrays)
        for line in (
            f"  %at{number} = llvm.getelementptr %arrays[{number}] "
            ": (!llvm.ptr) -> !llvm.ptr, !llvm.ptr",
            f"  %array{number} = llvm.load %at{number} : !llvm.ptr -> !llvm.ptr",
        )
    ]
    lines += [f"  {call_text(called, arrays)}", "  %zero = llvm.mlir.constant(0 : i32) : i32"]
    body = "\n".join([*lines, "  llvm.return %zero : i32"])
    return (
        f"llvm.func @{entry}(%arrays: !llvm.ptr) -> i32{attributes} {{\n{body}\n}}\n"
        f"llvm.func @{entry}{ADDRESS}() -> !llvm.ptr {{\n"
        f"  %address = llvm.mlir.addressof @{entry} : !llvm.ptr\n"
        "  llvm.return %address : !llvm.ptr\n}"
    )
