"""What the confirmation of a winner says, in words."""

from __future__ import annotations

from autotune.records import Confirmation

__all__ = ["confirmation_lines"]

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
