"""Strategies of the library on the virtual clock."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from recorded_spaces import FIRST_ONES, small_space, small_table

from autotune.errors import AutotuneError
from autotune.evaluation.replay import Budget, Contestant, OutcomeTable, Replay
from autotune.evaluation.replay.contestants import make_strategy, refusal, replay, strategy_names
from autotune.evaluation.replay.recorded import table_of
from autotune.sketches import Candidate


@pytest.fixture(scope="module")
def table() -> OutcomeTable:
    return small_table()


def replayed(table: OutcomeTable, name: str, budget: Budget, seed: int = 0) -> Replay:
    ticks = itertools.count()
    return replay(Contestant(name), table, seed, budget, lambda: float(next(ticks)))


def in_order(table: OutcomeTable) -> list[int]:
    return [table.place(candidate) for candidate in table.space.enumerate()]


def test_a_table_has_every_configuration(table: OutcomeTable) -> None:
    recorded = table.recorded
    assert recorded is not None and len(table) == table.space.count() == 360
    for candidate in table.space.enumerate():
        place = table.place(candidate)
        outcome, evaluation = table.outcomes[place], recorded.evaluations[place]
        assert table.space.decode(candidate) == evaluation.configuration  # type: ignore[attr-defined]
        assert (outcome.status, outcome.latency) == (evaluation.status, evaluation.seconds)
    stranger = Candidate(table.space.sketches()[0], (3, 1, 0, 0, 0))
    with pytest.raises(AutotuneError, match="is no configuration of kernel-device"):
        table.place(stranger)


@pytest.mark.parametrize("round_size", [1, 7])
def test_the_clock_sums_what_evaluations_took(table: OutcomeTable, round_size: int) -> None:
    run = replayed(table, FIRST_ONES.name, Budget(50, None, round_size))
    places = in_order(table)[:50]
    costs = np.cumsum(table.costs[places])
    assert run.evaluations == 50 and run.ended == "budget"
    assert run.elapsed == pytest.approx(costs[-1])
    assert run.failures == np.isinf(table.seconds[places]).sum()
    best = np.minimum.accumulate(table.seconds[places])
    assert run.best(50, np.inf).tolist() == best.tolist()
    for step in run.steps:
        assert step.elapsed == pytest.approx(costs[step.evaluation - 1])
    assert run.strategy_seconds > 0 and run.harness_seconds > 0


def test_nothing_ends_after_the_virtual_time(table: OutcomeTable) -> None:
    costs = np.cumsum(table.costs[in_order(table)])
    limit = float(costs[9])
    run = replayed(table, FIRST_ONES.name, Budget(50, limit))
    assert (run.evaluations, run.ended) == (10, "time") and run.elapsed == pytest.approx(limit)
    shorter = replayed(table, FIRST_ONES.name, Budget(50, limit * 0.999))
    assert shorter.evaluations == 9
    whole = replayed(table, FIRST_ONES.name, Budget(50, limit, 50))
    assert whole.evaluations == 10, "a round may end in the middle"


def test_a_strategy_ends_with_the_space(table: OutcomeTable) -> None:
    run = replayed(table, "grid", Budget(1000))
    assert (run.evaluations, run.ended) == (360, "exhausted")
    assert run.steps[-1].seconds == table.seconds.min()


@pytest.mark.parametrize("name", ["random", "evolutionary"])
def test_a_seed_decides(table: OutcomeTable, name: str) -> None:
    budget = Budget(30, None, 10)
    one, again, other = (replayed(table, name, budget, seed).steps for seed in (3, 3, 4))
    assert one == again != other
    # In the order of the file or not.
    space = small_space()
    turned = table_of(space.reordered(list(reversed(range(len(space))))))
    assert replayed(turned, name, budget, 3).steps == one


def test_every_strategy_runs_or_says_why_not(table: OutcomeTable) -> None:
    ran = set()
    for name in strategy_names():
        reason = refusal(Contestant(name), table)
        assert "\n" not in reason
        if not reason:
            ran.add(name)
            assert replayed(table, name, Budget(5)).evaluations == 5
    assert ran >= {"random", "grid", "evolutionary"}


def test_models_that_read_nests_are_not_asked(table: OutcomeTable) -> None:
    _, cost_model = make_strategy(Contestant("evolutionary"), table, 0)
    assert cost_model.name == "random"
    assert "loop nests" in refusal(Contestant("felix"), table)


def test_options_reach_the_strategy(table: OutcomeTable) -> None:
    assert refusal(Contestant("evolutionary", {"population": 8}), table) == ""
    assert "popul" in refusal(Contestant("evolutionary", {"popul": 8}), table)
    assert Contestant("evolutionary", {"b": 2, "a": 1}).label == "evolutionary[a=1,b=2]"
    with pytest.raises(AutotuneError, match="unknown strategy 'rndom'"):
        refusal(Contestant("rndom"), table)
    for wrong in ({"evaluations": 0}, {"round_size": 0}, {"seconds": 0.0}):
        with pytest.raises(AutotuneError):
            Budget(**wrong)
