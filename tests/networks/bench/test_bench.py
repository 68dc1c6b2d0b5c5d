"""Networks beside other runtimes: in processes of their own, without a compiler."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.errors import InvalidValueError, UnknownNameError
from autotune.networks.bench import RUNTIMES, BenchOptions, BenchResult, BenchRow, bench_model
from autotune.networks.bench.bench import _compare, _Running, bench_table
from autotune.testing.reference_frontend import REFERENCE_FRONTEND, three_layers

THREE = "autotune.testing.reference_frontend:three_layers"
TUNED = ("autotune", "untuned")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bench") / "records.db"
    autotune.tune_model(
        *three_layers(),
        frontend=REFERENCE_FRONTEND,
        database=path,
        threads=1,
        trials=12,
        round_size=4,
        parts={"strategy": "random"},
    )
    return str(path)


def options(database: str, **changes: object) -> BenchOptions:
    given: dict[str, object] = {"runtimes": TUNED, "turns": 3, "seconds": 0.01, "threads": 1}
    return BenchOptions(database=database, frontend=REFERENCE_FRONTEND, **{**given, **changes})  # type: ignore[arg-type]


def test_each_runtime_has_its_turns(database: str) -> None:
    told: list[str] = []
    result = bench_model(THREE, options(database), say=told.append)
    tuned, untuned = result.rows
    assert (tuned.runtime, untuned.runtime) == TUNED and result.reference == "untuned"
    for row in result.rows:
        assert row.problem == "" and len(row.medians) == 3
        assert row.fastest and row.latency and row.fastest <= row.latency
        assert row.ready and row.first_call and row.peak_bytes and row.peak_bytes > 1 << 20
        assert row.error == 0.0
    ratio = result.ratio(untuned)
    assert ratio is not None and ratio > 1 and result.ratio(tuned) == 1.0
    assert told == [
        *("autotune: preparing", "untuned: preparing"),
        *(f"turn {turn} of 3" for turn in (1, 2, 3)),
    ]
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert (data["schema"], data["version"]) == ("autotune.model_bench", 1)
    assert data["runtimes"][1]["tuned_speedup"] == pytest.approx(ratio)


def test_without_records_the_others_run(tmp_path: Path) -> None:
    with autotune.open_database(tmp_path / "empty.db"):
        pass
    result = bench_model(THREE, options(str(tmp_path / "empty.db"), turns=1))
    tuned, untuned = result.rows
    assert "no record of this network" in tuned.problem and "tune-model" in tuned.problem
    assert tuned.latency is None and untuned.latency is not None
    table = bench_table(result)
    assert [row["runtime"] for row in table.to_json()] == ["untuned"]
    assert any(note.startswith("autotune: ") for note in table.notes)


def test_a_source_that_cannot_be_read_is_one_error(database: str) -> None:
    with pytest.raises(InvalidValueError, match=r"there is no file 'missing\.onnx'"):
        bench_model("missing.onnx", options(database))


def test_what_no_runtime_reads_is_one_error(tmp_path: Path) -> None:
    """Though each says it in its own words: the first that it has no records."""
    with pytest.raises(InvalidValueError, match="int is no model that can be read"):
        bench_model("builtins:int", options(str(tmp_path / "none.db")))


def test_what_is_not_installed_is_said(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = bench_model(THREE, options(database, runtimes=("onnxruntime", "torch eager")))
    problems: Mapping[str, str] = {row.runtime: row.problem for row in result.rows}
    assert problems["onnxruntime"] == "onnxruntime is not installed: pip install onnxruntime"
    assert problems["torch eager"] == "torch is not installed: pip install torch"


@pytest.mark.parametrize(
    ("change", "message"),
    [({"turns": 0}, "0 turns"), ({"seconds": 0.0}, "there is nothing to time")],
)
def test_bad_options(change: dict[str, float], message: str, database: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        options(database, **change)


def test_an_unknown_runtime_is_named(database: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown runtime 'opnvino'.*Did you mean 'openvi"):
        options(database, runtimes=("opnvino",))


def test_wrong_outputs_are_named(tmp_path: Path) -> None:
    right = np.linspace(-1, 1, 10, dtype=np.float32)
    running = []
    for name, outputs in (
        ("autotune", right + np.float32(0.1)),
        ("onnxruntime", right * np.float32(1 + 1e-6)),
        ("torch eager", right),
    ):
        running.append(_Running(name, tmp_path))
        running[-1].outputs = [outputs]
    assert _compare(running) == "torch eager"
    tuned, onnx, torch = (one.row for one in running)
    assert "its outputs are not those of torch eager: output 'output 0'" in tuned.problem
    assert tuned.error is not None and tuned.error > 1 > (onnx.error or 0.0) > 0.0
    assert onnx.problem == torch.problem == ""


def test_the_table_has_the_fastest_first() -> None:
    rows = (
        BenchRow("autotune", "tvm", "", (2e-3, 4e-3, 3e-3), 1e-3, 1.0, 0.1, 1 << 20, 0.0),
        BenchRow("untuned", "tvm", "", (9e-3,), 9e-3, 1.0, 0.1, 1 << 20, 0.0),
        BenchRow("torch eager", "torch", "", (1.5e-3,), 1e-3, 1.0, 0.1, 1 << 20, 0.0),
    )
    found = bench_table(BenchResult("net", 2, "torch eager", rows)).to_json()
    assert [row["runtime"] for row in found] == ["torch eager", "autotune", "untuned"]
    assert [row["tuned speedup"] for row in found] == ["0.50x", "1.00x", "3.00x"]


def test_preparing_is_in_other_processes_only() -> None:
    assert not [name for name in sys.modules if name.startswith("autotune.networks.bench.torch")]
    assert set(RUNTIMES) >= {"torch eager", "torch.compile", "onnxruntime", "openvino"}
