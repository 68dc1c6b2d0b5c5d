"""Target of the entry point, as it was for plugin interface 2."""

from __future__ import annotations

from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 2


def autotune_parts() -> list[PluginSpec]:
    """Returns the parts of this distribution."""
    return [
        PluginSpec("step", "replayed", "autotune_replayed.steps:Replayed", "With a replay"),
        PluginSpec("sketch_rule", "replayed", "autotune_replayed.steps:Rule", "Its rule"),
    ]
