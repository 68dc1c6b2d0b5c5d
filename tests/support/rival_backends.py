"""Backends for tests of competitions: the reference backend, faster, slower, and unable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from autotune.backends import BoundCall, Executable, LoweredProgram
from autotune.backends.backend import Array
from autotune.spaces import ScheduleLimits
from autotune.targets import Target
from autotune.testing.reference_backend import ReferenceBackend

QUICK = "rival_backends:QuickBackend"
SLOW = "rival_backends:SlowBackend"
UNABLE = "rival_backends:UnableBackend"
BREAKING = "rival_backends:BreakingBackend"


class Retimed(Executable):
    """A program that says other times: ``seconds`` of a call and a number of runs."""

    def __init__(self, inner: Executable, seconds: Callable[[BoundCall, int], float]) -> None:
        self._inner, self._seconds = inner, seconds
        self.digest = inner.digest

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        return _RetimedCall(self._inner.bind(inputs, outputs), self._seconds)


class _RetimedCall(BoundCall):
    def __init__(self, inner: BoundCall, seconds: Callable[[BoundCall, int], float]) -> None:
        self._inner, self._seconds = inner, seconds

    def run(self) -> None:
        self._inner.run()

    def time(self, number: int) -> float:
        return self._seconds(self._inner, number)

    def outputs(self) -> list[Array]:
        return self._inner.outputs()

    def poison(self) -> None:
        self._inner.poison()


class QuickBackend(ReferenceBackend):
    """The reference backend under another name."""


class SlowBackend(ReferenceBackend):
    """Programs that take a third longer."""

    def compile(self, lowered: LoweredProgram) -> Executable:
        return Retimed(super().compile(lowered), lambda call, n: call.time(n) * 4 / 3)


class UnableBackend(ReferenceBackend):
    """Can replay nothing."""

    def limits(self, target: Target) -> ScheduleLimits:
        return evolve(super().limits(target), steps=frozenset())


class BreakingBackend(ReferenceBackend):
    """Every program is wrong."""

    def compile(self, lowered: LoweredProgram) -> Executable:
        raise RuntimeError("this compiler never works")
