"""A relaxed tape read by torch, one operation at a time; derivatives are torch's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from attrs import frozen

from autotune.nest import Tape


@frozen(eq=False)
class Known:
    """Values of one slot, ``[n]``, and the range they are known to be in."""

    values: Any
    low: float
    high: float

    @property
    def positive(self) -> bool:
        return self.low >= 2.0**-1000


@frozen
class Reader:
    """Reading of a tape; the attributes are those of ``autotune.nest.relaxed.Smoothing``."""

    relaxed: bool
    temperature: float = 0.25
    epsilon: float = 0.1
    half_step: bool = True

    def values(self, tape: Tape, x: Any, bounds: Mapping[str, tuple[float, float]]) -> Any:
        """Outputs ``[n, outputs]`` at points ``[n, inputs]``, a tensor of float64."""
        slots = []
        for column, name in enumerate(tape.inputs):
            low, high = bounds[name]
            slots.append(Known(x[:, column], low, high))
        for value in tape.constants:
            slots.append(Known(torch.full_like(x[:, 0], float(value)), value, value))
        for operation, *operands in tape.instructions:
            given = [slots[slot] for slot in operands]
            slots.append(
                self._smooth(operation, given) if self.relaxed else _hard(operation, given)
            )
        return torch.stack([slots[slot].values for _, slot in tape.outputs], dim=1)

    def _smooth(self, operation: str, given: list[Known]) -> Known:
        a, b = given[-2:]
        if operation == "add":
            return Known(a.values + b.values, a.low + b.low, a.high + b.high)
        if operation == "mul":
            return _enclosed(a.values * b.values, lambda p, q: p * q, a, b)
        if operation == "floordiv":
            return _enclosed(a.values / b.values, lambda p, q: p / q, a, b)
        if operation == "mod":
            return Known(torch.zeros_like(a.values), 0.0, 0.0)
        if operation == "less":
            return self._less(a, b)
        if operation == "select":
            return _select(*given)
        return self._extremum(operation == "max", a, b)

    def _less(self, a: Known, b: Known) -> Known:
        if a.high < b.low or a.low >= b.high:
            decided = float(a.high < b.low)
            return Known(torch.full_like(a.values, decided), decided, decided)
        if a.positive and b.positive:
            turn = torch.log2(a.values)
            if self.half_step:
                turn = (turn + torch.log2(a.values + 1)) / 2
            distance = torch.log2(b.values) - turn
        else:
            distance = b.values - a.values - (0.5 if self.half_step else 0.0)
        z = distance / self.temperature
        return Known(0.5 + z / (2 * torch.sqrt(1 + z * z)), 0.0, 1.0)

    def _extremum(self, largest: bool, a: Known, b: Known) -> Known:
        for one, other in ((a, b), (b, a)):
            if one.high <= other.low:
                return other if largest else one
        sign = 1 if largest else -1
        pick = max if largest else min
        low, high = pick(a.low, b.low), pick(a.high, b.high)
        half = self.epsilon / 2
        if half == 0:
            hard = torch.maximum if largest else torch.minimum
            return Known(hard(a.values, b.values), low, high)
        if a.positive and b.positive:
            p, q = torch.log2(a.values), torch.log2(b.values)
            value = torch.exp2((p + q + sign * self._distance(p, q)) / 2)
            return (
                Known(value, low * 2**-half, high)
                if sign < 0
                else Known(value, low, high * 2**half)
            )
        value = (a.values + b.values + sign * self._distance(a.values, b.values)) / 2
        return Known(value, low - half, high) if sign < 0 else Known(value, low, high + half)

    def _distance(self, p: Any, q: Any) -> Any:
        return torch.sqrt((p - q) ** 2 + self.epsilon**2)


def _select(condition: Known, when_true: Known, when_false: Known) -> Known:
    if condition.low == condition.high and condition.low in (0, 1):
        return when_true if condition.low else when_false
    c = condition.values
    in_range = condition.low >= 0 and condition.high <= 1
    if when_true.positive and when_false.positive and in_range:
        value = when_false.values * (when_true.values / when_false.values) ** c
        corners = [
            p * math.log2(t) + (1 - p) * math.log2(f)
            for p, t, f in _corners(condition, when_true, when_false)
        ]
        return Known(value, 2 ** min(corners), 2 ** max(corners))
    value = c * when_true.values + (1 - c) * when_false.values
    corners = [p * t + (1 - p) * f for p, t, f in _corners(condition, when_true, when_false)]
    return Known(value, min(corners), max(corners))


def _corners(*given: Known) -> list[tuple[float, ...]]:
    return list(product(*((each.low, each.high) for each in given)))


def _enclosed(values: Any, combine: Any, a: Known, b: Known) -> Known:
    found = [combine(p, q) for p, q in _corners(a, b)]
    return Known(values, min(found), max(found))


def _hard(operation: str, given: list[Known]) -> Known:
    a, b = (each.values for each in given[-2:])
    if operation == "select":
        found = torch.where(given[0].values != 0, a, b)
    else:
        found = {
            "add": lambda: a + b,
            "mul": lambda: a * b,
            "floordiv": lambda: torch.floor(a / b),
            "mod": lambda: a - b * torch.floor(a / b),
            "min": lambda: torch.minimum(a, b),
            "max": lambda: torch.maximum(a, b),
            "less": lambda: (a < b).to(a.dtype),
        }[operation]()
    return Known(found, math.nan, math.nan)
