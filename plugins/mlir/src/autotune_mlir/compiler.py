"""From the text of a program and its schedule to LLVM's dialect."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen

from autotune.backends import BuildFailed
from autotune_mlir import bindings
from autotune_mlir.dot_products import give_types
from autotune_mlir.entry import ENTRY, Shape, argument_attributes, entry_text
from autotune_mlir.lowering import (
    aliases,
    bufferization,
    loops,
    lowering,
    placement,
    simplification,
)
from autotune_mlir.parsing import brief, here, kernel_of, parse_payload
from autotune_mlir.passes.bfloat16_bits import as_bits
from autotune_mlir.passes.bound_loops import bound_loops, share_by_turns
from autotune_mlir.passes.own_buffers import separate_empty_tensors
from autotune_mlir.passes.pipeline_rows import pipeline_rows
from autotune_mlir.passes.prefetch_rows import prefetch_rows, stage_positions
from autotune_mlir.passes.rewrite import rewrite
from autotune_mlir.passes.split_packing import split_packing
from autotune_mlir.passes.stream_stores import stream_stores
from autotune_mlir.passes.tensorize import body_positions, tensorize
from autotune_mlir.passes.vector_instructions import BASIC, VectorInstructions
from autotune_mlir.tile_products import uses_tiles
from autotune_mlir.transform_scripts import apply_schedule, apply_until_calls

__all__ = ["Lowered", "Packer", "digest_of", "lower", "needs_openmp"]


@frozen(eq=False)
class Lowered:
    """A program in LLVM's dialect.

    Attributes:
        module: The ``ir.Module``.
        threads: Threads that its parallel loops use.
        digest: Of its text: programs with one digest are one program.
        packers: What packs the constants that it takes packed.
        asks_for_tiles: Whether it asks Linux for the tile registers of AMX.
        entries: The functions that are called from outside.
    """

    module: Any
    threads: int
    digest: str
    packers: tuple[Packer, ...] = ()
    asks_for_tiles: bool = False
    entries: tuple[str, ...] = (ENTRY,)


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


def lower(
    payload: str,
    schedule: str | None,
    *,
    threads: int,
    disabled: Sequence[str] = (),
    by_default: bool = False,
    packed: Sequence[int] = (),
    vectors: VectorInstructions = BASIC,
    asks_for_tiles: bool = False,
) -> Lowered:
    """Schedule a program and bring it into LLVM's dialect.

    Args:
        payload: Text of a module with the function ``@kernel``, of memrefs of constant shape.
        schedule: Text of a module with the sequence ``@__transform_main``; None leaves the
            program as it is.
        threads: Threads that parallel loops use.
        disabled: Features of this machine that the program must not use, by LLVM's names.
        by_default: Whether MLIR's own passes fuse operations and make loops parallel; see
            :data:`autotune_mlir.lowering.DEFAULT_SCHEDULE`.
        packed: Positions of arguments that the program is to take packed.
        vectors: What the processor does to vectors.
        asks_for_tiles: Whether programs that it calls use the tile registers of AMX. A program
            that uses them itself asks for them in any case.

    Raises:
        InvalidSchedule: the schedule cannot be applied, or does not pack these arguments, or has
            a stage ask for what it does not read, or a loop end that it does not make.
        BuildFailed: the program does not parse, or a pass rejected it.
    """
    module = parse_payload(payload)
    places = stage_positions(module)
    bodies = body_positions(module)
    rest = apply_until_calls(module, schedule) if schedule is not None else None
    passes = bindings.load().passmanager.PassManager
    finish = _Finisher(
        threads, tuple(disabled), by_default, "bf16" in payload, vectors, asks_for_tiles
    )
    with here(module.context) as ir:
        try:
            passes.parse(simplification(by_default)).run(module.operation)
            if rest is not None:
                # Copies are interleaved in place.
                separate_empty_tensors(ir, kernel_of(module))
            passes.parse(bufferization(by_default)).run(module.operation)
            bound_loops(ir, kernel_of(module))
            passes.parse(placement(threads)).run(module.operation)
            if schedule is not None and rest is not None:
                passes.parse(aliases()).run(module.operation)
                tensorize(ir, kernel_of(module), bodies, parallel=threads > 1)
                apply_schedule(module, schedule, rest)
            packings = [split_packing(ir, module, position) for position in packed]
            prefetch_rows(ir, kernel_of(module), places)
            pipeline_rows(ir, kernel_of(module), places)
            made = finish(ir, module)
            packers = tuple(
                Packer(it.position, it.shape, finish(ir, it.module)) for it in packings
            )
        except ir.MLIRError as error:
            raise BuildFailed(brief(error)) from error
    if not packers:
        return made
    digests = "".join([made.digest, *(it.program.digest for it in packers)])
    return evolve(made, digest=digest_of(digests), packers=packers)


@frozen
class _Finisher:
    """From a program on buffers to LLVM's dialect.

    Attributes:
        threads: Threads that parallel loops use.
        disabled: Features that the program must not use.
        by_default: Whether MLIR's own passes make loops parallel.
        bfloat16: Whether there are numbers of that type.
        vectors: As of :func:`lower`.
        asks_for_tiles: Likewise.
    """

    threads: int
    disabled: tuple[str, ...]
    by_default: bool
    bfloat16: bool
    vectors: VectorInstructions
    asks_for_tiles: bool

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
            give_types(ir, kernel_of(module))
        stream_stores(ir, module, kernel_of(module), shapes)
        asks_for_tiles = self.asks_for_tiles or uses_tiles(kernel_of(module))
        _add_entry(ir, module, shapes, asks_for_tiles=asks_for_tiles)
        _disable(ir, module, self.disabled)
        digest = digest_of(str(module))
        return Lowered(module, self.threads, digest, asks_for_tiles=asks_for_tiles)


def digest_of(text: str) -> str:
    """Of a program's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _shapes(module: Any) -> list[Shape]:
    """Shapes of the arguments of ``@kernel``."""
    types = kernel_of(module).attributes["function_type"].value.inputs
    return [tuple(kind.shape) for kind in types]


def _add_entry(ir: Any, module: Any, shapes: Sequence[Shape], *, asks_for_tiles: bool) -> None:
    """Give a lowered program its entry, the kernel's only caller."""
    kernel = kernel_of(module)
    kernel.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
    kernel.attributes["arg_attrs"] = ir.Attribute.parse(argument_attributes(shapes))
    callers = ir.Module.parse(entry_text(shapes, asks_for_tiles=asks_for_tiles))
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
