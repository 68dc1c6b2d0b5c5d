"""Several machines: the search goes on while candidates are out."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuner_bench import Bench

from autotune.search.search import PER_LANE, Window
from autotune.search.strategies import RandomStrategy
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.store.sqlite import open_database
from autotune.testing.toy_space import ToySpace
from autotune.tuning.budget import EXHAUSTED, TRIALS_USED
from autotune.tuning.events import RoundStarted, TrialFinished


@pytest.fixture
def bench() -> Iterator[Bench]:
    with open_database(":memory:") as database:
        yield Bench(database, lanes=3)


def test_outcomes_are_learnt_from_as_they_arrive_and_the_budget_is_exact(bench: Bench) -> None:
    result = bench.run(61)
    records = list(bench.database.records())
    assert result.trials == len(set(bench.measured)) == 61 and result.reason == TRIALS_USED
    assert [it.trial for it in records] == list(range(61))
    assert [it.candidate.digest for it in records] == bench.measured
    told = [
        it.candidate.digest for it in bench.seen(TrialFinished) if isinstance(it, TrialFinished)
    ]
    assert told == bench.measured
    # A round as proposed without other machines is not what is measured first.
    with open_database(":memory:") as database:
        alone = attrs.evolve(bench, database=database, lanes=1, measured=[], events=[])
        alone.run(61)
    assert alone.measured[:8] != bench.measured[:8]


def test_each_machine_has_something_to_do_until_the_next_step(bench: Bench) -> None:
    out: list[int] = []

    def outcome(candidate: Candidate) -> Outcome:
        measurer = bench.measurers[0]
        out.append(sum(map(len, measurer._submitted)))
        return Outcome("ok", 1e-3, (1e-3,))

    bench.outcome = outcome
    bench.run(80)
    # What the budget ends with is not replaced.
    assert min(out[:40]) >= PER_LANE * bench.lanes
    assert max(out) <= PER_LANE * bench.lanes + 2 * bench.round_size


def test_what_waits_for_its_last_candidate_has_some_for_each_machine(bench: Bench) -> None:
    bench.lookahead, bench.lanes = 0, 5
    bench.run(70)
    sizes = [it.candidates for it in bench.seen(RoundStarted) if isinstance(it, RoundStarted)]
    # How many machines there are is known when something has been measured.
    assert sizes == [bench.round_size, 5 * PER_LANE, 5 * PER_LANE, 5 * PER_LANE, 2]


def test_a_small_space_is_used_up(bench: Bench) -> None:
    bench.space, bench.strategy = ToySpace(extent=2), RandomStrategy
    result = bench.run(10_000)
    assert result.reason == EXHAUSTED and result.trials == ToySpace(extent=2).count()


def test_a_hopeless_task_is_left(bench: Bench) -> None:
    bench.outcome = lambda candidate: Outcome("build_error", message="scripted")
    result = bench.run(200)
    assert "all failed" in result.reason and result.trials < 64


@settings(max_examples=settings.default.max_examples // 5)
@given(step=st.integers(1, 9), lanes=st.integers(1, 5), data=st.data())
def test_a_window_loses_nothing(step: int, lanes: int, data: st.DataObject) -> None:
    """Whatever the order of outcomes: each is learnt from once, and so many at a time."""
    rows = [*ToySpace().sample(120, np.random.default_rng(0))]
    fresh = iter({it.digest: it for it in rows}.values())
    window, asked, learnt = Window(step), [], []
    for _ in range(6):
        while window.is_short(lanes):
            new = [candidate for candidate, _ in zip(fresh, range(step), strict=False)]
            if not window.add(new):
                break
            assert window.add(new) == []
            asked += new
        arrived = {it.digest for it, _ in window.arrived}
        out = [it for it in window.pending if it.digest not in arrived]
        order = data.draw(st.permutations(out))
        more = data.draw(st.integers(window.missing, len(out)))
        window.arrive([(it, Outcome("ok", 1.0, (1.0,))) for it in order[:more]])
        assert window.missing == 0
        taken = [it for it, _ in window.take_step()]
        assert len(taken) == min(step, len(asked) - len(learnt))
        learnt += taken
    known = [it.digest for it in learnt] + [it.digest for it in window.pending]
    assert sorted(known) == sorted(it.digest for it in asked)
