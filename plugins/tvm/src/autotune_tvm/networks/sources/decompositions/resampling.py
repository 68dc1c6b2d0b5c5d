"""Resampling of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["resampling"]


def resampling(aten: Any) -> dict[Any, Any]:
    """By operator."""
    import torch

    known = torch._decomp.decomposition_table
    table = {
        aten.upsample_nearest2d.vec: _nearest_2d,
        aten.upsample_bilinear2d.vec: _where_tvm_differs(known[aten.upsample_bilinear2d.vec]),
        aten.upsample_bicubic2d.vec: _where_tvm_differs(known[aten.upsample_bicubic2d.vec]),
        aten._upsample_bilinear2d_aa.default: _smoothed(_triangle, 1.0),
        aten._upsample_bicubic2d_aa.default: _smoothed(_cubic, 2.0),
        # TVM takes the grid as [batch, 2, rows, columns].
        aten.grid_sampler_2d.default: known[aten.grid_sampler_2d.default],
    }
    if hasattr(aten, "_upsample_lanczos2d_aa"):
        table[aten._upsample_lanczos2d_aa.default] = _smoothed(_lanczos, 3.0)
    return table


def _where_tvm_differs(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Factors that are no ratio of sizes, of which TVM takes the sizes, and a single element whose
    corners are aligned, of which it divides by zero."""

    def resample(data: Any, size: Any, align_corners: bool, factors: Any) -> Any:
        extents = data.shape[2:]
        if factors is None:
            lengths, are_whole = list(size), True
        else:
            products = [extent * by for extent, by in zip(extents, factors, strict=True)]
            lengths = list(map(int, products))
            are_whole = products == lengths
        if are_whole and not (align_corners and 1 in lengths):
            return NotImplemented
        return decomposition(data, size, align_corners, factors)

    return resample


def _smoothed(filtered: Callable[[Any], Any], radius: float) -> Callable[..., Any]:
    """Resampling that is smoothed where the image becomes smaller: a product with weights along
    each axis."""
    import torch

    def resample(
        data: Any, size: Any, align_corners: bool, by_rows: Any = None, by_columns: Any = None
    ) -> Any:
        rows, columns = (
            _weights(extent, to, align_corners, by, filtered, radius).to(data.dtype)
            for extent, to, by in zip(data.shape[2:], size, (by_rows, by_columns), strict=True)
        )
        return torch.matmul(rows, torch.matmul(data, columns.transpose(0, 1)))

    return resample


def _weights(
    extent: int,
    to: int,
    align_corners: bool,
    factor: float | None,
    filtered: Callable[[Any], Any],
    radius: float,
) -> Any:
    """Weights of the elements of an axis, as float32 [elements of the result, elements]."""
    import torch

    if align_corners:
        step = (extent - 1) / (to - 1) if to > 1 else 0.0
    else:
        step = 1.0 / factor if factor else extent / to
    wide = max(step, 1.0)
    centres = (torch.arange(to, dtype=torch.float32) + 0.5).unsqueeze(1) * step
    places = torch.arange(extent, dtype=torch.float32)
    first = torch.clamp(torch.floor(centres - radius * wide + 0.5), min=0)
    last = torch.clamp(torch.floor(centres + radius * wide + 0.5), max=extent)
    inside = (places >= first) & (places < last)
    weights = torch.where(inside, filtered((places - centres + 0.5) / wide), 0.0)
    return weights / torch.sum(weights, 1, keepdim=True)


def _triangle(x: Any) -> Any:
    import torch

    return torch.clamp(1.0 - torch.abs(x), min=0.0)


def _cubic(x: Any) -> Any:
    """Keys' cubic convolution with a = -1/2, as torch takes it for smoothed resampling."""
    import torch

    x = torch.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, 0.0))


def _lanczos(x: Any) -> Any:
    """Lanczos's kernel, the middle lobe of a sinc times a sinc, over three lobes to each side."""
    import torch

    turned = torch.pi * torch.where(x == 0, 1.0, x)
    lobes = 3.0 * torch.sin(turned) * torch.sin(turned / 3.0) / (turned * turned)
    return torch.where(x == 0, 1.0, torch.where(torch.abs(x) < 3.0, lobes, 0.0))


def _nearest_2d(data: Any, size: Any, factors: Any) -> Any:
    """Nearest neighbours, where TVM's differ: it takes the centre of an element, torch its start.

    Both agree where each element becomes a whole number of elements. Torch takes no factor where
    an axis keeps its length or doubles it.
    """
    import torch

    extents = data.shape[2:]
    if size is None:
        size = [int(extent * by) for extent, by in zip(extents, factors, strict=True)]
        steps = [1.0 / by for by in factors]
    else:
        steps = [extent / to for extent, to in zip(extents, size, strict=True)]
    axes = [
        (extent, to, extent / to if to in (extent, 2 * extent) else step)
        for extent, to, step in zip(extents, size, steps, strict=True)
    ]
    if all(to % extent == 0 and step == extent / to for extent, to, step in axes):
        return NotImplemented
    result = data
    for dim, (extent, to, step) in enumerate(axes, start=2):
        # In single precision, as torch does.
        places = torch.arange(to, dtype=torch.float32) * step
        places = torch.clamp(torch.floor(places).to(torch.int64), max=extent - 1)
        result = torch.index_select(result, dim, places)
    return result
