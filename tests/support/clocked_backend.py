"""A backend for tests whose times are those of a clock, unless its script has it say others."""

from __future__ import annotations

import time
from collections.abc import Sequence

from autotune.backends import BoundCall, BuildRequest, Executable, LoweredProgram
from autotune.backends.backend import Array
from autotune.testing.reference_backend import ReferenceBackend, virtual_latency

__all__ = ["CLOCKED_BACKEND", "ClockedBackend"]

CLOCKED_BACKEND = "clocked_backend:ClockedBackend"


class ClockedBackend(ReferenceBackend):
    """The reference backend, except that its programs are run to be timed."""

    simulated_times = False

    def compile(self, lowered: LoweredProgram) -> Executable:
        return _ClockedExecutable(super().compile(lowered), lowered.request)


class _ClockedExecutable(Executable):
    def __init__(self, executable: Executable, request: BuildRequest) -> None:
        self._executable, self._request = executable, request
        self.digest = executable.digest

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        return _ClockedCall(self._executable.bind(inputs, outputs), self._request)


class _ClockedCall(BoundCall):
    def __init__(self, call: BoundCall, request: BuildRequest) -> None:
        self._call, self._request = call, request

    def run(self) -> None:
        self._call.run()

    def time(self, number: int) -> float:
        said = self._call.time(number)
        if said != virtual_latency(self._request.workload, self._request.candidate):
            return said
        begin = time.perf_counter()
        for _ in range(number):
            self._call.run()
        return (time.perf_counter() - begin) / number

    def outputs(self) -> list[Array]:
        return self._call.outputs()

    def poison(self) -> None:
        self._call.poison()
