"""Candidates as MLIR: loop nests that are printed, and what brings them into LLVM's dialect."""

from __future__ import annotations

from attrs import frozen

from autotune.backends import BuildFailed, BuildRequest, InvalidSchedule
from autotune.backends.native.backend import check_instructions
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.lower import Program, print_candidate
from autotune.sketches import is_default
from autotune_mlir import bindings, host
from autotune_mlir.compiler import Lowered, digest_of
from autotune_mlir.entry import ENTRY
from autotune_mlir.lowering import PRINTED
from autotune_mlir.parsing import brief, here, parse_payload
from autotune_mlir.printer import MLIREmitter

__all__ = ["Printed", "is_printed", "lower_printed", "print_request"]

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


def lower_printed(printed: Printed) -> Lowered:
    """Bring a printed program into LLVM's dialect.

    Raises:
        BuildFailed: a pass rejected it.
    """
    module = parse_payload(printed.text)
    with here(module.context) as ir:
        try:
            bindings.load().passmanager.PassManager.parse(PRINTED).run(module.operation)
        except ir.MLIRError as error:
            raise BuildFailed(brief(error)) from error
    return Lowered(module, printed.threads, printed.digest, printed.entries)
