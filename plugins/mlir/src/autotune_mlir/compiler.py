"""From text to machine code: parsing, scheduling, MLIR's passes, LLVM."""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from attrs import evolve, field, frozen

from autotune.backends import BuildFailed, InvalidSchedule
from autotune.errors import InvalidValueError
from autotune_mlir import bindings, openmp
from autotune_mlir.bfloat16 import as_bits
from autotune_mlir.bounded_loops import bound_loops, share_by_turns
from autotune_mlir.dot_products import give_types
from autotune_mlir.entry import ADDRESS, KERNEL, Shape, argument_attributes, entry_text
from autotune_mlir.packing import split_packing
from autotune_mlir.passes import aliases, bufferization, fusion, loops, lowering, placement
from autotune_mlir.pipelines import pipeline_rows
from autotune_mlir.prefetches import prefetch_rows, stage_positions
from autotune_mlir.rewrites import rewrite
from autotune_mlir.streams import stream_stores
from autotune_mlir.tensorize import PRODUCTS, body_positions, tensorize
from autotune_mlir.vector_instructions import BASIC, VectorInstructions

__all__ = [
    "OPT_LEVEL_VARIABLE",
    "Generated",
    "Lowered",
    "Packer",
    "apply_schedule",
    "apply_until_calls",
    "brief",
    "compiler_version",
    "fuse_elementwise",
    "generate",
    "llvm_version",
    "lower",
    "needs_openmp",
    "new_context",
    "opt_level",
    "parse_payload",
]

OPT_LEVEL_VARIABLE = "AUTOTUNE_MLIR_OPT_LEVEL"
"""Environment variable with the level, 0 to 3, at which LLVM optimises."""

_BEST_OPT_LEVEL = 3
_MAIN_SEQUENCE = "__transform_main"
# Sequences of a schedule with calls of instructions; the last one is for what these leave.
_BEFORE_CALLS = ("structure", "vectors")
_MESSAGE_LIMIT = 480
# A context keeps every type, attribute and string that it has seen.
_CONTEXT_USES = 200


@frozen(eq=False)
class Lowered:
    """A program in LLVM's dialect.

    Attributes:
        module: The ``ir.Module``.
        threads: Threads that its parallel loops use.
        digest: Of its text: programs with one digest are one program.
        packers: What packs the constants that it takes packed.
    """

    module: Any
    threads: int
    digest: str
    packers: tuple[Packer, ...] = ()


@frozen(eq=False)
class Packer:
    """A program that packs a constant, which another one takes packed.

    Attributes:
        position: Of the constant among the arguments of the other one.
        shape: Extents of what is packed.
        program: From the constant to what is packed.
    """

    position: int
    shape: Shape
    program: Lowered


@frozen(eq=False)
class Generated:
    """Machine code in this process.

    Attributes:
        address: Of ``int autotune_kernel(void **arrays)``.
        digest: Of the machine code.
        engine: What owns it; the code lives as long as this does.
    """

    address: int
    digest: str
    engine: Any = field(repr=False)


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
    with _here(new_context()) as ir:
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


def new_context() -> Any:
    """A context of its own, with one thread and without a word on standard error."""
    context = bindings.load().ir.Context()
    context.enable_multithreading(False)
    # Errors are in the exceptions; warnings and remarks would be printed.
    context.attach_diagnostic_handler(lambda diagnostic: True)
    return context


class _Contexts:
    """The context that programs are made in, renewed after a number of them."""

    def __init__(self) -> None:
        self._uses = 0
        self._context: Any = None

    def take(self) -> Any:
        if self._context is None or self._uses >= _CONTEXT_USES:
            self._context, self._uses = new_context(), 0
        self._uses += 1
        return self._context


_contexts = _Contexts()


@contextmanager
def _here(context: Any) -> Iterator[Any]:
    """``context`` is the current one inside, and locations are unknown."""
    with context, bindings.load().ir.Location.unknown():
        yield bindings.load().ir


def parse_payload(payload: str, context: Any = None) -> Any:
    """The ``ir.Module`` of a program's text.

    Args:
        payload: Text of a module with the function ``@kernel``.
        context: Where it lives; one that is renewed from time to time unless given.

    Raises:
        BuildFailed: it does not parse.
    """
    with _here(_contexts.take() if context is None else context) as ir:
        try:
            return ir.Module.parse(payload)
        except ir.MLIRError as error:
            raise BuildFailed(f"the program does not parse: {brief(error)}") from error


def apply_schedule(module: Any, schedule: str, sequence: str = _MAIN_SEQUENCE) -> None:
    """Transform a program by a script of the Transform dialect, as ``mlir-opt`` does it.

    Args:
        module: The ``ir.Module``; changed, and not to be used when this fails.
        schedule: Text of a module with the sequence.
        sequence: Its name.

    Raises:
        InvalidSchedule: the script does not parse, or one of its operations fails.
    """
    interpreter = bindings.load().interpreter
    with _here(module.context) as ir:
        try:
            script = ir.Module.parse(schedule)
            named = _named(script, sequence)
            if named is None:
                raise InvalidSchedule(f"the script has no sequence @{sequence}")
            interpreter.apply_named_sequence(module, named, script)
        except (ir.MLIRError, ValueError) as error:  # of what does not parse, of what fails
            raise InvalidSchedule(brief(error)) from error


def apply_until_calls(module: Any, schedule: str) -> str | None:
    """Apply what of a schedule comes before calls of instructions are made.

    Args:
        module: As of :func:`apply_schedule`, which says what is raised.
        schedule: Text of a module with its sequences.

    Returns:
        The sequence that is left, for what calls leave; None where there are no calls.
    """
    if f"@{PRODUCTS}(" not in schedule:
        apply_schedule(module, schedule)
        return None
    for sequence in _BEFORE_CALLS:
        apply_schedule(module, schedule, sequence)
    return PRODUCTS


def fuse_elementwise(module: Any) -> None:
    """Fuse elementwise operations, as MLIR's default pipeline begins.

    Args:
        module: The ``ir.Module``; changed.

    Raises:
        BuildFailed: the pass rejected it.
    """
    with _here(module.context) as ir:
        try:
            bindings.load().passmanager.PassManager.parse(fusion()).run(module.operation)
        except ir.MLIRError as error:
            raise BuildFailed(brief(error)) from error


def lower(
    payload: str,
    schedule: str | None,
    *,
    threads: int,
    disabled: Sequence[str] = (),
    by_default: bool = False,
    packed: Sequence[int] = (),
    vectors: VectorInstructions = BASIC,
) -> Lowered:
    """Schedule a program and bring it into LLVM's dialect.

    Args:
        payload: Text of a module with the function ``@kernel``, of memrefs of constant shape.
        schedule: Text of a module with the sequence ``@__transform_main``; None leaves the
            program as it is.
        threads: Threads that parallel loops use.
        disabled: Features of this machine that the program must not use, by LLVM's names.
        by_default: Whether MLIR's own passes fuse operations and make loops parallel; see
            :data:`autotune_mlir.passes.DEFAULT_SCHEDULE`.
        packed: Positions of arguments that the program is to take packed.
        vectors: What the processor does to vectors.

    Raises:
        InvalidSchedule: the schedule cannot be applied, or does not pack these arguments, or has
            a stage ask for what it does not read, or a loop end that it does not make.
        BuildFailed: the program does not parse, or a pass rejected it.
    """
    module = parse_payload(payload)
    places = stage_positions(bindings.load().ir, module)
    bodies = body_positions(bindings.load().ir, module)
    rest = apply_until_calls(module, schedule) if schedule is not None else None
    passes = bindings.load().passmanager.PassManager
    finish = _Finisher(threads, tuple(disabled), by_default, "bf16" in payload, vectors)
    with _here(module.context) as ir:
        try:
            passes.parse(bufferization(by_default)).run(module.operation)
            bound_loops(ir, _kernel(module))
            passes.parse(placement(threads)).run(module.operation)
            if schedule is not None and rest is not None:
                passes.parse(aliases()).run(module.operation)
                tensorize(ir, _kernel(module), bodies, parallel=threads > 1)
                apply_schedule(module, schedule, rest)
            packings = [split_packing(ir, module, position) for position in packed]
            prefetch_rows(ir, _kernel(module), places)
            pipeline_rows(ir, _kernel(module), places)
            made = finish(ir, module)
            packers = tuple(
                Packer(it.position, it.shape, finish(ir, it.module)) for it in packings
            )
        except ir.MLIRError as error:
            raise BuildFailed(brief(error)) from error
    if not packers:
        return made
    digests = "".join([made.digest, *(it.program.digest for it in packers)])
    return evolve(made, digest=_digest(digests), packers=packers)


@frozen
class _Finisher:
    """From a program on buffers to LLVM's dialect.

    Attributes:
        threads: Threads that parallel loops use.
        disabled: Features that the program must not use.
        by_default: Whether MLIR's own passes make loops parallel.
        bfloat16: Whether there are numbers of that type.
        vectors: As of :func:`lower`.
    """

    threads: int
    disabled: tuple[str, ...]
    by_default: bool
    bfloat16: bool
    vectors: VectorInstructions

    def __call__(self, ir: Any, module: Any) -> Lowered:
        """The program with its entry; ``module`` is not to be used any more.

        Raises:
            MLIRError: a pass rejected it.
        """
        loaded = bindings.load()
        shapes = _shapes(module)
        rewrite(ir, module, self.vectors)
        passes = loaded.passmanager.PassManager
        passes.parse(loops(self.threads, self.by_default)).run(module.operation)
        share_by_turns(ir, module)
        code = lowering(loaded.distribution, self.threads, self.bfloat16)
        passes.parse(code).run(module.operation)
        if self.bfloat16:
            module = ir.Module.parse(as_bits(str(module)))
            give_types(ir, _kernel(module))
        stream_stores(ir, module, _kernel(module), shapes)
        _add_entry(ir, module, shapes)
        _disable(ir, module, self.disabled)
        return Lowered(module, self.threads, _digest(str(module)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def generate(lowered: Lowered, functions: Mapping[str, int] = MappingProxyType({})) -> Generated:
    """Let LLVM make what runs in this process.

    Args:
        lowered: The program.
        functions: Addresses of functions that it declares, by name.

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
        for name, target in functions.items():
            engine.raw_register_runtime(name, ctypes.c_void_p(target))
        address = _address(engine)
    except RuntimeError as error:
        raise BuildFailed(brief(error)) from error
    return Generated(address, _code_digest(engine), engine)


@lru_cache(maxsize=1)
def _find_conversions() -> None:
    """Let programs find the compiler's functions between double and half precision.

    Processors have no instruction for it, and other modules that need these load them for
    themselves alone.
    """
    with suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1", ctypes.RTLD_GLOBAL)


def brief(error: BaseException) -> str:
    """An MLIR message in one line of less than 500 characters.

    Messages end with the operation at fault and all that is in it, which is left out.
    """
    said = str(error).removeprefix("Failed to apply named transform sequence.")
    said = re.split(r"(?:note: .{0,30})?see current operation", said)[0]
    return re.sub(r"\s+", " ", said).strip()[:_MESSAGE_LIMIT] or "no message"


def _named(module: Any, name: str) -> Any | None:
    """The function or sequence of this name, or None."""
    for operation in module.body.operations:
        attributes = operation.attributes
        if "sym_name" in attributes and attributes["sym_name"].value == name:
            return operation
    return None


def _kernel(module: Any) -> Any:
    """The function that the program is.

    Raises:
        BuildFailed: there is none.
    """
    kernel = _named(module, KERNEL)
    if kernel is None:
        raise BuildFailed(f"the program has no function @{KERNEL}")
    return kernel


def _shapes(module: Any) -> list[Shape]:
    """Shapes of the arguments of ``@kernel``."""
    types = _kernel(module).attributes["function_type"].value.inputs
    return [tuple(kind.shape) for kind in types]


def _add_entry(ir: Any, module: Any, shapes: Sequence[Shape]) -> None:
    """Give a lowered program its entry, the kernel's only caller."""
    kernel = _kernel(module)
    kernel.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
    kernel.attributes["arg_attrs"] = ir.Attribute.parse(argument_attributes(shapes))
    callers = ir.Module.parse(entry_text(shapes))
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
    """Whether a program has parallel loops, which call the OpenMP runtime."""
    return lowered.threads > 1 and "omp.parallel" in str(lowered.module)


def _address(engine: Any) -> int:
    """Address of the entry: its wrapper's is all that the engine tells by itself."""
    wrapper = engine.raw_lookup(ADDRESS)
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
