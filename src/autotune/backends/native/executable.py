"""Compiled programs, bound to arrays and called on pools of threads."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from attrs import asdict, frozen
from numpy.typing import DTypeLike, NDArray

from autotune import _native
from autotune.backends.arrays import ALIGNMENT, aligned_empty, check_arguments, poison_array
from autotune.backends.backend import BoundCall, BuildFailed, Executable
from autotune.backends.native.machine_code import LoadedCode, digest_of, load_object
from autotune.backends.native_call import NativeCall, NativeCallFailed, time_native_call
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload
from autotune.lower import Program
from autotune.sketches.intrinsics.tile_registers import REFUSED, REQUEST

__all__ = [
    "Code",
    "Launch",
    "Layout",
    "NativeExecutable",
    "NestExecutable",
    "Packed",
    "Scratch",
    "ask_for_tiles",
    "launch_on",
    "read_program",
]


@frozen
class Launch:
    """The means of a program to start tasks; both are 0 where it runs them itself.

    Attributes:
        function: Address of ``void launch(pool, task, arrays, count)``.
        pool: Its first argument.
    """

    function: int = 0
    pool: int = 0


def launch_on(threads: int) -> Launch:
    """The pool of this process with so many threads, made on first use; none for one thread."""
    if threads < 2:
        return Launch()
    return Launch(_native.launcher(), _pool(threads, os.getpid()).address)


@lru_cache(maxsize=8)
def _pool(threads: int, process: int) -> _native.ThreadPool:
    """A pool whose threads belong to this process: those of its parent are not in a child."""
    return _native.ThreadPool(threads)


Array = NDArray[Any]

_MAGIC = b"autotune native program 1\n"


@frozen
class Scratch:
    """Memory that a program needs beside its arguments.

    Attributes:
        shape: Its extents.
        dtype: Its element type.
        private: Whether every thread has its own.
    """

    shape: tuple[int, ...]
    dtype: str
    private: bool

    def bytes(self, threads: int) -> int:
        """Its size, whole cache lines."""
        size = prod(self.shape) * element_type(self.dtype).bytes
        return -(-size // ALIGNMENT) * ALIGNMENT * (threads if self.private else 1)


@frozen
class Packed:
    """A form of a constant that is made when a program is bound.

    Attributes:
        entry: The function that makes it; one makes all of a constant.
        position: Of the constant among the inputs.
        scratch: Number of the scratch memory that holds it.
    """

    entry: str
    position: int
    scratch: int


@frozen
class Layout:
    """Memory that a program needs beside its inputs and outputs.

    Attributes:
        scratch: Memory.
        packed: Buffers of it that hold packed constants.
        uses_tiles: Whether its process has to ask for the tile registers of AMX.
    """

    scratch: tuple[Scratch, ...]
    packed: tuple[Packed, ...]
    uses_tiles: bool

    @staticmethod
    def of(program: Program, workload: Workload) -> Layout:
        """The layout of a printed program."""
        inputs = [tensor.name for tensor in workload.inputs]
        names = [place.name for place in program.scratch]
        return Layout(
            tuple(Scratch(it.shape, it.dtype, it.depth > 0) for it in program.scratch),
            tuple(
                Packed(entry, inputs.index(operand), names.index(place.name))
                for entry, operand, place in program.packed
            ),
            program.uses_tiles,
        )

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Layout:
        """The layout that :meth:`to_json` gave.

        Raises:
            TypeError, KeyError, ValueError: it is none.
        """
        scratch = tuple(
            Scratch(tuple(item["shape"]), item["dtype"], item["private"])
            for item in data["scratch"]
        )
        packed = tuple(Packed(**item) for item in data["packed"])
        return Layout(scratch, packed, bool(data["uses_tiles"]))

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @property
    def entries(self) -> list[str]:
        """Names of the functions that are called."""
        return [*dict.fromkeys(packed.entry for packed in self.packed), "run"]


class Code(Protocol):
    """Machine code in this process."""

    @property
    def digest(self) -> str:
        """Of the machine code."""

    def address(self, name: str) -> int:
        """The address of a function."""


class NestExecutable(Executable):
    """A compiled program of a loop nest.

    Args:
        code: Its machine code.
        layout: Its arrays.
        workload: Its inputs and outputs.
        threads: How many it uses.
    """

    def __init__(self, code: Code, layout: Layout, workload: Workload, threads: int = 1) -> None:
        self.digest = code.digest
        self._code = code
        self._layout = layout
        self._workload = workload
        self._threads = threads
        self._constants = PackedConstants()

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        """Run on these arrays, where they lie; constants that the program takes packed are packed.

        Raises:
            InvalidValueError: the arrays are not those of the workload, or not aligned.
            NativeCallFailed: it uses tile registers, and the system does not give them.
        """
        check_arguments(self._workload, inputs, outputs)
        if self._layout.uses_tiles:
            ask_for_tiles()
        scratch, memory = self._memory()
        given, copies = [*inputs, *outputs], []
        for entry, group in groupby(self._layout.packed, lambda it: it.entry):
            packed = [*group]
            made = self._pack(entry, packed, given, scratch)
            for item, array in zip(packed, made, strict=True):
                scratch[item.scratch] = array.ctypes.data
            copies += made
        call = self._call("run", given, scratch, (memory, copies))
        return NativeBoundCall(call, outputs, copies)

    def _memory(self) -> tuple[list[int], Array]:
        """Addresses of all scratch memory, and what holds it; packed constants have their own."""
        own = {packed.scratch for packed in self._layout.packed}
        sizes = [
            0 if number in own else scratch.bytes(self._threads)
            for number, scratch in enumerate(self._layout.scratch)
        ]
        # A line between two buffers: of equal sizes, they would share all their cache sets.
        memory = aligned_empty((sum(sizes) + ALIGNMENT * (len(sizes) + 1),), "uint8")
        memory.fill(0)
        addresses, at = [], memory.ctypes.data
        for size in sizes:
            addresses.append(at)
            at += size + ALIGNMENT
        return addresses, memory

    def _pack(
        self, entry: str, packed: Sequence[Packed], given: list[Array], scratch: list[int]
    ) -> list[Array]:
        """Arrays that an entry makes of a constant."""

        def pack(made: list[Array]) -> None:
            addresses = list(scratch)
            for item, array in zip(packed, made, strict=True):
                addresses[item.scratch] = array.ctypes.data
            time_native_call(self._call(entry, given, addresses, made), 1)

        wanted = [self._layout.scratch[item.scratch] for item in packed]
        arrays = [(it.shape, element_type(it.dtype).dtype) for it in wanted]
        position = packed[0].position
        return self._constants.packed(position, given[position], arrays, pack)

    def _call(
        self, entry: str, arrays: list[Array], scratch: list[int], keeps: object
    ) -> NativeCall:
        addresses = [*(array.ctypes.data for array in arrays), *scratch]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        return NativeCall(
            address=self._code.address(entry),
            arguments=(ctypes.addressof(pointers), *self._starts_tasks()),
            keeps=(self._code, tuple(arrays), pointers, keeps),
        )

    def _starts_tasks(self) -> tuple[int, ...]:
        """Arguments by which an entry starts tasks, behind the addresses of its arrays."""
        return ()


class NativeExecutable(NestExecutable):
    """A program of LLVM IR.

    Args:
        code: Its machine code.
        layout: Its arrays.
        workload: Its inputs and outputs.
        threads: How many it uses.
    """

    def __init__(self, code: LoadedCode, layout: Layout, workload: Workload, threads: int) -> None:
        super().__init__(code, layout, workload, threads)
        self._loaded = code

    def _starts_tasks(self) -> tuple[int, ...]:
        launch = launch_on(self._threads)
        return launch.function, launch.pool

    def export(self, path: Path) -> None:
        """Write the object file behind a line with its digest and the arrays that it needs.

        Raises:
            BuildFailed: the file cannot be written.
        """
        head = json.dumps({**self._layout.to_json(), "digest": self._loaded.digest}).encode()
        try:
            path.write_bytes(b"%b%b\n%b" % (_MAGIC, head, self._loaded.object))
        except OSError as error:
            raise BuildFailed(f"{path} cannot be written: {error.strerror}") from error


def ask_for_tiles() -> None:
    """Ask Linux for the tile registers, without which it kills who uses them.

    Threads and forked processes inherit the permission.

    Raises:
        NativeCallFailed: it does not give them.
    """
    if ctypes.CDLL(None).syscall(*map(ctypes.c_long, REQUEST)) != 0:
        raise NativeCallFailed(REFUSED)


def read_program(path: Path, workload: Workload, threads: int) -> NativeExecutable:
    """The program in a file of :meth:`NativeExecutable.export`.

    Raises:
        BuildFailed: the file is no such program, or cannot be loaded here.
    """
    try:
        data = path.read_bytes()
        head, separator, code = data.removeprefix(_MAGIC).partition(b"\n")
        if not data.startswith(_MAGIC) or not separator:
            raise ValueError("it does not begin as one")
        about = json.loads(head)
        layout = Layout.from_json(about)
        # LLVM trusts object files: a damaged one would end this process.
        if about["digest"] != digest_of(code):
            raise ValueError("its machine code is damaged")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BuildFailed(f"{path.name} is no program of backend 'native': {error}") from error
    return NativeExecutable(load_object(code, layout.entries), layout, workload, threads)


def _nothing() -> None:
    pass


class NativeBoundCall(BoundCall):
    """A program that is one C function, with its arguments.

    Calls raise ``NativeCallFailed`` where the program says that it failed.

    Args:
        call: Of the function on its arrays.
        outputs: Those of them that it writes, in the workload's order.
        copies: Those that it reads which hold packed inputs.
        prepare: Prepares the calling thread.
    """

    def __init__(
        self,
        call: NativeCall,
        outputs: Sequence[Array],
        copies: Sequence[Array] = (),
        prepare: Callable[[], object] = _nothing,
    ) -> None:
        self._call = call
        self._outputs = tuple(outputs)
        self._copies = tuple(copies)
        self._prepare = prepare

    def native(self) -> NativeCall:
        """See :meth:`BoundCall.native`."""
        self._prepare()
        return self._call

    def run(self) -> None:
        """Run once."""
        time_native_call(self.native(), 1)

    def time(self, number: int) -> float:
        """Seconds per call, averaged over ``number`` calls."""
        return time_native_call(self.native(), number)

    def outputs(self) -> list[Array]:
        """Copies of the outputs, in the workload's order."""
        return [output.copy() for output in self._outputs]

    def copies(self) -> list[Array]:
        """The packed constants that it reads."""
        return list(self._copies)

    def poison(self) -> None:
        """Fill the outputs with NaN, or with the smallest integer."""
        for output in self._outputs:
            poison_array(output)


class PackedConstants:
    """Constants of a program as they were packed last.

    Bindings to the same numbers share it, for weights may be large.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, list[Array]]] = {}

    def packed(
        self,
        position: int,
        constant: Array,
        arrays: Sequence[tuple[Sequence[int], DTypeLike]],
        pack: Callable[[list[Array]], None],
    ) -> list[Array]:
        """The arrays that are packed of a constant.

        Args:
            position: Of the constant among the tensors of the program.
            constant: Its elements, in row-major order.
            arrays: Shape and element type of each array that is packed of it.
            pack: Writes them, where these elements were not packed last.
        """
        digest = hashlib.blake2b(constant.reshape(-1).view(np.uint8).data).digest()
        known = self._known.get(position)
        if known is None or known[0] != digest:
            made = [aligned_empty(shape, dtype) for shape, dtype in arrays]
            for array in made:
                # Elements that nothing writes are read by none that matters, and are no NaN.
                array.reshape(-1).view(np.uint8).fill(0)
            pack(made)
            known = self._known[position] = digest, made
        return known[1]
