"""Tests of which of a task's programs is the one to use."""

from __future__ import annotations

from itertools import permutations

from autotune.store.records import Outcome, best_baseline, standing
from autotune.testing.sample_records import sample_baseline, sample_record


def test_of_one_program_under_two_names_the_one_that_took_turns_counts() -> None:
    """Whatever order they come in: a database and a run know them in different ones."""
    raced = sample_baseline(latency=7e-7, name="a", counts_as=1.2e-6)
    other = sample_baseline(latency=7e-7, name="b")
    slower = sample_baseline(latency=9e-7, name="c")
    fastest = sample_record(outcome=Outcome("ok", 9e-7))
    for order in permutations([raced, other, slower]):
        assert best_baseline(order) is raced
        assert standing(fastest, order) is fastest
