"""The core's own frontend: models of ONNX and torch become graphs of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path

from autotune.errors import UnsupportedTarget
from autotune.networks.frontend import Frontend, LoadOptions, NetworkProgram, class_names
from autotune.targets import Target

__all__ = ["GraphFrontend"]

_ONNX = frozenset({"onnx.ModelProto", "onnx.onnx_ml_pb2.ModelProto"})
_TORCH = frozenset(
    {
        "torch.nn.modules.module.Module",
        "torch.export.exported_program.ExportedProgram",
    }
)
_TORCH_FILE = ".pt2"
_PROGRAMS = "autotune.networks.graph_program"


class GraphFrontend(Frontend):
    """Reads models into graphs of workloads, with no compiler.

    The process that checks a file makes one, too, and needs neither passes nor backends.
    """

    name = "graph"
    sources: tuple[str, ...] = (
        "an .onnx file or an ONNX ModelProto",
        "a torch module with example inputs",
        "an exported program of torch or its .pt2 file",
    )
    formats: tuple[str, ...] = (".onnx", _TORCH_FILE)
    backend = "native"

    @cached_property
    def passes(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the passes, in order."""
        from autotune.networks.passes.pipeline import graph_passes

        return tuple(graph_passes())

    def accepts(self, source: object) -> bool:
        """Return whether this is a model of ONNX or torch, by suffix or class; imports nothing."""
        if isinstance(source, str | Path):
            return Path(source).suffix in self.formats
        return _is_of_torch(source) or not _ONNX.isdisjoint(class_names(source))

    def kernel_backends(self, target: Target) -> tuple[str, ...]:
        """All others on CPUs, where the built-in one prints what they schedule; or for the device.

        On a device each task has the program of the backend that tuned it.
        """
        if target.kind == "cuda":
            from autotune.networks.plan.cuda_network import device_backends

            return tuple(it.name for it in device_backends(target.kind)[1:])
        from autotune.plugins.manager import manager

        return tuple(name for name in manager().names("backend") if name != self.backend)

    def backend_for(self, target: Target) -> str:
        """The one that is built in for CPUs, for a device that which makes programs for it."""
        if target.kind != "cuda":
            return self.backend
        from autotune.networks.plan.cuda_network import device_backend

        try:
            return device_backend(target.kind).name
        except UnsupportedTarget:
            return ""

    def builds_for(self, target: Target) -> bool:
        """Tell if it is a CPU that libraries are made for, or a device that a backend serves."""
        try:
            if target.kind == "cuda":
                from autotune.networks.plan.cuda_network import device_backend

                device_backend(target.kind).check_target(target)
            else:
                from autotune.backends.native.exports import machine_of

                machine_of(target)
        except UnsupportedTarget:
            return False
        return True

    def check_file(self, path: Path) -> None:
        """Parse and check a file.

        Raises:
            InvalidValueError: it is damaged, or the package that reads it is missing.
            UnsupportedWorkload: another runtime optimised it for itself.
        """
        if path.suffix == _TORCH_FILE:
            from autotune.networks.readers.torch import check_program

            check_program(path)
        else:
            from autotune.networks.readers.onnx.model_file import open_model

            open_model(path)

    def warm_up(self, path: Path) -> None:
        """Import the reader, the package that it reads with, and the passes."""
        package = "torch" if path.suffix == _TORCH_FILE else "onnx"
        with suppress(ImportError):  # `load` says what is missing
            for name in (package, f"autotune.networks.readers.{package}.source", _PROGRAMS):
                import_module(name)

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

        if _is_of_torch(source):
            module = import_module("autotune.networks.readers.torch.source")
            found = module.torch_source(source, example_inputs, options.asked)
        else:
            found = onnx_source(source, example_inputs, options.asked)
        return GraphProgram(found, options)


def _is_of_torch(source: object) -> bool:
    if isinstance(source, str | Path):
        return Path(source).suffix == _TORCH_FILE
    return not _TORCH.isdisjoint(class_names(source))
