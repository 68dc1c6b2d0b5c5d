"""`peak`: every ceiling is measured, and what is derived from them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts

from autotune.targets import BANDWIDTH_PATTERNS, Cache, Target

CACHES = (Cache(1, 32 << 10, False, 64), Cache(2, 1 << 20, False, 64), Cache(3, 8 << 20, True, 64))
TARGET = Target("cpu", "small", cores=2, caches=CACHES)


@pytest.fixture(scope="module")
def peak() -> Iterator[Any]:
    with benchmark_scripts("peak") as (module,):
        yield module


def test_arrays_fit_the_cache_that_is_measured_and_no_nearer_one(peak: Any) -> None:
    for threads in (1, 2):
        sizes = peak.sizes_of(TARGET, threads)
        held = peak.capacities(TARGET, threads)
        ceilings = peak.ceilings(TARGET, threads, [])
        assert list(sizes) == ["L1", "L2", "L3", "memory"]
        assert [ceilings.level_of(size) for size in sizes.values()] == list(sizes)
        assert held["L1"] == threads * 32 << 10 and held["L3"] == 8 << 20
        assert sizes["memory"] == 4 * held["L3"]


def test_every_level_and_type_is_measured_and_written(peak: Any, tmp_path: Path) -> None:
    small = Target("cpu", "one", caches=(Cache(1, 16 << 10, False, 64),))
    rates = peak.measure(small, 1, 1e-3)
    assert all(rate.rate > 0 for rate in rates)
    assert {rate.what for rate in rates if rate.where == "L1"} == set(BANDWIDTH_PATTERNS)
    assert {rate.where for rate in rates} == {"registers", "L1", "memory"}
    assert "float32" in peak.ceilings(small, 1, rates).peak
    peak.write_csv(tmp_path / "rates.csv", rates)
    with (tmp_path / "rates.csv").open() as file:
        assert [float(row["rate"]) for row in csv.DictReader(file)] == [it.rate for it in rates]


def test_reading_and_writing_have_their_own_cost(peak: Any) -> None:
    def bandwidth(read: float, copy: float, past: float) -> Any:
        return {"memory": {"read": read, "copy": copy, "copy-stream": past}}

    found = peak.Ceilings(1, {}, bandwidth(10.0, 5.0, 6.0), {})
    assert found.transfer_seconds(100, 0) == pytest.approx(10.0)
    # A copy takes what a copy takes.
    assert found.transfer_seconds(60, 60) == pytest.approx(120 / 6.0)
    # Where reading was disturbed, writing is still no better than copying.
    odd = peak.Ceilings(1, {}, bandwidth(2.0, 6.0, 5.0), {})
    assert odd.transfer_seconds(0, 60) == pytest.approx(10.0)


def test_the_bars(peak: Any) -> None:
    rates = [
        peak.Rate(1, "float32", "registers", 1e11, "fma"),
        peak.Rate(1, "read", "L1", 1e11, "1"),
        peak.Rate(1, "read", "memory", 8e10, "1"),
    ]
    known = [bar.value for bar in peak.bars_of(TARGET, rates)]
    assert known == [None, None, pytest.approx(1.25)]
    assert not any(bar.holds for bar in peak.bars_of(TARGET, rates))
