"""Backends for programs that run on RPC servers, the programs sent there, and their arrays."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune.backends import (
    Backend,
    BoundCall,
    BuildRequest,
    Executable,
    LoweredProgram,
    check_arguments,
)
from autotune.errors import UnsupportedTarget
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload
from autotune_tvm import artefact, compiler
from autotune_tvm.artefact import StoredProgram
from autotune_tvm.backend import TVMBackend, argument_names_of
from autotune_tvm.executable import packer_name
from autotune_tvm.rpc.options import read_environment
from autotune_tvm.rpc.session import ProgramFailed, ServerLost, Session, end_process
from autotune_tvm.rpc.toolchain import Toolchain, sha256_of
from autotune_tvm.rpc.tracker import TrackerError

__all__ = ["Linkable", "RPCBackend", "ServedBackend"]

Array = NDArray[Any]


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


_Place = tuple[int, ...]

# How often what was put on a server is put on another one, when its session ends.
_MOST_SERVERS = 3
# A session is renewed between programs rather than within the check or the samples of one.
_LEAST_SECONDS = 30.0
# Types whose results are compared on the server; others are downloaded.
_COMPARED = frozenset(
    ("float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
)


@define(eq=False)
class _Set:
    """The arrays of one placement on the server.

    Attributes:
        inputs: As programs read them.
        outputs: As they write them.
        pristine: Copies of the inputs that no program is given.
        is_suspect: Whether inputs may have been written to.
    """

    inputs: list[Any]
    outputs: list[Any]
    pristine: list[Any]
    is_suspect: bool = False


class RemoteArrays:
    """Arrays on the server, for each place in the host's memory that programs run at.

    All programs of a task share them. They are sent once in a session.

    Args:
        session: Where.
        workload: Their shapes and types.
    """

    def __init__(self, session: Session, workload: Workload) -> None:
        self._session = session
        tensors = workload.tensors
        self._inputs = [(it.name, it.shape, it.dtype) for it in workload.inputs]
        self._outputs = [
            (name, tensors[name].shape, tensors[name].dtype) for name in workload.outputs
        ]
        self._generation = -1
        self._sets: dict[_Place, _Set] = {}
        self._pristine: list[Any] = []
        self._owner: Callable[[], Array | None] = lambda: None
        self._expected: list[Any] = []

    def clear(self) -> None:
        """Free them."""
        self._sets.clear()
        self._pristine = []
        self._expected = []

    def at(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> _Set:
        """Select those that stand for arrays of the host.

        Raises:
            ServerLost: the connection has ended.
        """
        session, owner = self._session, _owner((*inputs, *outputs)[0])
        if self._generation != session.generation or self._owner() is not owner:
            self.clear()
            self._generation, self._owner = session.generation, weakref.ref(owner)
        if not self._pristine:
            self._pristine = [
                session.sent(array, dtype)
                for array, (_, _, dtype) in zip(inputs, self._inputs, strict=True)
            ]
        place = tuple(array.ctypes.data for array in (*inputs, *outputs))
        found = self._sets.get(place)
        if found is None:
            found = self._sets[place] = _Set(
                [session.empty(shape, dtype) for _, shape, dtype in self._inputs],
                [session.empty(shape, dtype) for _, shape, dtype in self._outputs],
                self._pristine,
                is_suspect=True,
            )
        if found.is_suspect:
            self._restore(found)
        return found

    def _restore(self, found: _Set) -> None:
        with self._session.talking():
            for array, pristine in zip(found.inputs, found.pristine, strict=True):
                pristine.copyto(array)
        found.is_suspect = False

    def changed(self, found: _Set) -> int | None:
        """Position of an input that a program has written to."""
        if not found.inputs:
            return None
        pairs = [
            array for both in zip(found.inputs, found.pristine, strict=True) for array in both
        ]
        probe = self._session.probe()
        with self._session.talking():
            position = int(probe["autotune_differs"](*pairs))
        if position < 0:
            return None
        found.is_suspect = True
        return position

    def are_within(
        self, found: _Set, references: Sequence[Array], bounds: Sequence[Array]
    ) -> bool:
        """Tell if outputs are known to be right, and inputs as they were, by comparisons there.

        References and bounds are sent once, as the inputs are, of which they follow.
        """
        dtypes = [dtype for _, _, dtype in self._outputs]
        if not set(dtypes) <= _COMPARED:
            return False
        session = self._session
        if not self._expected:
            for reference, bound, dtype in zip(references, bounds, dtypes, strict=True):
                sent = session.sent(reference, dtype)
                is_float = dtype.startswith("float")
                limit = session.sent(bound, "float32") if is_float else sent
                self._expected.append((sent, limit))
        pairs = zip(found.outputs, self._expected, strict=True)
        given = [array for output, (sent, limit) in pairs for array in (output, sent, limit)]
        inputs = zip(found.inputs, found.pristine, strict=True)
        copies = [array for both in inputs for array in both]
        probe = session.probe()
        with session.talking():
            return bool(probe["autotune_within"](len(found.inputs), *copies, *given))


class RemoteProgram(Executable):
    """A shared library on its way to whichever server there is.

    Args:
        session: The server.
        library: The file.
        content: SHA-256 of it.
        workload: Its inputs and outputs.
        stored: Its arguments, and what it takes packed.
        arrays: What it runs on, shared with the other programs of its task.
    """

    def __init__(
        self,
        session: Session,
        library: Path,
        content: str,
        workload: Workload,
        stored: StoredProgram,
        arrays: RemoteArrays,
    ) -> None:
        self.digest = stored.digest
        self.session = session
        self.arrays = arrays
        self._library = library
        self._content = content
        self._workload = workload
        self._arguments = stored.arguments
        self._packed = {operand.position: operand for operand in stored.packed}
        self._copies: tuple[int, dict[int, list[Any]]] = (-1, {})

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        """Send the program, the arrays that these stand for, and what is packed of constants.

        Raises:
            InvalidValueError: the arrays are not those of the workload, or not aligned.
            ProgramFailed: the server cannot load it, or what packs fails.
        """
        check_arguments(self._workload, inputs, outputs)
        call = RemoteCall(self, inputs, outputs)
        call.load()
        return call

    def module(self) -> Any:
        """The same, on the server."""
        return self.session.module(self._content, self._library)

    def parameters(self, found: _Set) -> list[Any]:
        """Arrays on the server in the order of the function's parameters."""
        names = (*(it.name for it in self._workload.inputs), *self._workload.outputs)
        by_name: Mapping[str, Any] = dict(zip(names, (*found.inputs, *found.outputs), strict=True))
        parameters: list[Any] = []
        for position, name in enumerate(self._arguments):
            if position in self._packed:
                parameters += self._packed_of(position, by_name[name])
            else:
                parameters.append(by_name[name])
        return parameters

    def _packed_of(self, position: int, constant: Any) -> list[Any]:
        """Pack a constant, once in a session."""
        generation, copies = self._copies
        if generation != self.session.generation:
            copies = {}
            self._copies = self.session.generation, copies
        if position not in copies:
            made = []
            for array in self._packed[position].arrays:
                # Elements that no statement writes are read by none that matters.
                zeros = np.zeros(array.shape, element_type(array.dtype).dtype)
                made.append(self.session.sent(zeros, array.dtype))
            packer = self.module()[packer_name(position)]
            with self.session.running():
                packer(constant, *made)
            copies[position] = made
        return copies[position]


class RemoteCall(BoundCall):
    """A program with its arrays on a server; on another one, when the session has ended.

    Args:
        program: The program.
        inputs: Inputs in the host's memory; where the server's were changed, so are these.
        outputs: Outputs there.
    """

    def __init__(
        self, program: RemoteProgram, inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> None:
        self._program = program
        self._session = program.session
        self._inputs = list(inputs)
        self._outputs = list(outputs)
        self._generation = -1
        self._set: Any = None
        self._functions: tuple[Any, Any] = (None, None)
        self._parameters: list[Any] = []

    def load(self) -> None:
        """Have everything on the server; without any server the process ends.

        That is nobody's fault: an exception would be taken for one of the program.
        """

        def step() -> None:
            self._session.ensure(_LEAST_SECONDS)
            self._load()

        self._again(step)

    def _load(self) -> None:
        self._session.ensure(0.0)
        if self._generation == self._session.generation:
            return
        module = self._program.module()
        self._set = self._program.arrays.at(self._inputs, self._outputs)
        self._parameters = self._program.parameters(self._set)
        with self._session.talking():
            self._functions = module["main"], module["autotune_time"]
        self._generation = self._session.generation

    def run(self) -> None:
        """Run once.

        Raises:
            ProgramFailed: it says that it failed, or has ended the session.
        """
        self.load()
        with self._session.running():
            self._functions[0](*self._parameters)

    def time(self, number: int) -> float:
        """Seconds per call over ``number`` calls in a loop on the server.

        Raises:
            ProgramFailed: it says that it failed, or has ended the session.
        """
        self.load()
        with self._session.running():
            return float(self._functions[1](number, *self._parameters))

    def outputs(self) -> list[Array]:
        """Copies of the outputs, in the workload's order.

        Where an input was changed on the server, the host's array gets what is in it.
        """
        try:
            position = self._program.arrays.changed(self._set)
            with self._session.talking():
                if position is not None:
                    changed = self._set.inputs[position].numpy()
                    np.copyto(self._inputs[position], _as(changed, self._inputs[position]))
                return [
                    _as(remote.numpy(), local).copy()
                    for remote, local in zip(self._set.outputs, self._outputs, strict=True)
                ]
        except ServerLost as error:
            raise ProgramFailed(f"its results were lost: {error}") from error

    def is_within(self, references: Sequence[Array], bounds: Sequence[Array]) -> bool:
        """Compare on the server: results are large, and the way from it may be slow."""
        try:
            return self._program.arrays.are_within(self._set, references, bounds)
        except ServerLost as error:
            raise ProgramFailed(f"its results were lost: {error}") from error

    def poison(self) -> None:
        """Fill the outputs on the server with NaN, or with numbers that are as conspicuous."""

        def fill() -> None:
            self._load()
            # A program that failed may have written to inputs unnoticed.
            self._program.arrays.at(self._inputs, self._outputs)
            probe = self._session.probe()
            with self._session.talking():
                probe["autotune_poison"](*self._set.outputs)

        self._again(fill)

    def _again(self, step: Callable[[], None]) -> None:
        """Do what runs nothing of a candidate's, on another server if need be."""
        why = ""
        try:
            for _ in range(_MOST_SERVERS):
                try:
                    return step()
                except ServerLost as error:
                    why = str(error)
        except TrackerError as error:
            why = str(error)
        end_process(why)


def _owner(array: Array) -> Array:
    """The array that owns the memory of a view.

    What is at an address belongs to another task as soon as that of an earlier one is freed.
    """
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _as(array: Array, like: Array) -> Array:
    """The bytes of an array that TVM made, as the type that the host has for them."""
    return array if array.dtype == like.dtype else array.view(like.dtype)
