"""One measured candidate with everything needed to understand and rebuild it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from autotune.records.outcome import Outcome
from autotune.sketches import Candidate


@frozen
class MeasureKey:
    """What a measurement depends on besides workload and candidate.

    Attributes:
        target: Fingerprint of the target.
        backend: Name of the backend.
        backend_version: Version of the backend plugin.
        compiler_version: Version of the compiler behind it.
        threads: Threads the program ran on.
        protocol: Identity of the measuring protocol, such as ``warm-1``: whether caches were
            warm, and the version of the timing procedure.
    """

    target: str
    backend: str
    backend_version: str
    compiler_version: str
    threads: int
    protocol: str


@frozen
class Record:
    """A candidate's outcome under a measure key, as stored; it refers to nothing outside itself.

    Attributes:
        run_id: The run that measured it.
        trial: Position in that run, from 0.
        candidate: Sketch and configuration; ``candidate.sketch.workload`` is the workload.
        key: What the measurement depends on.
        target: The full target description, as JSON.
        space: Name and version of the search space, such as ``sketch-1``.
        outcome: What happened.
        created: Unix time in seconds.
    """

    run_id: str
    trial: int
    candidate: Candidate
    key: MeasureKey
    target: Mapping[str, Any] = field(hash=False)
    space: str
    outcome: Outcome = field(hash=False)
    created: float
