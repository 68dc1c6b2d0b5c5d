"""The backend: candidates become scripts of MLIR's Transform dialect, compiled by LLVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from autotune.backends import (
    Backend,
    BuildRequest,
    Executable,
    ExportReport,
    ImportedProgram,
    InvalidSchedule,
    LoweredProgram,
    ProgramFile,
    park_threads,
)
from autotune.errors import UnknownNameError, UnsupportedWorkload
from autotune.sketches import Prepack, is_default, is_prepackable
from autotune.sketches.limits import ScheduleLimits
from autotune.store.records import Record
from autotune.targets import Target
from autotune_mlir import code_generation, compiler, host, openmp, versions
from autotune_mlir.limits import LIMITS
from autotune_mlir.lowering import DEFAULT_SCHEDULE
from autotune_mlir.networks.function import ModuleFunction
from autotune_mlir.printed import Printed, is_printed, lower_printed, print_request
from autotune_mlir.scripted import program_of, schedule_of, scheduled_text

__all__ = ["MLIRBackend"]

_FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "transform-library": "a file of schedules as named sequences of the Transform dialect, "
        "as mlir-opt takes them, with their programs beside it",
        "object": "an object file with a C function for every record, and its header",
        "shared-library": "a shared library with a C function for every record, and its header",
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
    """MLIR's linalg on tensors, scheduled by the Transform dialect, on x86-64 CPUs.

    A candidate's steps become a script that is applied to the imported program, or to one made
    from the workload where nothing was imported. LLVM compiles it in this process, for the
    features of this machine that the target has.
    """

    name = "mlir"
    version = "12"
    default_schedule = DEFAULT_SCHEDULE

    def compiler_version(self) -> str:
        """Name and version of MLIR's distribution.

        Raises:
            BindingsMissing: none is installed.
        """
        return versions.compiler_version()

    def check_target(self, target: Target) -> None:
        """Raises UnsupportedTarget unless ``target`` is an x86-64 CPU."""
        host.check_target(target)

    def check_measuring(self, target: Target, threads: int = 1) -> None:
        """Raises UnsupportedTarget unless this machine can run such programs.

        It needs the target's features, and an OpenMP runtime for more than one thread.
        """
        host.check_measuring(target, threads)

    def limits(self, target: Target) -> ScheduleLimits:
        """What is printed.

        Raises:
            UnsupportedTarget: the backend cannot compile for ``target``.
        """
        host.check_target(target)
        return LIMITS

    def worker_environment(self, threads: int) -> dict[str, str]:
        """The settings that the OpenMP runtime reads when it is loaded."""
        return openmp.worker_environment(threads)

    def park(self) -> None:
        """Wait until the threads of OpenMP, which watch for work for a while, are asleep."""
        park_threads()

    def warm_up(self) -> None:
        """Import MLIR and compile one small function, which initialises LLVM."""
        code_generation.generate(compiler.lower(_WARM_UP, None, threads=1))

    def imports(self, program: object) -> bool:
        """Whether ``program`` is MLIR: a file, a module, or a function of one."""
        if isinstance(program, ModuleFunction):
            return True
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
        if isinstance(program, ModuleFunction):
            return program.as_program()
        from autotune_mlir.importing.importer import import_program

        return ImportedProgram(*import_program(program))

    def lower(self, request: BuildRequest) -> LoweredProgram:
        """Apply the candidate's script and run MLIR's passes.

        What packs constants ahead, as the candidate says, becomes programs of its own.

        Raises:
            InvalidSchedule: a step cannot be applied.
            BuildFailed: one of MLIR's passes rejected the scheduled program.
            UnsupportedTarget: this machine cannot run programs for the target.
        """
        host.check_measuring(request.target, request.threads)
        if is_printed(request):
            printed = print_request(request)
            return LoweredProgram(request, printed, printed.digest)
        lowered = self._scripted(request, _packed_positions(request))
        return LoweredProgram(request, lowered, lowered.digest)

    def _lower_whole(self, request: BuildRequest) -> compiler.Lowered:
        """As :meth:`lower`; the program packs its constants in every call."""
        host.check_measuring(request.target, request.threads)
        if is_printed(request):
            return lower_printed(print_request(request), whole=True)
        return self._scripted(request, ())

    def _scripted(self, request: BuildRequest, packed: Sequence[int]) -> compiler.Lowered:
        return compiler.lower(
            program_of(request.workload, request.program, request.candidate),
            schedule_of(request),
            threads=request.threads,
            disabled=host.disabled_features(request.target),
            by_default=is_default(request.candidate),
            packed=packed,
            vectors=host.vector_instructions(request.target),
        )

    def compile(self, lowered: LoweredProgram) -> Executable:
        """Compile with LLVM.

        Raises:
            BuildFailed: LLVM rejected the program.
        """
        from autotune.backends.native.executable import Layout, NestExecutable
        from autotune_mlir.executable import MLIRExecutable, PackedOperand

        request = lowered.request
        if isinstance(lowered.program, Printed):
            code = code_generation.generate(lower_printed(lowered.program))
            layout = Layout.of(lowered.program.program, request.workload)
            return NestExecutable(code, layout, request.workload, request.threads)
        made: compiler.Lowered = lowered.program
        packers = [
            PackedOperand(it.position, it.shape, code_generation.generate(it.program))
            for it in made.packers
        ]
        return MLIRExecutable(code_generation.generate(made), request.workload, packers)

    def show(self, request: BuildRequest) -> str:
        """The program as MLIR's text, before the passes that lower it.

        Of its default pipeline, which consists of passes, it is the text after the first of them.

        Raises:
            InvalidSchedule: a step cannot be applied.
        """
        if is_printed(request):
            return print_request(request).text
        return scheduled_text(request)

    def diagnose(self) -> list[tuple[str, str, str]]:
        """Findings on the installation: label, status, message."""
        from autotune_mlir.doctor import findings

        return findings()

    def export_formats(self) -> Mapping[str, str]:
        """Formats that other tools read."""
        return _FORMATS

    def export_records(self, records: Iterable[Record], format: str, path: Path) -> ExportReport:
        """Write records into a file, and what belongs to it beside it.

        Raises:
            UnknownNameError: there is no such format.
            InvalidValueError: the file cannot be written.
            CompilerMissing: functions are to be linked, and there is no C compiler.
        """
        if format not in _FORMATS:
            raise UnknownNameError("export format", format, _FORMATS)
        from autotune_mlir.export import export

        return export(records, format, path, self._lower_whole)


def _packed_positions(request: BuildRequest) -> list[int]:
    """Positions of the inputs that a candidate's program takes packed.

    Raises:
        InvalidSchedule: one is no constant that only its stage reads.
    """
    workload, candidate = request.workload, request.candidate
    steps = () if candidate is None else candidate.sketch.core_steps
    names = [tensor.name for tensor in workload.inputs]
    positions = []
    for step in steps:
        if isinstance(step, Prepack):
            if not is_prepackable(workload, workload.stage(step.stage), step.operand):
                raise InvalidSchedule(
                    f"{step}: it is no constant that only this stage reads, once"
                )
            positions.append(names.index(step.operand))
    return positions
