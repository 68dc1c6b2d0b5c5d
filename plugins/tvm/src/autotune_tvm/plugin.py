"""The parts that this distribution registers."""

from __future__ import annotations

from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 2


def autotune_parts() -> list[PluginSpec]:
    """Returns every part of this distribution."""
    return [
        PluginSpec(
            "backend",
            "tvm",
            "autotune_tvm.backend:TVMBackend",
            "Apache TVM's TensorIR schedules, compiled by LLVM for the CPU",
        ),
        PluginSpec(
            "frontend",
            "relax",
            "autotune_tvm.networks.frontend:RelaxFrontend",
            "models of torch, ONNX and Relax, through Relax and its virtual machine",
        ),
    ]
