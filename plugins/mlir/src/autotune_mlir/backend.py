"""The backend: loop nests are printed as MLIR, and compiled by LLVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from autotune.backends import (
    Backend,
    BuildRequest,
    Executable,
    ExportReport,
    ImportedProgram,
    LoweredProgram,
    ProgramFile,
    park_threads,
)
from autotune.backends.native.backend import nest_limits, printed_nest
from autotune.errors import UnknownNameError, UnsupportedWorkload
from autotune.ir.element_types import ELEMENT_TYPES
from autotune.lower import Program
from autotune.sketches import is_default
from autotune.sketches.limits import ScheduleLimits
from autotune.store.records import Record
from autotune.targets import Target, check_is_x86_64
from autotune_mlir import compiler, host, openmp
from autotune_mlir.compiler import DEFAULT_SCHEDULE
from autotune_mlir.parsing import parse_payload
from autotune_mlir.printer import MLIREmitter

__all__ = ["LIMITS", "MLIRBackend"]

_FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "transform-library": "a file of schedules as named sequences of the Transform dialect, "
        "as mlir-opt takes them, with their programs beside it"
    }
)

_WARM_UP = """
func.func @kernel(%in: memref<4xf32>, %out: memref<4xf32>) {
  %array = bufferization.to_tensor %in restrict : memref<4xf32> to tensor<4xf32>
  %empty = tensor.empty() : tensor<4xf32>
  %sum = linalg.add ins(%array, %array : tensor<4xf32>, tensor<4xf32>)
    outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  bufferization.materialize_in_destination %sum in restrict writable %out
    : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}
"""


class MLIRBackend(Backend):
    """Loops, vectors and arithmetic of MLIR, on x86-64 CPUs.

    A candidate's loop nest is printed. Without a schedule, the imported program, or one of linalg
    that is made from the workload, is lowered by MLIR's own passes. LLVM compiles either in this
    process, for the features of this machine that the target has.
    """

    name = "mlir"
    version = "12"
    default_schedule = DEFAULT_SCHEDULE
    element_types = frozenset(ELEMENT_TYPES) - {"int16", "uint16", "uint32", "uint64"}

    def compiler_version(self) -> str:
        """Name and version of MLIR's distribution.

        Raises:
            BindingsMissing: none is installed.
        """
        return compiler.compiler_version()

    def check_target(self, target: Target) -> None:
        """Raises UnsupportedTarget unless ``target`` is an x86-64 CPU."""
        check_is_x86_64(target, self.name)

    def check_measuring(self, target: Target, threads: int = 1) -> None:
        """Raises UnsupportedTarget unless this machine can run such programs.

        It needs the target's features, and an OpenMP runtime for more than one thread.
        """
        host.check_measuring(target, threads)

    def limits(self, target: Target) -> ScheduleLimits:
        """Limits of the printer.

        Raises:
            UnsupportedTarget: the backend cannot compile for ``target``.
        """
        self.check_target(target)
        return LIMITS

    def worker_environment(self, threads: int) -> dict[str, str]:
        """The settings that the OpenMP runtime reads when it is loaded."""
        return openmp.worker_environment(threads)

    def park(self) -> None:
        """Wait until the threads of OpenMP, which watch for work for a while, are asleep."""
        park_threads()

    def warm_up(self) -> None:
        """Import MLIR and compile one small function, which initialises LLVM."""
        compiler.generate(compiler.lower(_WARM_UP, threads=1))

    def imports(self, program: object) -> bool:
        """Return whether ``program`` is MLIR: a file, a module, or a function of one."""
        if isinstance(program, ProgramFile):
            return program.format == "mlir"
        kind = type(program)
        if kind.__name__ == "Module":
            return kind.__module__.endswith("_mlir.ir")
        return kind.__name__ == "FuncOp" and kind.__module__.endswith("dialects.func")

    def import_program(self, program: object) -> ImportedProgram:
        """Understand a function of linalg operations on tensors.

        Raises:
            UnsupportedWorkload: names the operation that cannot be expressed, and why.
            InvalidValueError: the file cannot be read, or has several functions.
            UnknownNameError: the file has no function of the name that was given.
        """
        if not self.imports(program):
            kind = type(program).__name__
            raise UnsupportedWorkload(f"backend 'mlir' understands MLIR only, not a {kind}")
        from autotune_mlir.importing.importer import import_program

        return ImportedProgram(*import_program(program))

    def lower(self, request: BuildRequest) -> LoweredProgram:
        """Print the candidate's loop nest; run MLIR's passes on a program without a schedule.

        Raises:
            InvalidSchedule: its steps or values give no nest that can be printed.
            BuildFailed: one of MLIR's passes rejected the program.
            UnsupportedTarget: this machine cannot run programs for the target.
        """
        host.check_measuring(request.target, request.threads)
        printed = _printed(request)
        if printed is not None:
            return LoweredProgram(request, printed, compiler.digest_of(printed.text))
        lowered = compiler.lower(
            _program(request),
            threads=request.threads,
            disabled=host.disabled_features(request.target),
            by_default=is_default(request.candidate),
        )
        return LoweredProgram(request, lowered, lowered.digest)

    def compile(self, lowered: LoweredProgram) -> Executable:
        """Compile with LLVM.

        Raises:
            BuildFailed: LLVM rejected the program.
        """
        from autotune.backends.native.executable import Layout, NestExecutable

        request, made = lowered.request, lowered.program
        layout = Layout((), (), uses_tiles=False)
        if isinstance(made, Program):
            layout = Layout.of(made, request.workload)
            made = compiler.lower_printed(
                made.text, threads=request.threads, entries=layout.entries
            )
        code = compiler.generate(made)
        return NestExecutable(code, layout, request.workload, request.threads)

    def show(self, request: BuildRequest) -> str:
        """The program as MLIR's text, before the passes that lower it.

        Of its default pipeline, which consists of passes, it is the text after the first of them.

        Raises:
            InvalidSchedule: its nest cannot be printed.
            BuildFailed: the imported program does not parse.
        """
        printed = _printed(request)
        if printed is not None:
            return str(printed.text)
        module = parse_payload(_program(request))
        if is_default(request.candidate):
            compiler.fuse_elementwise(module)
        return str(module)

    def diagnose(self) -> list[tuple[str, str, str]]:
        """Findings on the installation: label, status, message."""
        return host.findings()

    def export_formats(self) -> Mapping[str, str]:
        """The format of MLIR's own tools; `autotune export` writes machine code."""
        return _FORMATS

    def export_records(self, records: Iterable[Record], format: str, path: Path) -> ExportReport:
        """Write the schedules of records into a file, and their programs beside it.

        Raises:
            UnknownNameError: there is no such format.
            InvalidValueError: the file cannot be written.
        """
        if format not in _FORMATS:
            raise UnknownNameError("export format", format, _FORMATS)
        from autotune_mlir.transform_library import export

        return export(records, path)


def _program(request: BuildRequest) -> str:
    """The imported program, or one that is made from the workload."""
    from autotune_mlir.emit import payload

    return payload(request.workload) if request.program is None else request.program


def _printed(request: BuildRequest) -> Program | None:
    """The program of a candidate's nest; None of what MLIR's own passes lower.

    Raises:
        InvalidSchedule: its steps or values give no nest that can be printed, or it calls an
            instruction that the processor lacks.
    """
    if request.candidate is None or is_default(request.candidate):
        return None
    emitter = MLIREmitter(threads=request.threads, disabled=host.disabled_features(request.target))
    return printed_nest(request.candidate, request.target, emitter)


LIMITS = nest_limits("mlir")
"""The same on every CPU: all that the loop nest has."""
