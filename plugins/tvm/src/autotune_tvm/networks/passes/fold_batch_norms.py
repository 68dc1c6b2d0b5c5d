"""Batch normalisation of inference: one factor and one term a channel."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule, Tuple

from autotune_tvm.networks.graph import Graph, array_of, constant, operator_of, rewrite, shape_of

__all__ = ["fold_batch_norms"]


def fold_batch_norms(module: IRModule) -> tuple[IRModule, str]:
    """Replace batch norms with constant statistics by a multiplication and an addition.

    ``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` is ``x * factor + term``; the two are
    computed in double precision. The multiplication then goes into the weights before it
    (:mod:`~autotune_tvm.networks.passes.fold_scales`). Those that have no constant statistics are
    left to TVM's ``DecomposeOpsForInference``, which follows.
    """
    count = 0

    def fold(call: Any, graph: Graph) -> Any:
        nonlocal count
        found = _factor_and_term(call) if operator_of(call) == "nn.batch_norm" else None
        if found is None:
            return None
        count += 1
        factor, term = found
        scaled = graph.emit(relax.op.multiply(call.args[0], constant(factor)))
        moved = graph.emit(relax.op.add(scaled, constant(term)))
        # Inference leaves the running statistics as they are.
        return Tuple([moved, call.args[3], call.args[4]])

    changed = rewrite(module, fold)
    rest = relax.transform.DecomposeOpsForInference()(changed)
    return rest, f"{count} batch norms" if count else ""


def _factor_and_term(call: Any) -> tuple[Any, Any] | None:
    shape = shape_of(call.args[0])
    arrays = [array_of(argument) for argument in call.args[1:5]]
    if call.attrs.training or shape is None or any(array is None for array in arrays):
        return None
    dtype = arrays[0].dtype  # type: ignore[union-attr]
    gamma, beta, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    factor = 1 / np.sqrt(variance + float(call.attrs.epsilon))
    if call.attrs.scale:
        factor = factor * gamma
    term = -mean * factor
    if call.attrs.center:
        term = term + beta
    per_channel = [1] * len(shape)
    per_channel[int(call.attrs.axis) % len(shape)] = -1
    return tuple(each.reshape(per_channel).astype(dtype) for each in (factor, term))  # type: ignore[return-value]
