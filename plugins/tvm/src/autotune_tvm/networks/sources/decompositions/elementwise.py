"""Elementwise operators, and searches among boundaries."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["elementwise"]


def elementwise(aten: Any) -> dict[Any, Any]:
    """By operator."""
    return {
        aten.hypot.default: _hypotenuse,
        aten.exp2.default: _power_of_two,
        aten.erfc.default: _complementary_error,
        aten.signbit.default: _is_negative,
        aten.copysign.Tensor: _with_sign,
        aten.fmax.default: _fmax,
        aten.fmin.default: _fmin,
        aten.elu.default: _scaled_elu,
        aten.searchsorted.Tensor: _searchsorted,
    }


def _complementary_error(x: Any) -> Any:
    import torch

    return 1.0 - torch.erf(x)


def _is_negative(x: Any) -> Any:
    """Negative zeros count as zeros."""
    return x < 0


def _with_sign(x: Any, sign: Any) -> Any:
    import torch

    return torch.where(sign < 0, -torch.abs(x), torch.abs(x))


def _scaled_elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """TVM leaves the factors out, which make a SELU of it."""
    import torch

    if scale == 1 and input_scale == 1:
        return NotImplemented
    return torch.where(x > 0, x, alpha * torch.expm1(x * input_scale)) * scale


def _hypotenuse(x: Any, y: Any) -> Any:
    import torch

    return torch.sqrt(x * x + y * y)


def _power_of_two(x: Any) -> Any:
    import torch

    return torch.exp(x * math.log(2.0))


def _fmax(x: Any, y: Any) -> Any:
    import torch

    return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, torch.maximum(x, y)))


def _fmin(x: Any, y: Any) -> Any:
    import torch

    return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, torch.minimum(x, y)))


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
