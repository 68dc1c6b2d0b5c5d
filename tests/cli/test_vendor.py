"""Comparisons of the vendor's library with what was tuned."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.cli import machine, vendor
from autotune.cli.machine import busy_cores
from autotune.cli.vendor import compare
from autotune.ir.workloads import gemm, softmax
from autotune.store.records import Outcome
from autotune.targets import preset


def ok(*latencies: float) -> list[Outcome]:
    return [Outcome("ok", latency) for latency in latencies]


def test_quiet_repetitions_are_comparable() -> None:
    timing = compare(ok(1.0e-3, 0.96e-3, 1.05e-3), [0.05] * 3, from_records=True)
    assert timing.outcome.latency == 0.96e-3 and timing.caveat == ""


@pytest.mark.parametrize(
    ("latencies", "busy", "caveat"),
    [
        ((24e-3, 0.96e-3, 24e-3), 0.0, "repetitions differ by a factor of 25.0"),
        ((24e-3, 24e-3, 24e-3), 2.0, "other programs kept 2.0 cores busy"),
    ],
)
def test_a_busy_machine_is_noticed(latencies: tuple[float, ...], busy: float, caveat: str) -> None:
    timing = compare(ok(*latencies), [busy] * 3, from_records=False)
    assert caveat in timing.caveat
    assert timing.outcome.latency == min(latencies)
    assert timing.to_json()["caveat"] == timing.caveat


def test_a_library_that_fails_is_not_compared() -> None:
    timing = compare([Outcome("crash", message="no BLAS")] * 3, [0.0] * 3, from_records=False)
    assert timing.outcome.latency is None and "no BLAS" in timing.caveat


def test_busy_cores_reads_what_linux_says(tmp_path: Path) -> None:
    assert busy_cores(0.01, tmp_path / "missing") == 0.0
    (tmp_path / "stat").write_text("nonsense\n")
    assert busy_cores(0.01, tmp_path / "stat") == 0.0
    assert busy_cores(0.02) >= 0.0


def test_a_busy_machine_is_warned_of_when_a_run_starts(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "busy_cores", lambda: 1.5)
    warning = "other programs keep 1.5 cores busy"
    assert warning not in cli.tune("--trials", "0").stderr
    assert cli.tune("--trials", "2").stderr.count(warning) == 1
    assert warning not in cli.tune("--trials", "2").stderr  # answered from records
    assert warning not in cli.tune("--trials", "2", "--fresh", "--quiet").stderr
    monkeypatch.setattr(machine, "busy_cores", lambda: 0.1)
    assert "cores busy" not in cli.tune("--trials", "2", "--fresh").stderr


def test_a_result_from_records_is_compared_with_what_was_timed_then(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timings = iter(ok(1e-3, 1e-3, 1e-3))
    monkeypatch.setattr(vendor, "vendor_latency", lambda *arguments: next(timings))
    monkeypatch.setattr(vendor, "busy_cores", lambda: 0.0)
    first = cli.tune("--trials", "2", "--vendor", "--quiet")
    again = cli.tune("--trials", "2", "--vendor", "--quiet")
    assert first.status == again.status == 0
    for done in (first, again):
        lines = done.stdout.splitlines()
        assert f"the speed of {vendor.VENDOR_NAME}" in lines[0]
        (line,) = [line for line in lines[1:] if vendor.VENDOR_NAME in line]
        assert "1.00 ms" in line or "1 ms" in line


@pytest.mark.parametrize(
    ("milliseconds", "busy", "timed", "caveat"),
    [
        # Two of three were disturbed: the fastest counts once others confirm it.
        ((24, 1.0, 24, 24, 1.1, 1.05), (3, 0, 3, 3, 0, 0), 6, ""),
        ((1.0, 1.1, 1.05), (0, 0, 0), 3, ""),
        (tuple(2.0**-n for n in range(9)), (0,) * 9, 9, "9 repetitions differ by a factor of 4.0"),
        ((1.0, 1.0, 1.0), (0, 0, 2), 3, "other programs kept 2.0 cores busy"),
    ],
)
def test_what_is_disturbed_is_timed_again_before_it_is_not_comparable(
    milliseconds: tuple[float, ...],
    busy: tuple[float, ...],
    timed: int,
    caveat: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result: Any = SimpleNamespace(
        target=preset("zen3"),
        workload=gemm(m=8, n=8, k=8),
        threads=1,
        best=None,
        database=":memory:",
        from_records=False,
    )
    timings = ok(*(1e-3 * it for it in milliseconds))
    left, cores = iter(timings), iter(busy)
    monkeypatch.setattr(vendor, "busy_cores", lambda: next(cores))
    monkeypatch.setattr(vendor, "vendor_latency", lambda *_: next(left))
    timing = vendor.time_vendor(result)
    assert timing is not None and len(list(left)) == len(timings) - timed
    assert timing.outcome.latency == 1e-3 * min(milliseconds)
    assert caveat in timing.caveat and bool(caveat) == bool(timing.caveat)


@pytest.mark.parametrize(
    ("workload", "installed", "name"),
    [
        (gemm(m=8, n=8, k=8), True, "numpy (BLAS)"),
        (softmax(m=8, n=8), True, "torch (oneDNN)"),
        (softmax(m=8, n=8), False, None),
    ],
)
def test_on_cpus_torch_is_asked_for_what_blas_lacks(
    workload: Any, installed: bool, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    result: Any = SimpleNamespace(
        target=preset("zen3"),
        workload=workload,
        threads=1,
        best=None,
        database=":memory:",
        from_records=False,
    )
    monkeypatch.setattr(vendor, "find_spec", lambda _: object() if installed else None)
    monkeypatch.setattr(vendor, "busy_cores", lambda: 0.0)
    monkeypatch.setattr(vendor, "torch_latency", lambda *_: Outcome("ok", 1e-3))
    timing = vendor.time_vendor(result)
    assert (None if timing is None else timing.name) == name


def test_on_cuda_devices_the_library_is_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    result: Any = SimpleNamespace(
        target=preset("h100"),
        workload=gemm(m=8, n=8, k=8),
        threads=1,
        best=None,
        database=":memory:",
        from_records=False,
    )
    # Other programs on the CPU are no caveat there.
    monkeypatch.setattr(vendor, "busy_cores", lambda: 5.0)
    timings = iter(ok(1e-3, 0.9e-3, 1e-3))
    monkeypatch.setattr(vendor, "torch_latency", lambda *_: next(timings))
    timing = vendor.time_vendor(result)
    assert timing is not None
    assert timing.to_json() == {
        "name": "torch (cuBLAS, cuDNN)",
        "status": "ok",
        "latency": 0.9e-3,
        "caveat": "",
    }
    missing = iter([Outcome("crash", message="torch is not installed here")])
    monkeypatch.setattr(vendor, "torch_latency", lambda *_: next(missing))
    timing = vendor.time_vendor(result)
    assert timing is not None
    assert timing.caveat == "the library failed: torch is not installed here"
    monkeypatch.setattr(vendor, "torch_latency", lambda *_: None)
    assert vendor.time_vendor(result) is None
