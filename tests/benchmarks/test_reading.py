"""The benchmark of reading: its bars, and what it says of failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts


@pytest.fixture(scope="module")
def reading() -> Iterator[Any]:
    with benchmark_scripts("reading") as (module,):
        yield module


def _row(seconds: float, **others: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "kept": 0.1,
        "passes": {"fuse": 0.1},
        "tasks": 2,
        "calls": 3,
        **others,
    }


def test_a_long_export_allows_more(reading: Any) -> None:
    found = {
        name: {"torch": _row(3.5, export=export), "onnx": _row(2.5)}
        for name, export in zip(reading.WITH_BARS, (8.0, 5.0, 0.1), strict=True)
    }
    bars = reading.bars(found)
    assert [it.holds for it in bars if "export" in it.name] == [True, False, False]
    assert [it.holds for it in bars if "ONNX" in it.name] == [False] * 3


def test_what_cannot_be_read_breaks_its_bar_and_is_named(
    reading: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"torch": {"error": "no module"}, "onnx": _row(1.0)}
    bars = reading.bars(dict.fromkeys(reading.WITH_BARS, failed))
    assert not bars[0].holds and bars[0].note == "no module" and bars[1].holds
    reading.print_row("net", failed)
    assert "net            torch  no module" in capsys.readouterr().out
