from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.models.host import Guard, GuardLimits, ModelSpec
from autotune.targets import Target, resolve
from autotune.testing.faulty_models import FAULT_VARIABLE

MakeGuard = Callable[..., Guard]
SetFault = Callable[..., None]


@pytest.fixture
def target() -> Target:
    return resolve("avx512-8core")


@pytest.fixture
def make_guard(target: Target) -> Iterator[MakeGuard]:
    """Makes a started guard of the given models that is closed after the test."""
    made: list[Guard] = []

    def make(
        *specs: ModelSpec,
        limits: GuardLimits | None = None,
        on_warning: Callable[[str], None] = lambda message: None,
    ) -> Guard:
        guard = Guard(target, specs, on_warning=on_warning, limits=limits)
        made.append(guard)
        guard.start()
        return guard

    yield make
    for guard in made:
        guard.close()


@pytest.fixture
def set_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SetFault:
    """Say what the faulty models of processes started from now on do."""

    def set_to(fault: str, where: str, *, after: int = 0, times: int | None = None) -> None:
        script: dict[str, Any] = {"fault": fault, "in": where, "after": after}
        if times is not None:
            script |= {"marks": str(tmp_path / "marks"), "times": times}
        monkeypatch.setenv(FAULT_VARIABLE, json.dumps(script))

    return set_to
