"""Tell whether a claimed latency can be true, by the host's clock and by what the machine can do.

Programs are timed in processes that run foreign code, by code of their backends. What they say is
a claim. It is refused where more time is claimed than has passed for the host, and where it is
under a quarter of

    max(flop / peak rate of all cores, bytes of the outputs / bandwidth of the fastest cache)

A quarter leaves room for algorithms with less arithmetic (Winograd's needs down to a fourth) and
for a peak that was measured beside other programs. Where a rate is not known there is no such
bound: none is guessed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from attrs import frozen

from autotune.ir.element_types import element_type
from autotune.ir.expressions import Load
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Stage, Workload
from autotune.targets import Target, allows_tf32, measure_core_rates

__all__ = ["SHORTEST_CALL", "Plausibility", "measure_rates", "peak_rate"]

SHORTEST_CALL = 1e-10
"""Seconds that the call of any function takes at least: less than a cycle of any processor."""

_SHARE = 0.25
# Clocks of two processes are read at different moments, and one may be corrected meanwhile.
_CLOCK_SHARE, _CLOCK_SECONDS = 1.01, 1e-3
# Vector units do no more operations on numbers of this size than on float32.
_FULL_LANE_BYTES = 4
_PROBES = 64


@frozen
class Plausibility:
    """Bounds that latencies of a workload are held to.

    Attributes:
        least: Seconds that a call takes at least.
        why: Where that comes from, for people.
    """

    least: float
    why: str

    @staticmethod
    def of(workload: Workload, target: Target, threads: int) -> Plausibility:
        """Bounds of a workload on a target; the rates of a CPU are measured on this machine.

        Args:
            workload: What programs compute. One that only views its input has no bound but
                :data:`SHORTEST_CALL`.
            target: What they run on.
            threads: Threads that they may use.
        """
        least, why = SHORTEST_CALL, "no call of a function takes less"
        if all(_is_view(stage, workload) for stage in workload.stages):
            return Plausibility(least, why)
        cores = max(target.cores, threads)
        peak, bandwidth = peak_rate(workload, target, cores), _cache_bandwidth(target, cores)
        tensors = workload.tensors
        written = sum(tensors[name].bytes for name in workload.outputs)
        limits = (
            (workload.flop, peak, "flop", "flop/s of all cores"),
            (written, bandwidth, "bytes of output", "bytes/s of the fastest cache"),
        )
        for amount, rate, what, unit in limits:
            if rate and _SHARE * amount / rate > least:
                least = _SHARE * amount / rate
                why = f"a quarter of {amount} {what} at {rate:.3g} {unit}"
        return Plausibility(least, why)

    def contradiction(self, samples: Sequence[float], calls: int, elapsed: float) -> str | None:
        """Say why the samples of a program cannot be true; None where they can.

        Args:
            samples: Claimed seconds per call.
            calls: How many calls were made for each.
            elapsed: Seconds that passed for the host from asking for them until it had them.
        """
        claimed = calls * sum(samples)
        if claimed > _CLOCK_SHARE * elapsed + _CLOCK_SECONDS:
            return (
                f"{len(samples)} samples of {calls} calls are claimed to have taken "
                f"{claimed:.3g} s, and {elapsed:.3g} s passed for the host"
            )
        if min(samples) < self.least:
            return (
                f"a call is claimed to take {min(samples):.3g} s, "
                f"and takes at least {self.least:.3g} s: {self.why}"
            )
        return None


def measure_rates(target: Target, threads: int) -> None:
    """Measure now, while nothing else runs, what bounds are derived from.

    Args:
        target: What programs run on; only CPUs are measured.
        threads: Threads that they may use.
    """
    if target.kind == "cpu":
        _measured(max(target.cores, threads))


def peak_rate(workload: Workload, target: Target, cores: int) -> float:
    """flop/s that no program for a workload exceeds; 0 where it is not known.

    On a CPU only the rate of float32 is measured. Types of as many bytes or more are no faster;
    for smaller ones processors have units of their own.
    """
    dtypes = workload.dtypes
    if target.kind == "cpu":
        if any(element_type(dtype).bytes < _FULL_LANE_BYTES for dtype in dtypes):
            return 0.0
        if target.rates_measured:
            return target.peak_flops.get("float32", 0.0)
        return _measured(cores)[0]
    if allows_tf32(target) and "float32" not in target.tensor_peak_flops:
        # Tensor cores that nothing is known of are much faster than what is known.
        return 0.0
    rates = [
        max(target.peak_flops.get(dtype, 0.0), target.tensor_peak_flops.get(dtype, 0.0))
        for dtype in dtypes
    ]
    return max(rates) if all(rates) else 0.0


def _cache_bandwidth(target: Target, cores: int) -> float:
    """bytes/s of the fastest cache; 0 where it is not known, as it is for GPUs."""
    return _measured(cores)[1] if target.kind == "cpu" else 0.0


@functools.cache
def _measured(cores: int) -> tuple[float, float]:
    """Rates of this machine, measured once in a process."""
    return measure_core_rates(cores)


def _is_view(stage: Stage, workload: Workload) -> bool:
    """Tell if a stage is its input in another shape: the same elements in the same order."""
    source = stage.body
    if not isinstance(source, Load) or stage.combiner is not None:
        return False
    tensor = workload.tensors[source.tensor]
    if (tensor.elements, tensor.dtype) != (stage.output.elements, stage.output.dtype):
        return False
    for probe in range(min(_PROBES, tensor.elements)):
        # Spread over the array; the odd factor keeps them apart in every dimension.
        place = probe * (tensor.elements - 1) // (min(_PROBES, tensor.elements) - 1 or 1)
        values, rest = {}, place
        for axis in reversed(stage.spatial_axes):
            rest, values[axis.name] = divmod(rest, axis.extent)
        read = 0
        for index, extent in zip(source.indices, tensor.shape, strict=True):
            read = read * extent + evaluate(index, values)
        if read != place:
            return False
    return True
