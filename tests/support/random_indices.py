"""Random index expressions for tests of several packages."""

from __future__ import annotations

from hypothesis import strategies as st

from autotune.ir.expressions import IntExpr, const, var

AXES = ("i", "j", "k")


@st.composite
def quasi_affine(
    draw: st.DrawFn, axes: tuple[str, ...] = AXES, depth: int = 2, least: int = -3
) -> IntExpr:
    """A sum of multiples of axes, and of quotients and remainders of such sums.

    Args:
        draw: Hypothesis' own.
        axes: Names of the axes.
        depth: How often something divided is divided again, at most.
        least: The least coefficient.
    """
    result = const(draw(st.integers(-4, 12)))
    for _ in range(draw(st.integers(1, 3))):
        part = var(draw(st.sampled_from(axes)))
        if depth and draw(st.booleans()):
            inner, divisor = draw(quasi_affine(axes, depth - 1, least)), draw(st.integers(1, 7))
            part = inner // divisor if draw(st.booleans()) else inner % divisor
        result = result + part * draw(st.integers(least, 6))
    return result
