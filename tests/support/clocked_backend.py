"""A backend for tests whose times are those of a clock, unless its script has it say others."""

from __future__ import annotations

import time

from rival_backends import Retimed

from autotune.backends import BoundCall, Executable, LoweredProgram
from autotune.testing.reference_backend import ReferenceBackend, virtual_latency

CLOCKED_BACKEND = "clocked_backend:ClockedBackend"


class ClockedBackend(ReferenceBackend):
    """The reference backend, except that its programs are run to be timed."""

    simulated_times = False

    def compile(self, lowered: LoweredProgram) -> Executable:
        request = lowered.request
        scripted = virtual_latency(request.workload, request.candidate)

        def seconds(call: BoundCall, number: int) -> float:
            said = call.time(number)
            if said != scripted:
                return said
            begin = time.perf_counter()
            for _ in range(number):
                call.run()
            return (time.perf_counter() - begin) / number

        return Retimed(super().compile(lowered), seconds)
