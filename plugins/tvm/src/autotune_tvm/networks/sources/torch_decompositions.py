"""Operators of torch in terms of others, where TVM's translator lacks them or reads them wrongly.

What is here computes with torch's own tensors, and is traced into the graph in place of the
operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

__all__ = ["decompose"]

Decomposition = Callable[..., Any]

_MOST_ROUNDS = 3
"""How often what a decomposition leads to is decomposed again."""


def decompose(program: Any, known: Collection[str]) -> Any:
    """An exported program of operators that can be translated, as far as torch can express it so.

    Args:
        program: The ``ExportedProgram``.
        known: Names of the operators that can be translated, such as ``"add.Tensor"``.

    Raises:
        Exception: whatever torch meets.
    """
    import torch

    table = torch.export.default_decompositions()
    table.update(_own_table())
    decomposed = program.run_decompositions(table)
    possible = torch._decomp.decomposition_table
    for _ in range(_MOST_ROUNDS):
        targets = {node.target for node in decomposed.graph.nodes if node.op == "call_function"}
        missing = [it for it in targets if it in possible and it.__name__ not in known]
        if not missing:
            break
        table.update({target: possible[target] for target in missing})
        decomposed = decomposed.run_decompositions(table)
    return decomposed


def _own_table() -> dict[Any, Decomposition]:
    import torch

    aten = torch.ops.aten
    sampler = torch._decomp.decomposition_table[aten.grid_sampler_2d.default]
    return {
        aten.upsample_nearest2d.vec: _nearest_2d,
        # TVM takes the grid as [batch, 2, rows, columns].
        aten.grid_sampler_2d.default: sampler,
        aten.adaptive_max_pool2d.default: _adaptive_max_pool_2d,
        aten.hypot.default: _hypotenuse,
        aten.exp2.default: _power_of_two,
        aten.searchsorted.Tensor: _searchsorted,
        aten._cdist_forward.default: _distances,
        aten.unfold.default: _unfold,
        aten.cummax.default: _cumulative(_later_if_no_smaller),
        aten.cummin.default: _cumulative(_later_if_no_larger),
        aten.logcumsumexp.default: _cumulative_logarithm,
        aten.fmax.default: _fmax,
        aten.fmin.default: _fmin,
    }


def _nearest_2d(data: Any, size: Any, factors: Any) -> Any:
    """Nearest neighbours, where TVM's differ: it takes the centre of an element, torch its start.

    Both agree where each element becomes a whole number of elements.
    """
    import torch

    extents = data.shape[2:]
    if size is None:
        size = [int(extent * by) for extent, by in zip(extents, factors, strict=True)]
        steps = [1.0 / by for by in factors]
    else:
        steps = [extent / to for extent, to in zip(extents, size, strict=True)]
    if all(to % extent == 0 for extent, to in zip(extents, size, strict=True)):
        return NotImplemented
    result = data
    for dim, (extent, to, step) in enumerate(zip(extents, size, steps, strict=True), start=2):
        # In single precision, as torch does.
        places = torch.arange(to, dtype=torch.float32) * step
        places = torch.clamp(torch.floor(places).to(torch.int64), max=extent - 1)
        result = torch.index_select(result, dim, places)
    return result


def _adaptive_max_pool_2d(data: Any, size: Any) -> Any:
    """The largest of the elements of every cell, and where it is."""
    import torch

    height, width = data.shape[-2:]
    rows, columns = _cells(height, size[0]), _cells(width, size[1])
    by_row = torch.index_select(data, -2, rows.flatten())
    cells = torch.index_select(by_row, -1, columns.flatten())
    cells = cells.reshape(*data.shape[:-2], *rows.shape, *columns.shape).transpose(-3, -2)
    cells = cells.flatten(-2)
    values, which = torch.max(cells, -1)
    places = rows[:, None, :, None] * width + columns[None, :, None, :]
    places = places.flatten(-2).expand(cells.shape)
    return values, torch.gather(places, -1, which.unsqueeze(-1)).squeeze(-1)


def _cells(extent: int, count: int) -> Any:
    """The elements of each of ``count`` cells, as int64 [count, the most that one has].

    A cell of fewer elements has its last one several times.
    """
    import torch

    most = max(
        math.ceil((i + 1) * extent / count) - i * extent // count for i in range(count)
    )
    number = torch.arange(count)
    starts = number * extent // count
    ends = ((number + 1) * extent + count - 1) // count
    return torch.minimum(starts[:, None] + torch.arange(most), ends[:, None] - 1)


def _hypotenuse(x: Any, y: Any) -> Any:
    import torch

    return torch.sqrt(x * x + y * y)


def _power_of_two(x: Any) -> Any:
    import torch

    return torch.exp(x * math.log(2.0))


def _searchsorted(
    boundaries: Any,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """How many boundaries are in front of each value, in rows of their own or in all the same."""
    import torch

    if sorter is not None:
        return NotImplemented
    rows, each = boundaries.unsqueeze(-2), values.unsqueeze(-1)
    in_front = rows <= each if right or side == "right" else rows < each
    return torch.sum(in_front, -1, dtype=torch.int32 if out_int32 else torch.int64)


def _distances(left: Any, right: Any, power: float, mode: Any) -> Any:
    """Distances of all pairs of rows by a norm."""
    import torch

    apart = torch.abs(left.unsqueeze(-2) - right.unsqueeze(-3))
    if power == 0:
        return torch.sum((apart != 0).to(left.dtype), -1)
    if power == 1:
        return torch.sum(apart, -1)
    if power == 2:
        return torch.sqrt(torch.sum(apart * apart, -1))
    if math.isinf(power):
        return torch.amax(apart, -1)
    return torch.pow(torch.sum(torch.pow(apart, power), -1), 1.0 / power)


def _unfold(data: Any, dim: int, size: int, step: int) -> Any:
    """Windows along one dimension, as a last one."""
    import torch

    dim = dim % data.dim()
    count = (data.shape[dim] - size) // step + 1
    places = torch.arange(count).unsqueeze(1) * step + torch.arange(size)
    windows = torch.index_select(data, dim, places.flatten())
    shape = (*data.shape[:dim], count, size, *data.shape[dim + 1 :])
    return torch.movedim(windows.reshape(shape), dim + 1, -1)


def _fmax(x: Any, y: Any) -> Any:
    import torch

    return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, torch.maximum(x, y)))


def _fmin(x: Any, y: Any) -> Any:
    import torch

    return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, torch.minimum(x, y)))


def _cumulative(is_kept: Callable[[Any, Any], Any]) -> Decomposition:
    """Running extremes and their places: each element is compared with that ``step`` before it,
    for every power of two."""
    import torch

    def decomposition(data: Any, dim: int) -> Any:
        if not data.dim():
            return data, torch.zeros_like(data, dtype=torch.int64)
        extent = data.shape[dim]
        shape = [1] * data.dim()
        shape[dim] = extent
        places = torch.arange(extent).reshape(shape).expand(data.shape)
        step = 1
        while step < extent:
            later, before = data.narrow(dim, step, extent - step), data.narrow(dim, 0, extent - step)
            kept = is_kept(later, before)
            first, then = places.narrow(dim, 0, extent - step), places.narrow(dim, step, extent - step)
            data = torch.cat([data.narrow(dim, 0, step), torch.where(kept, later, before)], dim)
            places = torch.cat([places.narrow(dim, 0, step), torch.where(kept, then, first)], dim)
            step *= 2
        return data, places

    return decomposition


def _later_if_no_smaller(later: Any, before: Any) -> Any:
    return later >= before


def _later_if_no_larger(later: Any, before: Any) -> Any:
    return later <= before


def _cumulative_logarithm(data: Any, dim: int) -> Any:
    """Logarithms of running sums of exponentials, by sums over powers of two."""
    import torch

    extent, step = data.shape[dim] if data.dim() else 1, 1
    while step < extent:
        later, before = data.narrow(dim, step, extent - step), data.narrow(dim, 0, extent - step)
        data = torch.cat([data.narrow(dim, 0, step), torch.logaddexp(later, before)], dim)
        step *= 2
    return data
