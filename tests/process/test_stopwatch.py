from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.process.stopwatch import ACTIVITIES, Stopwatch

SECONDS = st.floats(0, 10)
SPANS = st.lists(st.tuples(SECONDS, SECONDS).map(lambda pair: tuple(sorted(pair))), max_size=8)


@given(
    st.lists(st.tuples(st.sampled_from(ACTIVITIES[:-1]), SECONDS, SECONDS), max_size=8),
    SPANS,
    st.dictionaries(st.sampled_from(ACTIVITIES), SECONDS),
)
def test_builds_beside_something_else_change_no_sum(
    timed: list[tuple[str, float, float]],
    builds: list[tuple[float, float]],
    before: dict[str, float],
) -> None:
    now = [0.0]
    watch = Stopwatch(lambda: now[0], before)
    for activity, seconds, pause in timed:
        with watch.timing(activity):
            now[0] += seconds
        now[0] += pause
    plain = watch.seconds
    watch.credit_builds(builds)
    credited = watch.seconds
    total = sum(before.values()) + now[0]
    assert sum(plain.values()) == pytest.approx(total)
    assert sum(credited.values()) == pytest.approx(total) == pytest.approx(watch.elapsed)
    assert credited["build"] >= plain["build"] - 1e-9
    assert credited["other"] == pytest.approx(plain["other"])
    assert all(seconds >= -1e-9 for seconds in credited.values())
    # What was credited once is not credited again.
    watch.credit_builds(builds)
    assert watch.seconds == credited


def test_what_is_built_at_the_same_time_counts_once() -> None:
    now = [0.0]
    watch = Stopwatch(lambda: now[0])
    with watch.timing("search"):
        now[0] = 10.0
    watch.credit_builds([(1.0, 3.0), (2.0, 4.0), (2.5, 2.6), (9.0, 12.0)])
    assert watch.seconds["build"] == pytest.approx(4.0)
    assert watch.seconds["search"] == pytest.approx(6.0)


def test_what_is_claimed_beside_builds_is_theirs_where_they_overlap() -> None:
    now = [0.0]
    watch = Stopwatch(lambda: now[0])
    now[0] = 4.0
    watch.claim("startup", 3.0, beside_builds=True)
    watch.claim("run", 1.0)
    watch.credit_builds([(0.0, 2.0), (3.5, 9.0)])
    found = watch.seconds
    assert (found["startup"], found["build"], found["run"]) == pytest.approx((1.5, 1.5, 1.0))
