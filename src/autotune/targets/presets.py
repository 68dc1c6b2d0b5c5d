"""Machines by name, for tests and for tuning on one machine with another in mind."""

from __future__ import annotations

import re

from autotune.errors import UnknownNameError
from autotune.targets import processors
from autotune.targets.gpus import GPUS, gpu_target
from autotune.targets.target import Target

__all__ = ["DEFAULT_CORES", "gpu_hint", "preset", "preset_names"]

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
_GPU_OF_NAME = {gpu.name: gpu for gpu in GPUS}


def preset_names() -> tuple[str, ...]:
    """Returns the names that `preset` knows, without numbers of cores, sorted."""
    return tuple(sorted([*_PROCESSOR_OF_NAME, *_ALIASES, *_GPU_OF_NAME]))


def gpu_hint() -> str:
    """Returns a sentence that names the GPUs, which are few among many processors."""
    return f"GPUs: {', '.join(sorted(_GPU_OF_NAME))}."


def preset(name: str) -> Target:
    """Returns a GPU, or the typical machine with a certain processor, with estimated rates.

    Args:
        name: A GPU, such as `"a100"`, or a processor, such as `"haswell"`, `"zen4"` or `"avx2"`,
            optionally with a number of cores: `"sapphirerapids-8core"`. There are 4 unless it
            says otherwise.

    Raises:
        UnknownNameError: There is no such preset.
    """
    if name in _GPU_OF_NAME:
        return gpu_target(_GPU_OF_NAME[name])
    match = re.fullmatch(r"(.+?)(?:-([1-9]\d{0,3})core)?", name)
    stem, count = (match[1], match[2]) if match else (name, None)
    found = _PROCESSOR_OF_NAME.get(_ALIASES.get(stem, stem))
    if found is None:
        raise UnknownNameError("preset", name, preset_names(), gpu_hint())
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
