"""Steps allowed on a stage that scans: its results come in their order, and all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.sketches import (
    Accumulate,
    Bind,
    BoundLoop,
    FuseConsumer,
    FuseProducer,
    Inline,
    Order,
    PadExtent,
    Parallel,
    Tensorize,
    Vectorize,
    WarpTensorize,
)

__all__ = ["check_scan"]

# Each keeps a part of the results, or computes a part of them again.
_OF_A_PART = (
    *(Accumulate, BoundLoop, FuseConsumer, FuseProducer, Inline),
    *(PadExtent, Tensorize, WarpTensorize),
)


def check_scan(step: Any, workload: Workload) -> None:
    """Refuse a step after which results of a scan would not continue those before them.

    Raises:
        InvalidValueError: names the step and what it does to a scan.
    """
    scans = {stage.name: stage.scan_axis for stage in workload.stages}
    if isinstance(step, FuseConsumer) and scans.get(step.producer) is not None:
        raise InvalidValueError(f"{step}: a scan keeps all of its results, not those of a tile")
    axis = scans.get(getattr(step, "stage", ""))
    if axis is None:
        return
    if isinstance(step, _OF_A_PART):
        raise InvalidValueError(f"{step}: a scan is computed whole, and in a buffer of its own")
    if isinstance(step, Order):
        levels = _levels(step.loops, axis.name)
        if levels != sorted(levels):
            raise InvalidValueError(f"{step}: {axis.name!r} is scanned in its order")
    loops: tuple[str, ...] = ()
    if isinstance(step, (Parallel, Bind)):
        loops = step.loops
    elif isinstance(step, Vectorize):
        loops = (step.loop,)
    if _levels(loops, axis.name):
        raise InvalidValueError(f"{step}: {axis.name!r} is scanned in its order, not at once")


def _levels(loops: Iterable[str], axis: str) -> list[int]:
    """Numbers of the levels of an axis, in the order of the loops."""
    parts = (loop.rpartition(".") for loop in loops)
    return [int(level) for name, _, level in parts if name == axis]
