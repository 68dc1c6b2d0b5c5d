"""Bars on many rows' ratios, of which some may be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from common import Bar, geometric_mean

Ratios = Mapping[str, float | None]
Naming = Callable[[str], str]


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
