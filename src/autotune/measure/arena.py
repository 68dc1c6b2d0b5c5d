"""Memory in which the programs of a task run, at places that are chosen and not accidental."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.backends import ALIGNMENT
from autotune.backends.backend import Array
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Tensor, Workload

__all__ = ["Arena"]

_PAGE = 4096
_HUGE_PAGE = 2 << 20
# From this size on numpy asks for huge pages for an array.
_HUGE_FROM = 4 << 20
# Placements of small arrays lie in pages of their own; those of large ones overlap.
_MOST_SPREAD = 32 << 20
# Fills what lies between arrays, to notice that it was written to.
_FENCE = 0xA7
_CHUNK = 1 << 20


class Arena:
    """Block of memory with several placements of a workload's arrays in it.

    How fast a program is depends on where its arrays lie: on their distances modulo a page, and on
    which physical pages share sets of the caches. The system chooses both for each process.
    Here a seed chooses the places within pages, and each placement has pages of its own as long as
    these are not many: a median over placements is that of the program and not that of a place.

    One placement is in use at a time, because they may overlap: the one placed last.

    Args:
        workload: Names, shapes and types of the arrays.
        inputs: What they contain, in the workload's order; kept, never written to.
        placements: How many.
        seed: What the places depend on.

    Raises:
        InvalidValueError: there is no placement, or an input is missing or has another shape or
            type.
        MemoryError: there is not enough memory.
    """

    def __init__(
        self, workload: Workload, inputs: Sequence[Array], *, placements: int = 1, seed: int = 0
    ) -> None:
        if placements < 1:
            raise InvalidValueError(f"an arena has at least one placement, not {placements}")
        _check(workload, inputs)
        self._pristine = [_bytes(np.ascontiguousarray(array)) for array in inputs]
        tensors = workload.tensors
        self._tensors = [*workload.inputs, *(tensors[name] for name in workload.outputs)]
        sizes = [tensor.bytes for tensor in self._tensors]
        self._begins, self._ends = _places(sizes, placements, seed)
        self._memory = _memory(int(self._ends.max()), huge=sum(sizes) >= _HUGE_FROM)
        self._current: int | None = None

    @property
    def placements(self) -> int:
        """Number of placements."""
        return len(self._begins)

    def place(self, number: int) -> tuple[list[Array], list[Array]]:
        """Put fresh inputs at a placement, which is then the one in use.

        Args:
            number: Which placement, from 0.

        Returns:
            Inputs and outputs in the workload's order, each aligned and contiguous. They are views
            of the arena's memory. What the outputs contain is undefined.

        Raises:
            InvalidValueError: there is no such placement.
        """
        if number not in range(self.placements):
            raise InvalidValueError(
                f"placements are numbered from 0 to {self.placements - 1}, not {number}"
            )
        self._current = number
        for _, gap in self._gaps(number):
            gap.fill(_FENCE)
        self.restore(number)
        arrays = [self._array(number, position) for position in range(len(self._tensors))]
        return arrays[: len(self._pristine)], arrays[len(self._pristine) :]

    def restore(self, number: int) -> None:
        """Put fresh inputs at the placement in use.

        Raises:
            InvalidValueError: another one is in use.
        """
        self._require_current(number)
        for position, pristine in enumerate(self._pristine):
            np.copyto(self._slice(number, position), pristine)

    def changed(self, number: int) -> str | None:
        """Describe what a program wrote to that it may only read, at the placement in use.

        Returns:
            None, or a phrase such as ``"input 'A' was changed"`` or ``"memory beside 'C' was
            written to"``, which is up to a page beyond an array.

        Raises:
            InvalidValueError: another one is in use.
        """
        self._require_current(number)
        for position, pristine in enumerate(self._pristine):
            if not _equal(self._slice(number, position), pristine):
                return f"input {self._tensors[position].name!r} was changed"
        for name, gap in self._gaps(number):
            if not (gap == _FENCE).all():
                return f"memory beside {name!r} was written to"
        return None

    def _slice(self, number: int, position: int) -> NDArray[np.uint8]:
        begin = int(self._begins[number, position])
        return self._memory[begin : begin + self._tensors[position].bytes]

    def _array(self, number: int, position: int) -> Array:
        tensor: Tensor = self._tensors[position]
        return self._slice(number, position).view(tensor.element.dtype).reshape(tensor.shape)

    def _gaps(self, number: int) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Bytes before each array and after it, with its name."""
        ends = self._ends[number].tolist()
        for position, tensor in enumerate(self._tensors):
            begin = int(self._begins[number, position])
            before = ends[position - 1] if position else begin - ALIGNMENT
            yield tensor.name, self._memory[before:begin]
            end = begin + tensor.bytes
            yield tensor.name, self._memory[end : ends[position]]

    def _require_current(self, number: int) -> None:
        if number != self._current:
            raise InvalidValueError(f"placement {self._current} is in use, not {number}")


def _check(workload: Workload, inputs: Sequence[Array]) -> None:
    if len(inputs) != len(workload.inputs):
        raise InvalidValueError(
            f"workload {workload.name!r} has {len(workload.inputs)} inputs, got {len(inputs)}"
        )
    for tensor, array in zip(workload.inputs, inputs, strict=True):
        if array.shape != tensor.shape or array.dtype != tensor.element.dtype:
            raise InvalidValueError(
                f"input {tensor.name!r} is {tensor.dtype} of shape {tensor.shape}, "
                f"got {array.dtype} of shape {array.shape}"
            )


def _places(
    sizes: Sequence[int], placements: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Beginnings of arrays, and ends of what belongs to each: [placements, arrays], in bytes.

    An array begins in a page that nothing before it touches, at a random line of it, and at least
    a line lies before it and after it.
    """
    lines = _lines(placements, len(sizes), seed)
    # To the next page after a line that is left free, then to a line of that page.
    begins = np.empty((placements, len(sizes)), np.int64)
    ends = np.empty_like(begins)
    last = np.zeros(placements, np.int64)
    for position, size in enumerate(sizes):
        begins[:, position] = _up(last + ALIGNMENT, _PAGE) + lines[:, position] * ALIGNMENT
        last = ends[:, position] = _up(begins[:, position] + size, ALIGNMENT) + ALIGNMENT
    footprint = int(_up(last, _PAGE).max())
    step = min(footprint, _MOST_SPREAD // max(1, placements - 1) // _PAGE * _PAGE)
    starts = np.arange(placements, dtype=np.int64)[:, None] * step
    return begins + starts, ends + starts


def _lines(placements: int, arrays: int, seed: int) -> NDArray[np.int64]:
    """The line of its page that each array begins at: [placements, arrays].

    A randomly shifted additive recurrence (Roberts' generalisation of the golden ratio). Unlike
    independent draws, a few placements already spread each array evenly over the lines of a page,
    and so they do the distances between any two, which decide whether these collide.
    """
    ratio = 2.0
    for _ in range(64):  # the root of x**(arrays + 1) == x + 1
        ratio = (1.0 + ratio) ** (1.0 / (arrays + 1))
    steps = ratio ** -np.arange(1.0, arrays + 1)
    shifts = np.random.default_rng(seed).random(arrays)
    points = (np.arange(placements)[:, None] * steps + shifts) % 1.0
    return np.asarray(points * (_PAGE // ALIGNMENT), np.int64)


def _up(values: NDArray[np.int64], multiple: int) -> NDArray[np.int64]:
    return -(-values // multiple) * multiple


def _memory(size: int, *, huge: bool) -> NDArray[np.uint8]:
    """Private memory from a boundary of huge pages on, which are asked for as numpy does."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        block = mmap.mmap(-1, size + _HUGE_PAGE, flags=flags)
    except OSError as error:
        raise MemoryError(f"no {size} bytes for the arrays of a task: {error}") from error
    if huge:
        block.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(block, np.uint8)
    begin = -memory.ctypes.data % _HUGE_PAGE
    return memory[begin : begin + size]


def _bytes(array: Array) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _equal(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> bool:
    """Return whether the bytes are the same: NaN equals itself. In parts, to need no memory."""
    return all(
        bool((first[at : at + _CHUNK] == second[at : at + _CHUNK]).all())
        for at in range(0, len(first), _CHUNK)
    )
