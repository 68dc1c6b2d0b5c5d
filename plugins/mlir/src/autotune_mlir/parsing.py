"""From text to modules of MLIR: contexts, parsing, and what is in a module."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from autotune.backends import BuildFailed
from autotune_mlir import bindings
from autotune_mlir.entry import KERNEL

__all__ = [
    "brief",
    "clone_before",
    "here",
    "kernel_of",
    "new_context",
    "operation_named",
    "operations_in",
    "parent_of",
    "parse_payload",
]

_MESSAGE_LIMIT = 480
# A context keeps every type, attribute and string that it has seen.
_CONTEXT_USES = 200


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
def here(context: Any) -> Iterator[Any]:
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
    with here(_contexts.take() if context is None else context) as ir:
        try:
            return ir.Module.parse(payload)
        except ir.MLIRError as error:
            raise BuildFailed(f"the program does not parse: {brief(error)}") from error


def brief(error: BaseException) -> str:
    """An MLIR message in one line of less than 500 characters.

    Messages end with the operation at fault and all that is in it, which is left out.
    """
    said = str(error).removeprefix("Failed to apply named transform sequence.")
    said = re.split(r"(?:note: .{0,30})?see current operation", said)[0]
    return re.sub(r"\s+", " ", said).strip()[:_MESSAGE_LIMIT] or "no message"


def operation_named(module: Any, name: str) -> Any | None:
    """The function or sequence of this name, or None."""
    for operation in module.body.operations:
        attributes = operation.attributes
        if "sym_name" in attributes and attributes["sym_name"].value == name:
            return operation
    return None


def kernel_of(module: Any) -> Any:
    """The function that the program is.

    Raises:
        BuildFailed: there is none.
    """
    kernel = operation_named(module, KERNEL)
    if kernel is None:
        raise BuildFailed(f"the program has no function @{KERNEL}")
    return kernel


def parent_of(operation: Any) -> Any | None:
    """The operation that another one is in; None around the module."""
    parent = operation.parent
    return None if parent is None else getattr(parent, "operation", parent)


def operations_in(operation: Any) -> Iterator[Any]:
    """All operations inside of one, each before those inside of it."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations_in(inner)


def clone_before(place: Any, operation: Any, known: MutableMapping[Any, Any]) -> None:
    """Copy an operation to an insertion point.

    Args:
        place: The point.
        operation: The operation.
        known: Values to read in place of others; gets what its copy gives in place of its results.
    """
    clone = operation.clone(ip=place).operation
    for inner in (clone, *operations_in(clone)):
        for number, operand in enumerate(inner.operands):
            if operand in known:
                inner.operands[number] = known[operand]
    known.update(zip(operation.results, clone.results, strict=True))
