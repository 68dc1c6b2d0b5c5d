"""A tape: expressions of a sketch's parameters, shared and flattened into instructions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.expressions import IntExpr

if TYPE_CHECKING:
    from autotune._native import TapeProgram

# In the order in which native code numbers them.
OPERATIONS = ("add", "mul", "floordiv", "mod", "min", "max", "less", "select")

Instruction = tuple[str, int, int] | tuple[str, int, int, int]


@frozen
class Tape:
    """Instructions over slots: first the inputs, then the constants, then one per instruction.

    Attributes:
        inputs: Names of the parameters, in the order of a configuration's columns.
        constants: Values of the constant slots.
        instructions: ``(operation, left slot, right slot)``; for ``select`` ``(operation,
            condition, slot where it is not zero, slot where it is)``.
        outputs: Name and slot of every output.
    """

    inputs: tuple[str, ...]
    constants: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[tuple[str, int], ...]

    @cached_property
    def output_index(self) -> dict[str, int]:
        """Column of every output by name."""
        return {name: index for index, (name, _) in enumerate(self.outputs)}

    @cached_property
    def program(self) -> TapeProgram:
        """The tape as native code runs it, with the best vector instructions of this machine.

        Raises:
            InvalidValueError: a constant or an instruction is not one that native code knows.
        """
        return self.program_for("best")

    def program_for(self, simd: str) -> TapeProgram:
        """The tape for ``"baseline"``, ``"avx2"``, ``"avx512"`` or the ``"best"`` of them here.

        All of them compute the same.

        Raises:
            InvalidValueError: this machine lacks the instructions, or the tape is malformed.
        """
        from autotune._native import TapeProgram

        operands = np.zeros((len(self.instructions), 3), dtype=np.int32)
        for index, (_, *slots) in enumerate(self.instructions):
            operands[index, : len(slots)] = slots
        try:
            return TapeProgram(
                len(self.inputs),
                np.array(self.constants, dtype=np.int64),
                np.array([OPERATIONS.index(item[0]) for item in self.instructions], np.uint8),
                operands,
                np.array([slot for _, slot in self.outputs], dtype=np.int32),
                simd,
            )
        except (OverflowError, ValueError) as error:
            raise InvalidValueError(f"a tape that cannot be run: {error}") from error

    def evaluate(self, matrix: NDArray[np.int64], threads: int = 1) -> NDArray[np.int64]:
        """Outputs for configurations ``[n, inputs]``: an int64 matrix ``[n, outputs]``, exactly.

        Raises:
            InvalidValueError: the matrix has another number of columns or is not of int64, or
                for some configuration a value passes 64 bits or something is divided by zero.
        """
        if matrix.ndim != 2 or matrix.shape[1] != len(self.inputs):
            raise InvalidValueError(
                f"a tape over {len(self.inputs)} parameters got a matrix {matrix.shape}"
            )
        if matrix.dtype != np.int64:
            raise InvalidValueError(f"a tape takes a matrix of int64, not of {matrix.dtype}")
        try:
            return self.program.evaluate(np.ascontiguousarray(matrix), threads)
        except (OverflowError, ValueError) as error:
            raise InvalidValueError(str(error)) from error

    def restricted(self, names: Sequence[str]) -> Tape:
        """A tape with only the outputs called ``names``, in that order, and what they need.

        Raises:
            UnknownNameError: there is no such output.
        """
        slots = dict(self.outputs)
        for name in names:
            if name not in slots:
                raise UnknownNameError("output of the tape", name, slots)
        inputs, first = len(self.inputs), len(self.inputs) + len(self.constants)
        needed = {slots[name] for name in names}
        for index in range(len(self.instructions) - 1, -1, -1):
            if first + index in needed:
                needed.update(slot for slot in self.instructions[index][1:])
        constants = [i for i in range(inputs, first) if i in needed]
        kept = [i for i in range(len(self.instructions)) if first + i in needed]
        place = {slot: slot for slot in range(inputs)}
        for slot in (*constants, *(first + index for index in kept)):
            place[slot] = len(place)
        instructions: list[Any] = [
            (self.instructions[i][0], *(place[slot] for slot in self.instructions[i][1:]))
            for i in kept
        ]
        return Tape(
            self.inputs,
            tuple(self.constants[slot - inputs] for slot in constants),
            tuple(instructions),
            tuple((name, place[slots[name]]) for name in names),
        )

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
                tuple(_instruction(*item) for item in data["instructions"]),
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
    for index, (operation, *operands) in enumerate(tape.instructions):
        count = 3 if operation == "select" else 2
        slots = len(operands) == count and all(_is_slot(s, known + index) for s in operands)
        if operation not in OPERATIONS or not slots:
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


def _instruction(operation: str, left: int, right: int, *third: int) -> Instruction:
    if len(third) > 1:
        raise ValueError("an instruction has two or three operands")
    return (operation, left, right, third[0]) if third else (operation, left, right)


def build_tape(inputs: tuple[str, ...], outputs: Mapping[str, IntExpr]) -> Tape:
    """Flatten named expressions; equal subexpressions are computed once.

    Raises:
        InvalidValueError: an expression uses a name that is not an input.
    """
    builder = _Builder(inputs, outputs)
    named = tuple((name, builder.slot(expression)) for name, expression in outputs.items())
    return Tape(inputs, tuple(builder.constants), tuple(builder.instructions), named)


# A slot, and which of its occurrences in one sum or product it is.
_Operand = tuple[int, int]


class _Builder:
    def __init__(self, inputs: tuple[str, ...], outputs: Mapping[str, IntExpr]) -> None:
        self.slots: dict[IntExpr, int] = {}
        self.inputs = {name: index for index, name in enumerate(inputs)}
        self.instructions: list[Instruction] = []
        self.constants = sorted(_constants(outputs.values()))
        self.constant_slots = {v: len(inputs) + i for i, v in enumerate(self.constants)}
        # Sums and products computed so far, by their last operand.
        self.folds: dict[str, dict[_Operand, list[tuple[frozenset[_Operand], int]]]] = {
            "add": {},
            "mul": {},
        }

    def slot(self, expression: IntExpr) -> int:
        if expression.op == "const":
            return self.constant_slots[expression.args[0]]
        if expression.op == "var":
            name = expression.args[0]
            if name not in self.inputs:
                raise InvalidValueError(f"{name!r} is not an input of the tape")
            return self.inputs[name]
        found = self.slots.get(expression)
        if found is None:
            operands = [self.slot(arg) for arg in expression.args]
            if expression.op in self.folds:
                found = self._folded(expression.op, operands)
            else:
                found = self._add(_instruction(expression.op, *operands))
            self.slots[expression] = found
        return found

    def _folded(self, op: str, slots: Sequence[int]) -> int:
        """A sum or product of several, put together from the largest parts known so far."""
        known = self.folds[op]
        missing = _numbered(slots)
        whole: frozenset[_Operand] = frozenset()
        result = 0
        while missing:
            part, slot = frozenset({min(missing)}), min(missing)[0]
            for last in sorted(missing):
                for operands, computed in known.get(last, ()):
                    if len(operands) > len(part) and operands <= missing:
                        part, slot = operands, computed
            missing -= part
            if not whole:
                whole, result = part, slot
                continue
            whole |= part
            result = self._add((op, result, slot))
            known.setdefault(max(whole), []).append((whole, result))
        return result

    def _add(self, instruction: Instruction) -> int:
        self.instructions.append(instruction)
        return len(self.inputs) + len(self.constants) + len(self.instructions) - 1


def _numbered(slots: Sequence[int]) -> frozenset[_Operand]:
    """Slots with repetitions numbered: ``x*x`` has the operands ``(x, 0)`` and ``(x, 1)``."""
    return frozenset((slot, slots[:index].count(slot)) for index, slot in enumerate(slots))


def _constants(expressions: Iterable[IntExpr]) -> set[int]:
    """Every constant in any of the expressions."""
    found: set[int] = set()
    # By identity: most are shared, and comparing them takes longer than walking a few twice.
    seen: set[int] = set()
    pending = list(expressions)
    while pending:
        expression = pending.pop()
        if expression.op == "const":
            found.add(expression.args[0])
        elif expression.op != "var" and id(expression) not in seen:
            seen.add(id(expression))
            pending.extend(expression.args)
    return found
