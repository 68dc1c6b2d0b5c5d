"""From the text of a program to machine code in this process, by passes of MLIR and LLVM."""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from attrs import field, frozen
from numpy.typing import NDArray

from autotune.backends import ALIGNMENT, BuildFailed, NativeBoundCall, NativeCall
from autotune.errors import InvalidValueError
from autotune_mlir import bindings, openmp
from autotune_mlir.entry import ADDRESS, ENTRY, KERNEL, entry_text
from autotune_mlir.parsing import brief, here, kernel_of, new_context, operations_in, parse_payload
from autotune_mlir.rewrite import as_bits, rewrite

__all__ = [
    "DEFAULT_SCHEDULE",
    "Lowered",
    "OPT_LEVEL_VARIABLE",
    "digest_of",
    "fuse_elementwise",
    "generate",
    "lower",
    "lower_printed",
    "needs_openmp",
    "running",
]


@frozen(eq=False)
class Lowered:
    """A program in LLVM's dialect.

    Attributes:
        module: The ``ir.Module``.
        threads: Threads that its parallel loops use.
        digest: Of its text: programs with one digest are one program.
        entries: The functions that are called from outside.
    """

    module: Any
    threads: int
    digest: str
    entries: tuple[str, ...] = (ENTRY,)


def lower(
    payload: str,
    *,
    threads: int,
    disabled: Sequence[str] = (),
    by_default: bool = False,
) -> Lowered:
    """Bring a program into LLVM's dialect.

    Args:
        payload: Text of a module with the function ``@kernel``, of memrefs of constant shape.
        threads: Threads that parallel loops use.
        disabled: Features of this machine that the program must not use, by LLVM's names.
        by_default: Whether MLIR's own passes fuse operations and make loops parallel; see
            :data:`autotune_mlir.compiler.DEFAULT_SCHEDULE`.

    Raises:
        BuildFailed: the program does not parse, or a pass rejected it.
    """
    module = parse_payload(payload)
    bfloat16 = "bf16" in payload
    with running(module) as (ir, run):
        run(*(_FUSION if by_default else ()), *_CLEANUP)
        _unshare_fills(ir, module)
        run(*(text.replace("{loops}", str(by_default).lower()) for text in _BUFFERS))
        # A parallel loop is the scope of what its body puts on the stack, and an ordinary loop is
        # not: there every iteration would take more of it until the function returns. What is to
        # become an ordinary loop therefore does so before buffers get their places outside it.
        ordinary = ("func.func(scf-forall-to-for)",) if threads == 1 else ()
        run(*ordinary, *_PLACES, *_CLEANUP)
        rewrite(ir, module)
        kind = "parallel-loops" if by_default and threads > 1 else "loops"
        run(f"func.func(convert-linalg-to-{kind})", *_LOOPS, *_parallel(threads))
        run(*_to_llvm(threads, bfloat16))
        if bfloat16:
            module = ir.Module.parse(as_bits(str(module)))
        _add_entry(ir, module)
        _disable(ir, module, tuple(disabled))
    return Lowered(module, threads, digest_of(str(module)))


def lower_printed(text: str, *, threads: int, entries: Sequence[str]) -> Lowered:
    """Bring a program that was printed of a nest into LLVM's dialect.

    Raises:
        BuildFailed: a pass rejected it.
    """
    module = parse_payload(text)
    with running(module) as (_, run):
        run("convert-scf-to-cf", "convert-to-llvm")
    return Lowered(module, threads, digest_of(text), tuple(entries))


@contextmanager
def running(module: Any) -> Iterator[tuple[Any, Callable[..., None]]]:
    """Give the ``ir`` module of the bindings, and a function that runs passes on a module.

    Raises:
        BuildFailed: MLIR rejects what is done inside.
    """
    passes = bindings.load().passmanager.PassManager

    def run(*names: str) -> None:
        passes.parse(f"builtin.module({','.join(names)})").run(module.operation)

    with here(module.context) as ir:
        try:
            yield ir, run
        except ir.MLIRError as error:
            raise BuildFailed(brief(error)) from error


def fuse_elementwise(module: Any) -> None:
    """Fuse elementwise operations of an ``ir.Module``, as MLIR's default pipeline begins.

    Raises:
        BuildFailed: the pass rejected it.
    """
    with running(module) as (_, run):
        run(*_FUSION)


def _unshare_fills(ir: Any, module: Any) -> None:
    """Give every operation that starts from a filled tensor one of its own.

    MLIR puts a filled tensor where one of the results goes, and does not see that writing this
    result changes what the others start from.
    """
    for operation in list(operations_in(module.operation)):
        if operation.name != "linalg.fill" or not operation.results:
            continue
        for use in list(operation.results[0].uses)[1:]:
            around = use.owner.operation
            copy = operation.clone(ip=ir.InsertionPoint(around)).operation
            around.operands[use.operand_number] = copy.results[0]


def digest_of(text: str) -> str:
    """Of a program's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _add_entry(ir: Any, module: Any) -> None:
    """Give a lowered program its entry, the kernel's only caller; arrays are apart."""
    kernel = kernel_of(module)
    kinds = kernel.attributes["function_type"].value.inputs
    kernel.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
    kernel.attributes["arg_attrs"] = ir.Attribute.parse(f"[{', '.join([_ARRAY] * len(kinds))}]")
    declared = f"llvm.func @{KERNEL}({', '.join(map(str, kinds))})"
    callers = ir.Module.parse(f"{declared}\n{entry_text(ENTRY, KERNEL, len(kinds))}")
    for operation in list(callers.body.operations)[1:]:
        module.body.append(operation)


def _disable(ir: Any, module: Any, features: Sequence[str]) -> None:
    """Keep LLVM from using these features."""
    if not features:
        return
    listed = ", ".join(f'"-{feature}"' for feature in features)
    attribute = ir.Attribute.parse(f"#llvm.target_features<[{listed}]>")
    for operation in module.body.operations:
        if operation.operation.name == "llvm.func":
            operation.attributes["target_features"] = attribute


def needs_openmp(lowered: Lowered) -> bool:
    """Return whether a program has parallel loops, which call the OpenMP runtime."""
    return lowered.threads > 1 and "omp.parallel" in str(lowered.module)


DEFAULT_SCHEDULE = "MLIR's default pipeline"
"""Schedule that users of MLIR have without choosing one: its passes fuse elementwise operations,
and, for several threads, make loops parallel that carry nothing, which OpenMP then runs."""

_ARRAY = f"{{llvm.align = {ALIGNMENT} : i64, llvm.noalias, llvm.noundef}}"

_FUSION = ("func.func(linalg-fuse-elementwise-ops)",)

# Before bufferization, or what hoisting leaves behind is bufferized into copies between buffers
# with strides, for which there is no function to call.
_CLEANUP = ("canonicalize", "cse")
_BUFFERS = (
    "eliminate-empty-tensors",
    "empty-tensor-to-alloc-tensor",
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map buffer-alignment=64 "
    "allow-return-allocs-from-loops={loops}}",
)
_PLACES = (
    "func.func(buffer-hoisting,promote-buffers-to-stack{max-alloc-size-in-bytes=4096},"
    "buffer-loop-hoisting)",
    "buffer-deallocation-pipeline",
)
_LOOPS = (
    "func.func(lower-vector-mask,lower-vector-multi-reduction)",
    "func.func(convert-vector-to-scf{full-unroll=true})",
)

# Shapes are known, so that an array is its address.
_FUNCTIONS = "convert-func-to-llvm{use-bare-ptr-memref-call-conv=true}"

_BFLOAT16 = (
    "func.func(arith-emulate-unsupported-floats{source-types=bf16 target-type=f32})",
    "func.func(arith-expand{include-bf16=true})",
)


def _to_llvm(threads: int, bfloat16: bool) -> tuple[str, ...]:
    """Passes from loops to LLVM's dialect.

    LLVM's own conversion to bfloat16 is a call of a function for each element where the processor
    has no instruction for it, and takes denormals for zeros where it has. So MLIR computes in
    float32 and writes conversions as arithmetic on bits.

    Args:
        threads: On how many threads parallel loops run.
        bfloat16: Whether the program has numbers of that type.
    """
    return (
        "expand-strided-metadata",
        "lower-affine",
        *(_BFLOAT16 if bfloat16 else ()),
        # That of OpenMP would convert functions, too, otherwise.
        *((_FUNCTIONS, "convert-openmp-to-llvm") if threads > 1 else ()),
        "convert-scf-to-cf",
        f"convert-vector-to-llvm{{{bindings.chosen().x86_option}=true}}",
        # As log(1 + x) it would be zero for what vanishes beside 1: the library has a function.
        "convert-math-to-llvm{approximate-log1p=false}",
        "convert-math-to-libm",
        "finalize-memref-to-llvm",
        _FUNCTIONS,
        "convert-arith-to-llvm",
        "convert-index-to-llvm",
        "convert-cf-to-llvm",
        "convert-ub-to-llvm",
        "reconcile-unrealized-casts",
        # Programs that are one program get one text, and LLVM has less to read.
        *_CLEANUP,
    )


def _parallel(threads: int) -> tuple[str, ...]:
    if threads == 1:
        return ()
    return (
        "func.func(scf-forall-to-parallel)",
        f"convert-scf-to-openmp{{num-threads={threads}}}",
    )


@frozen(eq=False)
class Generated:
    """Machine code in this process.

    Attributes:
        addresses: Of its entries, ``int ENTRY(void **arrays)``, by name.
        digest: Of the machine code.
        engine: What owns it; the code lives as long as this does.
    """

    addresses: Mapping[str, int]
    digest: str
    engine: Any = field(repr=False)

    def address(self, name: str = ENTRY) -> int:
        """Address at which an entry begins."""
        return self.addresses[name]

    def run(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Call :data:`ENTRY` once, on its inputs and outputs in order."""
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        call = NativeCall(self.address(), (ctypes.addressof(pointers),))
        NativeBoundCall(call, ()).run()


def generate(lowered: Lowered) -> Generated:
    """Let LLVM make what runs in this process.

    Args:
        lowered: The program.

    Raises:
        BuildFailed: LLVM rejected it.
    """
    loaded = bindings.load()
    _find_conversions()
    libraries = [openmp.library()] if needs_openmp(lowered) else []
    try:
        engine = loaded.execution_engine.ExecutionEngine(
            lowered.module, opt_level=opt_level(), shared_libs=libraries, enable_pic=True
        )
        addresses = {name: _address(engine, name) for name in lowered.entries}
    except RuntimeError as error:
        raise BuildFailed(brief(error)) from error
    return Generated(addresses, _code_digest(engine), engine)


@lru_cache(maxsize=1)
def _find_conversions() -> None:
    """Let programs find the compiler's functions between double and half precision.

    Processors have no instruction for it, and other modules that need these load them for
    themselves alone.
    """
    with suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1", ctypes.RTLD_GLOBAL)


def _address(engine: Any, entry: str) -> int:
    """Address of an entry: its wrapper's is all that the engine tells by itself."""
    wrapper = engine.raw_lookup(f"{entry}{ADDRESS}")
    if not wrapper:
        raise RuntimeError("the program uses a function that this process does not have")
    result = ctypes.c_void_p()
    slots = (ctypes.c_void_p * 1)(ctypes.addressof(result))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(wrapper)(ctypes.addressof(slots))
    assert result.value is not None
    return result.value


def _code_digest(engine: Any) -> str:
    """Digest of the object file."""
    descriptor = os.memfd_create("object")
    try:
        engine.dump_to_object_file(f"/proc/self/fd/{descriptor}")
        size = os.lseek(descriptor, 0, os.SEEK_END)
        return hashlib.sha256(os.pread(descriptor, size, 0)).hexdigest()[:16]
    finally:
        os.close(descriptor)


OPT_LEVEL_VARIABLE = "AUTOTUNE_MLIR_OPT_LEVEL"
"""Environment variable with the level, 0 to 3, at which LLVM optimises."""

_BEST_OPT_LEVEL = 3


def compiler_version() -> str:
    """Version of the compiler, such as ``"torch-mlir 20261001"``, without importing it.

    Programs that LLVM optimises less than it can are those of another compiler.

    Raises:
        BindingsMissing: none is installed.
        InvalidValueError: the environment asks for an optimisation level that does not exist.
    """
    level = opt_level()
    version = bindings.bindings_version()
    return version if level == _BEST_OPT_LEVEL else f"{version} -O{level}"


def llvm_version() -> str:
    """Release of LLVM, such as ``"24.0.0git"``: bytecode says who wrote it.

    Raises:
        BindingsMissing: the bindings cannot be imported.
    """
    written = io.BytesIO()
    with here(new_context()) as ir:
        ir.Module.parse("module {}").operation.write_bytecode(written)
    found = re.search(rb"MLIR([0-9][\w.]*)", written.getvalue())
    return found.group(1).decode() if found else "unknown"


def opt_level() -> int:
    """The level at which LLVM optimises: 3 unless the environment says otherwise.

    Raises:
        InvalidValueError: the environment asks for a level that does not exist.
    """
    said = os.environ.get(OPT_LEVEL_VARIABLE, str(_BEST_OPT_LEVEL))
    if said not in ("0", "1", "2", "3"):
        raise InvalidValueError(f"{OPT_LEVEL_VARIABLE} is from 0 to 3, not {said!r}")
    return int(said)
