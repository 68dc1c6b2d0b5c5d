"""Explanations of a configuration agree with the model, and steps with the constraints."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from autotune.ir.workloads import gemm
from autotune.models import ModelContext
from autotune.models.cost import AnalyticCostModel
from autotune.models.explanation import Explanation, explain
from autotune.report.explanation import explanation_svg, explanation_tables
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.steps import STEP_TYPES
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace

CPU = preset("sapphirerapids-4core")
LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1 << 14, 48, "test")
SPACE = SketchSpace(gemm(m=96, n=128, k=64), CPU, LIMITS)
MODEL = AnalyticCostModel(ModelContext(target=CPU))


@pytest.fixture(scope="module")
def explained() -> list[Explanation]:
    batch = SPACE.sample(40, np.random.default_rng(5))
    return [explain(MODEL, candidate) for candidate in [*batch][:12]]


def moved(candidate: Candidate, changes: tuple[tuple[str, int, int], ...]) -> Candidate:
    config = dict(candidate.config)
    for name, old, new in changes:
        assert config[name] == old != new
        config[name] = new
    return Candidate.from_config(candidate.sketch, config)


def test_steps_are_legal_and_have_the_predicted_gain(explained: list[Explanation]) -> None:
    for found in explained:
        assert found.moves
        for move in found.moves:
            there = moved(found.candidate, move.changes)
            assert SPACE.contains(CandidateBatch.of([there]))[0]
            now, then = (
                float(MODEL.predict(CandidateBatch.of([each]))[0])
                for each in (found.candidate, there)
            )
            assert move.gain == pytest.approx(np.exp(then - now))
        gains = [move.gain for move in found.moves]
        assert gains == sorted(gains, reverse=True)


def test_what_is_forbidden_says_by_what(explained: list[Explanation]) -> None:
    blocked = [(found, move) for found in explained for move in found.blocked]
    assert blocked
    for found, move in blocked:
        assert move.gain > 1 and move.blocked_by
        there = moved(found.candidate, move.changes)
        assert not SPACE.contains(CandidateBatch.of([there]))[0]
    for found in explained:
        named = {text for move in found.blocked for text in move.blocked_by}
        for limit in found.limits:
            assert limit.binds == (limit.text in named)
            assert (limit.value <= limit.limit) == limit.is_upper or limit.value == limit.limit


def test_every_step_of_a_small_space_is_found() -> None:
    """All configurations that differ by the next value of one parameter."""
    space = ToySpace(16)
    candidate = next(iter(space.sample(1, np.random.default_rng(2))))
    sketch = candidate.sketch
    expected = set()
    for other in space.enumerate():
        steps = [
            abs((param.values or ()).index(one) - (param.values or ()).index(two))
            for param, one, two in zip(sketch.params, candidate.values, other.values, strict=True)
        ]
        if other.sketch.digest == sketch.digest and sum(steps) == 1:
            expected.add(other.values)
    moves = explain(MODEL, candidate).moves
    assert expected and {moved(candidate, move.changes).values for move in moves} == expected


def test_primes_move_between_the_factors_of_a_product(explained: list[Explanation]) -> None:
    kept = 0
    for found in explained:
        for move in found.moves:
            if len(move.changes) == 2:
                (_, old, new), (_, other_old, other_new) = move.changes
                kept += old * other_old == new * other_new
    assert kept > 20


def test_slopes_are_of_the_gradient(explained: list[Explanation]) -> None:
    for found in explained:
        candidate = found.candidate
        at = np.array([candidate.values], dtype=np.float64)
        _, gradient = MODEL.relaxed(candidate.sketch, at)
        alone = {slope.name: np.log2(slope.alone) for slope in found.params}
        for name, value, slope in zip(
            candidate.sketch.param_names, candidate.values, gradient[0], strict=True
        ):
            assert alone[name] == pytest.approx(slope * value)
        # Shares of components add up to a doubling of everything.
        assert np.prod([slope.per_octave for slope in found.features]) == pytest.approx(2)


def test_tables_and_drawing(explained: list[Explanation]) -> None:
    for found in explained:
        titles = [table.title for table in explanation_tables(found, 3)]
        assert titles[0].startswith("By parameter") and titles[1].startswith("By feature")
        assert all(len(table.rows) <= 3 for table in explanation_tables(found, 3))
        root = ElementTree.fromstring(explanation_svg(found, "a < b"))
        labels = [element.text for element in root.iter() if element.tag.endswith("text")]
        assert found.params[0].name in labels and "a < b" in str(labels[0])
