"""Promises of benchmarks, and means that they are on."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Ratios = Mapping[str, "float | None"]
Naming = Callable[[str], str]

# Share of the peak of multiply-adds that a dense operator can be asked to reach.
REACHABLE = 0.85


@dataclass
class Bar:
    """A promise: a value, and what it has to reach.

    A value that no program could reach on this machine (``ceiling``) promises nothing here, and
    neither does one whose programs this call was not asked to run (``not_asked``).
    """

    name: str
    value: float | None
    wanted: float
    at_most: bool = False
    note: str = ""
    ceiling: float | None = None
    not_asked: bool = False

    @property
    def applies(self) -> bool:
        """Tell whether the machine leaves room for the promise, and it was asked for."""
        return not self.not_asked and (self.ceiling is None or self.ceiling >= self.wanted)

    @property
    def holds(self) -> bool:
        """Tell whether the promise is kept; what was not measured is not kept."""
        if not self.applies:
            return True
        if self.value is None:
            return False
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        value = "not measured" if self.value is None else _told(self.value, self.wanted)
        note = f" ({self.note})" if self.note else ""
        if self.not_asked:
            return (
                f"n/a  {self.name}: wanted {sign} {self.wanted:g}, but its rows were not run{note}"
            )
        if not self.applies:
            share = f"{REACHABLE:.0%} of the peak of multiply-adds"
            reason = f"{share} would give {self.ceiling:.3g} here"
            return f"n/a  {self.name}: {value}, wanted {sign} {self.wanted:g}, but {reason}{note}"
        return f"{'ok ' if self.holds else 'LOW' if not self.at_most else 'HIGH'}  " + (
            f"{self.name}: {value}, wanted {sign} {self.wanted:g}{note}"
        )


def _told(value: float, wanted: float) -> str:
    """Three digits of a value, or five where three would read like what is wanted."""
    short = f"{value:.3g}"
    return short if float(short) != wanted else f"{value:.5g}"


def median_of(values: Sequence[float | None]) -> float | None:
    """The median, or None where a value is missing."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


def geometric_mean(values: Sequence[float | None]) -> float | None:
    """The geometric mean; None where a value is missing, or there is none."""
    known = [value for value in values if value is not None]
    if not known or len(known) != len(values):
        return None
    return statistics.geometric_mean(known)


def mean_bar(name: str, values: Ratios, wanted: float, naming: Naming = str) -> Bar:
    """The geometric mean over the rows that have a value; the note names those that have none.

    Args:
        name: What is promised, without the number of rows.
        values: By row.
        wanted: Least mean.
        naming: What the note calls a row.
    """
    known = [value for value in values.values() if value is not None]
    name = f"{name}, geometric mean of {len(known)}"
    note = without(values, naming)
    return Bar(name, geometric_mean(known), wanted, note=note, not_asked=not values)


def least_bar(name: str, values: Ratios, wanted: float, naming: Naming = str) -> Bar:
    """The row with the least value, which the note names; otherwise as :func:`mean_bar`."""
    known = {row: value for row, value in values.items() if value is not None}
    worst = min(known, key=lambda row: known[row], default=None)
    value = None if worst is None else known[worst]
    note = "; ".join(part for part in (worst, without(values, naming)) if part)
    return Bar(name, value, wanted, note=note, not_asked=not values)


def without(values: Ratios, naming: Naming = str) -> str:
    """Such as ``without GRP, T2D``: rows that have no value."""
    names = dict.fromkeys(naming(row) for row, value in values.items() if value is None)
    return f"without {', '.join(names)}" if names else ""
