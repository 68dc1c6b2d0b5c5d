"""Machines by name, for tests and for tuning on one machine with another in mind."""

from __future__ import annotations

import re

from autotune.errors import UnknownNameError, UnsupportedTarget
from autotune.targets import processors
from autotune.targets.target import Target

__all__ = ["DEFAULT_CORES", "preset", "preset_names"]

DEFAULT_CORES = 4
"""Cores of a preset whose name does not say how many."""

# What people call a thing -> LLVM's name for it.
_ALIASES = {
    "sse2": "x86-64",
    "avx2": "x86-64-v3",
    "avx512": "x86-64-v4",
    "zen": "znver1",
    "zen2": "znver2",
    "zen3": "znver3",
    "zen4": "znver4",
    "zen5": "znver5",
}
_PROCESSOR_OF_NAME = {found.name: found for found in processors.PROCESSORS}
_GPU_NAMES = ("cuda", "v100", "t4", "a10", "a100", "l4", "l40", "h100", "h200", "b200")


def preset_names() -> tuple[str, ...]:
    """Returns the names that `preset` knows, without numbers of cores, sorted."""
    return tuple(sorted([*_PROCESSOR_OF_NAME, *_ALIASES]))


def preset(name: str) -> Target:
    """Returns the typical machine with a certain processor; its rates are estimates.

    Args:
        name: A processor, such as `"haswell"`, `"zen4"` or `"avx2"`, and optionally a number of
            cores: `"sapphirerapids-8core"`. There are 4 unless it says otherwise.

    Raises:
        UnknownNameError: There is no such preset.
        UnsupportedTarget: It is a GPU, for which there are no presets.
    """
    match = re.fullmatch(r"(.+?)(?:-([1-9]\d{0,3})core)?", name)
    stem, count = (match[1], match[2]) if match else (name, None)
    found = _PROCESSOR_OF_NAME.get(_ALIASES.get(stem, stem))
    if found is None:
        if stem.casefold() in _GPU_NAMES:
            raise UnsupportedTarget(
                f"{name!r} is a GPU, and there are no presets for CUDA yet; "
                "describe it in a JSON file, or choose a CPU: " + ", ".join(preset_names())
            )
        raise UnknownNameError("preset", name, preset_names())
    cores = int(count) if count else DEFAULT_CORES
    return Target(
        kind="cpu",
        name=f"{stem}-{cores}core",
        cores=cores,
        vector_bytes=processors.vector_bytes_of(found.features),
        features=found.features,
        processor=found.name,
        caches=found.cache_levels(),
        memory_bandwidth=processors.estimate_bandwidth(cores),
        peak_flops=processors.estimate_flops(found.features, found.fma_units, cores, found.clock),
        vector_registers=processors.vector_registers_of(found.features),
        fma_units=found.fma_units,
    )
