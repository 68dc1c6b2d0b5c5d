"""Loops of which only some iterations are run, those that compute anything of use.

Which they are depends on loops outside. Passes of TVM that derive what is allocated from how far
loops run see loops of full length: where a loop ends and begins is noted around it, and takes
the place of its extent when nothing is left to derive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from autotune.backends import InvalidSchedule
from autotune.sketches import BoundLoop
from autotune_tvm.linked_text import with_functions
from autotune_tvm.passes.statements import at, replaced, with_bodies

__all__ = ["BOUND", "bound_loops", "note_bounds", "written_bound"]

BOUND = "autotune.bound"
"""The annotation of loops that are bounded, and the mark of where they end."""

_BEGIN = "autotune.begin"

_LAUNCH = "pragma_parallel_launch_point"
_IN_TURNS = "pragma_parallel_stride_pattern"


def written_bound(step: BoundLoop, axes: Sequence[str], offset: int, least: int | None) -> str:
    """What an annotation says.

    Args:
        step: The step.
        axes: Names of the stage's axes.
        offset: Value of the step's.
        least: Value of the step's.
    """
    own, other = axes.index(step.loop.rpartition(".")[0]), axes.index(step.axis)
    numbers = [len(axes), own, other, step.scale, step.stride, offset]
    return " ".join(map(str, numbers if least is None else [*numbers, least]))


def note_bounds(module: IRModule) -> IRModule:
    """A scheduled module that says around each bounded loop which iterations it runs.

    Raises:
        InvalidSchedule: a loop does not move its axis in steps of one size.
    """
    count = 0

    def noted(node: Any) -> Any | None:
        nonlocal count
        if not isinstance(node, tirx.For) or BOUND not in node.annotations:
            return None
        (begin, end), number = _ends(node), tirx.const(count, "int32")
        count += 1
        annotations = {**dict(node.annotations), BOUND: number}
        made = _loop(node, node.min, node.extent, replaced(node.body, noted), annotations)
        if begin is not None:
            made = tirx.AttrStmt(number, _BEGIN, begin, made)
        return tirx.AttrStmt(number, BOUND, end, made)

    return with_bodies(module, lambda body: replaced(body, noted))


def _ends(loop: Any) -> tuple[Any | None, Any]:
    """The first iteration of a loop, if not 0, and the one behind the last, by loops outside."""
    axes, own, other, scale, stride, offset, *least = map(
        int, str(loop.annotations[BOUND]).split()
    )
    realize, inner = _block(loop, axes)
    values, inside = realize.iter_values, [it.loop_var for it in inner]
    firsts, lasts = [it.min for it in inner], [it.min + it.extent - 1 for it in inner]
    near, far = (lasts, firsts) if stride < 0 else (firsts, lasts)
    variable, analyzer = loop.loop_var, Analyzer()

    def position(own_at: list[Any], other_at: list[Any], iteration: Any) -> Any:
        along, across = at(values[own], inside, own_at), at(values[other], inside, other_at)
        return at(along * scale + across * stride, [variable], [iteration])

    low = position(firsts, near, loop.min)
    step = analyzer.simplify(position(firsts, near, loop.min + 1) - low)
    if not isinstance(step, tirx.IntImm) or int(step.value) < 1:
        raise InvalidSchedule(f"bound_loop: {variable.name} does not move its axis tile by tile")
    end = analyzer.simplify(tirx.floordiv(offset - low, step) + 1)
    if not least:
        return None, end
    high = position(lasts, far, loop.min)
    begin = tirx.max(tirx.floordiv(least[0] - high + step - 1, step), 0)
    return analyzer.simplify(begin), end


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
    """A lowered module whose bounded loops run the iterations that are said around them.

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
            # The mark of the beginning is inside that of the end.
            if mark.attr_key == _BEGIN:
                left = loop.extent - mark.value
                return _loop(loop, mark.value, left, loop.body, loop.annotations)
            annotations = {name: it for name, it in loop.annotations.items() if name != BOUND}
            left = tirx.min(loop.min + loop.extent, mark.value) - loop.min
            return _loop(loop, loop.min, left, loop.body, annotations)

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
    return isinstance(node, tirx.AttrStmt) and node.attr_key in (BOUND, _BEGIN)


def _all(node: Any) -> list[Any]:
    """The statements with attributes in a statement."""
    found: list[Any] = []
    structural_walk(node, (tirx.AttrStmt, found.append))
    return found


def _loop(loop: Any, first: Any, extent: Any, body: Any, annotations: Any) -> Any:
    return tirx.For(
        *(loop.loop_var, first, extent, loop.kind, body),
        *(loop.thread_binding, annotations, loop.step),
    )
