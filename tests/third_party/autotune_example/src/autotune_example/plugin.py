"""What the entry point names; imports nothing but the specification."""

from __future__ import annotations

from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 2


def autotune_parts() -> list[PluginSpec]:
    """Returns every part of this distribution."""
    return [
        PluginSpec(
            "strategy",
            "example-coordinate",
            "autotune_example.strategy:CoordinateStrategy",
            "Neighbours of the best candidate so far",
            {"tries": "neighbours drawn for each candidate asked for"},
        ),
        PluginSpec(
            "observer",
            "example-memory",
            "autotune_example.observer:MemoryObserver",
            "Resident memory of the process that runs the program",
        ),
    ]
