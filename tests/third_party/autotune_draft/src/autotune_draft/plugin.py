"""What the entry point names."""

from __future__ import annotations

from autotune.plugins import PluginSpec


def autotune_parts() -> list[PluginSpec]:
    """Returns the one part of this distribution."""
    factory = "autotune_draft.strategy:DraftStrategy"
    return [PluginSpec("strategy", "draft", factory, "What the pruning model ranks first")]
