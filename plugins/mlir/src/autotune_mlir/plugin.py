"""The parts that this distribution registers."""

from __future__ import annotations

from autotune import hookimpl
from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 4


@hookimpl
def autotune_parts() -> list[PluginSpec]:
    """Returns every part of this distribution."""
    return [
        PluginSpec(
            "backend",
            "mlir",
            "autotune_mlir.backend:MLIRBackend",
            "MLIR's linalg scheduled by its Transform dialect, compiled by LLVM for the CPU",
        ),
        PluginSpec(
            "frontend",
            "mlir",
            "autotune_mlir.networks.frontend:MLIRFrontend",
            "modules of functions on tensors, one transform library for all of them",
        ),
    ]
