from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.sketches import CandidateBatch
from autotune.testing.toy_space import ToySpace, toy_features, toy_latencies, toy_outcome


def test_the_count_is_exact() -> None:
    # Exponents (a, b) of the inner factors of i and of j; 4 values of k1.
    pairs = [(a, b) for a in range(4) for b in range(4) if a + b <= 3]
    tiles = sum(one[0] + other[0] <= 4 for one in pairs for other in pairs)
    assert ToySpace().count() == 2 * 4 * tiles == 760
    assert ToySpace(limit=0).count() == 0


def test_extents_must_be_powers_of_two() -> None:
    with pytest.raises(InvalidValueError, match="not 12"):
        ToySpace(extent=12)


def test_latencies_have_one_optimum_and_some_failures() -> None:
    everything = list(ToySpace(extent=64).enumerate())
    outcomes = [toy_outcome(candidate) for candidate in everything]
    valid = sorted(outcome.latency for outcome in outcomes if outcome.latency is not None)
    assert valid[0] == pytest.approx(1e-3) and valid[1] > valid[0]
    assert 0 < len(outcomes) - len(valid) < len(outcomes) / 5
    batch = CandidateBatch.of(everything)
    assert toy_features(batch).shape == (len(everything), 6)
    assert np.isfinite(toy_latencies(batch)).all()


def test_feasible_sets_are_of_its_own_sketches() -> None:
    own, other = ToySpace(), ToySpace(extent=16)
    assert sum(own.feasible_set(sketch).count for sketch in own.sketches()) == own.count()
    with pytest.raises(InvalidValueError, match="does not belong to this space"):
        own.feasible_set(other.sketches()[0])
