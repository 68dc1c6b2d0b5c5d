from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_models import FAULT_VARIABLE
from patient_clock import PatientClock

from autotune.models.host import HostLimits, ModelHost, ModelSpec
from autotune.targets import Target, resolve

MakeHost = Callable[..., ModelHost]
SetFault = Callable[..., None]


@pytest.fixture
def target() -> Target:
    return resolve("avx512-8core")


@pytest.fixture
def make_host(target: Target) -> Iterator[MakeHost]:
    """Makes a started host of the given models that is closed after the test."""
    made: list[ModelHost] = []

    def make(
        *specs: ModelSpec,
        limits: HostLimits | None = None,
        on_warning: Callable[[str], None] = lambda message: None,
    ) -> ModelHost:
        host = ModelHost(target, specs, on_warning=on_warning, limits=limits, clock=PatientClock())
        made.append(host)
        host.start()
        return host

    yield make
    for host in made:
        host.close()


@pytest.fixture
def set_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SetFault:
    """Say what the faulty models of processes started from now on do."""

    def set_to(fault: str, where: str, *, after: int = 0, times: int | None = None) -> None:
        script: dict[str, Any] = {"fault": fault, "in": where, "after": after}
        if times is not None:
            script |= {"marks": str(tmp_path / "marks"), "times": times}
        monkeypatch.setenv(FAULT_VARIABLE, json.dumps(script))

    return set_to
