"""Latencies that cannot be true: what they are held to, and what becomes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve
from clocked_backend import CLOCKED_BACKEND
from simulated_workers import Machine, Program, Session, session
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

import autotune
from autotune.ir.expressions import Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, elementwise, gemm
from autotune.measure.plausibility import SHORTEST_CALL, Plausibility, peak_rate
from autotune.store.database import RecordFilter
from autotune.store.failures import grouped_failures
from autotune.store.sqlite import open_database
from autotune.targets import Target, measure_core_rates, preset, with_tf32
from autotune.testing.reference_backend import SCRIPT_VARIABLE

MEASURED = Target("cpu", "box", cores=2, peak_flops={"float32": 1e11}, rates_measured=True)


def test_a_matrix_product_is_held_to_a_quarter_of_its_flop_at_the_peak() -> None:
    bounds = Plausibility.of(gemm(m=512, n=512, k=512), MEASURED, 2)
    assert bounds.least == pytest.approx(2 * 512**3 / 1e11 / 4)
    assert bounds.contradiction([bounds.least * 0.99], 1, 1.0) is not None
    assert bounds.contradiction([bounds.least * 1.01], 1, 1.0) is None


def test_what_computes_little_is_held_to_the_bytes_that_it_writes() -> None:
    large = elementwise(m=1024, n=1024)
    bounds = Plausibility.of(large, evolve(MEASURED, peak_flops={"float32": 1e20}), 2)
    assert "bytes of output" in bounds.why
    # No cache moves 4 MiB in 0.1 us, or needs 10 ms for it.
    assert 1e-7 < bounds.least < 1e-2


@pytest.mark.parametrize("dtype", ["int8", "u8s8s32"])
def test_where_no_peak_is_known_none_is_guessed(dtype: str) -> None:
    workload = gemm(m=512, n=512, k=512, dtype=dtype)
    assert peak_rate(workload, MEASURED, 2) == 0
    assert "flop/s" not in Plausibility.of(workload, MEASURED, 2).why


def test_estimates_of_a_target_are_no_peak() -> None:
    estimate = evolve(MEASURED, peak_flops={"float32": 1.0}, rates_measured=False)
    found = peak_rate(gemm(m=8, n=8, k=8), estimate, 2)
    assert found > 1e8
    assert found == peak_rate(gemm(m=8, n=8, k=8), estimate, 2)  # measured once


def test_programs_of_a_gpu_are_held_to_its_own_peak() -> None:
    gpu = preset("h100")
    assert peak_rate(gemm(m=8, n=8, k=8), gpu, 1) == gpu.peak_flops["float32"]
    bytes_ = gemm(m=4096, n=4096, k=4096, dtype="u8s8s32")
    assert peak_rate(bytes_, gpu, 1) == gpu.tensor_peak_flops["int8"]
    assert Plausibility.of(bytes_, gpu, 1).least == pytest.approx(
        bytes_.flop / gpu.tensor_peak_flops["int8"] / 4
    )
    assert peak_rate(bytes_, evolve(gpu, tensor_peak_flops={}, peak_flops={}), 1) == 0


def test_tensor_cores_of_unknown_speed_are_held_to_no_peak() -> None:
    """With TF32, products of float32 are theirs."""
    product, known = gemm(m=4096, n=4096, k=4096), with_tf32(preset("h100"))
    assert peak_rate(product, known, 1) == known.tensor_peak_flops["float32"]
    unknown = with_tf32(evolve(preset("h100"), processor="sm_100", tensor_peak_flops={}))
    assert peak_rate(product, unknown, 1) == 0


def move(indices: tuple[int, int], shape: tuple[int, int]) -> Workload:
    """A copy of a 512 x 256 array: the axes that index it, and the shape of the output."""
    source = Tensor("A", (512, 256), "float32")
    axes = tuple(Axis(name, extent) for name, extent in zip("ij", shape, strict=True))
    names = [var("ij"[place]) for place in indices]
    stage = Stage(Tensor("B", shape, "float32"), axes, Load("A", tuple(names)))
    return Workload("move", (source,), (stage,), ("B",))


def test_a_view_has_no_bound_and_a_transposition_has_one() -> None:
    view = Plausibility.of(move((0, 1), (512, 256)), MEASURED, 2)
    assert view.least == SHORTEST_CALL
    assert view.contradiction([1e-9], 1, 1.0) is None
    assert view.contradiction([1e-300], 1, 1.0) is not None
    assert Plausibility.of(move((1, 0), (256, 512)), MEASURED, 2).least > 10 * SHORTEST_CALL


def test_more_time_cannot_be_claimed_than_has_passed() -> None:
    bounds = Plausibility(SHORTEST_CALL, "")
    said = bounds.contradiction([0.5, 0.5], 10, 1.0)
    assert (
        said == "2 samples of 10 calls are claimed to have taken 10 s, and 1 s passed for the host"
    )
    assert bounds.contradiction([0.5, 0.5], 1, 1.0) is None


def test_rates_of_this_machine_grow_with_its_cores() -> None:
    flops, bandwidth = measure_core_rates(1)
    assert 1e8 < flops < 1e13 and 1e8 < bandwidth < 1e13


def held_to(machine: Machine, least: float) -> Session:
    """A session that takes the machine's time for its own."""
    bounds = Plausibility(least, "it is a test")
    return session(machine, plausibility=bounds, clock=lambda: machine.now)


def test_a_program_that_claims_too_little_does_not_lead() -> None:
    machine = Machine()
    timing = held_to(machine, least=1e-4)
    liar = machine.trial(1, Program(1e-300))
    timing.screen(liar)
    assert liar.outcome is not None and liar.outcome.status == "implausible"
    assert "1e-300 s" in liar.outcome.message and "it is a test" in liar.outcome.message
    assert timing.leader is None
    honest = machine.trial(2, Program(1e-3))
    timing.screen(honest)
    assert timing.leader is honest


def test_a_program_that_begins_to_lie_in_its_turns_does_not_win() -> None:
    machine = Machine()
    timing = held_to(machine, least=1e-4)
    leader, liar = machine.trial(0, Program(1e-3)), machine.trial(1, Program(1e-3))
    timing.screen(leader)
    timing.screen(liar)
    machine.programs[1].seconds = 1e-9
    timing.settle()
    assert liar.outcome is not None and liar.outcome.status == "implausible"
    assert timing.leader is leader


def test_a_program_that_claims_more_than_has_passed() -> None:
    machine = Machine()
    bounds = Plausibility(SHORTEST_CALL, "")
    timing = session(machine, plausibility=bounds, clock=lambda: machine.now / 100)
    trial = machine.trial(0, Program(1e-3))
    timing.screen(trial)
    assert trial.outcome is not None and trial.outcome.status == "implausible"
    assert "passed for the host" in trial.outcome.message


def tuned(path: Path, backend: str, trials: int = 8) -> autotune.Result:
    return autotune.tune(
        gemm(m=8, n=8, k=8),
        backend=backend,
        parts={"search_space": TOY_SPACE, "cost_model": "random", "pruning_model": None},
        trials=trials,
        threads=1,
        seed=5,
        database=path,
    )


def test_a_backend_that_claims_next_to_nothing_never_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [{"fault": "time", "every": 2, "value": 1e-300}]
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps({"faults": faults}))
    result = tuned(tmp_path / "records.db", CLOCKED_BACKEND)
    assert result.outcomes["implausible"] > 0 and result.outcomes["ok"] > 0
    assert sum(result.outcomes.values()) == 8
    assert result.fastest is not None and result.confirmation is not None
    assert int(result.fastest.candidate.digest, 16) % 2 == 1
    assert result.confirmation.winner == result.fastest.candidate.digest
    assert "a call is claimed to take 1e-300 s" in result.failures["implausible"]
    with open_database(tmp_path / "records.db") as database:
        records = list(database.records(RecordFilter(run_id=result.run_id)))
    liars = [it for it in records if it.outcome.status == "implausible"]
    assert all(it.latency is None and it.outcome.retriable for it in liars)
    (group,) = grouped_failures(records)
    assert (group.phase, group.failures) == ("run", len(liars))


def test_a_backend_that_simulates_says_so_and_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [{"fault": "time", "every": 2, "value": 1e-300}]
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps({"faults": faults}))
    result = tuned(tmp_path / "records.db", REFERENCE_BACKEND)
    assert result.outcomes["implausible"] == 0
    assert result.best is not None and result.best.latency == 1e-300
