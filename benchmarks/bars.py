"""What benchmarks promise."""

from __future__ import annotations

from dataclasses import dataclass

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
        """Whether the machine leaves room for the promise, and it was asked for."""
        return not self.not_asked and (self.ceiling is None or self.ceiling >= self.wanted)

    @property
    def holds(self) -> bool:
        """Whether the promise is kept; what was not measured is not kept."""
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
