"""Extents of loops; what a statement touches of a buffer: hulls and distinct elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from attrs import frozen

from autotune.ir.expressions import IntExpr, const, maximum, minimum, product
from autotune.nest.loop_nest import ELEMENT, Access, LoopNest, Statement, extended

__all__ = [
    "KIND_OUTPUTS",
    "Region",
    "body_depth",
    "buffers_of",
    "distinct",
    "held_depth",
    "loop_quantities",
    "region_dimensions",
    "region_elements",
    "region_quantities",
    "regions_inside",
    "unique_elements",
]


def buffers_of(statement: Statement) -> tuple[str, ...]:
    """Names of the buffers that a statement touches, each once, reads first."""
    return tuple(dict.fromkeys(access.buffer for access in statement.accesses))


def held_depth(nest: LoopNest, buffer: str) -> int:
    """Loops outside the allocation of a buffer; 0 for what exists outside the nest.

    A buffer of the schedule is the same memory in every iteration of those loops.
    """
    known = nest.buffer(buffer)
    return 0 if known is None else known.depth


@frozen(eq=False)
class Region:
    """Part of a buffer that a statement touches inside some depth.

    Attributes:
        dimensions: As of :func:`region_dimensions`.
        elements: As of :func:`region_elements`.
    """

    dimensions: tuple[IntExpr, ...]
    elements: IntExpr


def regions_inside(statement: Statement, buffer: str, depths: Iterable[int]) -> dict[int, Region]:
    """Parts of ``buffer`` that a statement touches inside each of ``depths``."""
    groups = _translates(statement, buffer)
    return {depth: _region(statement, groups, depth) for depth in depths}


def region_dimensions(statement: Statement, buffer: str, depth: int) -> tuple[IntExpr, ...]:
    """Extents of the hull of what a statement touches of ``buffer`` inside ``depth``.

    Accesses whose indices differ by constants only have one hull. Accesses of different shapes
    keep their own: each dimension is then the largest.
    """
    return _region(statement, _translates(statement, buffer), depth).dimensions


def region_elements(statement: Statement, buffer: str, depth: int) -> IntExpr:
    """Elements of the hulls of ``buffer`` that a statement touches inside ``depth``.

    Hulls of accesses of different shapes are added, at most all that is within their bounds.
    """
    return _region(statement, _translates(statement, buffer), depth).elements


def unique_elements(statement: Statement, buffer: str, depth: int) -> IntExpr:
    """Elements of ``buffer`` that a statement really touches inside ``depth``.

    Exact when dimensions move independently (no axis in two of them) and each index is one that
    :func:`~autotune.nest.quantities.regions.distinct` counts exactly; else an upper
    bound. Positions that a padding predicate hides at a border count as touched, up to the
    bounds of the buffer.
    """
    return _unique(statement, _translates(statement, buffer), depth)


def region_quantities(nest: LoopNest, statement: Statement) -> dict[str, IntExpr]:
    """``region``, ``unique``, ``dimension`` and ``tile`` of one statement, by output name.

    Inside fewer loops than its allocation a buffer holds what it holds at its allocation.
    """
    outputs: dict[str, IntExpr] = {}
    name = statement.name
    for buffer in buffers_of(statement):
        groups = _translates(statement, buffer)
        held = held_depth(nest, buffer)
        depths = range(held, len(statement.loops) + 1)
        regions = {depth: _region(statement, groups, depth) for depth in depths}
        uniques = {depth: _unique(statement, groups, depth) for depth in depths}
        for depth in range(len(statement.loops) + 1):
            outputs[f"{name}/region/{buffer}/{depth}"] = regions[max(depth, held)].elements
            outputs[f"{name}/unique/{buffer}/{depth}"] = uniques[max(depth, held)]
        for index, extent in enumerate(regions[held].dimensions):
            outputs[f"{name}/dimension/{buffer}/{index}"] = extent
        outputs[f"{name}/tile/{buffer}"] = regions[max(body_depth(statement), held)].elements
    return outputs


def _region(statement: Statement, groups: list[list[Access]], depth: int) -> Region:
    hulls = [_hull(statement, group, depth) for group in groups]
    if len(hulls) == 1:
        return Region(hulls[0], product(hulls[0]))
    dimensions = tuple(_largest(extents) for extents in zip(*hulls, strict=True))
    bounds = zip(*(access.shape for group in groups for access in group), strict=True)
    whole = product(_largest(extents) for extents in bounds)
    return Region(dimensions, minimum(_sum(map(product, hulls)), whole))


def _unique(statement: Statement, groups: list[list[Access]], depth: int) -> IntExpr:
    counts = [_touched(statement, access, depth) for group in groups for access in group]
    if len(counts) == 1:
        return counts[0]
    return minimum(_sum(counts), _region(statement, groups, depth).elements)


def _touched(statement: Statement, access: Access, depth: int) -> IntExpr:
    """Elements that one access touches."""
    elements = const(1)
    for form, size in zip(access.forms, access.shape, strict=True):
        count = distinct(statement.terms(form, depth))
        within = statement.within_bounds(access, form, depth)
        elements = elements * (count if within else minimum(count, size))
    run = _run(statement, depth)
    return elements if run is None else minimum(elements, run)


def _run(statement: Statement, depth: int) -> IntExpr | None:
    """Elements that the loops of a flattened copy from ``depth`` on count; None for all."""
    counting = [any(axis == ELEMENT for axis, _ in loop.parts) for loop in statement.loops]
    if True not in counting[:depth]:
        return None
    inner = zip(statement.loops[depth:], counting[depth:], strict=True)
    return product(loop.extent for loop, counts in inner if counts)


def _accesses(statement: Statement, buffer: str) -> list[Access]:
    """Accesses of a buffer, each place once: what is read and written is touched once."""
    found: dict[str, Access] = {}
    for access in statement.accesses:
        if access.buffer == buffer:
            found.setdefault(repr([(_key(access)), [f.constant for f in access.forms]]), access)
    return list(found.values())


def _key(access: Access) -> list[list[tuple[str, int]]]:
    return [sorted(form.coefficients.items()) for form in access.forms]


def _translates(statement: Statement, buffer: str) -> list[list[Access]]:
    """Accesses of a buffer, together where they differ by constants only."""
    accesses = sorted(_accesses(statement, buffer), key=lambda access: repr(_key(access)))
    return [list(group) for _, group in itertools.groupby(accesses, key=_key)]


def _hull(statement: Statement, group: list[Access], depth: int) -> tuple[IntExpr, ...]:
    """Hull of accesses that differ by constants only."""
    extents = list(statement.region(group[0], depth))
    for index, forms in enumerate(zip(*(access.forms for access in group), strict=True)):
        constants = [form.constant for form in forms]
        if max(constants) > min(constants):
            extent = const(1 + max(constants) - min(constants))
            for step, reach in statement.terms(forms[0], depth):
                extent = extended(extent, step, reach)
            extents[index] = minimum(extent, _largest(a.shape[index] for a in group))
    return tuple(extents)


def _sum(values: Iterable[IntExpr]) -> IntExpr:
    result = const(0)
    for value in values:
        result = result + value
    return result


def _largest(extents: Iterable[IntExpr]) -> IntExpr:
    first, *rest = extents
    for extent in rest:
        first = maximum(first, extent)
    return first


# Output of a product of loops, and the kind of loop it multiplies.
KIND_OUTPUTS = {
    "parallel": "parallel",
    "lanes": "vectorized",
    "unrolled": "unrolled",
    "grid": "block",
    "vthreads": "vthread",
    "threads": "thread",
}
_STRAIGHT_LINE = ("vectorized", "unrolled")


def body_depth(statement: Statement) -> int:
    """Depth of the straight-line body: after the last loop that is not vectorised or unrolled."""
    remaining = [
        index for index, loop in enumerate(statement.loops) if loop.kind not in _STRAIGHT_LINE
    ]
    return remaining[-1] + 1 if remaining else 0


def loop_quantities(statement: Statement) -> dict[str, IntExpr]:
    """``loop``, ``trips``, the products by kind and ``unroll_limit``, by output name."""
    name = statement.name
    outputs = {f"{name}/loop/{i}": loop.extent for i, loop in enumerate(statement.loops)}
    for depth in range(len(statement.loops) + 1):
        outputs[f"{name}/trips/{depth}"] = statement.trips(depth)
    for output, kind in KIND_OUTPUTS.items():
        product = const(1)
        for loop in statement.loops:
            if loop.kind == kind and loop.name not in statement.cooperating:
                product = product * loop.extent
        outputs[f"{name}/{output}"] = product
    outputs[f"{name}/unroll_limit"] = statement.unroll_limit
    return outputs


Term = tuple[IntExpr, IntExpr]


def distinct(terms: Sequence[Term]) -> IntExpr:
    """Number of distinct values of ``sum(step * at)`` with each ``at`` in ``range(reach)``.

    ``terms`` are ``(step, reach)`` pairs of positive expressions, as
    :meth:`~autotune.nest.Statement.terms` lists them.

    *Two constant steps* ``a`` and ``b``, made coprime, over ``T`` and ``K`` values: two points
    share a value exactly when they differ by a multiple of ``(b, -a)``, so that ``T*K`` points
    take ``T*K - max(T - b, 0) * max(K - a, 0)`` values. Exact.

    *More terms*: points that a subset of the terms reaches lie in their hull, and the other terms
    repeat it at most as often as they have values; the smallest of these products is taken. That
    is exact when, taken by rising step, every term either continues the run of values so far or
    leaves gaps that no later term fills. Row-major indices are such, and copied tiles of windows
    that have a stride or a dilation of 1; otherwise the result is an upper bound.
    """
    moving = [(step, reach) for step, reach in terms if reach.value != 1]
    free = [(step, reach) for step, reach in moving if step.value is None]
    fixed = [(step.value, reach) for step, reach in moving if step.value is not None]
    common = 1 if free else math.gcd(*(step for step, _ in fixed))
    rising = sorted(((step // common, reach) for step, reach in fixed), key=lambda term: term[0])
    return _with_free_steps(*_with_fixed_steps(rising), free)


def _with_fixed_steps(terms: Sequence[tuple[int, IntExpr]]) -> tuple[IntExpr, IntExpr]:
    """Distinct values of terms by rising constant step, and the hull of these values."""
    count, hull = const(1), const(1)
    for position, (step, reach) in enumerate(terms):
        hull = hull + (reach - 1) * step
        if position == 0:
            count = reach
        elif position == 1:
            count = _two(*terms[0], step, reach)
        else:
            count = minimum(count * reach, hull)
    return count, hull


def _two(a: int, first: IntExpr, b: int, second: IntExpr) -> IntExpr:
    common = math.gcd(a, b)
    shared = maximum(first - b // common, 0) * maximum(second - a // common, 0)
    return first * second - shared


def _with_free_steps(count: IntExpr, hull: IntExpr, terms: Sequence[Term]) -> IntExpr:
    """The smallest of: the hull of some terms, times the values of the others."""
    best = count
    for _, reach in terms:
        best = best * reach
    for size in range(1, len(terms) + 1):
        for chosen in itertools.combinations(range(len(terms)), size):
            bound = hull
            for index in chosen:
                step, reach = terms[index]
                bound = extended(bound, step, reach)
            for index, (_, reach) in enumerate(terms):
                bound = bound * (const(1) if index in chosen else reach)
            best = minimum(best, bound)
    return best
