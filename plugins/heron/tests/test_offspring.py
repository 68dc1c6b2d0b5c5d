from __future__ import annotations

import numpy as np
from autotune_heron.selection import one_point_children
from autotune_heron.strategies import key_parameters, make_child
from hypothesis import given
from hypothesis import strategies as st

from autotune.ir.workloads import conv2d
from autotune.sketches import STEP_TYPES, Sketch
from autotune.spaces import FeasibleSet, ScheduleLimits, SketchSpace
from autotune.spaces.feasible import is_feasible
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace


def conv_feasible_set() -> tuple[Sketch, FeasibleSet]:
    """The sketch of a convolution with the most parameters, and its feasible set."""
    workload = conv2d(n=1, h=14, w=14, ci=32, co=64, kh=3, kw=3, pad=1)
    limits = ScheduleLimits(frozenset(STEP_TYPES), 65536, 4096, "test")
    space = SketchSpace(workload, preset("skylake-avx512"), limits)
    sketch = max(space.sketches(), key=lambda sketch: len(sketch.params))
    return sketch, space.feasible_set(sketch)


CONV_SKETCH, CONV = conv_feasible_set()
PARAMS = len(CONV.columns)
TOY = ToySpace()
TOY_FEASIBLE = TOY.feasible_set(TOY.sketches()[0])

seeds = st.integers(0, 2**32)
key_sets = st.lists(st.integers(0, PARAMS - 1), unique=True)


@given(seeds, key_sets, st.integers(0, 3), st.booleans())
def test_children_are_feasible_and_keep_values_of_their_parents(
    seed: int, keys: list[int], dropped: int, distinct: bool
) -> None:
    mother, father = CONV.uniform(2, seed)
    rng = np.random.default_rng(seed)
    child = make_child(CONV, mother, father, keys, dropped, distinct, rng)
    # By the constraints themselves, and by the feasible set, which knows the domains too.
    assert is_feasible(CONV_SKETCH, child.row[None]).all()
    assert CONV.contains(child.row[None]).all()
    assert set(child.shared_keys) <= set(keys)
    for column in child.shared_keys:
        assert child.row[column] in (mother[column], father[column])
    assert child.choices >= (1 if np.array_equal(mother, father) else 2)
    if not distinct:
        assert len(child.shared_keys) == max(0, len(keys) - dropped)


@given(seeds, key_sets)
def test_fewer_keys_never_restrict_more(seed: int, keys: list[int]) -> None:
    names = CONV.columns
    mother, father = CONV.uniform(2, seed).tolist()
    space, counts = CONV, [CONV.count]
    for key in keys:
        space = space.restrict({names[key]: (mother[key], father[key])})
        counts.append(space.count)
    assert counts == sorted(counts, reverse=True)
    pairs = {names[key]: (father[key], mother[key]) for key in reversed(keys)}
    assert CONV.restrict(pairs).count == counts[-1]
    assert space.contains(np.array([mother, father])).all()


@given(seeds, key_sets)
def test_a_distinct_child_is_drawn_from_more_than_its_parents(seed: int, keys: list[int]) -> None:
    mother, father = CONV.uniform(2, seed)
    child = make_child(CONV, mother, father, keys, 0, True, np.random.default_rng(seed))
    assert child.choices > 2


def test_clones_are_what_distinct_children_are_not() -> None:
    """All keys kept: as published the child is a parent, ours drops keys until it need not be."""
    mother, father = TOY_FEASIBLE.uniform(2, 3)
    keys = range(len(mother))
    clones = {"published": 0, "ours": 0}
    for name, distinct in (("published", False), ("ours", True)):
        for seed in range(100):
            rng = np.random.default_rng(seed)
            child = make_child(TOY_FEASIBLE, mother, mother, keys, 0, distinct, rng)
            clones[name] += bool(np.array_equal(child.row, mother))
    assert clones["published"] == 100
    assert clones["ours"] <= 5


def test_children_are_uniform_over_the_restricted_space() -> None:
    mother, father = TOY_FEASIBLE.uniform(2, 5)
    names = TOY_FEASIBLE.columns
    keys = [0, 2]
    space = TOY_FEASIBLE.restrict({names[key]: (mother[key], father[key]) for key in keys})
    rng = np.random.default_rng(0)
    counts: dict[tuple[int, ...], int] = {}
    draws = 40 * space.count
    for _ in range(draws):
        child = make_child(TOY_FEASIBLE, mother, father, keys, 0, False, rng)
        row = tuple(child.row.tolist())
        counts[row] = counts.get(row, 0) + 1
    assert set(counts) == set(space.enumerate())
    expected = draws / space.count
    chi = sum((count - expected) ** 2 / expected for count in counts.values())
    # Six standard deviations above the mean of the distribution.
    assert chi < space.count + 6 * np.sqrt(2 * space.count)


def test_keys_are_the_most_important_that_vary() -> None:
    found = np.array([0.1, 0.9, 0.0, 0.5, 0.4])
    varies = np.array([True, False, True, True, True])
    assert key_parameters(found, varies, 0.5, False) == [3, 4]
    assert key_parameters(found, varies, 0.75, False) == [3, 4, 0]
    assert key_parameters(found, varies, 1.0, True) == [3, 4, 0]
    # Two at least: one of them is dropped.
    assert key_parameters(found, varies, 0.01, False) == [3, 4]
    assert key_parameters(found, np.zeros(5, dtype=np.bool_), 0.5, False) == []


def test_a_child_of_an_ordinary_genetic_algorithm_has_one_new_gene() -> None:
    mothers, fathers = np.full((50, 4), 1), np.full((50, 4), 2)
    children = one_point_children(mothers, fathers, [np.array([9])] * 4, np.random.default_rng(0))
    assert ((children == 9).sum(axis=1) == 1).all()
    for row in children.tolist():
        old = [value for value in row if value != 9]
        assert old == sorted(old), "the mother's come first"
    assert len({tuple(row) for row in children.tolist()}) > 10
