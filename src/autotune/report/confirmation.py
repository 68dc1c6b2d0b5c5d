"""What the confirmation of a winner says, in words."""

from __future__ import annotations

from autotune.store.records import Comparison, Confirmation, Contest

__all__ = ["comparison_text", "confirmation_lines", "contest_text"]

_DIGITS = 8


def confirmation_lines(confirmation: Confirmation) -> list[str]:
    """The winner beside the untuned program, beside the runner-up, and what was found wrong."""
    lines = [f"confirmed: {confirmation.verdict}"]
    over = confirmation.over_runner_up
    if over is not None:
        name = f"the runner-up {confirmation.runner_up[:_DIGITS]}"
        interval = f"{over.low:.3g} to {over.high:.3g}"
        if over.faster or over.slower:
            lines.append(f"{over.ratio:.3g} times as fast as {name} ({interval})")
        else:
            lines.append(f"as fast as {name} within the noise ({interval} times)")
    if confirmation.rejected:
        digests = ", ".join(digest[:_DIGITS] for digest in confirmation.rejected)
        lines.append(f"faster, but wrong on other inputs: {digests}")
    return lines


def contest_text(contest: Contest) -> str:
    """Which backend won, and by how much."""
    over = [comparison_text(found, name) for name, found in contest.over.items()]
    return "; ".join([f"the winner is {short_name(contest.winner)}", *over])


def comparison_text(comparison: Comparison, other: str) -> str:
    """``"1.2 times as fast as tvm (1.1 to 1.3), timed in turns"``."""
    interval = f"{comparison.low:.3g} to {comparison.high:.3g}"
    if comparison.faster or comparison.slower:
        ratio = f"{comparison.ratio:.3g} times as fast as"
        return f"{ratio} {short_name(other)} ({interval}), timed in turns"
    return f"as fast as {short_name(other)} within the noise ({interval} times), timed in turns"


def short_name(part: str) -> str:
    """A part's name without the module, where it was given by import string."""
    return part.rpartition(":")[2]
