"""Constraints over knobs that a compiler writes in MLIR's SMT dialect, as expressions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from autotune.errors import InvalidValueError
from autotune.spaces.parameters import Parameter
from autotune_mlir import bindings
from autotune_mlir.importing.locations import at

__all__ = ["READ_OPERATIONS", "constraint_texts"]

_COMPARED = ("<", "<=", ">", ">=")
"""By the number of smt.int.cmp's predicate."""
_JOINED = {"smt.int.add": "+", "smt.int.mul": "*", "smt.and": "and", "smt.or": "or"}
_DIVIDED = {"smt.int.div": "//", "smt.int.mod": "%"}
READ_OPERATIONS = (
    *_JOINED,
    *_DIVIDED,
    "smt.int.sub",
    "smt.int.constant",
    "smt.int.cmp",
    "smt.constant",
    "smt.eq",
    "smt.distinct",
    "smt.implies",
    "smt.ite",
    "smt.not",
    "smt.xor",
)
"""What may be asserted."""


def constraint_texts(
    mlir: bindings.Bindings,
    operation: Any,
    names: Mapping[Any, str],
    parameters: Mapping[str, Parameter],
    file: str,
) -> list[str]:
    """Write the assertions of a ``transform.smt.constrain_params``.

    Args:
        mlir: The bindings.
        operation: It.
        names: Name of the parameter by the value that is a knob's result.
        parameters: The parameters by name.
        file: What to call the text in messages.

    Raises:
        InvalidValueError: it is about something else than knobs and constants, gives results, or
            has an operation that is not read; says which.
    """
    if len(operation.results):
        raise InvalidValueError(
            f"constraints{at(operation, file)} give parameters as results, which is not read"
        )
    (block,) = operation.regions[0].blocks
    reader = _Reader(parameters, file)
    for argument, operand in zip(block.arguments, operation.operands, strict=True):
        reader.known[argument] = _operand(mlir, operation, operand, names, file)
    texts = []
    for view in block.operations:
        inner = view.operation
        if inner.name == "smt.assert":
            texts.append(reader.known[inner.operands[0]].text)
        elif inner.name != "smt.yield":
            reader.known[inner.results[0]] = reader.read(inner)
    return texts


@frozen
class _Term:
    """An expression, and whether it is always above zero."""

    text: str
    name: str = ""
    constant: int | None = None
    parts: tuple[_Term, ...] = ()

    def is_positive(self, parameters: Mapping[str, Parameter]) -> bool:
        if self.constant is not None:
            return self.constant > 0
        if self.name:
            return all(isinstance(it, int) and it > 0 for it in parameters[self.name].values)
        return bool(self.parts) and all(it.is_positive(parameters) for it in self.parts)


def _operand(
    mlir: bindings.Bindings, operation: Any, operand: Any, names: Mapping[Any, str], file: str
) -> _Term:
    name = names.get(operand)
    if name is not None:
        return _Term(name, name)
    owner = operand.owner
    if getattr(owner, "name", "") == "transform.param.constant":
        value = owner.attributes["value"]
        if isinstance(value, mlir.ir.IntegerAttr) and not isinstance(value, mlir.ir.BoolAttr):
            return _constant(int(value.value))
    raise InvalidValueError(
        f"constraints{at(operation, file)} are about something else than knobs and constants"
    )


def _constant(value: int) -> _Term:
    return _Term(str(value) if value >= 0 else f"({value})", constant=value)


@frozen
class _Reader:
    """Turns operations of one block into expressions."""

    parameters: Mapping[str, Parameter]
    file: str
    known: dict[Any, _Term] = field(factory=dict)

    def read(self, operation: Any) -> _Term:
        kind = operation.name
        if kind not in READ_OPERATIONS:
            raise InvalidValueError(
                f"{kind}{at(operation, self.file)} in constraints is not read; read are "
                f"{', '.join(READ_OPERATIONS)}"
            )
        terms = [self.known[operand] for operand in operation.operands]
        texts = [term.text for term in terms]
        if kind == "smt.int.constant":
            return _constant(_signed(operation.attributes["value"]))
        if kind == "smt.constant":
            return _Term(str(bool(operation.attributes["value"].value)))
        if kind in _JOINED:
            parts = tuple(terms) if kind in ("smt.int.add", "smt.int.mul") else ()
            return _Term(f"({f' {_JOINED[kind]} '.join(texts)})", parts=parts)
        if kind in _DIVIDED:
            # For divisors above zero, SMT's Euclidean division rounds down, as ours does.
            if not terms[1].is_positive(self.parameters):
                raise InvalidValueError(
                    f"{kind}{at(operation, self.file)} divides by {texts[1]}, which is not always "
                    "positive"
                )
            return _Term(f"({texts[0]} {_DIVIDED[kind]} {texts[1]})")
        return _Term(f"({_logical(operation, texts)})")


def _logical(operation: Any, texts: list[str]) -> str:
    """The text of what is no arithmetic that may be divided by."""
    kind = operation.name
    if kind == "smt.int.sub":
        return " - ".join(texts)
    if kind == "smt.int.cmp":
        return f"{texts[0]} {_COMPARED[int(operation.attributes['pred'].value)]} {texts[1]}"
    if kind == "smt.eq":
        return " == ".join(texts)
    if kind == "smt.distinct":
        pairs = [(a, b) for at, a in enumerate(texts) for b in texts[at + 1 :]]
        return " and ".join(f"{a} != {b}" for a, b in pairs)
    if kind == "smt.implies":
        return f"not {texts[0]} or {texts[1]}"
    if kind == "smt.ite":
        return f"{texts[1]} if {texts[0]} else {texts[2]}"
    if kind == "smt.xor":
        return functools.reduce(lambda left, right: f"({left}) != {right}", texts)
    return f"not {texts[0]}"


def _signed(attribute: Any) -> int:
    """A constant of SMT, which MLIR keeps in two's complement, as narrow as it can."""
    value, width = int(attribute.value), int(attribute.type.width)
    return value - (1 << width) if value >> (width - 1) else value
