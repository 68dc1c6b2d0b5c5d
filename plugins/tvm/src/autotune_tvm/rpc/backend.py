"""Backends for programs that run on RPC servers: build for them, and send what is built."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import define, field

from autotune.backends import (
    Backend,
    BoundCall,
    BuildRequest,
    Executable,
    LoweredProgram,
)
from autotune.backends.backend import Array
from autotune.errors import UnsupportedTarget
from autotune_tvm import artefact, compiler
from autotune_tvm.backend import TVMBackend, argument_names_of
from autotune_tvm.rpc.options import read_environment
from autotune_tvm.rpc.program import RemoteArrays, RemoteProgram
from autotune_tvm.rpc.session import Session
from autotune_tvm.rpc.toolchain import Toolchain, sha256_of

__all__ = ["Linkable", "RPCBackend", "ServedBackend"]


class ServedBackend(Backend):
    """A backend of worker processes that the runner ``rpc`` starts.

    What it compiles runs nowhere in its process: it is linked for the servers' machines. What it
    loads runs on a server.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rpc-"))
        self._options = read_environment(os.environ)
        self._toolchain = Toolchain(self._options.cc)
        self._session: Session | None = None
        self._arrays: dict[str, RemoteArrays] = {}

    @property
    def session(self) -> Session:
        """The server that programs are sent to."""
        if self._session is None:
            self._session = Session(self._options, self._toolchain, self._folder)
        return self._session

    def park(self) -> None:
        """Nothing of a program runs in this process."""

    def load_program(self, request: BuildRequest, path: Path) -> Executable:
        """A program on its way to the server.

        Raises:
            BuildFailed: the file is no program of this backend.
        """
        content, stored = artefact.read_library(path)
        library = self._folder / f"{path.name[:64]}.so"
        library.write_bytes(content)
        return RemoteProgram(
            self.session,
            library,
            sha256_of(library),
            request.workload,
            stored,
            self._arrays_of(request),
        )

    def _arrays_of(self, request: BuildRequest) -> RemoteArrays:
        """Arrays of a workload; programs of others are loaded when those are no longer timed."""
        digest = request.workload.digest
        if digest not in self._arrays:
            for arrays in self._arrays.values():
                arrays.clear()
            self._arrays[digest] = RemoteArrays(self.session, request.workload)
        return self._arrays[digest]


class RPCBackend(ServedBackend, TVMBackend):
    """The backend ``tvm`` of such processes."""

    def __init__(self, context: Any = None) -> None:
        TVMBackend.__init__(self, context)
        ServedBackend.__init__(self)

    def compile(self, lowered: LoweredProgram) -> Executable:
        """Generate code, for :meth:`Executable.export`.

        Raises:
            BuildFailed: LLVM rejected the program.
        """
        request, made = lowered.request, lowered.program
        built, digest = compiler.generate_code(
            made.module, request.target, request.threads, runs_here=False
        )
        stored = artefact.StoredProgram(argument_names_of(request), digest, made.packed)
        return Linkable(built, stored, self._toolchain.link, digest)


@define(eq=False)
class Linkable(Executable):
    """A program that can be exported and not run."""

    module: Any
    stored: artefact.StoredProgram
    link: artefact.Link
    digest: str = field(default="")

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        """Raises UnsupportedTarget: programs for RPC servers do not run on the host."""
        raise UnsupportedTarget("a program for RPC servers does not run on the host")

    def export(self, path: Path) -> None:
        """Link it for the servers' machines, and write it.

        Raises:
            BuildFailed: it cannot be linked.
            InvalidValueError: there is no compiler for them.
        """
        artefact.write_program(path, self.module, self.stored, self.link)
