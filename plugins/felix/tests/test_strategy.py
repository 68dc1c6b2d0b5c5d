from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import attrs
import numpy as np
import pytest
from autotune_felix.options import PUBLISHED, FelixOptions, checked_options
from autotune_felix.strategy import FelixStrategy
from bowls import Bowl, Reals
from felix_spaces import space
from thinning import thinned

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.ir.expressions import const, var
from autotune.models import ModelContext
from autotune.models.cost import RandomCostModel
from autotune.models.cost.analytic import AnalyticCostModel
from autotune.plugins.workload_names import make_workload
from autotune.search.strategies import StrategyContext
from autotune.sketches import AtMost, CandidateBatch, Factor, Sketch
from autotune.spaces import SketchSpace
from autotune.spaces.search_space import SearchSpace
from autotune.store.records import Outcome
from autotune.targets import preset
from autotune.testing.reference_backend import ReferenceBackend
from autotune.testing.strategy_suite import StrategySuite, made
from autotune.testing.toy_space import ToySpace


def strategy(
    search_space: SearchSpace, model: Any = None, seed: int = 0, **options: Any
) -> FelixStrategy:
    rng = np.random.default_rng(seed)
    given = {"seeds": 6, "steps": 8, **options}
    return FelixStrategy(StrategyContext(search_space, rng, model or Bowl(), None, options=given))


def changed(search_space: ToySpace, **changes: Any) -> ToySpace:
    """The space with its first sketch changed."""
    first, *others = search_space.sketches()
    search_space._sketches = (attrs.evolve(first, **changes), *others)
    return search_space


def test_a_model_without_a_gradient_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(InvalidValueError, match="random.*no gradient.*analytic"):
        strategy(ToySpace(), RandomCostModel(ModelContext()))


def test_what_cannot_be_relaxed_is_named_before_anything_starts() -> None:
    toy = changed(ToySpace(), params=(*ToySpace().sketches()[0].params, Factor("free")))
    with pytest.raises(InvalidValueError, match="'free'"):
        strategy(toy)
    toy = changed(ToySpace(), constraints=(AtMost(const(8) // (var("i1") - 2), 4, "test"),))
    with pytest.raises(InvalidValueError, match="a constraint is the reason"):
        strategy(toy)


def test_a_model_that_knows_no_gradient_of_a_sketch_says_so_before_anything_starts() -> None:
    class Choosy(Bowl):
        def relaxed(self, sketch: Sketch, rows: Any) -> Any:
            raise InvalidValueError(f"sketch {sketch.name!r} is opaque")

    with pytest.raises(InvalidValueError, match="is opaque"):
        strategy(ToySpace(), Choosy())


def test_options_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="'force'.*fixed, matched, ramped"):
        strategy(ToySpace(), force="nonsense")
    with pytest.raises(AutotuneError, match="rounding=independent"):
        strategy(ToySpace(), divisibility="penalty")


def test_published_options_give_way_to_the_users() -> None:
    found = checked_options("felix", {"fidelity": "published", "epsilon": 0.5})
    assert found == FelixOptions(fidelity="published", **{**PUBLISHED, "epsilon": 0.5})


@pytest.mark.parametrize("machine", ["cpu", "gpu"])
@pytest.mark.parametrize("fidelity", ["ours", "published"])
def test_rounds_on_real_sketches(machine: str, fidelity: str) -> None:
    search_space = space("gemm", machine)
    searched = strategy(search_space, fidelity=fidelity, epsilon=0.0)
    seen: set[str] = set()
    for _ in range(3):
        asked = searched.ask(8)
        assert len(asked) == 8 and search_space.contains(CandidateBatch.of(asked)).all()
        assert not seen & {candidate.digest for candidate in asked}
        seen |= {candidate.digest for candidate in asked}
        seconds = [1.0 + index for index in range(8)]
        outcomes = [Outcome("ok", latency, (latency,)) for latency in seconds]
        searched.tell(list(zip(asked, outcomes, strict=True)))


def test_picks_are_ranked_by_their_own_predictions() -> None:
    """Predictions of other candidates, as in the released code, break the order."""
    search_space = space("conv2d", "gpu")
    model = Bowl()
    found = {}
    for ranking in ("aligned", "misaligned"):
        asked = strategy(
            search_space,
            model,
            ranking=ranking,
            epsilon=0.0,
            fidelity="published",
            sketch_trials=0,
            steps=24,
        ).ask(12)
        found[ranking] = [float(model.predict(CandidateBatch.of([item]))[0]) for item in asked]
    assert found["aligned"] == sorted(found["aligned"], reverse=True)
    assert found["misaligned"] != sorted(found["misaligned"], reverse=True)
    assert np.mean(found["aligned"]) > np.mean(found["misaligned"])


def test_misaligned_ranking_looks_at_nothing_that_a_model_cannot_see() -> None:
    """Rounding gives a factor of 24 where 8 is the most, which no model has a prediction for."""
    target = preset("skylake-avx512")
    workload = make_workload("dense", {"m": 8, "n": 16, "k": 48})
    search_space = SketchSpace(workload, target, ReferenceBackend().limits(target))
    options = {"ranking": "misaligned", "repairs": 0, "polish": 0, "steps": 16, "epsilon": 0.0}
    asked = strategy(search_space, AnalyticCostModel(ModelContext(target=target)), **options).ask(
        8
    )
    assert asked
    assert search_space.contains(CandidateBatch.of(asked)).all()


def test_no_sketch_has_more_than_its_share_while_others_have_any() -> None:
    search_space = space("gemm", "cpu")
    model = AnalyticCostModel(ModelContext(target=preset("sapphirerapids-4core")))
    given = {"even_drafts": False, "sampled_drafts": 0.0, "sketch_trials": 0, "epsilon": 0.0}
    most = {}
    for share in (0.25, 0.5, 1.0):
        asked = strategy(search_space, model, sketch_share=share, **given).ask(16)
        counts = Counter(candidate.sketch.digest for candidate in asked)
        assert sum(counts.values()) == 16
        most[share] = max(counts.values())
    assert most[0.25] == 4 < most[1.0] and most[0.5] <= 8


def test_picks_of_a_sketch_are_apart() -> None:
    search_space = space("gemm", "cpu")
    model = AnalyticCostModel(ModelContext(target=preset("sapphirerapids-4core")))
    least = {}
    for spacing in (0.0, 4.0):
        given = {"spacing": spacing, "sampled_drafts": 0.0, "epsilon": 0.0}
        asked = strategy(search_space, model, **given).ask(12)
        distances = [
            np.abs(np.log2(one.values) - np.log2(other.values)).sum()
            for one, other in itertools.combinations(asked, 2)
            if one.sketch.digest == other.sketch.digest
        ]
        least[spacing] = min(distances)
    assert least[0.0] < 4.0 <= least[4.0]


def test_drafts_are_even_and_in_part_sampled() -> None:
    search_space = space("gemm", "cpu")
    model = AnalyticCostModel(ModelContext(target=preset("sapphirerapids-4core")))
    found = {}
    for sampled in (0.0, 0.5):
        searched = strategy(search_space, model, sampled_drafts=sampled, epsilon=0.0)
        asked = searched.ask(20)
        counts = Counter(candidate.sketch.digest for candidate in asked)
        assert len(asked) == 20 and max(counts.values()) - min(counts.values()) <= 1
        found[sampled] = float(np.median(model.predict(CandidateBatch.of(asked))))
        searched.tell([(asked[0], Outcome("ok", 1.0, (1.0,)))])
        later = Counter(candidate.sketch.digest for candidate in searched.ask(20))
        assert max(later.values()) > 20 / len(search_space.sketches()) + 1
    assert found[0.5] < found[0.0]  # Those of the sample are worse by the model's own word.


def test_polishing_never_makes_the_best_worse() -> None:
    search_space, best = space("conv2d", "gpu"), []
    for polish in (0, 2):
        model = Bowl()
        asked = strategy(search_space, model, polish=polish, epsilon=0.0).ask(4)
        best.append(model.predict(CandidateBatch.of(asked)).max())
    assert best[1] >= best[0]


def test_predictions_that_are_no_numbers_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def nowhere(rows: Any, value: Any, gradient: Any) -> Any:
        return value * np.nan, gradient

    searched = strategy(ToySpace(), Bowl(spoil=nowhere))
    assert len(searched.ask(5)) == len(searched.ask(5)) == 5
    assert len(caplog.records) == 1 and "no finite latency" in caplog.text


def test_a_task_with_a_single_candidate_ends() -> None:
    searched = strategy(ToySpace(extent=1))
    assert len(searched.ask(8)) == 2  # One for each sketch.
    assert searched.ask(8) == []


SMALL = {"seeds": 4, "steps": 4}


def nowhere(rows: Reals, value: Reals, gradient: Reals) -> tuple[Reals, Reals]:
    return np.full(len(rows), np.nan), gradient


def half(rows: Reals, value: Reals, gradient: Reals) -> tuple[Reals, Reals]:
    bad = rows[:, 0] > 2
    return np.where(bad, -np.inf, value), np.where(bad[:, None], np.nan, gradient)


def felix(context: StrategyContext) -> FelixStrategy:
    return FelixStrategy(attrs.evolve(context, cost_model=Bowl()))


@pytest.mark.parametrize(
    "strategy_factory",
    thinned(
        [
            made(felix, **SMALL),
            made(felix, **SMALL, fidelity="published"),
            made(felix, **SMALL, force="fixed", tournament=1, measured_share=1.0, sketches=1),
            made(felix, **SMALL, force="matched", rounding="independent", ranking="misaligned"),
        ],
        4,
    ),
)
class TestFelix(StrategySuite):
    """With a model that knows an optimum."""


@pytest.mark.parametrize(
    "strategy_factory",
    [
        made(lambda it, bowl=bowl: FelixStrategy(attrs.evolve(it, cost_model=bowl)), **SMALL)
        for bowl in (Bowl(spoil=nowhere), Bowl(spoil=half))
    ],
)
class TestFelixWithBadPredictions(StrategySuite):
    """With models that predict no numbers, here or everywhere."""
