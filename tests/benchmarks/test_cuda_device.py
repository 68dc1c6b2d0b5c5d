"""The benchmark of CUDA devices, without one: its rows, what it promises, how it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts

from autotune.measure import MeasureProtocol
from autotune.measure.torch_routines import measure_here
from autotune.measure.vendor import ask_torch, has_routine
from autotune.plugins.parts import create_part
from autotune.spaces import SketchSpace
from autotune.targets import detect_cuda, preset, with_tf32
from autotune.targets.cuda_driver import DRIVER_VARIABLE

pytestmark = pytest.mark.needs("tvm")


SOFTMAX = "softmax-512x4096-fp32"


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    names = ("bench", "cuda_device", "cuda_rows", "cuda_report", "cuda_torch", "common")
    shared = {"cuda_rows", "cuda_report", "cuda_torch", "common"}
    with benchmark_scripts(*(f"support.{it}" if it in shared else it for it in names)) as modules:
        yield SimpleNamespace(**dict(zip(names, modules, strict=True)))


def test_torch_has_a_routine_for_every_row(scripts: Any) -> None:
    cases = scripts.cuda_rows.CASES
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert not case.has_builder or has_routine(case.made()), case.name
    assert {case.workload for case in cases if not case.has_builder} == {"layer_norm", "rms_norm"}


def test_every_row_has_sketches_on_an_h100(scripts: Any) -> None:
    """With tensor cores where halves, bytes and TF32 have them, but for products with vectors."""
    backend, plain = create_part("backend", "tvm"), preset("h100")
    for case in scripts.cuda_rows.CASES:
        target = with_tf32(plain) if case.target == "cuda-tf32" else plain
        space = SketchSpace(case.made(), target, backend.limits(target))
        names = [sketch.name for sketch in space.sketches()]
        assert names, case.name
        rounded = case.target == "cuda-tf32" or case.dtype in ("float16", "bfloat16", "int8")
        is_vector = case.shape.get("m") == 1
        assert any("tensor-cores" in it for it in names) == (rounded and not is_vector), case.name


def test_rows_are_those_that_bars_are_about(scripts: Any) -> None:
    rows = scripts.cuda_rows
    by_set = {name: rows.chosen([name]) for name in rows.SETS}
    assert [case.name for case in by_set[rows.FP32]] == [
        "gemm-1024-fp32",
        "gemm-4096x4096x1024-fp32",
        "dense-128x768x3072-fp32",
        "gemv-4096-fp32",
        "bmm-12x128x128x64-fp32",
        "conv-14x256-fp32",
        "conv-56x64-fp32",
        "depthwise-112x32-fp32",
        SOFTMAX,
        "softmax-4096x1024-fp32",
        "layer-norm-4096x1024-fp32",
    ]
    for suffix, dtype in (("fp16", "float16"), ("bf16", "bfloat16")):
        cases = [case for case in by_set[rows.HALF] if case.name.endswith(suffix)]
        assert {case.dtype for case in cases} == {dtype}
        extents = {it.shape["m"] for it in cases if len(set(it.shape.values())) == 1}
        assert {min(extents), max(extents)} == {512, 8192}
        assert {it.workload for it in cases} >= {"gemm", "batch_matmul", "conv2d"}
        assert any(it.workload == "gemm" and it.shape["m"] > it.shape["n"] for it in cases)
    assert {case.workload for case in by_set[rows.MEMORY]} == {
        *("softmax", "layer_norm", "rms_norm", "attention")
    }
    assert all(case.target == "cuda" for case in rows.CASES if rows.OTHER not in case.sets)
    assert sum(case.metaschedule for case in rows.CASES) == 3
    quick = [case for case in rows.CASES if case.quick]
    assert {name for case in quick for name in case.sets} == {rows.FP32, rows.HALF, rows.MEMORY}


def test_tuning_goes_on_in_one_database_for_so_many_seconds(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = scripts.cuda_device
    asked: list[Any] = []
    result: dict[str, Any] = {
        "best": {"latency": 2e-6},
        "baseline": None,
        "seconds": {"total": 58.0},
        "trials": 9,
    }

    def tune(*given: Any, arguments: Any) -> Any:
        asked.append((*given, arguments))
        return result, 30.0

    monkeypatch.setattr(device, "tune", tune)
    options = SimpleNamespace(
        cases=scripts.cuda_rows.chosen([SOFTMAX, "layer-norm-4096x1024-fp32"]),
        work=tmp_path,
        time=60.0,
        metaschedule_python=None,
        theirs=[],
        limit=None,
        retry=False,
    )
    session = device.session_of(options, "NVIDIA H100 80GB HBM3", lambda: 0.0)
    softmax, norm = session.cases
    # Seconds of a session before an interrupt count.
    assert device.tuning(session, softmax) == {
        "latency": 2e-6,
        "default": None,
        "seconds": 58.0,
        "trials": 9,
    }
    device.tuning(session, norm)
    builder, imported = asked
    assert builder[0] == "softmax" and builder[1] == {"m": 512, "n": 4096}
    assert imported[0] == "layer_norm m=4096 n=1024" and imported[1] == {}
    for case, given in zip(session.cases, asked, strict=True):
        assert given[4] == session.place(case) / "records-60s.db"
        assert given[4].is_relative_to(tmp_path / "NVIDIA-H100-80GB-HBM3")
        assert given[-1][:2] == ["--target", "cuda"] and given[-1][-2:] == ["--time", "60"]
    result["best"] = None
    with pytest.raises(device.StepFailed, match="none of 9 candidates ran"):
        device.tuning(session, softmax)

    def fail(*_: Any, **__: Any) -> Any:
        raise scripts.common.TuningFailed("tuning failed: words\nautotune: error: it is busy")

    monkeypatch.setattr(device, "tune", fail)
    with pytest.raises(device.StepFailed, match=r"^autotune: error: it is busy$"):
        device.tuning(session, softmax)


def measured(scripts: Any, name: str, **latencies: float) -> Any:
    (case,) = scripts.cuda_rows.chosen([name])
    steps = ("tuned", "eager") + (("compiled",) if case.is_compiled else ())
    row = scripts.cuda_report.Row(case, steps)
    row.done = list(steps)
    row.latencies = {"tuned": 1.0, "default": 2.0, **latencies}
    return row


def test_the_bars(scripts: Any) -> None:
    rows = [
        measured(scripts, "gemm-1024-fp32", eager=1.0),
        measured(scripts, SOFTMAX, eager=4.0, compiled=1.5),
        measured(scripts, "gemm-512-fp16", eager=0.9),
        measured(scripts, "rms-norm-4096x1024-fp32", eager=9.0, compiled=6.0),
        measured(scripts, "gemm-4096-tf32", eager=0.1),
    ]
    bars = {bar.name: bar for bar in scripts.cuda_report.bars_of(rows)}
    assert {name: bar.value for name, bar in bars.items()} == {
        "times torch, float32, geometric mean of 2": pytest.approx(2.0),
        "times torch, float32, the least": 1.0,
        "times cuBLAS and cuDNN, halves, geometric mean of 1": pytest.approx(0.9),
        "times torch.compile, softmax, norms and attention, geometric mean of 2": pytest.approx(
            3.0
        ),
        "times MetaSchedule, equal wall clock, geometric mean of 0": None,
        "times TVM's default schedule, median": 2.0,
        "rows with an error": 0,
        "rows with something left to do": 0,
    }
    wanted = [(bar.wanted, bar.at_most) for bar in bars.values()]
    assert [least for least, at_most in wanted if not at_most] == [1.2, 0.95, 0.9, 1.0, 1.3, 1.0]
    # What nobody asked for is not said to hold.
    (unasked,) = [bar for bar in bars.values() if not bar.applies]
    assert str(unasked).startswith("n/a  times MetaSchedule")
    assert all(bar.holds for bar in bars.values())


def test_a_slow_row_or_one_with_an_error_breaks_a_bar(scripts: Any) -> None:
    rows = [measured(scripts, "gemm-1024-fp32", eager=3.0), measured(scripts, SOFTMAX, eager=0.94)]
    rows[1].errors["compiled"] = "torch: no"
    broken = {bar.name: bar for bar in scripts.cuda_report.bars_of(rows) if not bar.holds}
    assert {name: bar.note for name, bar in broken.items()} == {
        "times torch, float32, the least": SOFTMAX,
        "times torch.compile, softmax, norms and attention, geometric mean of 0": (
            f"without {SOFTMAX}"
        ),
        "rows with an error": SOFTMAX,
    }


def test_without_a_device_it_says_so(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DRIVER_VARIABLE, "/nonexistent/libcuda.so.1")
    assert scripts.bench.main(["cuda_device", "--quick"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: there is no CUDA device here")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms_of_torch_are_those_of_the_rows(scripts: Any, name: str) -> None:
    case = scripts.cuda_rows.Case("small", name, {"m": 3, "n": 16}, (), None)
    protocol = MeasureProtocol(min_sample_seconds=1e-5, budget_seconds=1e-3)
    calls = scripts.cuda_torch.norm_calls
    outcome = measure_here(case.made(), preset("h100"), "cpu", protocol, 0, calls=calls)
    assert outcome.ok, outcome.message


@pytest.mark.parametrize("compiled", [False, True], ids=("eager", "compiled"))
def test_the_process_of_norms_starts_and_says_what_is_missing(
    scripts: Any, compiled: bool
) -> None:
    case = scripts.cuda_rows.Case("small", "layer_norm", {"m": 3, "n": 16}, (), None)
    asked = ("support.cuda_torch", case.made(), preset("h100"), MeasureProtocol())
    outcome = ask_torch(*asked, compiled=compiled)
    if not outcome.ok:
        assert outcome.status == "crash" and "\n" not in outcome.message
        assert "torch" in outcome.message and "cuda_torch" not in outcome.message


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
def test_a_norm_is_timed_on_the_device(scripts: Any) -> None:
    case = scripts.cuda_rows.Case("small", "layer_norm", {"m": 512, "n": 1024}, (), None)
    found = ask_torch("support.cuda_torch", case.made(), detect_cuda(), MeasureProtocol())
    assert found.ok, found.message
