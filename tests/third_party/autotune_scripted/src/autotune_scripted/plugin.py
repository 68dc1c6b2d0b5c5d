"""Target of the entry point."""

from __future__ import annotations

from autotune.plugins import PluginSpec


def autotune_parts() -> list[PluginSpec]:
    """Returns the one part of this distribution."""
    factory = "autotune_scripted.measurer:ScriptedMeasurer"
    return [PluginSpec("measurer", "scripted", factory, "Latencies from a formula")]
