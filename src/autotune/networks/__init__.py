"""Whole networks: models, the tasks that they are cut into, and what is put together again."""

from autotune.networks.frontend import (
    CompiledNetwork,
    Frontend,
    LoadOptions,
    NetworkProgram,
    NetworkTask,
    NetworkTensor,
    PassReport,
)

__all__ = [
    "CompiledNetwork",
    "Frontend",
    "LoadOptions",
    "NetworkProgram",
    "NetworkTask",
    "NetworkTensor",
    "PassReport",
]
