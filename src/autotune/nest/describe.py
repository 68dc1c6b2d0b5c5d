"""A loop nest printed for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.nest.derive import derive_nest
from autotune.nest.loop_nest import Loop, Statement
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
    """Which iterations of a bounded loop are run."""
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
