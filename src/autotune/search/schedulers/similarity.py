"""Which tasks are expected to reach similar flop/s."""

from __future__ import annotations

import math

from autotune.ir.workloads import Stage, Workload

__all__ = ["similarity_group"]

_LOG_BASE = 1.618
"""As in Ansor's task scheduler: tasks of a group differ by less than this factor in flop."""


def similarity_group(workload: Workload) -> str:
    """A text that is equal for workloads of the same structure and about the same flop.

    The structure is, of every stage, the numbers of its axes, its combiner and its element type.
    Names are left out: frontends make them up. Empty for a workload without arithmetic.

    Source: the similarity tag of Ansor's task scheduler (TVM's ``derive_similarity_tag``).
    """
    if not workload.flop:
        return ""
    magnitude = int(math.log(workload.flop + 1, _LOG_BASE))
    return f"{' + '.join(map(_structure, workload.stages))}, flop class {magnitude}"


def _structure(stage: Stage) -> str:
    axes = f"{len(stage.spatial_axes)}x{len(stage.reduce_axes)}"
    return f"{axes} {stage.combiner or 'map'} {stage.output.dtype}"
