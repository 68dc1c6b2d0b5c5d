"""Engines: machines that build and time programs, wherever they are, behind one contract."""

from __future__ import annotations

from autotune.measure.engines.artefacts import ArtefactStore, DamagedArtefact
from autotune.measure.engines.fingerprint import SPEED_TOLERANCE, Fingerprint, same_speed
from autotune.measure.engines.interface import (
    REPLY_KINDS,
    EngineJob,
    EngineReply,
    Lease,
    Machine,
    MeasureEngine,
    Role,
)
from autotune.measure.engines.leases import LeaseTable
from autotune.measure.engines.ledger import JobLedger
from autotune.measure.engines.reference_program import host_fingerprint, reference_seconds

__all__ = [
    "REPLY_KINDS",
    "SPEED_TOLERANCE",
    "ArtefactStore",
    "DamagedArtefact",
    "EngineJob",
    "EngineReply",
    "Fingerprint",
    "JobLedger",
    "Lease",
    "LeaseTable",
    "Machine",
    "MeasureEngine",
    "Role",
    "host_fingerprint",
    "reference_seconds",
    "same_speed",
]
