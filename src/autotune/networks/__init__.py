"""Whole networks: models, the tasks that they are cut into, and what is put together again."""

from autotune.networks.asked_inputs import AskedInputs, DeclaredInput, FixedInputs
from autotune.networks.frontend import (
    CompiledNetwork,
    Frontend,
    LoadOptions,
    NetworkProgram,
    NetworkTask,
    NetworkTensor,
    PassReport,
    Rival,
)

__all__ = [
    "AskedInputs",
    "CompiledNetwork",
    "DeclaredInput",
    "FixedInputs",
    "Frontend",
    "LoadOptions",
    "NetworkProgram",
    "NetworkTask",
    "NetworkTensor",
    "PassReport",
    "Rival",
]
