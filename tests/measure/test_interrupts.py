"""Timed candidates are told, whenever Ctrl-C comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.ir.workloads import Workload
from autotune.measure import Collecting, LocalMeasurer, workers
from autotune.measure.trial import Batch, Trial
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target
from autotune.testing.reference_backend import REFERENCE_BACKEND, virtual_latency

OK = Outcome("ok", 1.0, (1.0,))


def test_an_outcome_is_told_again_when_telling_it_was_interrupted(
    candidates: list[Candidate],
) -> None:
    batch, told = Batch([Trial(at, it) for at, it in enumerate(candidates[:3])]), list[int]()
    for trial in batch.trials:
        trial.outcome = OK

    def interrupt(position: int, outcome: Outcome) -> None:
        if position == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch.tell(interrupt)
    batch.tell_rest(lambda position, outcome: told.append(position))
    assert told == [1, 2]


@pytest.mark.needs("2 CPUs")
def test_what_waits_for_a_slow_build_is_not_lost(
    candidates: list[Candidate],
    workload: Workload,
    target: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first candidate is still being built when others have been timed, and Ctrl-C comes."""
    # Where CPUs share a core nothing is timed before everything is built.
    monkeypatch.setattr(workers, "quiet_neighbour_matters", lambda *_: False)
    log = tmp_path / "log"
    faults = [{"fault": "hang", "phase": "build", "where": {"tile": 1}}]
    program = json.dumps({"faults": faults, "log": str(log)})
    measurer = LocalMeasurer(
        REFERENCE_BACKEND, target, 1, workload=workload, program=program, workers=2
    )
    told: dict[int, Outcome] = {}

    def enough() -> bool:
        if log.exists() and "time end" in log.read_text():
            raise KeyboardInterrupt
        return False

    with measurer:
        measurer.submit(candidates)
        with pytest.raises(KeyboardInterrupt):
            measurer.collect(Collecting(told.__setitem__, enough=enough))
        assert told and 0 not in told
        assert {outcome.status for outcome in told.values()} == {"ok"}
        # The worker with the slow build is replaced: the measurer can go on.
        assert [it.status for it in measurer.measure(candidates[1:4])] == ["ok"] * 3


def test_what_may_be_the_best_one_is_not_hidden_by_an_interrupt(
    candidates: list[Candidate], workload: Workload, make_measurer: Callable[..., LocalMeasurer]
) -> None:
    """Its turns did not take place: it counts as it was screened, not as slower than the best."""
    latency = {it.digest: virtual_latency(workload, it) for it in candidates}
    fast, *_, slow = sorted(candidates, key=lambda it: latency[it.digest])
    measurer, told, asked = make_measurer(workers=1), dict[int, Outcome](), []

    def enough() -> bool:
        asked.append(True)
        if len(asked) > 2:  # before the first one, and after each of the two
            raise KeyboardInterrupt
        return False

    measurer.submit([slow, fast])
    with pytest.raises(KeyboardInterrupt):
        measurer.collect(Collecting(told.__setitem__, enough=enough))
    assert told[0].latency == latency[slow.digest]
    assert told[1].latency == latency[fast.digest]
