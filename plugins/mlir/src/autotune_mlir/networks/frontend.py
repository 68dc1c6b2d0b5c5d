"""The frontend: modules of MLIR become graphs of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.networks import GraphFrontend, LoadOptions, NetworkProgram

__all__ = ["MLIRFrontend"]


class MLIRFrontend(GraphFrontend):
    """Reads modules whose functions are linalg on tensors, each a task of its own.

    It has no passes over the graph: schedules are for the functions as they are.
    """

    name = "mlir"
    sources = ("an .mlir file", "a module of MLIR's Python bindings")
    formats = (".mlir",)
    passes = ()

    def accepts(self, source: object) -> bool:
        """Tell if it is a path of such a name, or a module of either bindings; imports nothing."""
        if isinstance(source, Path):
            return source.suffix in self.formats
        kind = type(source)
        return kind.__name__ == "Module" and kind.__module__.endswith("_mlir.ir")

    def check_file(self, path: Path) -> None:
        """Do nothing: :meth:`load` reads a file in a process of its own."""

    def load(
        self, source: object, example_inputs: Sequence[object] | None, options: LoadOptions
    ) -> NetworkProgram:
        """Read a module into a graph.

        Raises:
            InvalidValueError: the file cannot be read, or holds no whole module; or the example
                inputs are not those of the module.
            UnsupportedWorkload: no function of it can be read; says why.
            UnknownNameError: a pass is named, and there is none.
            BindingsMissing: MLIR is not installed.
        """
        for name in options.passes:
            extra = "A module is tuned as it is: run passes of MLIR before."
            raise UnknownNameError("pass", name, self.passes, extra)
        if not self.accepts(source):
            raise InvalidValueError(
                f"an object of type {type(source).__name__!r} is no module; what can be read is "
                + " or ".join(self.sources)
            )
        from autotune.networks import GraphProgram
        from autotune_mlir.networks.reader import graph_source

        return GraphProgram(graph_source(source, example_inputs, options.asked), options)
