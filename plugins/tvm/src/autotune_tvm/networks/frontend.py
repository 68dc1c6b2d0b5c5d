"""The frontend: models of torch and Relax become tasks of the TVM backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.backends.native import NativeBackend
from autotune.errors import UnsupportedTarget
from autotune.networks import Frontend, LoadOptions, NetworkProgram
from autotune.targets import Target
from autotune_tvm import runtime
from autotune_tvm.networks.pass_names import PASS_NAMES
from autotune_tvm.networks.sources import SUFFIXES, check_file, is_source, read_source

__all__ = ["RelaxFrontend"]


class RelaxFrontend(Frontend):
    """Reads models into Relax, TVM's graph language."""

    name = "relax"
    sources = (
        "a torch module with example inputs",
        "an exported program of torch or its .pt2 file",
        "a Relax module, its .json or its TVMScript in a .py file",
    )
    formats = tuple(SUFFIXES)
    backend = "tvm"
    passes = PASS_NAMES

    def accepts(self, source: object) -> bool:
        """Whether it reads sources of this kind, by class or suffix; imports no compiler."""
        return is_source(source)

    def kernel_backends(self, target: Target) -> tuple[str, ...]:
        """On x86-64 CPUs the core's own backend, whose kernels are linked with the network."""
        try:
            NativeBackend().check_target(target)
        except UnsupportedTarget:
            return ()
        return (NativeBackend.name,)

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
        runtime.load()
        from autotune_tvm.networks.program import load_network

        return load_network(read_source(source, example_inputs, options.asked), options)
