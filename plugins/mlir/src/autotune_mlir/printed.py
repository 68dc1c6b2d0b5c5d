"""Candidates as MLIR: loop nests that are printed, and what brings them into LLVM's dialect."""

from __future__ import annotations

from attrs import frozen

from autotune.backends import ALIGNMENT, BuildFailed, BuildRequest, InvalidSchedule
from autotune.backends.native.backend import check_instructions
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.lower import Program, print_candidate
from autotune.sketches import is_default
from autotune_mlir import bindings, host
from autotune_mlir.compiler import Lowered, digest_of
from autotune_mlir.entry import ENTRY, REQUEST_TEXT, address_text, request_lines
from autotune_mlir.lowering import PRINTED
from autotune_mlir.parsing import brief, here, parse_payload
from autotune_mlir.printer import MLIREmitter

__all__ = ["WHOLE", "Printed", "is_printed", "lower_printed", "print_request", "whole_text"]

WHOLE = "whole"
"""``int whole(void **arrays)`` of inputs and outputs alone: it makes scratch memory and packs
constants in every call, and returns 1 where there is no memory, or tile registers are refused."""

_FLOAT_BYTES = 4


@frozen(eq=False)
class Printed:
    """A candidate's program.

    Attributes:
        program: What was printed.
        threads: Threads that its parallel loops use.
    """

    program: Program
    threads: int

    @property
    def text(self) -> str:
        """The module."""
        return str(self.program.text)

    @property
    def entries(self) -> tuple[str, ...]:
        """The functions that are called, in order: what packs constants, and the program."""
        return (*(entry for entry, _, _ in self.program.packed), ENTRY)

    @property
    def digest(self) -> str:
        """Of its text: programs with one digest are one program."""
        return digest_of(self.text)


def is_printed(request: BuildRequest) -> bool:
    """Return whether a request's program is printed from its nest."""
    return not (request.candidate is None or is_default(request.candidate))


def print_request(request: BuildRequest) -> Printed:
    """Print the loop nest of a request's candidate.

    Raises:
        InvalidSchedule: its steps or values give no nest that can be printed, or it calls an
            instruction that the processor lacks.
    """
    assert request.candidate is not None
    check_instructions(request.candidate, request.target)
    emitter = MLIREmitter(threads=request.threads, disabled=host.disabled_features(request.target))
    width = max(1, request.target.vector_bytes // _FLOAT_BYTES)
    try:
        program = print_candidate(request.candidate, emitter, width)
    except (InvalidValueError, UnsupportedWorkload) as error:
        raise InvalidSchedule(str(error)) from error
    return Printed(program, request.threads)


def lower_printed(printed: Printed, *, whole: bool = False) -> Lowered:
    """Bring a printed program into LLVM's dialect.

    Args:
        printed: The program.
        whole: Whether its only entry is to be :data:`WHOLE`.

    Raises:
        BuildFailed: a pass rejected it.
    """
    text, entries = printed.text, printed.entries
    if whole:
        text, entries = f"{text.rstrip()[:-1]}{whole_text(printed)}\n}}\n", (WHOLE,)
    module = parse_payload(text)
    with here(module.context) as ir:
        try:
            bindings.load().passmanager.PassManager.parse(PRINTED).run(module.operation)
        except ir.MLIRError as error:
            raise BuildFailed(brief(error)) from error
    tiles = whole and printed.program.uses_tiles
    return Lowered(module, printed.threads, printed.digest, tiles, entries)


def whole_text(printed: Printed) -> str:
    """The function :data:`WHOLE` of a program, which calls its entries."""
    program = printed.program
    arrays = len(program.inputs) + len(program.outputs)
    places: list[int | None] = [None] * arrays
    size = ALIGNMENT
    for place in program.scratch:
        places.append(size)
        own = -(-place.bytes // ALIGNMENT) * ALIGNMENT
        # A line between two buffers: of equal sizes, they would share all their cache sets.
        size += own * (printed.threads if place.depth else 1) + ALIGNMENT
    asks = request_lines() if program.uses_tiles else []
    lines = [
        *asks,
        f"%count = arith.constant {len(places)} : i64",
        f"%line = arith.constant {ALIGNMENT} : i64",
        f"%size = arith.constant {size} : i64",
        "%memory = llvm.call @aligned_alloc(%line, %size) : (i64, i64) -> !llvm.ptr",
        "%null = llvm.mlir.zero : !llvm.ptr",
        '%none = llvm.icmp "eq" %memory, %null : !llvm.ptr',
        "%addresses = llvm.alloca %count x !llvm.ptr : (i64) -> !llvm.ptr",
    ]
    at = "(!llvm.ptr) -> !llvm.ptr"
    for number, offset in enumerate(places):
        if offset is None:
            lines += [
                f"%at{number} = llvm.getelementptr %arrays[{number}] : {at}, !llvm.ptr",
                f"%a{number} = llvm.load %at{number} : !llvm.ptr -> !llvm.ptr",
            ]
        else:
            lines.append(f"%a{number} = llvm.getelementptr %memory[{offset}] : {at}, i8")
        lines += [
            f"%to{number} = llvm.getelementptr %addresses[{number}] : {at}, !llvm.ptr",
            f"llvm.store %a{number}, %to{number} : !llvm.ptr, !llvm.ptr",
        ]
    lines += ["%status = scf.if %none -> (i32) {", "%lacking = arith.constant 1 : i32"]
    lines += ["scf.yield %lacking : i32", "} else {"]
    lines += [
        f"%s{number} = llvm.call @{entry}(%addresses) : (!llvm.ptr) -> i32"
        for number, entry in enumerate(printed.entries)
    ]
    lines += [
        "llvm.call @free(%memory) : (!llvm.ptr) -> ()",
        f"scf.yield %s{len(printed.entries) - 1} : i32",
        "}",
        "llvm.return %status : i32",
    ]
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"{REQUEST_TEXT if program.uses_tiles else ''}\n"
        "llvm.func @aligned_alloc(i64, i64) -> !llvm.ptr\n"
        "llvm.func @free(!llvm.ptr)\n"
        f"llvm.func @{WHOLE}(%arrays: !llvm.ptr) -> i32 {{\n{body}\n}}\n"
        f"{address_text(WHOLE)}"
    )
