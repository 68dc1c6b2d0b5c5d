"""The backend: candidates become TVM schedules, compiled by LLVM, or by NVRTC or nvcc."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import frozen

from autotune.backends import (
    Backend,
    BuildRequest,
    CudaExecutable,
    Executable,
    ExportReport,
    ForeignSchedules,
    ImportedProgram,
    LoweredProgram,
    cubin_architecture,
    find_cuda_compiler,
    park_threads,
    serial_seconds,
)
from autotune.backends.cuda import measuring
from autotune.errors import UnsupportedTarget
from autotune.ir.workloads import Workload
from autotune.ir.workloads import gemm as _gemm
from autotune.sketches.limits import ScheduleLimits
from autotune.sketches.steps import GPU_STEP_NAMES, STEP_TYPES
from autotune.store.records import Record
from autotune.targets import Target, check_runs_here
from autotune_tvm import compiler, runtime
from autotune_tvm.compiler import module_digest
from autotune_tvm.default_schedule import DEFAULT_SCHEDULE
from autotune_tvm.executable import PackedOperand, TVMExecutable
from autotune_tvm.scheduled import scheduled_module

__all__ = ["TVMBackend", "argument_names_of"]

# An accumulate tile becomes a buffer of constant size. TVM keeps it on the stack below 1024 bytes
# (its kMaxStackAlloca) and otherwise takes it from a pool of workspaces on the heap, one pool a
# thread, so that no tile overflows a stack: the limit is the largest that was tried and was right.
_TILE_BYTES = 1 << 20

# LLVM's time grows with the square of the unrolled statements. A GEMM tile takes 0.1 s with 64 of
# them, 0.35 s with 512, 1.8 s with 2048, 5 s with 4096 and 78 s with 16384.
_UNROLLED_STATEMENTS = 512

# A thread of a GPU has at most 255 registers of 4 bytes; what is larger is never kept in them.
_THREAD_REGISTER_BYTES = 1020

_FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "metaschedule": "a folder with a JSON database of TVM's MetaSchedule, "
        "as tuning writes and MetaScheduleApplyDatabase takes it"
    }
)

_CPU_STEPS = (
    *("bound_loop", "chunk_scan", "parallel", "interleave", "prepack", "prefetch"),
    *("software_pipeline", "stream", "tensorize"),
)


class TVMBackend(Backend):
    """Apache TVM's TensorIR on x86-64 CPUs and CUDA devices.

    For CPUs the loop nest is printed as TIR. For GPUs steps are replayed with
    ``tvm.s_tir.Schedule`` on a function made from the workload, as are whole schedules of TVM's
    own. An imported function is what runs untuned.
    """

    name = "tvm"
    version = "3"
    default_schedule = DEFAULT_SCHEDULE
    fallback_space = "trace"
    device_kinds = frozenset({"cuda"})

    def compiler_version(self) -> str:
        """Versions of TVM and of its FFI layer."""
        return compiler.compiler_version()

    def compiler_version_for(self, target: Target) -> str:
        """On GPUs with what makes machine code of TVM's source, and whether by fast math."""
        version = self.compiler_version()
        if target.kind != "cuda":
            return version
        return f"{version}, {measuring.compiler_described()}"

    def check_target(self, target: Target) -> None:
        """Raises UnsupportedTarget unless ``target`` is an x86-64 CPU or a current CUDA GPU."""
        compiler.check_target(target)

    def check_measuring(self, target: Target, threads: int = 1) -> None:
        """Raises UnsupportedTarget unless programs for ``target`` can be run here."""
        compiler.check_target(target)
        if target.kind == "cuda":
            measuring.check_cuda(target)
        else:
            check_runs_here(target, self.name)

    def limits(self, target: Target) -> ScheduleLimits:
        """Limits of the printer; the numbers are explained where they are defined.

        Raises:
            UnsupportedTarget: the backend cannot compile for ``target``.
        """
        compiler.check_target(target)
        on_gpu = target.kind == "cuda"
        return ScheduleLimits(
            steps=frozenset(STEP_TYPES) - set(_CPU_STEPS if on_gpu else GPU_STEP_NAMES),
            stack_bytes=_THREAD_REGISTER_BYTES if on_gpu else _TILE_BYTES,
            unrolled_statements=_UNROLLED_STATEMENTS,
            source="backend tvm",
            backend="" if on_gpu else self.name,
            runs_nests=not on_gpu,
        )

    def worker_environment(self, threads: int) -> dict[str, str]:
        """The thread settings that TVM reads when it starts its pool."""
        return {"TVM_NUM_THREADS": str(threads), **runtime.WORKER_ENVIRONMENT}

    def park(self) -> None:
        """Wait until the threads of TVM's pool, which watch for work for a while, are asleep."""
        park_threads()

    def warm_up(self) -> None:
        """Import TVM and compile one small function, which initialises LLVM."""
        runtime.load()
        from autotune_tvm.emit import module_for

        target = Target(kind="cpu", name="warm-up", processor="x86-64")
        compiler.compile_module(module_for(_gemm(m=2, n=2, k=2)), target, 1)

    def imports(self, program: object) -> bool:
        """Return whether ``program`` is a TVM function or module."""
        kind = type(program)
        return kind.__module__.split(".")[0] == "tvm" and kind.__name__ in ("PrimFunc", "IRModule")

    def import_program(self, program: object) -> ImportedProgram:
        """Understand a ``PrimFunc`` or an ``IRModule`` with one.

        Raises:
            UnsupportedWorkload: names the block that cannot be expressed, and why.
        """
        from autotune_tvm import importer

        workload, module = importer.import_module(program)
        least = importer.least_seconds(importer.callable_module(module)["main"])
        return ImportedProgram(workload, importer.text_of(module), least)

    def least_untuned(self, workload: Workload) -> float:
        """From the additions of floats in it that wait for one another."""
        return serial_seconds(workload)

    def lower(self, request: BuildRequest) -> LoweredProgram:
        """Print the candidate's loop nest, or replay its steps, and run TVM's passes.

        What packs constants ahead, as the candidate says, becomes functions of its own.

        Raises:
            InvalidSchedule: a step cannot be applied, or the nest not be printed.
            BuildFailed: one of TVM's passes rejected the scheduled program.
            UnsupportedTarget: the target is neither an x86-64 CPU nor a current CUDA GPU.
        """
        compiler.check_target(request.target)
        module, packed = _module_of(request)
        if request.target.kind == "cuda":
            from autotune_tvm import cuda_code

            kernels = cuda_code.lower_kernels(module, request.target)
            return LoweredProgram(request, kernels, module_digest(kernels.kernels))
        module = compiler.lower_module(module, request.target, request.threads)
        return LoweredProgram(request, _Lowered(module, packed), module_digest(module))

    def compile(self, lowered: LoweredProgram) -> Executable:
        """Compile with LLVM; for a GPU with NVRTC or nvcc, by way of CUDA source.

        Raises:
            BuildFailed: the compiler rejected the program.
            NoCudaCompiler: there is no compiler for CUDA source.
        """
        request = lowered.request
        if request.target.kind == "cuda":
            return _cuda_executable(lowered)
        made: _Lowered = lowered.program
        # Arguments are checked when they are bound. In each call it would be done again, by up to
        # half of the code of a small program; what only others call, such as servers, keeps it.
        unchecked = compiler.without_checks(made.module)
        built, digest = compiler.generate_code(unchecked, request.target, request.threads)
        names = argument_names_of(request)
        return TVMExecutable(built, request.workload, names, request.threads, digest, made.packed)

    def load_program(self, request: BuildRequest, path: Path) -> Executable:
        """Load a program that another process has compiled; needs TVM's runtime only.

        Raises:
            BuildFailed: the file is no program of this backend, or cannot be loaded here.
        """
        from autotune_tvm.artefact import read_program

        module, stored = read_program(path)
        workload, threads = request.workload, request.threads
        return TVMExecutable(
            module, workload, stored.arguments, threads, stored.digest, stored.packed
        )

    def show(self, request: BuildRequest) -> str:
        """The program as TVMScript: printed, or as TVM schedules it.

        Raises:
            InvalidSchedule: a step cannot be applied, or the nest not be printed.
        """
        return str(_module_of(request)[0].script())

    def cuda_source(self, request: BuildRequest) -> str:
        """CUDA source of the scheduled program; needs neither a device nor a CUDA compiler.

        Raises:
            InvalidSchedule: a step cannot be applied.
            BuildFailed: TVM rejected the scheduled program.
            UnsupportedTarget: the target is no GPU that CUDA toolkits compile for.
        """
        compiler.check_target(request.target)
        if request.target.kind != "cuda":
            raise UnsupportedTarget(f"target {request.target.name!r} is no CUDA GPU")
        from autotune_tvm import cuda_code

        kernels = cuda_code.lower_kernels(scheduled_module(request), request.target)
        return cuda_code.cuda_source(kernels, request.target)

    def export_formats(self) -> Mapping[str, str]:
        """The format of TVM's own tuner, whose passes then apply our schedules."""
        return _FORMATS

    def export_records(self, records: Iterable[Record], format: str, path: Path) -> ExportReport:
        """Write records as a JSON database of MetaSchedule, in a folder.

        Raises:
            UnknownNameError: there is no such format.
            InvalidValueError: the folder cannot be written to or has a database already, or the
                records are of several targets, thread counts or protocols.
        """
        if format not in _FORMATS:
            return super().export_records(records, format, path)
        runtime.load()
        from autotune_tvm import metaschedule

        return metaschedule.export(records, path)

    def import_formats(self) -> Mapping[str, str]:
        """The space of TVM's own tuner, whose traces become schedules of the space ``trace``."""
        return _FORMATS

    def import_records(self, format: str, path: Path, target: Target) -> ForeignSchedules:
        """Read a JSON database of MetaSchedule.

        Raises:
            UnknownNameError: there is no such format.
            InvalidValueError: the folder has no such database.
            UnsupportedTarget: the target is no CPU.
        """
        if format not in _FORMATS:
            return super().import_records(format, path, target)
        runtime.load()
        from autotune_tvm.trace.recorded import read_database

        return read_database(path, target)

    def diagnose(self) -> list[tuple[str, str, str]]:
        """Findings on the installation: label, status, message."""
        from autotune_tvm.doctor import findings

        return findings()


@frozen(eq=False)
class _Lowered:
    """A module before LLVM, and the parameters of ``main`` that are given packed."""

    module: Any
    packed: tuple[PackedOperand, ...]


def _module_of(request: BuildRequest) -> tuple[Any, tuple[PackedOperand, ...]]:
    """The module that is lowered, and the parameters of ``main`` that are given packed."""
    runtime.load()
    from autotune_tvm.printed import is_printable, printed_functions

    if is_printable(request):
        return printed_functions(request).module()
    return scheduled_module(request), ()


def _cuda_executable(lowered: LoweredProgram) -> CudaExecutable:
    from autotune_tvm import cuda_code

    target = lowered.request.target
    source = cuda_code.cuda_source(lowered.program, target)
    options = measuring.compiler_options()
    cubin = find_cuda_compiler().compile(source, cubin_architecture(target.processor), options)
    fast = measuring.fast_math()
    return CudaExecutable(lowered.program.program(cubin, fast_math=fast))


def argument_names_of(request: BuildRequest) -> tuple[str, ...]:
    """Names of the tensors in the order in which the compiled function takes them."""
    if request.program is not None:
        from autotune_tvm.importer import argument_names, module_from_text

        return argument_names(module_from_text(request.program))
    workload = request.workload
    return (*(tensor.name for tensor in workload.inputs), *workload.outputs)
