"""Comparisons of programs that were timed in turns, in words."""

from __future__ import annotations

from autotune.report import formats
from autotune.sketches import DEFAULT_CONFIGURATION, UNTUNED
from autotune.store.records import Comparison, Confirmation, Contest

__all__ = [
    "baseline_phrase",
    "comparison_text",
    "confirmation_lines",
    "contest_text",
    "short_digest",
]

_DIGITS = 8


def comparison_text(comparison: Comparison, other: str) -> str:
    """``"beats OTHER 1.20x (1.10x to 1.31x)"``, ``"ties OTHER (0.97x to 1.03x)"``."""
    interval = f"({formats.ratio(comparison.low)} to {formats.ratio(comparison.high)})"
    if comparison.faster:
        return f"beats {other} {formats.ratio(comparison.ratio)} {interval}"
    if comparison.slower:
        return f"loses to {other} {formats.ratio(comparison.ratio)} {interval}"
    return f"ties {other} {interval}"


def baseline_phrase(name: str) -> str:
    """A baseline within a sentence: ``"the naive loop nest"``, ``"TVM's default schedule"``."""
    return f"the {name}" if name in (UNTUNED, DEFAULT_CONFIGURATION) else name


def confirmation_lines(confirmation: Confirmation, baseline: str = UNTUNED) -> list[str]:
    """The winner beside the runner-up, what was found wrong, and the gain over the baseline.

    Args:
        confirmation: The winner, timed again.
        baseline: What the baseline is called.
    """
    lines = []
    if confirmation.over_runner_up is not None:
        name = f"runner-up {short_digest(confirmation.runner_up)}"
        lines.append(f"winner {comparison_text(confirmation.over_runner_up, name)}")
    if confirmation.rejected:
        digests = ", ".join(map(short_digest, confirmation.rejected))
        lines.append(f"faster, but wrong on other inputs: {digests}")
    over = confirmation.over_baseline
    if over is None:
        lines.append(f"winner not timed again beside {baseline_phrase(baseline)}")
    else:
        lines.append(f"winner {comparison_text(over, baseline_phrase(baseline))}")
    return lines


def contest_text(contest: Contest) -> str:
    """Which backend won, and by how much."""
    winner = short_name(contest.winner)
    over = [comparison_text(found, short_name(name)) for name, found in contest.over.items()]
    return f"{winner} {', '.join(over)}" if over else f"{winner} wins"


def short_digest(digest: str) -> str:
    """Enough of a digest to tell candidates apart."""
    return digest[:_DIGITS]


def short_name(part: str) -> str:
    """A part's name without the module, where it was given by import string."""
    return part.rpartition(":")[2]
