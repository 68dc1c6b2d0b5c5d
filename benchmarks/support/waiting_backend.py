"""A backend whose programs take a known time without computing anything: for `fleet.py`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from autotune.backends import BoundCall, BuildRequest, Executable
from autotune.backends.backend import Array
from autotune.testing.reference_backend import ReferenceBackend

WAIT_VARIABLE = "AUTOTUNE_FLEET_WAIT"


class WaitingBackend(ReferenceBackend):
    """The reference backend, whose programs wait where they are loaded and timed."""

    name = "waiting"

    def load_program(self, request: BuildRequest, path: Path) -> Executable:
        return _Waiting(super().load_program(request, path))


class _Waiting(Executable):
    def __init__(self, program: Executable) -> None:
        self._program = program
        self.digest = program.digest

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        return _WaitingCall(self._program.bind(inputs, outputs))


class _WaitingCall(BoundCall):
    def __init__(self, call: BoundCall) -> None:
        self._call = call

    def run(self) -> None:
        self._call.run()

    def time(self, number: int) -> float:
        wait = float(os.environ[WAIT_VARIABLE])
        time.sleep(number * wait)
        return wait

    def outputs(self) -> list[Array]:
        return self._call.outputs()

    def poison(self) -> None:
        self._call.poison()
