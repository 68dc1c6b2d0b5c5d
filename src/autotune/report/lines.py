"""Lines of text about results: phrases, steps, readings and warm starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.report import formats
from autotune.sketches import DEFAULT_CONFIGURATION, UNTUNED, Candidate
from autotune.sketches.steps import Step, step_name
from autotune.store.records import Comparison, Confirmation, Contest, WarmSource

__all__ = [
    "baseline_phrase",
    "comparison_text",
    "confirmation_lines",
    "contest_text",
    "reading_lines",
    "short_digest",
    "step_lines",
    "warm_start_text",
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
    """Say which backend won, and by how much."""
    winner = short_name(contest.winner)
    over = [comparison_text(found, short_name(name)) for name, found in contest.over.items()]
    return f"{winner} {', '.join(over)}" if over else f"{winner} wins"


def short_digest(digest: str) -> str:
    """Enough of a digest to tell candidates apart."""
    return digest[:_DIGITS]


def short_name(part: str) -> str:
    """A part's name without the module, where it was given by import string."""
    return part.rpartition(":")[2]


def reading_lines(readings: Mapping[str, float | None]) -> list[str]:
    """Write a line per reading, by name; ``absent`` for what could not be read.

    Args:
        readings: By ``observer/reading``, as in an outcome.
    """
    width = max(map(len, readings), default=0)
    return [f"{name.ljust(width)}  {_text(value)}" for name, value in sorted(readings.items())]


def _text(value: float | None) -> str:
    if value is None:
        return "absent"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def step_lines(candidate: Candidate) -> list[str]:
    """Write a line per step, expressions evaluated, and the configuration at the end.

    Fields are left out that are no part of how a step is represented, being too long.
    """
    lines = [f"sketch {candidate.sketch.name}"]
    lines += [
        f"{number:3}. {_step(step, candidate.config)}"
        for number, step in enumerate(candidate.sketch.steps, 1)
    ]
    config = ", ".join(f"{name}={value}" for name, value in candidate.config.items())
    return [*lines, f"config {config}"]


def _step(step: Step, config: Mapping[str, int]) -> str:
    fields = {
        attribute.name: _value(getattr(step, attribute.name), config)
        for attribute in attrs.fields(type(step))
        if attribute.repr
    }
    listed = ", ".join(f"{name}={value}" for name, value in fields.items() if value != "None")
    return f"{step_name(step):<13} {listed}"


def _value(value: Any, config: Mapping[str, int]) -> str:
    if isinstance(value, IntExpr):
        return str(int(evaluate(value, dict(config))))
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(item, config) for item in value) + "]"
    return str(value)


def warm_start_text(sources: Sequence[WarmSource]) -> str:
    """Write a line on seeds, training records, and the nearest task that they are of."""
    parts = []
    best = next((it for it in sources if "best" in it.used_as), None)
    if best is not None:
        parts.append(f"the best of equal records ({best.record})")
    seeds = [it for it in sources if "seed" in it.used_as]
    if seeds:
        parts.append(_counted(len(seeds), "schedule") + " of similar tasks")
    training = sum(it.training for it in sources)
    if training:
        parts.append(_counted(training, "outcome") + " for the cost model")
    others = [it for it in sources if it is not best]
    nearest = f"; nearest: {others[0].task}, {others[0].record}" if others else ""
    return f"warm start: {', '.join(parts)}{nearest}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
