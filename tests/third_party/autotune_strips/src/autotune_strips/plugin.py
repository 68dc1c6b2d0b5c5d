"""Target of the entry point."""

from __future__ import annotations

from autotune.plugins import PluginSpec


def autotune_parts() -> list[PluginSpec]:
    """Returns the one part of this distribution."""
    factory = "autotune_strips.rule:StripsRule"
    return [PluginSpec("sketch_rule", "strips", factory, "Outermost loops in parallel strips")]
