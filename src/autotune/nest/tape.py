"""A tape: expressions of a sketch's parameters, shared and flattened into instructions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.expressions import IntExpr
from autotune.expressions.integer import apply_operation

OPERATIONS = ("add", "mul", "floordiv", "mod", "min", "max")


@frozen
class Tape:
    """Instructions over slots: first the inputs, then the constants, then one per instruction.

    Attributes:
        inputs: Names of the parameters, in the order of a configuration's columns.
        constants: Values of the constant slots.
        instructions: ``(operation, left slot, right slot)``.
        outputs: Name and slot of every output.
    """

    inputs: tuple[str, ...]
    constants: tuple[int, ...]
    instructions: tuple[tuple[str, int, int], ...]
    outputs: tuple[tuple[str, int], ...]

    @cached_property
    def output_index(self) -> dict[str, int]:
        """Column of every output by name."""
        return {name: index for index, (name, _) in enumerate(self.outputs)}

    def evaluate(self, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
        """Outputs for configurations ``[n, inputs]``: an int64 matrix ``[n, outputs]``.

        Raises:
            InvalidValueError: the matrix has another number of columns.
        """
        if matrix.ndim != 2 or matrix.shape[1] != len(self.inputs):
            raise InvalidValueError(
                f"a tape over {len(self.inputs)} parameters got a matrix {matrix.shape}"
            )
        slots: list[Any] = [matrix[:, i] for i in range(len(self.inputs))]
        slots.extend(np.int64(value) for value in self.constants)
        for operation, left, right in self.instructions:
            slots.append(_apply(operation, slots[left], slots[right]))
        result = np.empty((len(matrix), len(self.outputs)), dtype=np.int64)
        for column, (_, slot) in enumerate(self.outputs):
            result[:, column] = slots[slot]
        return result

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over the whole tape."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads back."""
        return {
            "inputs": list(self.inputs),
            "constants": list(self.constants),
            "instructions": [list(item) for item in self.instructions],
            "outputs": [list(item) for item in self.outputs],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Tape:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is not a tape, or an instruction is malformed.
        """
        try:
            tape = Tape(
                tuple(data["inputs"]),
                tuple(data["constants"]),
                tuple((op, left, right) for op, left, right in data["instructions"]),
                tuple((name, slot) for name, slot in data["outputs"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidValueError(f"not a tape: {error!r}") from error
        _check(tape)
        return tape


def _check(tape: Tape) -> None:
    if not all(isinstance(name, str) for name in tape.inputs):
        raise InvalidValueError("the inputs of a tape are names")
    if len(set(tape.inputs)) != len(tape.inputs):
        raise InvalidValueError("the inputs of a tape have different names")
    if not all(type(value) is int for value in tape.constants):
        raise InvalidValueError("the constants of a tape are integers")
    known = len(tape.inputs) + len(tape.constants)
    for index, (operation, left, right) in enumerate(tape.instructions):
        operands = _is_slot(left, known + index) and _is_slot(right, known + index)
        if operation not in OPERATIONS or not operands:
            raise InvalidValueError(f"malformed instruction {index} of a tape")
    names: set[str] = set()
    for name, slot in tape.outputs:
        if not _is_slot(slot, known + len(tape.instructions)):
            raise InvalidValueError("a tape's output refers to a slot that does not exist")
        if not isinstance(name, str) or name in names:
            raise InvalidValueError(f"two outputs are called {name!r}, or it is no name")
        names.add(name)


def _is_slot(slot: Any, count: int) -> bool:
    return type(slot) is int and 0 <= slot < count


def _apply(operation: str, left: Any, right: Any) -> Any:
    if operation == "min":
        return np.minimum(left, right)
    if operation == "max":
        return np.maximum(left, right)
    return apply_operation(operation, left, right)


def build_tape(inputs: tuple[str, ...], outputs: Mapping[str, IntExpr]) -> Tape:
    """Flatten named expressions; equal subexpressions are computed once.

    Raises:
        InvalidValueError: an expression uses a name that is not an input.
    """
    builder = _Builder(inputs, outputs)
    named = tuple((name, builder.slot(expression)) for name, expression in outputs.items())
    return Tape(inputs, tuple(builder.constants), tuple(builder.instructions), named)


class _Builder:
    def __init__(self, inputs: tuple[str, ...], outputs: Mapping[str, IntExpr]) -> None:
        self.slots: dict[IntExpr, int] = {}
        self.inputs = {name: index for index, name in enumerate(inputs)}
        self.constants: list[int] = []
        self.instructions: list[tuple[str, int, int]] = []
        values = sorted(
            {value for expression in outputs.values() for value in _constants(expression)}
        )
        self.constants.extend(values)
        self.constant_slots = {value: len(inputs) + i for i, value in enumerate(values)}

    def slot(self, expression: IntExpr) -> int:
        if expression.op == "const":
            return self.constant_slots[expression.args[0]]
        if expression.op == "var":
            name = expression.args[0]
            if name not in self.inputs:
                raise InvalidValueError(f"{name!r} is not an input of the tape")
            return self.inputs[name]
        if expression in self.slots:
            return self.slots[expression]
        operands = [self.slot(arg) for arg in expression.args]
        left = operands[0]
        for position, right in enumerate(operands[1:], start=2):
            prefix = IntExpr(expression.op, expression.args[:position])
            if prefix in self.slots:
                left = self.slots[prefix]
                continue
            self.instructions.append((expression.op, left, right))
            left = len(self.inputs) + len(self.constants) + len(self.instructions) - 1
            self.slots[prefix] = left
        return left


def _constants(expression: IntExpr) -> set[int]:
    if expression.op == "const":
        return {expression.args[0]}
    if expression.op == "var":
        return set()
    return set().union(*(_constants(arg) for arg in expression.args))
