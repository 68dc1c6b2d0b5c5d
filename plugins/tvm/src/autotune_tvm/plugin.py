"""What this distribution registers with autotune."""

from __future__ import annotations

from autotune.plugins.hooks import PluginSpec, hookimpl

AUTOTUNE_API_VERSION = 1


@hookimpl
def autotune_backends() -> list[PluginSpec]:
    """Returns the backend, by an import string: listing it imports neither it nor TVM."""
    return [
        PluginSpec(
            "tvm",
            "autotune_tvm.backend:TVMBackend",
            "Apache TVM's TensorIR schedules, compiled by LLVM for the CPU",
        )
    ]
