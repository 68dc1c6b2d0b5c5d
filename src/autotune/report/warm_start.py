"""Warm start of a run, in words."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.store.records import WarmSource

__all__ = ["warm_start_text"]


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
