"""Measuring on this machine, in worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from autotune.measure.measurer import Measurer, OnOutcome
from autotune.measure.protocol import MeasureProtocol
from autotune.records import Outcome
from autotune.sketches import Candidate
from autotune.targets import Target
from autotune.workloads import Workload


class LocalMeasurer(Measurer):
    """Measures in long-lived worker processes on this machine.

    Args:
        backend: Name of a registered backend, or an import string ``module:Class``.
        target: What candidates are built for.
        threads: Threads that a candidate may use.
        workload: What candidates compute.
        program: The imported program's text form, if there is one.
        protocol: How to measure.
        workers: Number of worker processes; by default one per usable core.
        seed: Seed of the random inputs.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        backend: str,
        target: Target,
        threads: int,
        workload: Workload,
        program: str | None = None,
        *,
        protocol: MeasureProtocol | None = None,
        workers: int | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def wait_ready(self) -> None:
        raise NotImplementedError

    def measure(
        self,
        candidates: Sequence[Candidate],
        on_outcome: OnOutcome | None = None,
        *,
        incumbent: float | None = None,
    ) -> list[Outcome]:
        raise NotImplementedError

    def measure_baseline(self) -> Outcome:
        raise NotImplementedError

    @property
    def seconds(self) -> Mapping[str, float]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
