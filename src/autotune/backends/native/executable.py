"""Compiled programs, bound to arrays and called on pools of threads."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from attrs import frozen
from numpy.typing import DTypeLike, NDArray

from autotune import _native
from autotune.backends.arrays import ALIGNMENT, aligned_empty, check_arguments, poison_array
from autotune.backends.backend import BoundCall, BuildFailed, Executable
from autotune.backends.native.machine_code import LoadedCode, digest_of, load_object
from autotune.backends.native_call import NativeCall, NativeCallFailed, time_native_call
from autotune.errors import AutotuneError
from autotune.ir.converter import JsonForm
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
    "Part",
    "Scratch",
    "ScratchMemory",
    "ask_for_tiles",
    "launch_on",
    "pack_constant",
    "read_program",
    "table_of",
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
    """A constant in other forms, which are made before a program runs.

    Attributes:
        entry: The function that makes all of them.
        position: Of the constant among the inputs.
        scratch: Numbers of the scratch memory that holds them.
    """

    entry: str
    position: int
    scratch: tuple[int, ...]


@frozen
class Part:
    """The place of a buffer in scratch memory: at ``fixed + each * threads`` bytes.

    Attributes:
        position: Of the buffer among the arrays of the program.
        fixed: Bytes.
        each: Bytes.
    """

    position: int
    fixed: int
    each: int


@frozen
class ScratchMemory:
    """Scratch memory of a program, of ``fixed + each * threads`` bytes.

    Attributes:
        parts: Where buffers lie in it.
        fixed: Bytes.
        each: Bytes for each thread.
    """

    parts: tuple[Part, ...]
    fixed: int
    each: int

    def bytes(self, threads: int) -> int:
        """Its size."""
        return self.fixed + self.each * threads


@frozen
class Layout(JsonForm):
    """Memory that a program needs beside its inputs and outputs.

    Attributes:
        scratch: Memory.
        packed: Constants that are packed in parts of it.
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
        packed = []
        for (entry, operand), group in groupby(program.packed, lambda it: it[:2]):
            scratch = tuple(names.index(place.name) for _, _, place in group)
            packed.append(Packed(entry, inputs.index(operand), scratch))
        return Layout(
            tuple(Scratch(it.shape, it.dtype, it.depth > 0) for it in program.scratch),
            tuple(packed),
            program.uses_tiles,
        )

    def memory(self, first: int) -> ScratchMemory:
        """Places of the buffers that hold no packed constants.

        There is a line between two: of equal sizes, they would share cache sets.

        Args:
            first: Position of the first scratch buffer among the arrays of the program.
        """
        packed = {number for it in self.packed for number in it.scratch}
        parts, fixed, each = [], 0, 0
        for number, scratch in enumerate(self.scratch):
            if number in packed:
                continue
            parts.append(Part(first + number, fixed, each))
            fixed += ALIGNMENT + (0 if scratch.private else scratch.bytes(1))
            each += scratch.bytes(1) if scratch.private else 0
        return ScratchMemory(tuple(parts), fixed, each)

    @property
    def entries(self) -> list[str]:
        """Names of the functions that are called."""
        return [*(packed.entry for packed in self.packed), "run"]


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
        arrays = [*inputs, *outputs]
        first = len(arrays)
        needed = self._layout.memory(first)
        memory = aligned_empty((needed.bytes(self._threads),), "uint8")
        memory.fill(0)
        addresses = [array.ctypes.data for array in arrays] + [0] * len(self._layout.scratch)
        for part in needed.parts:
            offset = part.fixed + part.each * self._threads
            addresses[part.position] = memory.ctypes.data + offset
        copies: list[Array] = []
        for packed in self._layout.packed:
            made = self._packed(packed, inputs[packed.position], first)
            for number, array in zip(packed.scratch, made, strict=True):
                addresses[first + number] = array.ctypes.data
            copies += made
        table = table_of(addresses)
        call = NativeCall(
            address=self._code.address("run"),
            arguments=(ctypes.addressof(table), *self._starts_tasks()),
            keeps=(self._code, arrays, table, memory, copies),
        )
        return NativeBoundCall(call, outputs, copies)

    def _packed(self, packed: Packed, constant: Array, first: int) -> list[Array]:
        """Arrays that are made of a constant."""
        wanted = [self._layout.scratch[number] for number in packed.scratch]
        arrays = [(it.shape, element_type(it.dtype).dtype) for it in wanted]

        def pack(made: list[Array]) -> None:
            starts_tasks = self._starts_tasks()
            pack_constant(self._code, packed, first, [constant, *made], starts_tasks)

        return self._constants.packed(packed.position, constant, arrays, pack)

    def _starts_tasks(self) -> tuple[int, ...]:
        """Arguments by which an entry starts tasks, behind the addresses of its arrays."""
        return ()


def table_of(addresses: Sequence[int]) -> Any:
    """An array of addresses that a program reads; there is one in it at least."""
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)


def pack_constant(
    code: Code,
    packed: Packed,
    first: int,
    arrays: Sequence[Array],
    starts_tasks: tuple[int, ...] = (0, 0),
) -> None:
    """Call what packs a constant.

    Args:
        code: Machine code of the program.
        packed: The constant.
        first: Position of the first scratch buffer among the program's arrays.
        arrays: The constant, and what is made of it.
        starts_tasks: Arguments by which the function starts tasks.
    """
    positions = [packed.position, *(first + number for number in packed.scratch)]
    addresses = [0] * (max(positions) + 1)
    for position, array in zip(positions, arrays, strict=True):
        addresses[position] = array.ctypes.data
    table = table_of(addresses)
    arguments = (ctypes.addressof(table), *starts_tasks)
    time_native_call(NativeCall(code.address(packed.entry), arguments, (table, arrays)), 1)


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
        # LLVM trusts object files: a damaged one would end this process.
        if about.pop("digest") != digest_of(code):
            raise ValueError("its machine code is damaged")
        layout = Layout.from_json(about)
    except (AttributeError, AutotuneError, OSError, ValueError, TypeError, KeyError) as error:
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
