from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from autotune_pruner.best_distinct import best_distinct
from autotune_pruner.strategy import Drafter, tile_columns
from autotune_pruner.strategy_options import PrunerOptions
from autotune_pruner.variation import by_rank, mixed, mutated, roulette
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.ir.workloads.builders import gemm
from autotune.models import ModelContext
from autotune.models.pruning import PSA, PruningModel
from autotune.search.strategies import History, ScoredBatch
from autotune.sketches import STEP_TYPES, CandidateBatch
from autotune.spaces import ScheduleLimits, SearchSpace, SketchSpace
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace, toy_latencies

A100 = preset("a100")
LIMITS = ScheduleLimits(frozenset(STEP_TYPES) - {"shared_layout"}, 1 << 16, 512, "this test")
TOY = ToySpace(16)


def gpu_space(size: int = 256) -> SketchSpace:
    return SketchSpace(gemm(m=size, n=size, k=size), A100, LIMITS)


def sample(space: SearchSpace, n: int, seed: int = 0) -> CandidateBatch:
    return space.sample(n, np.random.default_rng(seed)).over(space.sketches())


def drafter(space: SearchSpace, **options: Any) -> Drafter:
    rng = np.random.default_rng(1)
    psa = PSA(ModelContext(target=A100, options={"formula": "published"}))
    return Drafter(space, psa, PrunerOptions(**options), rng)


def tiles(batch: CandidateBatch) -> list[tuple[int, ...]]:
    """Values of the rows without limits on unrolling."""
    [matrix], [sketch] = batch.matrices, batch.sketches
    return list(map(tuple, matrix[:, tile_columns(sketch)].tolist()))


def test_only_limits_on_unrolling_do_not_belong_to_the_tile() -> None:
    [sketch] = gpu_space().sketches()
    names = np.array(sketch.param_names)
    assert names[~tile_columns(sketch)].tolist() == ["C.unroll"]
    for toy in TOY.sketches():
        assert tile_columns(toy).all()


@pytest.mark.parametrize("generations", [0, 2])
def test_rows_that_differ_in_unrolling_only_are_drafted_once(generations: int) -> None:
    space = gpu_space()
    drafting = drafter(
        space, drafts=64, configurations=4000, population=500, draft_generations=generations
    )
    draft = drafting.draft(drafting.nothing(), History(space.sketches()))
    assert len(draft) == 64 == len(set(tiles(draft.batch)))
    assert np.isfinite(draft.scores).all()
    assert space.contains(draft.batch).all()


def test_published_drafts_hold_variants_of_unrolling() -> None:
    space = gpu_space()
    first = sample(space, 500)
    [matrix], [sketch] = first.matrices, first.sketches
    variants = [matrix.copy() for _ in range(2)]
    for limit, variant in zip((0, 512), variants, strict=True):
        variant[:, ~tile_columns(sketch)] = limit
    rows = CandidateBatch.of_rows(first.sketches, (np.concatenate(variants),))
    drafting = drafter(space, drafts=64, draft_generations=0)
    draft = drafting.published(rows, History(space.sketches()))
    assert len(draft) == 64 and 32 <= len(set(tiles(draft.batch))) <= 40


def test_generations_find_better_than_a_sample_does() -> None:
    space, found = gpu_space(2304), {}
    sizes = {"drafts": 64, "draft_share": 0.0, "configurations": 1000, "population": 200}
    for generations in (0, 4):
        drafting = drafter(space, draft_generations=generations, **sizes)
        draft = drafting.draft(drafting.nothing(), History(space.sketches()))
        found[generations] = np.median(draft.scores)
    assert found[4] > 1.05 * found[0]


def test_what_was_asked_for_is_not_drafted_and_the_rest_of_a_draft_stays() -> None:
    space, history = gpu_space(), History(gpu_space().sketches())
    drafting = drafter(space, drafts=50, draft_share=0.0, configurations=2000, population=300)
    first = drafting.draft(drafting.nothing(), history)
    best = np.argsort(-first.scores)
    history.add(first.batch.take(best[:20].tolist()))
    second = drafting.draft(first, history)
    assert not history.is_asked(second.batch).any()
    assert second.scores.max() >= first.scores[best[20]]


class Fast(PruningModel):
    """Knows the answer."""

    name = "fast"

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return -toy_latencies(batch)


def test_a_draft_is_drawn_from_the_best_tenth_the_better_the_likelier() -> None:
    space, model = ToySpace(64), Fast()
    rows = CandidateBatch.of(list(space.enumerate())).over(space.sketches())
    everything = ScoredBatch.of(rows, model.score)
    tenths = [
        np.sort(everything.scores[rows.positions_of(index)])[::-1][: len(part) // 10]
        for index, part in enumerate(rows.matrices)
    ]
    history = History(space.sketches())
    options = PrunerOptions(drafts=100)
    assert min(map(len, tenths)) > 100 and space.count() <= options.configurations
    drafting = Drafter(space, model, options, np.random.default_rng(1))
    draft = drafting.draft(drafting.nothing(), history)
    for index, tenth in enumerate(tenths):
        own = draft.scores[draft.batch.positions_of(index)]
        assert own.min() >= tenth[-1]
        assert tenth[0] > np.median(own) > np.median(tenth), "neither the best nor any"
    other = drafting.draft(draft, history)
    assert set(other.batch.keys) != set(draft.batch.keys)


def scored(scores: list[float], values: list[int]) -> ScoredBatch:
    sketches = TOY.sketches()
    matrix = np.array([[value, 1, 1, 1, 1] for value in values], dtype=np.int64)
    empty = np.zeros((0, 5), dtype=np.int64)
    return ScoredBatch(CandidateBatch.of_rows(sketches, (matrix, empty)), np.array(scores))


def test_the_best_distinct_rows_in_an_order() -> None:
    rows = scored([3.0, -np.inf, 2.0, 2.5, 1.0], [1, 2, 1, 4, 8])
    history, order = History(TOY.sketches()), np.array([0, 1, 2, 3, 4])
    assert best_distinct(rows, order, 9, history).tolist() == [0, 3, 4]
    assert best_distinct(rows, order, 2, history).tolist() == [0, 3]
    assert best_distinct(rows, order, 0, history).tolist() == []
    history.add(rows.batch.take([0]))
    assert best_distinct(rows, order, 9, history).tolist() == [3, 4]
    first_column = np.arange(5) > 0
    found = best_distinct(rows, order, 9, history, [first_column, first_column])
    assert found.tolist() == [3]


def test_selected_rows_keep_their_scores() -> None:
    rows = sample(TOY, 40)
    every = ScoredBatch(rows, np.arange(40.0))
    chosen = np.random.default_rng(3).permutation(40)[:17]
    part = every.select(chosen).joined(every.select(chosen[:5]))
    keys = rows.keys
    for key, score in zip(part.batch.keys, part.scores.tolist(), strict=True):
        assert keys[int(score)] == key
    assert len(part) == 22


def test_scores_that_are_no_numbers_rank_last() -> None:
    rows = sample(TOY, 3)
    found = ScoredBatch.of(rows, lambda batch: np.array([np.nan, 1.0, np.inf]))
    assert found.scores.tolist() == [-np.inf, 1.0, np.inf]


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=8), st.integers(0, 99))
def test_roulette_draws_in_proportion_to_positive_scores(values: list[float], seed: int) -> None:
    scores = np.array(values)
    drawn = roulette(scores, 50, 0, np.random.default_rng(seed))
    if (scores > 0).any():
        assert (scores[drawn] > 0).all()
    else:
        assert (drawn == 0).all()


def test_roulette_without_a_positive_score_draws_the_first() -> None:
    scores = np.array([-1.0, 0.0, -np.inf])
    assert roulette(scores, 3, 2, np.random.default_rng(0)).tolist() == [2, 2, 2]
    drawn = roulette(np.array([1.0, 3.0]), 8000, 0, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(0.75, abs=0.02)


def test_parents_are_drawn_by_rank() -> None:
    drawn = by_rank(np.array([7, 5, 9]), 6000, np.random.default_rng(0))
    shares = [float((drawn == position).mean()) for position in (7, 5, 9)]
    assert shares == pytest.approx([3 / 6, 2 / 6, 1 / 6], abs=0.03)


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_mutation_happens_as_often_as_it_should(probability: float) -> None:
    rows = sample(TOY, 400)
    children = mutated(rows, probability, TOY, np.random.default_rng(2))
    assert len(children) == len(rows) and TOY.contains(children).all()
    known: Mapping[bytes, None] = dict.fromkeys(rows.keys)
    moved = np.mean([key not in known for key in children.keys])
    # A move may lead to another row of the sample.
    assert probability * 0.2 <= moved <= probability


@pytest.mark.parametrize("crossover", [0.0, 0.5, 1.0])
def test_there_is_a_child_inside_the_space_for_each_parent(crossover: float) -> None:
    rows, rng = sample(TOY, 60), np.random.default_rng(4)
    parents: NDArray[np.int64] = rng.integers(60, size=90)
    children = mixed(rows, parents, crossover, 0.5, TOY, rng)
    assert len(children) == 90 and TOY.contains(children).all()
    np.testing.assert_array_equal(
        np.bincount(children.owners, minlength=2), np.bincount(rows.owners[parents], minlength=2)
    )
