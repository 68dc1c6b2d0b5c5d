"""How programs are timed in turns that are all taken, for comparing them afterwards."""

from __future__ import annotations

from autotune.measure import MeasureProtocol

__all__ = ["long_protocol"]


def long_protocol(turns: int, turn_seconds: float) -> MeasureProtocol:
    """Turns until they are all over, whatever is known before; each of one sample.

    Args:
        turns: How many.
        turn_seconds: How long a program runs in each.
    """
    return MeasureProtocol(
        min_sample_seconds=turn_seconds,
        samples_per_turn=1,
        min_rounds=turns,
        max_rounds=turns,
        resolution=1e-9,
    )
