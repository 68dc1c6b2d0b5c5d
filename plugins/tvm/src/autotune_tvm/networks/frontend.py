"""The frontend: modules of Relax become graphs of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.networks import GraphFrontend, LoadOptions, NetworkProgram
from autotune_tvm import runtime
from autotune_tvm.networks.sources import SUFFIXES, check_file, is_source, read_source

__all__ = ["RelaxFrontend"]


class RelaxFrontend(GraphFrontend):
    """Reads networks in Relax, TVM's graph language."""

    name = "relax"
    sources = ("a Relax module, its .json or its TVMScript in a .py file",)
    formats = tuple(SUFFIXES)

    def accepts(self, source: object) -> bool:
        """Tell if it reads sources of this kind, by class or suffix; imports no compiler."""
        return is_source(source)

    def check_file(self, path: Path) -> None:
        """Parse a file.

        Raises:
            InvalidValueError: it is damaged.
            UnsupportedTarget: TVM, which reads it, cannot be imported.
        """
        check_file(path)

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
        return GraphProgram(read_source(source, example_inputs, options.asked), options)
