"""Widths of the smooth forms of a relaxed tape."""

from __future__ import annotations

import math

from attrs import frozen

from autotune.errors import InvalidValueError


@frozen
class Smoothing:
    """Widths of smooth forms; octaves where operands are compared by logarithm, else units.

    Attributes:
        temperature: Width of a comparison.
        epsilon: Width of a minimum or maximum; 0 leaves it hard.
        half_step: Whether ``a < b`` turns between ``a`` and ``a + 1``, the first whole number
            for which it holds, rather than at ``a``.

    Raises:
        InvalidValueError: a width is negative or not finite, or the temperature is zero.
    """

    temperature: float = 0.25
    epsilon: float = 0.1
    half_step: bool = True

    def __attrs_post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InvalidValueError(
                f"a temperature is a positive number, not {self.temperature!r}; usual: 0.25"
            )
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise InvalidValueError(
                f"epsilon is zero or a positive number, not {self.epsilon!r}; usual: 0.1"
            )


FELIX = Smoothing(temperature=1.0, epsilon=0.0, half_step=False)
"""Widths as in Felix (ASPLOS'24): comparisons one unit wide and not shifted, hard minima."""
