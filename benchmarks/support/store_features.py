"""TVM's own features of a scheduled program, one row for every stored buffer.

What ``s_tir.meta_schedule`` computes for its cost model. Used to hold
:func:`autotune.models.features.pam_features` against.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.target import Target

__all__ = ["store_features"]


def store_features(
    schedules: Sequence[s_tir.Schedule], module: IRModule, target: Target
) -> list[NDArray[np.float64]]:
    """TVM's 164 features ``[stores, 164]`` of each schedule of ``module``, in program order.

    Stores of a constant have no row. Lowering runs on the calling thread.

    Raises:
        tvm.error.TVMError: a schedule cannot be lowered.
    """
    with _without_intrinsics():
        context = s_tir.meta_schedule.TuneContext(module, target=target, num_threads=1)
    candidates = [s_tir.meta_schedule.MeasureCandidate(item, []) for item in schedules]
    arrays = PerStoreFeature().extract_from(context, candidates)
    return [np.asarray(array.numpy(), dtype=np.float64) for array in arrays]


@contextmanager
def _without_intrinsics() -> Iterator[None]:
    """A context imports every tensor intrinsic, which takes 25 s and which features do not need.

    An empty module stands in for them meanwhile, unless they are there already.
    """
    name = "tvm.s_tir.tensor_intrin"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        del sys.modules[name]
