"""The backend: a candidate's loop nest, printed and compiled in this process."""

from __future__ import annotations

import math
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.backends.backend import (
    Backend,
    BuildRequest,
    Executable,
    ImportedProgram,
    InvalidSchedule,
    LoweredProgram,
)
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune.sketches import (
    GPU_STEP_NAMES,
    STEP_TYPES,
    Candidate,
    Sketch,
    Tensorize,
    is_default,
)
from autotune.sketches.intrinsics import find_intrinsic
from autotune.sketches.limits import ScheduleLimits
from autotune.targets import Target, check_is_x86_64, check_runs_here
from autotune.targets.processors import masked_bytes_of

if TYPE_CHECKING:
    from autotune.lower import Program
    from autotune.lower.emitter import Emitter

__all__ = [
    "NativeBackend",
    "candidate_of",
    "check_instructions",
    "missing_features",
    "nest_limits",
    "printed_nest",
]

# Tiles on the stack are vectors in registers, or spilled from them.
_TILE_BYTES = 1 << 16

# Of fully unrolled code: what LLVM compiles within a second.
_UNROLLED_STATEMENTS = 512

_FLOAT_BYTES = 4


class NativeBackend(Backend):
    """Loop nests as LLVM IR, on x86-64 CPUs; needs no compiler but llvmlite's."""

    name = "native"
    version = "1"
    worker_modules = (
        *("autotune.backends.native.executable", "autotune.backends.native.machine_code"),
        *("autotune.lower.llvm_ir", "autotune.lower.walk", "cattrs.gen"),
    )

    def compiler_version(self) -> str:
        """The version of llvmlite, which has LLVM in it."""
        return f"llvmlite {metadata.version('llvmlite')}"

    def check_target(self, target: Target) -> None:
        """Raises UnsupportedTarget unless ``target`` is an x86-64 CPU."""
        check_is_x86_64(target, self.name)

    def check_measuring(self, target: Target, threads: int = 1) -> None:
        """Raises UnsupportedTarget where this machine lacks a feature of the target."""
        self.check_target(target)
        check_runs_here(target, self.name)

    def limits(self, target: Target) -> ScheduleLimits:
        """The limits of what is printed: all that the loop nest of a CPU has.

        Raises:
            UnsupportedTarget: the backend cannot compile for ``target``.
        """
        self.check_target(target)
        return nest_limits(self.name)

    def worker_environment(self, threads: int) -> dict[str, str]:
        """Nothing: threads are given to the program."""
        return {}

    def warm_up(self) -> None:
        """Import LLVM and compile one small function, which initialises it."""
        from autotune.backends.native.machine_code import compile_text

        target = Target(kind="cpu", name="warm-up", processor="x86-64")
        compile_text("define i32 @run() {\n  ret i32 0\n}\n", target)

    def imports(self, program: object) -> bool:
        """No program is of this backend's own kind: workloads are what it prints."""
        return False

    def import_program(self, program: object) -> ImportedProgram:
        """Raises UnsupportedWorkload: programs are read by importers."""
        raise UnsupportedWorkload(
            f"backend 'native' prints workloads, and reads no {type(program).__name__}"
        )

    def least_untuned(self, workload: Workload) -> float:
        """From the additions of floats in it that wait for one another."""
        return serial_seconds(workload)

    def lower(self, request: BuildRequest) -> LoweredProgram:
        """Print the candidate's loop nest.

        Raises:
            InvalidSchedule: its steps or values give no nest that can be printed.
            UnsupportedTarget: it is no x86-64 CPU.
        """
        from autotune.backends.native.machine_code import digest_of
        from autotune.lower import LLVMEmitter

        self.check_target(request.target)
        emitter = LLVMEmitter(masked_bytes=masked_bytes_of(request.target.features))
        program = printed_nest(candidate_of(request), request.target, emitter)
        target = f"{request.target.processor} {sorted(request.target.features)}"
        return LoweredProgram(request, program, digest_of(f"{target}\n{program.text}".encode()))

    def compile(self, lowered: LoweredProgram) -> Executable:
        """Compile with LLVM, unless this program was compiled before.

        Raises:
            BuildFailed: LLVM rejected the program.
        """
        from autotune.backends.native.executable import Layout, NativeExecutable
        from autotune.backends.native.machine_code import load_object, object_of

        request, program = lowered.request, lowered.program
        layout = Layout.of(program, request.workload)
        made = object_of(program.text, request.target, quick=request.quick)
        code = load_object(made, layout.entries)
        return NativeExecutable(code, layout, request.workload, request.threads)

    def load_program(self, request: BuildRequest, path: Path) -> Executable:
        """Load what an executable has exported.

        Raises:
            BuildFailed: the file is no such program, or cannot be loaded here.
        """
        from autotune.backends.native.executable import read_program

        return read_program(path, request.workload, request.threads)

    def show(self, request: BuildRequest) -> str:
        """The program as LLVM IR.

        Raises:
            InvalidSchedule: it cannot be printed.
        """
        return str(self.lower(request).program.text)

    def diagnose(self) -> list[tuple[str, str, str]]:
        """The place where compiled programs are kept: label, status, message."""
        from autotune.backends.native.machine_code import object_cache_findings

        return object_cache_findings()


def nest_limits(backend: str) -> ScheduleLimits:
    """Limits of a backend that prints nests: the same on every CPU, all that the nest has.

    Of instructions, the space takes those whose declaration names an implementation for it.
    """
    return ScheduleLimits(
        steps=frozenset(STEP_TYPES) - GPU_STEP_NAMES,
        stack_bytes=_TILE_BYTES,
        unrolled_statements=_UNROLLED_STATEMENTS,
        source=f"backend {backend}",
        backend=backend,
        runs_nests=True,
    )


def printed_nest(candidate: Candidate, target: Target, emitter: Emitter) -> Program:
    """The program of a candidate, printed for a CPU.

    Raises:
        InvalidSchedule: its steps or values give no nest that can be printed, or it calls an
            instruction that the processor lacks.
    """
    from autotune.lower import print_candidate

    check_instructions(candidate, target)
    try:
        return print_candidate(candidate, emitter, max(1, target.vector_bytes // _FLOAT_BYTES))
    except (InvalidValueError, UnsupportedWorkload) as error:
        raise InvalidSchedule(str(error)) from error


def check_instructions(candidate: Candidate, target: Target) -> None:
    """Check that a processor has what a candidate calls: LLVM ends the process where it has not.

    Raises:
        InvalidSchedule: an instruction is missing.
    """
    for name, missing in missing_features(candidate, target.features).items():
        raise InvalidSchedule(
            f"instruction {name!r} needs {', '.join(missing)}, which {target.name!r} lacks"
        )


def missing_features(
    candidate: Candidate, features: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Features of a CPU that instructions of a candidate need and ``features`` lack, by each."""
    names = [it.intrinsic for it in candidate.sketch.core_steps if isinstance(it, Tensorize)]
    needed = {name: find_intrinsic(name).features for name in names}
    missing = {
        name: tuple(it for it in each if it not in features) for name, each in needed.items()
    }
    return {name: lacking for name, lacking in missing.items() if lacking}


def candidate_of(request: BuildRequest) -> Candidate:
    """The schedule of a request; without one, loops over the axes as the workload has them.

    Raises:
        InvalidSchedule: it is the default schedule, which this backend has none of.
    """
    if request.candidate is None:
        return Candidate(Sketch("untuned", request.workload, (), (), ()), ())
    if is_default(request.candidate):
        raise InvalidSchedule("backend 'native' has no default schedule")
    return request.candidate


SECONDS_PER_ADDITION = 0.3e-9
"""An addition of floats that waits for the last one takes two cycles or more on every x86-64
processor, and none has more than six and a half billion cycles a second."""

LEAST_IN_SUM = 256
"""Of fewer, a compiler may unroll all loops of a sum; it can then vectorise those around it."""


def serial_seconds(workload: Workload, others: Collection[str] = ()) -> float:
    """Seconds that a call of the program made from a workload takes at least; 0.0 if not known.

    The loops of a sum are the innermost ones there, and compilers have no leave to reorder it.

    Args:
        workload: The workload.
        others: Names of stages of which a program has other loops.
    """
    sums = [
        stage
        for stage in workload.stages
        if stage.name not in others
        and stage.combiner == "add"
        and stage.output.element.is_float
        and math.prod(axis.extent for axis in stage.reduce_axes) >= LEAST_IN_SUM
    ]
    return SECONDS_PER_ADDITION * sum(stage.points for stage in sums)
