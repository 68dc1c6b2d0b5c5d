"""From the text of a program to LLVM's dialect, by MLIR's own passes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from autotune.backends import BuildFailed
from autotune_mlir import bindings
from autotune_mlir.entry import ENTRY, Shape, argument_attributes, entry_text
from autotune_mlir.lowering import (
    bufferization,
    loops,
    lowering,
    placement,
    simplification,
)
from autotune_mlir.parsing import brief, here, kernel_of, parse_payload
from autotune_mlir.passes.bfloat16_bits import as_bits
from autotune_mlir.passes.rewrite import rewrite
from autotune_mlir.traversal import operations_in

__all__ = ["Lowered", "digest_of", "lower", "needs_openmp"]


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
            :data:`autotune_mlir.lowering.DEFAULT_SCHEDULE`.

    Raises:
        BuildFailed: the program does not parse, or a pass rejected it.
    """
    module = parse_payload(payload)
    loaded, bfloat16 = bindings.load(), "bf16" in payload
    passes = loaded.passmanager.PassManager
    with here(module.context) as ir:
        try:
            passes.parse(simplification(by_default)).run(module.operation)
            _unshare_fills(ir, module)
            for text in (bufferization(by_default), placement(threads)):
                passes.parse(text).run(module.operation)
            shapes = _shapes(module)
            rewrite(ir, module)
            passes.parse(loops(threads, by_default)).run(module.operation)
            code = lowering(loaded.distribution, threads, bfloat16)
            passes.parse(code).run(module.operation)
            if bfloat16:
                module = ir.Module.parse(as_bits(str(module)))
            _add_entry(ir, module, shapes)
            _disable(ir, module, tuple(disabled))
        except ir.MLIRError as error:
            raise BuildFailed(brief(error)) from error
    return Lowered(module, threads, digest_of(str(module)))


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


def _shapes(module: Any) -> list[Shape]:
    """Shapes of the arguments of ``@kernel``."""
    types = kernel_of(module).attributes["function_type"].value.inputs
    return [tuple(kind.shape) for kind in types]


def _add_entry(ir: Any, module: Any, shapes: Sequence[Shape]) -> None:
    """Give a lowered program its entry, the kernel's only caller."""
    kernel = kernel_of(module)
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
    """Return whether a program has parallel loops, which call the OpenMP runtime."""
    return lowered.threads > 1 and "omp.parallel" in str(lowered.module)
