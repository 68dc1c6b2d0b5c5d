"""What the entry point names; imports nothing but the hooks."""

from __future__ import annotations

from autotune.plugins.hooks import PluginSpec, hookimpl

AUTOTUNE_API_VERSION = 1


@hookimpl
def autotune_strategies() -> list[PluginSpec]:
    """Returns the one strategy of this distribution."""
    return [
        PluginSpec(
            "example-coordinate",
            "autotune_example.strategy:CoordinateStrategy",
            "Neighbours of the best candidate so far",
            {"tries": "neighbours drawn for each candidate asked for"},
        )
    ]


@hookimpl
def autotune_observers() -> list[PluginSpec]:
    """Returns the one observer of this distribution."""
    return [
        PluginSpec(
            "example-memory",
            "autotune_example.observer:MemoryObserver",
            "Resident memory of the process that runs the program",
        )
    ]
