"""The estimate of the loop nest: what it says before any outcome, and what it learns."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from attrs import asdict, evolve
from oracles.psa import launch_milliseconds
from toy_outcomes import rank_correlation

from autotune.errors import InvalidValueError
from autotune.ir.workloads import conv2d, depthwise_conv2d, elementwise, gemm, softmax
from autotune.models import ModelContext
from autotune.models.cost import (
    AnalyticCostModel,
    GradientBoostedTrees,
    Observation,
    RandomCostModel,
    require_differentiable,
)
from autotune.models.pruning.psa_cpu import CpuScorer
from autotune.models.pruning.psa_gpu import corrected_gpu
from autotune.models.pruning.psa_symbols import LAUNCH_SYMBOLS, corrected_symbols
from autotune.nest import build_tape, derive_nest
from autotune.sketches import CandidateBatch, Factor
from autotune.sketches.steps import STEP_TYPES
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.store.records import Outcome
from autotune.targets import preset
from autotune.testing.cost_model_suite import CostModelFactory, CostModelSuite
from autotune.testing.differentiable_suite import DifferentiableCostModelSuite
from autotune.testing.toy_space import ToySpace

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1 << 20, 512, "test")
CPU, GPU = preset("sapphirerapids-4core"), preset("a100")
WORKLOADS = {
    "gemm": gemm(m=96, n=128, k=64),
    "conv2d": conv2d(h=14, w=14, ci=16, co=32, pad=1),
    "depthwise": depthwise_conv2d(h=14, w=14, c=32, pad=1),
    "softmax": softmax(m=48, n=64),
    "elementwise": elementwise(m=48, n=64),
}


@cache
def sampled(name: str, kind: str, n: int = 60) -> CandidateBatch:
    space = SketchSpace(WORKLOADS[name], CPU if kind == "cpu" else GPU, LIMITS)
    return space.sample(n, np.random.default_rng(7))


class TestOnToys(DifferentiableCostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return lambda: AnalyticCostModel(ModelContext(target=CPU))


class TestOnGpus(DifferentiableCostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return lambda: AnalyticCostModel(ModelContext(target=GPU))

    @pytest.fixture
    def batch(self) -> CandidateBatch:
        return sampled("gemm", "cuda", 12)

    @pytest.fixture
    def outcomes(self, batch: CandidateBatch) -> list[Observation]:
        found: Observation = []
        for place, candidate in enumerate([*batch] * 4):
            ok = Outcome("ok", 1e-3 + 1e-5 * place, (1e-3,))
            found.append((candidate, ok if place % 5 else Outcome("crash")))
        return found[:40]


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("gemm", 0.8),
        ("depthwise", 0.6),
        ("softmax", 0.6),
        ("elementwise", 0.6),
    ],
)
def test_it_ranks_as_the_draft_model_of_cpus_does(name: str, least: float) -> None:
    batch, scorer = sampled(name, "cpu"), CpuScorer(CPU)
    draft = np.concatenate([-np.log(scorer.cycles(*part)) for part in batch.parts])
    assert (
        rank_correlation(AnalyticCostModel(ModelContext(target=CPU)).predict(batch), draft) > least
    )


@pytest.mark.parametrize("name", ["gemm", "conv2d"])
def test_it_ranks_as_the_same_arithmetic_in_whole_numbers_does(name: str) -> None:
    batch, gpu = sampled(name, "cuda"), asdict(corrected_gpu(GPU))
    times = []
    for sketch, rows in batch.parts:
        launches = corrected_symbols(derive_nest(sketch), GPU, LAUNCH_SYMBOLS)
        flat = {str(at): it for at, it in enumerate(it for launch in launches for it in launch)}
        for values in build_tape(sketch.param_names, flat).evaluate(rows).tolist():
            width = len(LAUNCH_SYMBOLS)
            groups = [values[at : at + width] for at in range(0, len(values), width)]
            times.append(launch_milliseconds(groups, gpu))
    found = AnalyticCostModel(ModelContext(target=GPU)).predict(batch)
    assert rank_correlation(found, -np.log(times)) > 0.8


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_tile_factor_matters(kind: str) -> None:
    model = AnalyticCostModel(ModelContext(target=CPU if kind == "cpu" else GPU))
    for sketch, rows in sampled("gemm", kind).parts:
        _, gradient = model.relaxed(sketch, rows.astype(np.float64))
        for column, param in enumerate(sketch.params):
            if isinstance(param, Factor) and param.values is None:
                assert np.abs(gradient[:, column]).max() > 0, param.name


def test_it_learns_what_weighs_more() -> None:
    """Latencies of a machine that calculates four times as slowly; the rest is as expected."""
    batch = sampled("gemm", "cpu", 100)
    model = AnalyticCostModel(ModelContext(target=CPU))
    estimate = model._estimate
    truth = np.zeros(len(estimate.components))
    truth[estimate.components.index("arithmetic")] = np.log(4.0)
    told: Observation = []
    for sketch, rows in batch.parts:
        latencies, _ = estimate.joined(estimate.seconds(sketch, rows.astype(np.float64)), truth)
        for candidate, latency in zip(
            CandidateBatch(((sketch, rows),)), np.exp(latencies).tolist(), strict=True
        ):
            told.append((candidate, Outcome("ok", 7 * latency, (latency,))))
    expected = np.array([outcome.latency for _, outcome in told])
    before = rank_correlation(-model.predict(batch), expected)
    model.update(told)
    # Latencies of one workload have an unknown scale: factors are known relative to another.
    assert model.weights["arithmetic"] > 2 * model.weights["loops"]
    assert rank_correlation(-model.predict(batch), expected) > max(before, 0.98)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="no option 'rate'"):
        AnalyticCostModel(ModelContext(target=CPU, options={"rate": 0.1}))
    with pytest.raises(InvalidValueError, match="components"):
        AnalyticCostModel(ModelContext(target=GPU)).load_state(
            AnalyticCostModel(ModelContext(target=CPU)).state()
        )
    vague = AnalyticCostModel(ModelContext(target=evolve(GPU, memory_bandwidth=0.0)))
    sketch, rows = sampled("gemm", "cuda").parts[0]
    with pytest.raises(InvalidValueError, match="memory_bandwidth"):
        vague.relaxed(sketch, rows.astype(np.float64))


def test_a_model_without_a_gradient_is_named_with_those_that_have_one() -> None:
    model = AnalyticCostModel(ModelContext(target=CPU))
    assert require_differentiable(model) is model
    with pytest.raises(InvalidValueError, match="'gbdt' has no gradient.*: analytic"):
        require_differentiable(GradientBoostedTrees(ModelContext(target=CPU)))


SPACE = ToySpace(extent=64)


class TestRandom(CostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return lambda: RandomCostModel(ModelContext(seed=3))


def test_scores_are_spread_evenly_and_distinct() -> None:
    batch = CandidateBatch.of(list(SPACE.enumerate()))
    scores = RandomCostModel(ModelContext(seed=1)).predict(batch)
    assert len(np.unique(scores)) == len(scores) == SPACE.count()
    assert scores.min() >= 0 and scores.max() < 1
    histogram, _ = np.histogram(scores, bins=10, range=(0, 1))
    assert histogram.min() > 0.85 * histogram.mean()


def test_seeds_rank_differently() -> None:
    batch = SPACE.sample(500, np.random.default_rng(0))
    one, other = (RandomCostModel(ModelContext(seed=seed)).predict(batch) for seed in (1, 2))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.2


@pytest.mark.parametrize("seed", [0, -1, 2**64 + 5])
def test_any_seed_will_do(seed: int) -> None:
    scores = RandomCostModel(ModelContext(seed=seed)).predict(
        SPACE.sample(5, np.random.default_rng(0))
    )
    assert np.isfinite(scores).all()
