"""Laws S1 to S4 of the smooth forms, with the bounds of docs/loop-nest.md; G6 at kinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.ir.expressions import IntExpr, ceildiv, less, maximum, minimum, select, var
from autotune.ir.expressions import nontrivial as nontrivial_loop
from autotune.nest import build_tape
from autotune.nest.relaxed import FELIX, RelaxedTape, Smoothing

POSITIVE = (1.0, 4096.0)
SIGNED = (-4096.0, 4096.0)
CHANCE = (0.0, 1.0)
a, b, c = map(var, "abc")

positive = st.floats(*POSITIVE) | st.integers(1, 40).map(float)
signed = st.floats(-4096, 4096, allow_subnormal=False) | st.integers(-9, 9).map(float)
chance = st.floats(0, 1, allow_subnormal=False) | st.sampled_from([0.0, 1.0])
whole = st.integers(1, 4096)
# Rounding of values up to 4096, and of logarithms and powers of these.
ROUNDING = 1e-11


def relaxed(expression: IntExpr, bounds: Any, smoothing: Smoothing | None = None) -> RelaxedTape:
    inputs = tuple(bounds)
    return RelaxedTape(build_tape(inputs, {"value": expression}), "relaxed", bounds, smoothing)


def value(expression: IntExpr, smoothing: Smoothing | None = None, **given_values: Any) -> float:
    """Of an expression whose inputs are given as (value, bounds)."""
    tape = relaxed(expression, {n: range_ for n, (_, range_) in given_values.items()}, smoothing)
    at = np.array([[float(v) for v, _ in given_values.values()]])
    return float(tape.values(at)[0, 0])


def gradient(expression: IntExpr, smoothing: Smoothing | None = None, **given_values: Any) -> Any:
    tape = relaxed(expression, {n: range_ for n, (_, range_) in given_values.items()}, smoothing)
    at = np.array([[float(v) for v, _ in given_values.values()]])
    return tape.vjp(at, np.ones((1, 1)))[0]


class TestLess:
    @pytest.mark.parametrize(("extent", "error"), [(1, 0.053), (2, 0.053), (3, 0.03), (64, 0.01)])
    def test_a_loop_that_does_something(self, extent: int, error: float) -> None:
        """S1 at whole numbers: ``1 < extent``, with width 1/4."""
        found = value(nontrivial_loop(a), a=(extent, POSITIVE))
        assert abs(found - (extent > 1)) <= error

    @pytest.mark.parametrize(
        ("extent", "expected"), [(1, 0.5), (2, 0.854), (3, 0.923), (4, 0.947)]
    )
    def test_as_in_felix(self, extent: int, expected: float) -> None:
        found = value(nontrivial_loop(a), FELIX, a=(extent, POSITIVE))
        assert found == pytest.approx(expected, abs=5e-4)

    @given(whole, whole)
    def test_bound_by_logarithm(self, left: int, right: int) -> None:
        """S1: at most ``t^2 / 4 d^2`` for a distance of ``d`` octaves from the threshold."""
        found = value(less(a, b), a=(left, POSITIVE), b=(right, POSITIVE))
        distance = np.log2(right) - np.log2(left * (left + 1)) / 2
        assert abs(found - (left < right)) <= min(0.5, 0.25**2 / 4 / distance**2) + ROUNDING

    @given(st.integers(-4096, 4096), st.integers(-4096, 4096))
    def test_bound_where_signs_are_unknown(self, left: int, right: int) -> None:
        found = value(less(a, b), a=(left, SIGNED), b=(right, SIGNED))
        distance = right - left - 0.5
        assert abs(found - (left < right)) <= 0.25**2 / 4 / distance**2 + ROUNDING
        assert abs(found - (left < right)) <= 0.053

    @given(positive, positive, positive, st.sampled_from([Smoothing(), FELIX]))
    def test_it_rises_with_the_right_side(
        self, left: float, one: float, other: float, smoothing: Smoothing
    ) -> None:
        """S3 and S4; strictly where the two differ by more than rounding."""
        low, high = sorted((one, other))
        found = [
            value(less(a, b), smoothing, a=(left, POSITIVE), b=(right, POSITIVE))
            for right in (low, high)
        ]
        assert 0 <= found[0] <= found[1] + ROUNDING <= 1 + ROUNDING
        falling = [
            value(less(a, b), smoothing, a=(right, POSITIVE), b=(left, POSITIVE))
            for right in (low, high)
        ]
        assert falling[1] <= falling[0] + ROUNDING

    @given(st.integers(1, 64), st.integers(1, 64), st.floats(0.01, 2))
    def test_half_the_width_is_no_worse(self, left: int, right: int, width: float) -> None:
        """S2: at whole numbers the error does not grow when the temperature is halved."""
        errors = [
            abs(
                value(less(a, b), Smoothing(t), a=(left, POSITIVE), b=(right, POSITIVE))
                - (left < right)
            )
            for t in (width, width / 2)
        ]
        assert errors[1] <= errors[0] + ROUNDING

    def test_its_threshold_is_between_the_last_that_fails_and_the_first_that_holds(self) -> None:
        for left in (1, 7, 100):
            turn = np.sqrt(left * (left + 1))
            found = value(less(a, b), a=(left, POSITIVE), b=(turn, POSITIVE))
            assert found == pytest.approx(0.5, abs=ROUNDING)
            at_left = value(less(a, b), FELIX, a=(left, POSITIVE), b=(left, POSITIVE))
            assert at_left == pytest.approx(0.5, abs=ROUNDING)


class TestConditions:
    """S3 for what tapes make of conditions: ``x * y``, ``1 - (1 - x)(1 - y)`` and ``1 - x``."""

    @given(chance, chance)
    def test_in_range_and_de_morgan(self, left: float, right: float) -> None:
        at: dict[str, Any] = {"a": (left, CHANCE), "b": (right, CHANCE)}
        both = value(a * b, **at)
        either = value(1 - (1 - a) * (1 - b), **at)
        neither = value((1 - a) * (1 - b), **at)
        assert 0 <= both <= either + ROUNDING <= 1 + ROUNDING
        assert neither == pytest.approx(1 - either, abs=1e-15)
        assert value(1 - (1 - a), **at) == left

    @given(st.lists(chance, min_size=3, max_size=3), st.lists(positive, min_size=4, max_size=4))
    def test_first_hit(self, hits: list[float], values: list[float]) -> None:
        """``2^(sum of w log2 v)`` with weights ``w`` that are never negative and sum to one."""
        bounds: dict[str, Any] = {}
        names = ("v0", "v1", "v2", "v3")
        chain = var(names[3])
        for index in (2, 1, 0):
            chain = select(var(f"h{index}"), var(names[index]), chain)
        for index, hit in enumerate(hits):
            bounds[f"h{index}"] = (hit, CHANCE)
        for name, each in zip(names, values, strict=True):
            bounds[name] = (each, POSITIVE)
        weights, rest = [], 1.0
        for hit in hits:
            weights.append(rest * hit)
            rest *= 1 - hit
        weights.append(rest)
        assert min(weights) >= 0 and sum(weights) == pytest.approx(1, abs=1e-15)
        found = value(chain, **bounds)
        assert found == pytest.approx(2 ** (np.log2(values) @ weights), rel=1e-12)
        assert min(values) * (1 - 1e-12) <= found <= max(values) * (1 + 1e-12)


class TestSelect:
    @given(chance, positive, positive)
    def test_by_logarithm(self, condition: float, first: float, second: float) -> None:
        """S1: exact for 0 and 1; else the error in octaves is the condition's times theirs."""
        found = value(
            select(c, a, b), c=(condition, CHANCE), a=(first, POSITIVE), b=(second, POSITIVE)
        )
        assert found == pytest.approx(first**condition * second ** (1 - condition), rel=1e-12)
        octaves = abs(np.log2(first) - np.log2(second))
        assert abs(np.log2(found / first)) <= (1 - condition) * octaves + ROUNDING
        assert abs(np.log2(found / second)) <= condition * octaves + ROUNDING

    @given(chance, signed, signed)
    def test_linear_where_signs_are_unknown(
        self, condition: float, first: float, second: float
    ) -> None:
        found = value(
            select(c, a, b), c=(condition, CHANCE), a=(first, SIGNED), b=(second, SIGNED)
        )
        assert found == pytest.approx(condition * first + (1 - condition) * second, abs=1e-9)
        assert abs(found - first) <= (1 - condition) * abs(first - second) + 1e-9
        if condition in (0, 1):
            assert found == (first if condition else second)


class TestExtrema:
    @given(positive, positive, st.floats(0.001, 1))
    def test_bounds_by_logarithm(self, left: float, right: float, epsilon: float) -> None:
        """S1 and S4: a maximum is 0 to epsilon / 2 octaves above, a minimum as much below."""
        at: dict[str, Any] = {"a": (left, POSITIVE), "b": (right, POSITIVE)}
        smoothing = Smoothing(epsilon=epsilon)
        above = np.log2(value(maximum(a, b), smoothing, **at) / max(left, right))
        below = np.log2(min(left, right) / value(minimum(a, b), smoothing, **at))
        for excess in (above, below):
            assert -ROUNDING <= excess <= epsilon / 2 + ROUNDING

    @given(signed, signed, st.floats(0.001, 1))
    def test_bounds_where_signs_are_unknown(
        self, left: float, right: float, epsilon: float
    ) -> None:
        at: dict[str, Any] = {"a": (left, SIGNED), "b": (right, SIGNED)}
        smoothing = Smoothing(epsilon=epsilon)
        above = value(maximum(a, b), smoothing, **at) - max(left, right)
        below = min(left, right) - value(minimum(a, b), smoothing, **at)
        for excess in (above, below):
            assert -1e-9 <= excess <= epsilon / 2 + 1e-9

    @given(positive, positive, st.floats(0.001, 1))
    def test_half_the_width_is_no_worse(self, left: float, right: float, epsilon: float) -> None:
        """S2."""
        at: dict[str, Any] = {"a": (left, POSITIVE), "b": (right, POSITIVE)}
        for expression, exact in ((maximum(a, b), max), (minimum(a, b), min)):
            errors = [
                abs(
                    np.log2(value(expression, Smoothing(epsilon=width), **at) / exact(left, right))
                )
                for width in (epsilon, epsilon / 2)
            ]
            assert errors[1] <= errors[0] + ROUNDING

    @given(positive, positive)
    def test_hard_in_felix(self, left: float, right: float) -> None:
        at: dict[str, Any] = {"a": (left, POSITIVE), "b": (right, POSITIVE)}
        assert value(maximum(a, b), FELIX, **at) == max(left, right)
        assert value(minimum(a, b), FELIX, **at) == min(left, right)


class TestKinks:
    """G6: at a tie the derivative is the average of both sides."""

    @pytest.mark.parametrize("at", [1.0, 3.7, 100.0])
    @pytest.mark.parametrize("operation", [minimum, maximum])
    def test_smooth(self, operation: Any, at: float) -> None:
        found = gradient(operation(a, b), a=(at, POSITIVE), b=(at, POSITIVE))
        # Of the logarithm by the logarithm: the value itself is half of epsilon off.
        share = found * at / value(operation(a, b), a=(at, POSITIVE), b=(at, POSITIVE))
        np.testing.assert_allclose(share, [0.5, 0.5], rtol=1e-12)
        linear = gradient(operation(a, b), a=(at, SIGNED), b=(at, SIGNED))
        np.testing.assert_allclose(linear, [0.5, 0.5], rtol=1e-12)

    @pytest.mark.parametrize("at", [1.0, 3.7, 100.0])
    @pytest.mark.parametrize("operation", [minimum, maximum])
    def test_hard(self, operation: Any, at: float) -> None:
        """The average too, though there is no derivative: the two sides differ by one."""
        tape = RelaxedTape(build_tape(("a", "b"), {"value": operation(a, b)}), "exact")
        tie = np.array([[at, at]])
        assert tape.vjp(tie, np.ones((1, 1))).tolist() == [[0.5, 0.5]]
        step = np.array([[1e-3, 0.0]])
        centre, after, before = (
            tape.values(point)[0, 0] for point in (tie, tie + step, tie - step)
        )
        sides = ((after - centre) / 1e-3, (centre - before) / 1e-3)
        np.testing.assert_allclose(sorted(sides), [0, 1], atol=1e-9)
        np.testing.assert_array_equal(
            gradient(operation(a, b), FELIX, a=(at, POSITIVE), b=(at, POSITIVE)), [0.5, 0.5]
        )


class TestDivision:
    @given(whole, whole)
    def test_floor(self, top: int, bottom: int) -> None:
        """S1 and S4: ``a / b`` is 0 to ``(b - 1) / b`` above its floor."""
        excess = value(a // b, a=(top, POSITIVE), b=(bottom, POSITIVE)) - top // bottom
        assert -ROUNDING <= excess <= (bottom - 1) / bottom + ROUNDING

    @given(whole, whole)
    def test_rounding_up(self, top: int, bottom: int) -> None:
        """``(a + b - 1) / b`` is as much above the quotient rounded up."""
        found = value(ceildiv(a, b), a=(top, POSITIVE), b=(bottom, POSITIVE))
        excess = found - -(-top // bottom)
        assert -ROUNDING <= excess <= (bottom - 1) / bottom + ROUNDING

    @given(whole, whole)
    def test_a_remainder_is_zero(self, top: int, bottom: int) -> None:
        """S1: off by at most ``b - 1``, without a derivative."""
        at: dict[str, Any] = {"a": (top, POSITIVE), "b": (bottom, POSITIVE)}
        assert value(a % b, **at) == 0
        assert gradient(a % b, **at).tolist() == [0, 0]
        assert 0 <= top % bottom <= bottom - 1


class TestExactDerivatives:
    """Documented choices where floors, remainders and conditions jump."""

    def exact(self, expression: IntExpr, *at: float) -> list[float]:
        tape = RelaxedTape(build_tape(("a", "b", "c"), {"value": expression}), "exact")
        found: list[float] = tape.vjp(np.array([at]), np.ones((1, 1)))[0].tolist()
        return found

    def test_floor(self) -> None:
        assert self.exact(a // b, 7.5, 2.0, 0.0) == [0, 0, 0]

    def test_remainder(self) -> None:
        assert self.exact(a % b, 7.5, 2.0, 0.0) == [1, -3, 0]

    def test_less(self) -> None:
        assert self.exact(less(a, b), 7.5, 8.0, 0.0) == [0, 0, 0]

    def test_select(self) -> None:
        assert self.exact(select(c, 2 * a, 3 * b), 7.0, 8.0, 1.0) == [2, 0, 0]
        assert self.exact(select(c, 2 * a, 3 * b), 7.0, 8.0, 0.0) == [0, 3, 0]

    def test_through_what_has_none(self) -> None:
        assert self.exact((a // b) * b + a, 7.5, 2.0, 0.0) == [1, 3, 0]
