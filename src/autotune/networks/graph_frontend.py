"""The core's own frontend: models of ONNX become graphs of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.backends.native import NativeBackend
from autotune.errors import UnsupportedTarget
from autotune.networks.cuda_programs import device_backend
from autotune.networks.frontend import Frontend, LoadOptions, NetworkProgram
from autotune.networks.passes.pipeline import graph_passes
from autotune.networks.readers.onnx.model_file import open_model
from autotune.plugins import Context
from autotune.targets import Target

__all__ = ["GraphFrontend"]

_MODEL = "ModelProto"
_OTHERS = ("tvm", "mlir")


class GraphFrontend(Frontend):
    """Reads models into graphs of workloads, with no compiler."""

    name = "graph"
    sources = ("an .onnx file", "an ONNX ModelProto")
    formats = (".onnx",)
    backend = NativeBackend.name

    def __init__(self, context: Context | None = None) -> None:
        self.passes = tuple(graph_passes())

    def accepts(self, source: object) -> bool:
        """Whether this is a model of ONNX, by suffix or class; imports nothing."""
        if isinstance(source, str | Path):
            return Path(source).suffix in self.formats
        kind = type(source)
        return kind.__name__ == _MODEL and kind.__module__.partition(".")[0] == "onnx"

    def kernel_backends(self, target: Target) -> tuple[str, ...]:
        """All others on CPUs: the built-in one prints what they schedule."""
        return () if target.kind == "cuda" else _OTHERS

    def backend_for(self, target: Target) -> str:
        """The one that is built in for CPUs, for a device that which makes programs for it."""
        try:
            return device_backend(target.kind).name if target.kind == "cuda" else self.backend
        except UnsupportedTarget:
            return ""

    def builds_for(self, target: Target) -> bool:
        """Whether it is an x86-64 CPU, or a device that a backend makes programs for."""
        try:
            if target.kind == "cuda":
                device_backend(target.kind).check_target(target)
            else:
                NativeBackend().check_target(target)
        except UnsupportedTarget:
            return False
        return True

    def check_file(self, path: Path) -> None:
        """Parse and check a file.

        Raises:
            InvalidValueError: it is damaged, or the package ``onnx`` is missing.
            UnsupportedWorkload: another runtime optimised it for itself.
        """
        open_model(path)

    def load(
        self, source: object, example_inputs: Sequence[object] | None, options: LoadOptions
    ) -> NetworkProgram:
        """Read a model, prepare it, and cut it into tasks.

        Raises:
            UnsupportedWorkload: a node cannot be expressed, or an axis has no length; in one line.
            InvalidValueError: the model is damaged, or an example is not one of its inputs.
            UnknownNameError: there is no pass, input or axis of a name that was given.
        """
        from autotune.networks.graph_program import GraphProgram
        from autotune.networks.readers.onnx.source import onnx_source

        return GraphProgram(onnx_source(source, example_inputs, options.asked), options)
