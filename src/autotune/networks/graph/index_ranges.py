"""Which indices a workload may be given that reads where data says.

A node that an operation of this package makes knows it; of a workload that somebody else wrote it
is found by trying all indices around the range that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.ir.expressions import Cast, Gather, IndexValue, Load, ScalarExpr, Select, var
from autotune.ir.expressions.scalar import children, loads, transform, walk
from autotune.ir.workloads import Tensor, Workload
from autotune.ir.workloads.composing import computed_where_read
from autotune.ir.workloads.reference import evaluate_body
from autotune.networks.graph.graph import Requirement

__all__ = ["index_requirements"]

_LEAST, _MOST = (int(it) for it in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))
_TRIED = "tried"
_FARTHEST = 1 << 22


def index_requirements(given: Workload) -> list[Requirement]:
    """Conditions on the inputs of a workload whose elements are places that it reads.

    Those are found that are computed of one element of an input each, outside of choices, which
    may leave out what must not be read.

    Args:
        given: The workload.
    """
    gathered = {it.tensor for stage in given.stages for it in stage.gathers}
    if not gathered:
        return []
    kept = {*gathered, *given.outputs}
    moved = [it.name for it in given.stages if it.combiner is None and it.name not in kept]
    inputs = {it.name: (number, it) for number, it in enumerate(given.inputs)}
    found = []
    for stage in computed_where_read(given, moved).stages:
        for gather in _always_read(stage.body):
            shape = given.tensors[gather.tensor].shape
            for index, extent in zip(gather.indices, shape, strict=True):
                read = {*loads(index)}
                if len(read) == 1 and (load := read.pop()).tensor in inputs:
                    number, tensor = inputs[load.tensor]
                    bounds = _bounds(index, load, tensor, extent)
                    if bounds is not None:
                        found.append(_requirement(number, tensor, load, *bounds))
    return [*dict.fromkeys(found)]


def _always_read(body: ScalarExpr) -> Iterator[Gather]:
    """Gathers of a body but those on one side of a choice."""
    if isinstance(body, Gather):
        yield body
    parts = (body.condition,) if isinstance(body, Select) else children(body)
    for part in parts:
        yield from _always_read(part)


def _bounds(index: ScalarExpr, load: Load, tensor: Tensor, extent: int) -> tuple[int, int] | None:
    """The smallest and the largest element by which a place within an extent is read.

    Returns:
        None where any element is allowed, or they are no range.
    """
    kind = tensor.element.dtype
    if kind.kind not in "iu" or any(isinstance(it, IndexValue | Gather) for it in walk(index)):
        return None
    limits, reach = np.iinfo(kind), extent + 1
    alone = Load(_TRIED, (var(_TRIED),))
    body = transform(Cast("int64", index), lambda it: alone if it == load else None)
    while True:
        around = range(max(limits.min, -reach), min(limits.max, reach) + 1)
        tried = np.array([limits.min, *around, limits.max], kind)
        allowed = _reads_within(body, tried, extent)
        ends_beyond = [allowed[near] and not allowed[far] for near, far in ((1, 0), (-2, -1))]
        if (allowed.any() and not any(ends_beyond)) or reach > _FARTHEST:
            break
        reach *= 4
    numbers = np.flatnonzero(allowed)
    if not numbers.size or numbers.size == tried.size or np.any(np.diff(numbers) != 1):
        return None
    low = _LEAST if allowed[0] and limits.min else int(tried[numbers[0]])
    return low, _MOST if allowed[-1] else int(tried[numbers[-1]])


def _reads_within(body: ScalarExpr, tried: NDArray[Any], extent: int) -> NDArray[Any]:
    """Tell of each element that is tried if the place is within the extent."""
    found = evaluate_body(body, {_TRIED: np.arange(tried.size)}, {_TRIED: tried})
    places: NDArray[Any] = np.broadcast_to(found, tried.shape)
    return (places >= 0) & (places < extent)


def _requirement(number: int, tensor: Tensor, load: Load, low: int, high: int) -> Requirement:
    """A condition on all elements, or on those at one place along the last axis."""
    place = load.indices[-1].value if load.indices and tensor.shape[-1] > 1 else None
    if place is None:
        least, most = (None if it in (_LEAST, _MOST) else it for it in (low, high))
        return Requirement(number, least, most)
    lows, highs = ([it] * tensor.shape[-1] for it in (_LEAST, _MOST))
    lows[place], highs[place] = low, high
    return Requirement(number, tuple(lows), tuple(highs))
