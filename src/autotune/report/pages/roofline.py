"""Distance of programs from what their machine can do.

Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model": a program
takes at least as long as its arithmetic at the peak rate, and at least as long as reading its
inputs and writing its outputs once.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from autotune.errors import UnsupportedTarget
from autotune.ir.workloads import Stage, Workload
from autotune.targets import Target
from autotune.targets.detection import detect_cpu
from autotune.targets.rates import measure_rates

__all__ = ["Rates", "RatesOf", "Roofline", "measured_rates", "place", "stated_rates"]


@frozen
class Rates:
    """Rates of a machine.

    Attributes:
        target: With the rates.
        source: Where these come from, for people.
    """

    target: Target
    source: str


RatesOf = Callable[[Target], Rates]


@frozen
class Roofline:
    """A program below the roofs of its machine.

    Attributes:
        dtype: Element type of the operands of most of its arithmetic.
        intensity: flop for each byte that has to be moved.
        rate: flop/s that it reaches.
        least: Seconds that it takes at least; None where no rate of the machine is known.
        by: What makes it take so long: ``arithmetic`` or ``memory``.
        share: ``least`` over what it takes: 1 is the roof.
    """

    dtype: str
    intensity: float
    rate: float
    least: float | None
    by: str
    share: float | None


def stated_rates(target: Target) -> Rates:
    """The figures of the target's own description."""
    how = "measured" if target.rates_measured else "estimated"
    return Rates(target, f"{how} figures of the target {target.name}")


def measured_rates(target: Target) -> Rates:
    """Rates measured now, where the target is this machine; else those of its description."""
    try:
        here = detect_cpu().with_cores(target.cores)
    except UnsupportedTarget:
        return stated_rates(target)
    if here.fingerprint != target.fingerprint:
        return stated_rates(target)
    return Rates(measure_rates(here), "measured on this machine for this report")


def place(workload: Workload, latency: float, target: Target) -> Roofline:
    """Place of a program below the roofs.

    Args:
        workload: What it computes.
        latency: Seconds of one call.
        target: With the rates of the cores that it runs on.
    """
    tensors = [*workload.inputs, *(workload.tensors[name] for name in workload.outputs)]
    moved = sum(tensor.bytes for tensor in tensors)
    dtype = _operand_dtype(workload)
    peak = target.peak_flops.get(dtype, 0.0)
    limits = {}
    if peak:
        limits["arithmetic"] = workload.flop / peak
    if target.memory_bandwidth:
        limits["memory"] = moved / target.memory_bandwidth
    by = max(limits, key=lambda name: limits[name], default="")
    least = limits.get(by)
    share = None if least is None else least / latency
    return Roofline(dtype, workload.flop / moved, workload.flop / latency, least, by, share)


def _operand_dtype(workload: Workload) -> str:
    def flop(stage: Stage) -> int:
        return stage.flop

    busiest = max(workload.stages, key=flop)
    tensors = workload.tensors
    return next((tensors[name].dtype for name in busiest.reads), busiest.output.dtype)
