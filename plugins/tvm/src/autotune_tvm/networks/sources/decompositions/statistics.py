"""Normalization and statistics, of types and options that TVM lacks."""

from __future__ import annotations

from typing import Any

__all__ = ["norms_with_moments", "statistics"]

_DIRECT = ("torch.float32", "torch.float16")


def statistics(aten: Any) -> dict[Any, Any]:
    """By operator."""
    return {
        aten.native_group_norm.default: _group_norm,
        aten.native_layer_norm.default: _layer_norm,
        aten._native_batch_norm_legit.no_stats: _batch_norm,
        aten._native_batch_norm_legit_functional.default: _batch_norm_in_training,
        aten.var_mean.correction: _variance_and_mean,
        aten.topk.default: _sorted_topk,
        aten.kthvalue.default: _kth_value,
    }


def norms_with_moments(aten: Any) -> dict[Any, Any]:
    """Norms whose means and factors are used, as gradients do, by operator.

    TVM computes the first output of these only.
    """
    return {
        aten.native_group_norm.default: _whole_group_norm,
        aten.native_layer_norm.default: _whole_layer_norm,
        aten._native_batch_norm_legit.no_stats: _whole_batch_norm,
    }


def _group_norm(data: Any, weight: Any, bias: Any, *sizes: Any) -> Any:
    """In single precision where TVM has no other; with factors where there are none."""
    if str(data.dtype) in _DIRECT and weight is not None and bias is not None:
        return NotImplemented
    return _whole_group_norm(data, weight, bias, *sizes)


def _whole_group_norm(
    data: Any,
    weight: Any,
    bias: Any,
    batch: int,
    channels: int,
    positions: int,
    groups: int,
    eps: float,
) -> Any:
    import torch

    wide = _wide(data)
    rows = wide.reshape(batch, groups, channels // groups * positions)
    centred, mean, scale = _normalized(rows, [2], eps)
    result = centred.reshape(batch, channels, positions)
    if weight is not None:
        result = result * weight.to(wide.dtype).reshape(1, channels, 1)
    if bias is not None:
        result = result + bias.to(wide.dtype).reshape(1, channels, 1)
    flat = (batch, groups)
    moments = mean.reshape(flat).to(data.dtype), scale.reshape(flat).to(data.dtype)
    return (torch.reshape(result, data.shape).to(data.dtype), *moments)


def _layer_norm(data: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """In single or double precision, where TVM has no other."""
    if str(data.dtype) in _DIRECT:
        return NotImplemented
    return _whole_layer_norm(data, shape, weight, bias, eps)


def _whole_layer_norm(data: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    wide = _wide(data)
    result, mean, scale = _normalized(wide, list(range(-len(shape), 0)), eps)
    if weight is not None:
        result = result * weight.to(wide.dtype)
    if bias is not None:
        result = result + bias.to(wide.dtype)
    return result.to(data.dtype), mean, scale


def _batch_norm(data: Any, *options: Any) -> Any:
    """By the statistics of the batch itself, which is what an instance norm is made of."""
    if str(data.dtype) in _DIRECT:
        return NotImplemented
    return _whole_batch_norm(data, *options)


def _whole_batch_norm(
    data: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    wide = _wide(data)
    dims = [dim for dim in range(data.dim()) if dim != 1]
    result, mean, scale = _normalized(wide, dims, eps)
    shape = [1, -1, *[1] * (data.dim() - 2)]
    if weight is not None:
        result = result * weight.to(wide.dtype).reshape(shape)
    if bias is not None:
        result = result + bias.to(wide.dtype).reshape(shape)
    return result.to(data.dtype), mean.flatten(), scale.flatten()


def _batch_norm_in_training(*given: Any) -> Any:
    """By the statistics of the batch, beside the running ones as they are afterwards."""
    import torch

    operator = torch.ops.aten._native_batch_norm_legit_functional.default
    return torch._decomp.decomposition_table[operator](*given)


def _wide(data: Any) -> Any:
    """The numbers in the type that moments are computed in."""
    import torch

    return data if data.dtype == torch.float64 else data.to(torch.float32)


def _normalized(data: Any, dims: list[int], eps: float) -> tuple[Any, Any, Any]:
    """Numbers without their mean and of variance 1, the mean, and what they were multiplied by."""
    import torch

    mean = torch.mean(data, dims, keepdim=True)
    centred = data - mean
    scale = torch.rsqrt(torch.mean(centred * centred, dims, keepdim=True) + eps)
    return centred * scale, mean, scale


def _variance_and_mean(
    data: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    import torch

    variance = torch.var(data, dim, correction=correction, keepdim=keepdim)
    return variance, torch.mean(data, dim, keepdim=keepdim)


def _sorted_topk(
    data: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    """Any order is one in which a caller that asks for none may find them."""
    import torch

    return NotImplemented if sorted else torch.topk(data, k, dim, largest, True)


def _kth_value(data: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    import torch

    values, places = torch.sort(data, dim)
    found = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return found if keepdim else tuple(it.squeeze(dim) for it in found)
