"""Sequences that give a program's operations the attributes by which schedules find them.

A hand-written program has none. Its operations that compute are identified by their order, which
is that of the stages; what initialises a reduction is identified by its result.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from autotune_mlir import bindings
from autotune_mlir.emit import ENTRY, INIT, STAGE, quoted
from autotune_mlir.parsing import new_context

__all__ = ["FIND", "find_text", "tagging_text"]

FIND = "autotune_find"
"""Sequence that every library has: all operations that may compute a stage, in order."""

_ANY = "!transform.any_op"
_PAD = "tensor.pad"
_SOFTMAX = "linalg.softmax"
# Operations of linalg that compute nothing by themselves.
_PARTS = ("linalg.fill", "linalg.index", "linalg.yield")


@frozen
class _Tagged:
    """An operation that computes a stage.

    Attributes:
        stage: Name of the stage.
        kind: Name of the operation.
        initialised: Number of the operand that holds the identity of a reduction; None for
            operations that reduce nothing.
    """

    stage: str
    kind: str
    initialised: int | None


def find_text() -> str:
    """The sequence :data:`FIND`."""
    generated = importlib.import_module(f"{bindings.load().root}.dialects._linalg_ops_gen")
    kinds = {getattr(kind, "OPERATION_NAME", None) for kind in vars(generated).values()}
    names = sorted(kind for kind in kinds if isinstance(kind, str) and kind not in _PARTS)
    listed = ", ".join(f'"{name}"' for name in names)
    match = f"transform.structured.match ops{{[{listed}]}} in %root : ({_ANY}) -> {_ANY}"
    lines = [
        f"transform.named_sequence @{FIND}(%root: {_ANY} {{transform.readonly}}) -> {_ANY} {{",
        f"  %found = {match}",
        f"  transform.yield %found : {_ANY}",
        "}",
    ]
    return "\n".join(f"  {line}" for line in lines)


def tagging_text(name: str, schedule: str, payload: str) -> str:
    """A sequence that gives a program its attributes and then applies a schedule.

    Softmax is taken apart and named operations become generic ones, as in the import.

    Args:
        name: Of the sequence.
        schedule: Name of the sequence that schedules.
        payload: Text of the program that the schedule was found for; it has the attributes.
    """
    tagged = _tagged(payload)
    computing = [item for item in tagged if item.kind != _PAD]
    lines: list[str] = []
    if computing:
        lines += [
            f'%softmax = transform.structured.match ops{{["{_SOFTMAX}"]}} in %root '
            f": ({_ANY}) -> {_ANY}",
            f"%parts = transform.structured.decompose_interface %softmax : ({_ANY}) -> {_ANY}",
        ]
        lines.append(
            f"%all = transform.include @{FIND} failures(propagate) (%root) : ({_ANY}) -> {_ANY}"
        )
        lines += _split("%all", "%op", len(computing))
    for number, item in enumerate(computing):
        generic = f"%generic{number}"
        lines.append(
            f"{generic} = transform.structured.generalize %op{number} : ({_ANY}) -> {_ANY}"
        )
        lines += _annotate(generic, STAGE, item.stage)
        if item.initialised is not None:
            lines.append(
                f"%init{number} = transform.get_producer_of_operand {generic}[{item.initialised}] "
                f": ({_ANY}) -> {_ANY}"
            )
            lines += _annotate(f"%init{number}", INIT, item.stage)
    pads = [item for item in tagged if item.kind == _PAD]
    if pads:
        match = f'transform.structured.match ops{{["{_PAD}"]}} in %root'
        lines.append(f"%pads = {match} : ({_ANY}) -> {_ANY}")
        lines += _split("%pads", "%pad", len(pads))
    for number, item in enumerate(pads):
        lines += _annotate(f"%pad{number}", STAGE, item.stage)
    lines.append(f"transform.include @{schedule} failures(propagate) (%root) : ({_ANY}) -> ()")
    body = "\n".join(f"    {line}" for line in (*lines, "transform.yield"))
    head = f"  transform.named_sequence @{name}(%root: {_ANY} {{transform.readonly}}) {{"
    return f"{head}\n{body}\n  }}"


def _split(handle: str, stem: str, count: int) -> list[str]:
    """Split a handle into one for each operation; fails where there are more or fewer."""
    names = ", ".join(f"{stem}{number}" for number in range(count))
    kinds = ", ".join([_ANY] * count)
    results = f"({kinds})" if count > 1 else kinds
    return [f"{names} = transform.split_handle {handle} : ({_ANY}) -> {results}"]


def _annotate(handle: str, attribute: str, value: str) -> list[str]:
    name = f"{handle}_{attribute.rpartition('.')[2]}"
    return [
        f"{name} = transform.param.constant {quoted(value)} -> !transform.any_param",
        f'transform.annotate {handle} "{attribute}" = {name} : {_ANY}, !transform.any_param',
    ]


def _tagged(payload: str) -> Sequence[_Tagged]:
    """The operations of a program's stages, in order."""
    ir = bindings.load().ir
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(payload)
        (block,) = _function(module).regions[0].blocks
        operations = [view.operation for view in block.operations]
        return [_described(one) for one in operations if STAGE in one.attributes]


def _function(module: Any) -> Any:
    functions = (view.operation for view in module.body.operations)
    return next(one for one in functions if one.attributes["sym_name"].value == ENTRY)


def _described(operation: Any) -> _Tagged:
    stage = str(operation.attributes[STAGE].value)
    if operation.name == _PAD:
        return _Tagged(stage, _PAD, None)
    inputs = list(operation.attributes["operandSegmentSizes"])[0]
    start = operation.operands[inputs].owner
    initialised = INIT in start.attributes
    return _Tagged(stage, operation.name, inputs if initialised else None)
