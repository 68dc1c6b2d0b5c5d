"""Heron as published, as far as there are parts for it."""

from __future__ import annotations

from autotune.plugins import Context
from autotune.plugins.spec import Preset

__all__ = ["heron_published"]


def heron_published(_context: Context) -> Preset:
    """The search of the first published state of the code, which is that of the paper."""
    return Preset(
        name="heron-published",
        source="Heron (ASPLOS'23) as its code was first published",
        parts={
            "strategy": ("heron", {"variant": "paper"}),
            "cost_model": "gbdt",
            "pruning_model": None,
            "task_scheduler": "round-robin",
        },
        round_size=32,
        differences=(
            "the constrained space is that of autotune, whose parameters are the variables; Heron "
            "also varies loop extents and memory sizes",
            "samples are exactly uniform, where those of a solver are not",
            "sketches have equal shares of samples, where Heron has one template",
            "boosted trees read features of the loop nest, not the values of variables, and keys "
            "are those by which scores vary, not those of most splits",
            "winners are timed in turns with others, not once",
        ),
    )
