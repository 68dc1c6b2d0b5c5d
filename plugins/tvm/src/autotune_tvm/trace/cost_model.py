"""The cost model of the trace space, on features of the program that TVM lowers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends import InvalidSchedule
from autotune.errors import AutotuneError, InvalidValueError
from autotune.models import ModelContext
from autotune.models.cost import GradientBoostedTrees
from autotune.sketches import Candidate, CandidateBatch, Sketch, per_sketch
from autotune.targets import Target
from autotune_tvm import compiler, runtime
from autotune_tvm.scheduled import program_of

__all__ = ["FEATURE_WIDTH", "LoweredTrees", "lowered_features"]


class LoweredTrees(GradientBoostedTrees):
    """Gradient-boosted trees over features of the lowered program.

    Args:
        context: As of :class:`~autotune.models.cost.GradientBoostedTrees`.

    Raises:
        InvalidValueError: an option is given.
    """

    name = "lowered"

    def __init__(self, context: ModelContext) -> None:
        super().__init__(context, lowered_features, FEATURE_VERSION)


FEATURE_VERSION = "lowered-1"
"""Grows when the columns change their meaning."""

_BUFFERS = 3
_SAMPLES = 4
_STORE_WIDTH = 57 + 18 * _BUFFERS + _SAMPLES + 4 + 3
FEATURE_WIDTH = 2 * _STORE_WIDTH + 1
"""Columns of a candidate."""

# float_mad, float_addsub, float_mul, float_divmod: the first columns of a store.
_FLOPS = slice(0, 4)


def lowered_features(batch: CandidateBatch, target: Target) -> NDArray[np.float64]:
    """Features ``[n, FEATURE_WIDTH]``; zeros for a candidate that TVM refuses.

    Raises:
        InvalidValueError: a sketch is not one of the trace space.
    """
    found = [np.zeros((0, FEATURE_WIDTH))]
    for sketch, matrix in batch.parts:
        if not sketch.is_opaque:
            raise InvalidValueError(
                f"cost model 'lowered' is for search space 'trace', and sketch {sketch.name!r} "
                "is none of it; 'gbdt' knows the built-in space 'sketch'"
            )
        rows = [tuple(row) for row in matrix.tolist()]
        found += [_features(Candidate(sketch, row), target) for row in rows]
    return np.concatenate(found)


def _features(candidate: Candidate, target: Target) -> NDArray[np.float64]:
    """Features of a program, [1, FEATURE_WIDTH]."""
    try:
        stores = _stores(candidate, target)
    except AutotuneError:
        stores = None
    if stores is None or not len(stores):
        return np.zeros((1, FEATURE_WIDTH))
    flops = np.exp2(stores[:, _FLOPS]).sum(axis=1)
    # As the extractor's logarithms: of one more, with the sign of the number.
    plain = np.sign(stores) * np.expm1(np.abs(stores) * np.log(2))
    summed = plain.sum(axis=0)
    logarithms = np.sign(summed) * np.log2(1 + np.abs(summed))
    return np.concatenate([stores[flops.argmax()], logarithms, [len(stores)]])[None, :]


def _stores(candidate: Candidate, target: Target) -> NDArray[np.float64]:
    """Features of each store, [stores, _STORE_WIDTH].

    Raises:
        AutotuneError: the candidate cannot be replayed or lowered.
    """
    runtime.load()
    from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

    workload = candidate.sketch.workload
    from autotune_tvm.replay import schedule

    made = schedule(_module(candidate.sketch), candidate, workload)
    context, extractor = _extractor(target)
    try:
        (found,) = extractor.extract_from(context, [MeasureCandidate(made, [])])
    except Exception as error:  # TVM raises whatever its passes raise
        raise InvalidSchedule(compiler.brief(error)) from error
    return np.asarray(found.numpy(), dtype=np.float64).reshape(-1, _STORE_WIDTH)


@per_sketch
def _module(sketch: Sketch) -> Any:
    """The program that the schedule is applied to, made from the workload."""
    return program_of(sketch.workload, None)


@lru_cache(maxsize=4)
def _extractor(target: Target) -> tuple[Any, Any]:
    from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature

    from autotune_tvm.trace.generation import tune_context

    context = tune_context(compiler.described_target(target, target.cores))
    return context, PerStoreFeature(_BUFFERS, _SAMPLES)
