from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from autotune.ir.workloads import Workload, gemm
from autotune.measure import LocalMeasurer, MeasureProtocol
from autotune.sketches import Candidate, Ordinal, Sketch
from autotune.targets import Target
from autotune.testing.reference_backend import REFERENCE_BACKEND

_SCRIPT = (
    "log",
    "build_seconds",
    "ignored",
    "optimised_away",
    "drift_factor",
    "drift_seconds",
)


@pytest.fixture
def target() -> Target:
    return Target("cpu", "test", cores=2, processor="x86-64")


@pytest.fixture
def quick() -> MeasureProtocol:
    """A protocol with deadlines of a second, for what hangs; use it with a ``PatientClock``."""
    return MeasureProtocol(deadlines=dict.fromkeys(("build", "load", "verify", "run"), 1.0))


@pytest.fixture
def workload() -> Workload:
    return gemm(m=8, n=8, k=8)


@pytest.fixture
def candidates(workload: Workload) -> list[Candidate]:
    """Ten candidates with ``tile`` from 1 to 10."""
    sketch = Sketch(
        "toy",
        workload,
        (Ordinal("tile", tuple(range(1, 11))),),
        (),
        (),
    )
    return [Candidate(sketch, (value,)) for value in range(1, 11)]


@pytest.fixture
def backend_name() -> str:
    """Import string of what builds the candidates; see ``make_measurer``."""
    return REFERENCE_BACKEND


@pytest.fixture
def make_measurer(
    workload: Workload, target: Target, backend_name: str
) -> Iterator[Callable[..., LocalMeasurer]]:
    """Makes measurers with a backend that has the given faults, and closes them."""
    with ExitStack() as stack:

        def make(*faults: dict[str, Any], **options: Any) -> LocalMeasurer:
            script = {key: options.pop(key) for key in _SCRIPT if key in options}
            program = json.dumps({"faults": list(faults), **script})
            options = {"workers": 2, "threads": 2, **options}
            measurer = LocalMeasurer(
                backend_name, target, workload=workload, program=program, **options
            )
            return stack.enter_context(measurer)

        yield make
