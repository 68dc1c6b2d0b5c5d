"""Windows, views by strides, and cells of adaptive pooling."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["windows"]


def windows(aten: Any) -> dict[Any, Any]:
    """By operator."""
    return {
        aten.adaptive_max_pool2d.default: _adaptive_max_pool_2d,
        aten.avg_pool2d.default: _divided_pool,
        aten.unfold.default: _unfold,
        aten.as_strided.default: _strided,
    }


def _divided_pool(
    data: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """TVM divides by the size of the window whatever the divisor."""
    import torch

    if divisor_override is None or ceil_mode:
        return NotImplemented
    size = math.prod(kernel) if len(kernel) > 1 else kernel[0] ** 2
    mean = torch.ops.aten.avg_pool2d.default(data, kernel, stride, padding, False, True)
    return mean * (size / divisor_override)


def _strided(data: Any, size: Any, stride: Any, offset: int | None = None) -> Any:
    """Elements of a contiguous tensor by their distances."""
    import torch

    if not data.is_contiguous() or not size:
        return NotImplemented
    places = torch.full([1] * len(size), offset or 0, dtype=torch.int64)
    for dim, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [1] * len(size)
        shape[dim] = extent
        places = places + torch.arange(extent).reshape(shape) * step
    return torch.index_select(data.reshape(-1), 0, places.flatten()).reshape(size)


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

    most = max(math.ceil((i + 1) * extent / count) - i * extent // count for i in range(count))
    number = torch.arange(count)
    starts = number * extent // count
    ends = ((number + 1) * extent + count - 1) // count
    return torch.minimum(starts[:, None] + torch.arange(most), ends[:, None] - 1)


def _unfold(data: Any, dim: int, size: int, step: int) -> Any:
    """Windows along one dimension, as a last one."""
    import torch

    dim = dim % data.dim()
    count = (data.shape[dim] - size) // step + 1
    places = torch.arange(count).unsqueeze(1) * step + torch.arange(size)
    windows = torch.index_select(data, dim, places.flatten())
    shape = (*data.shape[:dim], count, size, *data.shape[dim + 1 :])
    return torch.movedim(windows.reshape(shape), dim + 1, -1)
