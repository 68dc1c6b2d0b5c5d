"""Loops that end where a causal mask hides the rest.

How far a loop runs depends on loops outside. Passes of TVM that derive what is allocated from how
far loops run see loops of full length: the number of iterations is noted around a loop, and takes
the place of its extent when nothing is left to derive.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from autotune.backends import InvalidSchedule
from autotune_tvm.linked_text import with_functions
from autotune_tvm.passes.statements import at, replaced, with_bodies

__all__ = ["BOUND", "bound_loops", "note_bounds", "written_bound"]

BOUND = "autotune.bound"
"""The annotation of loops that are bounded, and the mark of how far they run."""

_LAUNCH = "pragma_parallel_launch_point"
_IN_TURNS = "pragma_parallel_stride_pattern"


def written_bound(axes: int, own: int, other: int, scale: int, offset: int) -> str:
    """What an annotation says.

    Args:
        axes: Number of axes of the stage.
        own: Position of the loop's axis among them.
        other: Position of the axis that bounds the loop.
        scale: By what the first value of the loop's axis is multiplied.
        offset: What is added to the last value of the other axis.
    """
    return " ".join(map(str, (axes, own, other, scale, offset)))


def note_bounds(module: IRModule) -> IRModule:
    """A scheduled module that says around each bounded loop how far it runs.

    Raises:
        InvalidSchedule: a loop does not move its axis in steps of one size.
    """
    count = 0

    def noted(node: Any) -> Any | None:
        nonlocal count
        if not isinstance(node, tirx.For) or BOUND not in node.annotations:
            return None
        iterations, number = _iterations(node), tirx.const(count, "int32")
        count += 1
        annotations = {**dict(node.annotations), BOUND: number}
        made = _loop(node, node.extent, replaced(node.body, noted), annotations)
        return tirx.AttrStmt(number, BOUND, iterations, made)

    return with_bodies(module, lambda body: replaced(body, noted))


def _iterations(loop: Any) -> Any:
    """How often a loop runs, over the variables of those outside."""
    axes, own, other, scale, offset = map(int, str(loop.annotations[BOUND]).split())
    variable, (realize, inner) = loop.loop_var, _block(loop, axes)
    analyzer = Analyzer()
    first, last = realize.iter_values[own] * scale, realize.iter_values[other]
    if inner:
        inside = [it.loop_var for it in inner]
        first = at(first, inside, [it.min for it in inner])
        last = at(last, inside, [it.min + it.extent - 1 for it in inner])
    start = analyzer.simplify(at(first, [variable], [loop.min]))
    step = analyzer.simplify(at(first, [variable], [loop.min + 1]) - start)
    if not isinstance(step, tirx.IntImm) or int(step.value) < 1:
        raise InvalidSchedule(f"bound_loop: {variable.name} does not move its axis tile by tile")
    return analyzer.simplify(tirx.floordiv(last + offset - start, step) + 1)


def _block(loop: Any, axes: int) -> tuple[Any, list[Any]]:
    """The block of a stage with so many axes in a loop, and the loops between."""

    def search(node: Any, between: list[Any]) -> tuple[Any, list[Any]] | None:
        if isinstance(node, SBlockRealize):
            own = len(node.block.iter_vars) == axes
            return (node, between) if own else None
        within = [*between, node] if isinstance(node, tirx.For) else between
        inside = node.seq if isinstance(node, tirx.SeqStmt) else [getattr(node, "body", None)]
        found = (search(it, within) for it in inside if it is not None)
        return next((it for it in found if it is not None), None)

    found = search(loop.body, [])
    if found is None:
        raise InvalidSchedule(f"bound_loop: {loop.loop_var.name} has no statement of its stage")
    return found


def bound_loops(module: IRModule) -> IRModule:
    """A lowered module whose bounded loops run as far as is said around them.

    Threads take the iterations of parallel loops around them in turns, for neighbours take about
    as long; but where stores pass the caches, which divides the loops otherwise.
    """

    def changed(function: Any) -> Any:
        return _bounded(function) if any(map(_is_mark, _all(function.body))) else function

    return with_functions(module, changed)


def _bounded(function: Any) -> Any:
    def ended(mark: Any) -> Any:
        if not _is_mark(mark):
            return mark

        def shortened(loop: Any) -> Any:
            if BOUND not in loop.annotations:
                return loop
            if int(loop.annotations[BOUND].value) != int(mark.node.value):
                return loop
            annotations = {name: it for name, it in loop.annotations.items() if name != BOUND}
            return _loop(loop, tirx.min(loop.extent, mark.value), loop.body, annotations)

        return structural_map(mark.body, (tirx.For, shortened))

    def in_turns(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL or not any(map(_is_mark, _all(loop.body))):
            return loop
        one = tirx.const(1, "int32")
        return tirx.AttrStmt(one, _LAUNCH, one, tirx.AttrStmt(one, _IN_TURNS, one, loop))

    launched = any(
        isinstance(it, tirx.AttrStmt) and it.attr_key == _LAUNCH for it in _all(function.body)
    )
    shared = function if launched else structural_map(function, (tirx.For, in_turns))
    return structural_map(shared, (tirx.AttrStmt, ended))


def _is_mark(node: Any) -> bool:
    return isinstance(node, tirx.AttrStmt) and node.attr_key == BOUND


def _all(node: Any) -> list[Any]:
    """The statements with attributes in a statement."""
    found: list[Any] = []
    structural_walk(node, (tirx.AttrStmt, found.append))
    return found


def _loop(loop: Any, extent: Any, body: Any, annotations: Any) -> Any:
    return tirx.For(
        *(loop.loop_var, loop.min, extent, loop.kind, body),
        *(loop.thread_binding, annotations, loop.step),
    )
