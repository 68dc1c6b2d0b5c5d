"""The entry point. Importing it opens no counter."""

from __future__ import annotations

from autotune import hookimpl
from autotune.plugins import PluginSpec

__all__ = ["autotune_parts"]

AUTOTUNE_API_VERSION = 4


@hookimpl
def autotune_parts() -> list[PluginSpec]:
    """Returns every part of this distribution."""
    return [
        PluginSpec(
            "observer",
            "energy",
            "autotune_perf.energy:EnergyObserver",
            "Energy of processors and memory, from RAPL",
        ),
        PluginSpec(
            "observer",
            "perf",
            "autotune_perf.perf:PerfObserver",
            "Counters of the processor and the kernel, from perf_event_open",
        ),
    ]
