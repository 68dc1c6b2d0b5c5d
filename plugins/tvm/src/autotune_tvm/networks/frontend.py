"""The frontend: modules of Relax become graphs of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.networks import GraphFrontend, LoadOptions, NetworkProgram, class_names
from autotune_tvm import runtime

__all__ = ["RelaxFrontend"]


class RelaxFrontend(GraphFrontend):
    """Reads networks in Relax, TVM's graph language."""

    name = "relax"
    sources = ("a Relax module, its .json or its TVMScript in a .py file",)
    formats = (".json", ".py")

    def accepts(self, source: object) -> bool:
        """Tell if it reads sources of this kind, by class or suffix; imports no compiler."""
        if isinstance(source, Path):
            return source.suffix in self.formats
        return "tvm.ir.module.IRModule" in class_names(source)

    def check_file(self, path: Path) -> None:
        """Parse a file.

        Raises:
            InvalidValueError: it is damaged.
            UnsupportedTarget: TVM, which reads it, cannot be imported.
        """
        with runtime.environment(**runtime.WORKER_ENVIRONMENT):
            runtime.load()
        from autotune_tvm.networks.relax_module import parse_file

        parse_file(path)

    def load(
        self, source: object, example_inputs: Sequence[object] | None, options: LoadOptions
    ) -> NetworkProgram:
        """Read a model, prepare it, and cut it into tasks.

        Raises:
            UnsupportedWorkload: names the node that cannot be expressed, and what to do.
            InvalidValueError: the source is damaged or incomplete; says what to do.
            UnsupportedTarget: TVM cannot be imported, or does not compile for the target.
            UnknownNameError: there is no pass of a name in ``options.passes``.
        """
        from autotune.networks import GraphProgram

        runtime.load()
        from autotune_tvm.networks.relax_module import read_source

        return GraphProgram(read_source(source, example_inputs, options.asked), options)
