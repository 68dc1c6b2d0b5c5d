"""Writes ``schema_<version>.jsonl``, once per schema version: ``python make_golden.py``."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve

from autotune.store.jsonl import record_line
from autotune.store.records import Outcome
from autotune.store.records.record import RECORD_SCHEMA
from autotune.testing.sample_records import sample_record

if __name__ == "__main__":
    outcome = Outcome(
        "ok",
        5e-4,
        (6e-4, 5e-4),
        {"build": 0.25},
        drift=1.25,
        lowered="1f" * 8,
        binary="2e" * 8,
        duplicate_of="3d" * 8,
        readings={"perf/cycles_per_call": 1e6, "perf/cache_misses_per_call": None},
    )
    records = (
        sample_record(0),
        sample_record(1, status="timeout"),
        evolve(sample_record(2), outcome=outcome, program="an imported program"),
    )
    path = Path(__file__).parent / f"schema_{RECORD_SCHEMA}.jsonl"
    path.write_bytes(b"".join(map(record_line, records)))
