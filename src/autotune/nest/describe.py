"""A loop nest, and a tape, printed for people."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from attrs import define, evolve

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.nest.derive import derive_nest
from autotune.nest.loop_nest import Loop, Statement
from autotune.nest.tape import Instruction, Tape
from autotune.sketches import Sketch


def describe(sketch: Sketch, config: Mapping[str, int] | None = None) -> str:
    """The loop nest of ``sketch`` as indented text.

    With ``config`` extents are numbers and loops of extent 1 are left out; without it they are
    expressions of the parameters.
    """
    nest = derive_nest(sketch)
    lines = _statements(nest.statements, config)
    if nest.packing:
        lines = ["before the first call:", *_statements(nest.packing, config, 1), *lines]
    for buffer in nest.buffers:
        shape = " x ".join(
            str(evaluate(extent, config)) if config is not None else repr(extent)
            for extent in buffer.extents
        )
        scope = "" if buffer.scope == "global" else f" {buffer.scope}"
        lines.append(f"buffer {buffer.name}: {shape} {buffer.dtype}{scope}")
    return "\n".join(lines)


def _statements(
    statements: Sequence[Statement], config: Mapping[str, int] | None, indent: int = 0
) -> list[str]:
    """The lines of statements and their loops."""
    lines: list[str] = []
    open_loops: list[Loop] = []
    for statement in statements:
        shown = [
            loop for loop in statement.loops if config is None or _extent(loop, config) != "1"
        ]
        common = 0
        while (
            common < min(len(open_loops), len(shown))
            and open_loops[common].name == shown[common].name
        ):
            common += 1
        for depth, loop in enumerate(shown[common:], start=common):
            kind = "" if loop.kind == "serial" else f" {loop.kind}"
            head = f"for {loop.name} in {_extent(loop, config)}{_bound(loop, config)}{kind}:"
            lines.append(f"{'  ' * (indent + depth)}{head}")
        lines.append(f"{'  ' * (indent + len(shown))}{_text(statement)}")
        open_loops = shown
    return lines


def _extent(loop: Loop, config: Mapping[str, int] | None) -> str:
    return repr(loop.extent) if config is None else str(evaluate(loop.extent, config))


def _bound(loop: Loop, config: Mapping[str, int] | None) -> str:
    """Describe which iterations of a bounded loop are run."""
    bound = loop.bound
    if bound is None:
        return ""

    def number(value: IntExpr) -> str:
        return repr(value) if config is None else str(evaluate(value, config))

    own = _times(bound.scale, loop.axis)
    if bound.is_causal:
        return f" while {own} <= {bound.axis} + {number(bound.offset)}"
    sign = "-" if bound.stride < 0 else "+"
    position = f"{own} {sign} {_times(abs(bound.stride), bound.axis)} <= {number(bound.offset)}"
    return f" while {'' if bound.least is None else f'{number(bound.least)} <= '}{position}"


def _times(factor: int, axis: str) -> str:
    return axis if factor == 1 else f"{factor} * {axis}"


def _text(statement: Statement) -> str:
    reads = ", ".join(dict.fromkeys(a.buffer for a in statement.accesses if not a.write))
    writes = ", ".join(a.buffer for a in statement.accesses if a.write)
    by = f" by {statement.intrinsic}" if statement.intrinsic else ""
    return f"{statement.name}: {writes} <- {reads or 'identity'}{by}"


_INFIX = {"add": "+", "mul": "*", "floordiv": "//", "less": "<"}


def describe_tape(tape: Tape, config: Mapping[str, int] | None = None) -> str:
    """The inputs, the shared subexpressions (``%1``, ``%2``, ...) and the outputs of ``tape``.

    Outputs are listed by statement; those at neighbouring depths that are one expression share a
    line, as ``region/A/0..3``. With ``config`` every line ends with its value.

    Raises:
        InvalidValueError: ``config`` lacks a value for an input, or the tape cannot be computed
            for it.
    """
    names, written = _expressions(tape)
    values = _values(tape, config) if config is not None else {}
    lines = ["inputs"]
    lines += [_line(name, None, values.get(slot)) for slot, name in enumerate(tape.inputs)]
    if names:
        lines.append("shared")
        lines += [_line(name, written[slot], values.get(slot)) for slot, name in names.items()]
    for statement, outputs in itertools.groupby(tape.outputs, key=lambda item: _owner(item[0])):
        lines.append(statement)
        for label, slot in _collapsed([(_within(name), slot) for name, slot in outputs]):
            text = names.get(slot, written[slot])
            lines.append(_line(label, text, values.get(slot)))
    return "\n".join(lines)


def _line(label: str, text: str | None, value: int | None) -> str:
    parts = [label] if text is None else [label, text]
    if value is not None and text != str(value):
        parts.append(str(value))
    return "  " + " = ".join(parts)


def _expressions(tape: Tape) -> tuple[dict[int, str], dict[int, str]]:
    """Names of the slots that several others read, and the text of every slot."""
    first = len(tape.inputs) + len(tape.constants)
    uses = [0] * (first + len(tape.instructions))
    for _, *slots in tape.instructions:
        for slot in slots:
            uses[slot] += 1
    written = dict(enumerate([*tape.inputs, *map(str, tape.constants)]))
    names: dict[int, str] = {}
    for index, instruction in enumerate(tape.instructions):
        slot = first + index
        written[slot] = _instruction_text(instruction, tape, first, {**written, **names})
        if uses[slot] > 1:
            names[slot] = f"%{len(names) + 1}"
    return names, written


def _instruction_text(
    instruction: Instruction, tape: Tape, first: int, texts: Mapping[int, str]
) -> str:
    operation, *slots = instruction
    if operation not in _INFIX:
        return f"{operation}({', '.join(texts[slot] for slot in slots)})"
    operands = []
    for slot in slots:
        text = texts[slot]
        inner = tape.instructions[slot - first][0] if slot >= first else ""
        alone = inner not in _INFIX or text.startswith("%") and " " not in text
        operands.append(text if alone or inner == operation == "mul" else f"({text})")
    return f" {_INFIX[operation]} ".join(operands)


def _values(tape: Tape, config: Mapping[str, int]) -> dict[int, int]:
    """The value of every slot."""
    missing = [name for name in tape.inputs if name not in config]
    if missing:
        raise InvalidValueError(f"no value for the tape's inputs {', '.join(missing)}")
    slots = range(len(tape.inputs) + len(tape.constants) + len(tape.instructions))
    every = evolve(tape, outputs=tuple((str(slot), slot) for slot in slots))
    row = np.array([[config[name] for name in tape.inputs]], dtype=np.int64)
    return dict(zip(slots, every.evaluate(row)[0].tolist(), strict=True))


def _owner(output: str) -> str:
    owner, slash, _ = output.partition("/")
    return owner if slash and owner != "buffer" else "memory"


def _within(output: str) -> str:
    return output if _owner(output) == "memory" else output.partition("/")[2]


@define
class _Run:
    """Outputs ``stem/first`` to ``stem/last``, all of one slot."""

    stem: str
    slot: int
    first: int
    last: int

    @property
    def label(self) -> str:
        depths = f"{self.first}" if self.first == self.last else f"{self.first}..{self.last}"
        return f"{self.stem}/{depths}"


def _collapsed(outputs: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Outputs that differ in their depth only and have one slot as ``name/FIRST..LAST``."""
    found: list[_Run | tuple[str, int]] = []
    newest: dict[tuple[str, int], _Run] = {}
    for name, slot in outputs:
        stem, _, depth = name.rpartition("/")
        if not (stem and depth.isdigit()):
            found.append((name, slot))
            continue
        run = newest.get((stem, slot))
        if run is not None and run.last == int(depth) - 1:
            run.last += 1
            continue
        newest[stem, slot] = run = _Run(stem, slot, int(depth), int(depth))
        found.append(run)
    return [(run.label, run.slot) if isinstance(run, _Run) else run for run in found]
