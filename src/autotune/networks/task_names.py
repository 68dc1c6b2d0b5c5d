"""Short names of tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count

from autotune.ir.workloads import Workload

__all__ = ["task_names"]

_LENGTH = 40
_WINDOW = re.compile(r"k\d")


def task_names(workloads: Sequence[Workload]) -> list[str]:
    """A name for each, all different: ``conv2d_3x3_relu``, ``matmul_add``, ``matmul_add_2``.

    Args:
        workloads: In the order of their first call, named after their operators with a ``+``
            between them.
    """
    taken: dict[str, None] = {}
    for workload in workloads:
        base = _base(workload)
        numbered = (f"{base}_{number}" for number in count(2))
        name = base if base not in taken else next(it for it in numbered if it not in taken)
        taken[name] = None
    return list(taken)


def _base(workload: Workload) -> str:
    """The operators of a workload, as many of them as are not too long together."""
    first, *others = workload.name.replace("max+min", "clip").split("+")
    words = [_with_window(first, workload), *others]
    while len("_".join(words)) > _LENGTH and len(words) > 1:
        words.pop()
    return "_".join(words)[:_LENGTH]


def _with_window(name: str, workload: Workload) -> str:
    """``convolution`` with the number of its dimensions and the extents of its window."""
    for stage in workload.stages:
        window = [it.extent for it in stage.reduce_axes if _WINDOW.fullmatch(it.name)]
        if window and "convolution" in name:
            short = name.replace("convolution", f"conv{len(window)}d")
            return f"{short}_{'x'.join(map(str, window))}"
    return name
