"""Images in another size, and images sampled at places that are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import Value, cast, clamp, resample, take, unary
from autotune.networks.readers.resize_weights import AxisResize, Interpolation
from autotune.networks.readers.sampling import sampled
from autotune.networks.readers.torch.call import Call, Operator
from autotune.networks.readers.torch.operators.operands import is_float, vector

__all__ = ["RESAMPLING"]


def _scale(call: Call, axis: int) -> float | None:
    """Factor by which an axis becomes longer, where that is given."""
    given = call.get("scale_factors")
    if given:
        return float(given[axis])
    names = ("scales",) if "scales" in call.arguments else ("scales_d", "scales_h", "scales_w")
    known = [call.get(it) for it in names if it in call.arguments]
    return float(known[axis]) if known and known[axis] is not None else None


def _nearest(call: Call) -> Value:
    """Elements below the places, or next to them."""
    x = call.x
    for axis, to in enumerate(call.shape[2:], start=2):
        places = _neighbours(call, x.shape[axis], to, _scale(call, axis - 2))
        if to != x.shape[axis] or (places != np.arange(to)).any():
            x = take(x, vector(places), axis)
    return x


def _neighbours(call: Call, extent: int, to: int, scale: float | None) -> np.ndarray[Any, Any]:
    """Places as torch computes them, in single precision; it never scales by 1 or 2."""
    is_exact = "exact" in call.kind
    if not is_exact and to in (extent, 2 * extent):
        return np.asarray(np.arange(to) * extent // to)
    step = np.float32(1 / scale) if scale else np.float32(extent) / np.float32(to)
    at = (np.arange(to, dtype=np.float32) + np.float32(0.5 if is_exact else 0)) * step
    return np.asarray(np.minimum(np.floor(at).astype(np.int64), extent - 1))


def _interpolated(call: Call) -> Value:
    x, corners = call.x, bool(call["align_corners"])
    mode = next((it for it in ("cubic", "lanczos") if it in call.kind), "linear")
    smooth = call.kind.endswith("_aa")
    how = Interpolation(
        mode,
        "align_corners" if corners else "half_pixel",
        # Keys' polynomial is another one where results are averages.
        coefficient=-0.5 if smooth else -0.75,
        smooth=smooth,
        leave_out=smooth,
    )
    found = x if is_float(x.dtype) else cast(x, "float64")
    for axis, to in enumerate(call.shape[2:]):
        extent, scale = x.shape[axis + 2], _scale(call, axis)
        if extent == to and (scale is None or scale == 1):
            continue
        ratio = to / extent if scale is None or corners else scale
        matrix, _ = how.weights(AxisResize(extent, to, ratio))
        taps = max(1, int((matrix != 0).sum(1).max()))
        places = np.argsort(matrix == 0, axis=1, kind="stable")[:, :taps]
        found = resample(found, axis + 2, places, np.take_along_axis(matrix, places, 1))
    return found if found.dtype == x.dtype else _rounded(found, x.dtype)


def _rounded(found: Value, dtype: str) -> Value:
    if dtype != "uint8":
        raise UnsupportedWorkload(f"images of {dtype} are not supported")
    return cast(clamp(unary("round", found), 0, 255), dtype)


_MODES = ("linear", "nearest", "cubic")
_MARGINS = ("zeros", "border", "reflection")


def _grid_sample(call: Call) -> Value:
    mode, margins = _MODES[call["interpolation_mode"]], _MARGINS[call["padding_mode"]]
    return sampled(call.x, call["grid"], mode, margins, bool(call["align_corners"]))


def _names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for at in (1, 2, 3):
        found[f"upsample_nearest{at}d"] = _nearest
        found[f"_upsample_nearest_exact{at}d"] = _nearest
        found[f"grid_sampler_{at}d"] = _grid_sample
    for name in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d"):
        found[f"upsample_{name}"] = _interpolated
    for name in ("bilinear2d", "bicubic2d", "lanczos2d"):
        found[f"_upsample_{name}_aa"] = _interpolated
    return found


RESAMPLING: Mapping[str, Operator] = _names()
