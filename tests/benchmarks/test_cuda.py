"""Judgements of scores by the GPU benchmark, and its words on candidates that do not compile."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import benchmark_scripts

from autotune.backends import BuildFailed
from autotune.store.jsonl import read_lines, record_line
from autotune.store.records import Outcome

pytestmark = pytest.mark.needs("tvm")


@pytest.fixture(scope="module")
def scripts() -> Iterator[tuple[Any, Any, Any]]:
    with benchmark_scripts("cuda_candidates", "support.cuda_compile", "cuda") as modules:
        yield modules


def rows_of(latencies: list[float], drawn_by: str = "R") -> list[dict[str, Any]]:
    return [{"latency": latency, "drawn_by": [drawn_by]} for latency in latencies]


def test_scores_that_order_as_the_latencies_do_are_perfect(scripts: Any) -> None:
    candidates = scripts[0]
    latencies = np.random.default_rng(0).permutation(np.arange(1.0, 65.0))
    figures = candidates.order_figures(1 / latencies, rows_of(latencies.tolist()))
    assert figures == {"spearman": pytest.approx(1), "best_of_first": pytest.approx(1)}
    reverse = candidates.order_figures(latencies, rows_of(latencies.tolist()))
    assert reverse["spearman"] == pytest.approx(-1)
    # The ten slowest: the best of them takes 55 times the best of all.
    assert reverse["best_of_first"] == pytest.approx(55)


def test_what_a_formula_chose_is_left_out_of_the_correlation(scripts: Any) -> None:
    candidates = scripts[0]
    uniform, chosen = rows_of([1.0, 2.0, 3.0]), rows_of([4.0, 5.0], "P")
    scores = np.array([3.0, 2.0, 1.0, 8.0, 9.0])
    assert candidates.order_figures(scores, uniform + chosen)["spearman"] == pytest.approx(1)


def test_equal_scores_are_taken_in_many_orders(scripts: Any) -> None:
    candidates = scripts[0]
    rows = rows_of([float(1 + place) for place in range(20)])
    mean = candidates.order_figures(np.zeros(20), rows)["best_of_first"]
    assert 1.2 < mean < 2.5


def test_only_timed_candidates_that_ran_are_read(scripts: Any, tmp_path: Path) -> None:
    row = {"case": "a", "small": False, "outcome": "ok"}
    lines = [row, {**row, "small": True}, {**row, "outcome": "build_error"}, {**row, "case": "b"}]
    file = tmp_path / "measured.jsonl.gz"
    with gzip.open(file, "wt") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in lines))
    assert {name: len(rows) for name, rows in scripts[0].read_cases(file).items()} == {
        "a": 1,
        "b": 1,
    }


def test_measured_candidates_are_records_that_can_be_read(scripts: Any) -> None:
    candidates = scripts[0]
    row: dict[str, Any] = {
        "case": "small",
        "workload": "gemm",
        "parameters": {"m": 32, "n": 48, "k": 16},
        "latency": 2e-6,
    }
    space = candidates.space_of([row])
    drawn = list(space.sample(3, np.random.default_rng(0)))
    rows = [{**row, "sketch": it.sketch.name, "config": it.config} for it in drawn]
    assert candidates.candidates_of(rows, space) == drawn
    written = b"".join(map(record_line, candidates.records_of("small", rows)))
    read = list(read_lines(io.BytesIO(written)))
    assert [record.candidate for record in read] == drawn
    assert {record.latency for record in read} == {2e-6}
    assert {record.target["name"] for record in read} == {"h100"}


def test_rows_from_before_shared_memory_was_padded_have_no_padding(scripts: Any) -> None:
    row = {"workload": "gemm", "case": "old", "parameters": {"m": 32, "n": 48, "k": 16}}
    space = scripts[0].space_of([row])
    sketch = next(it for it in space.sketches() if "C.A.pad" in it.param_names)
    drawn = next(iter(space.feasible_set(sketch).uniform(1, 0)))
    config = dict(zip(sketch.param_names, drawn.tolist(), strict=True))
    old = {name: value for name, value in config.items() if not name.endswith(".pad")}
    (candidate,) = scripts[0].candidates_of([{"sketch": sketch.name, "config": old}], space)
    assert candidate.config == {**config, **{name: 0 for name in config if name not in old}}


def outcomes_of(faults: Any) -> list[Outcome]:
    healthy = [Outcome("ok", 1e-6)] * faults.HEALTHY
    return [
        Outcome(status, None, message=f"so: {why}") for status, why in faults.FAULTS.values()
    ] + healthy


def test_faults_that_are_no_or_another_candidates_outcome_fall_short() -> None:
    with benchmark_scripts("cuda_faults") as (faults,):
        found, last = outcomes_of(faults), Outcome("ok", 1e-6)
        assert all(bar.holds for bar in faults.bars_of(found, last, 6))
        changed = [found[0], *found[:1], *found[2:]]
        missing, healthy, after, processes = faults.bars_of(changed, found[0], 5)
        assert missing.note == "error 700, error 716" and not missing.holds
        assert healthy.holds and not after.holds and not processes.holds


def test_every_gpu_sketch_of_a_workload_has_distinct_candidates(
    scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_ = scripts[1]
    made = [(name, workload) for name, workload in compile_.workloads() if name == "dw112"]
    monkeypatch.setattr(compile_, "workloads", lambda: iter(made))
    jobs = compile_.jobs_of(3, ("sm_80",))
    assert [job.sketch for job in jobs] == ["dw112 shared"] * 3 + ["dw112 direct"] * 3
    assert len({job.candidate.digest for job in jobs}) == 6


def test_failures_are_counted_by_sketch(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_ = scripts[1]

    def make_cubin(source: str, architecture: str) -> None:
        assert "__global__" in source
        if architecture == "sm_80":
            raise BuildFailed("no such thing")

    monkeypatch.setattr(compile_, "make_cubin", make_cubin)
    monkeypatch.setattr(compile_, "WORKLOADS", {"small": ("gemm", {"m": 32, "n": 32, "k": 32})})
    job = compile_.jobs_of(1, ("sm_80", "sm_90a"))[0]
    done = compile_.compiled(job)
    assert done.failures == ("sm_80: no such thing",) and len(done.cubin_seconds) == 1
    compile_.print_sketch([done, done])
    said = capsys.readouterr().out
    assert "2 candidates, 2 failed" in said and "2 times sm_80: no such thing" in said
    failed, *_ = compile_.compile_bars([done, done], "nvcc")
    assert failed.value == 2 and not failed.holds


def test_without_a_compiler_it_says_so_and_the_check_fails(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cuda = scripts[2]
    monkeypatch.setattr(cuda, "find_compiler", lambda: None)
    monkeypatch.setattr(cuda, "bars_apart", list)
    monkeypatch.setattr(cuda, "rank_measured", lambda *_: [])
    with benchmark_scripts("bench") as (bench,):
        assert bench.main(["cuda", "--quick", "--check"]) == 1
    said = capsys.readouterr().out.splitlines()
    start = (
        "nothing is compiled: neither nvcc on the PATH nor NVRTC: pip install nvidia-cuda-nvrtc"
    )
    assert said[1].startswith(start)
    assert any("not measured" in line for line in said)


@pytest.mark.needs("nvrtc")
def test_what_nvrtc_rejects_is_a_failed_build(scripts: Any) -> None:
    compile_ = scripts[1]
    library = compile_.nvrtc()
    assert library is not None
    assert compile_.nvrtc_cubin(library, "__global__ void f() {}", "sm_80")[:4] == b"\x7fELF"
    with pytest.raises(BuildFailed, match="nvrtc: kernels.cu"):
        compile_.nvrtc_cubin(library, "__global__ void broken( {}", "sm_80")
