"""Target of the entry point; imports nothing but the specification."""

from __future__ import annotations

from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 4


def autotune_parts() -> list[PluginSpec]:
    """Returns the one part of this distribution."""
    return [
        PluginSpec(
            "observer",
            "example-memory",
            "autotune_example.observer:MemoryObserver",
            "Resident memory of the process that runs the program",
        ),
    ]
