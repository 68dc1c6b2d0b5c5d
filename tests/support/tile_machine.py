"""The tile registers of AMX, emulated: for programs whose instructions are calls of functions.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, the pages of
``LDTILECFG``, ``TILELOADD``, ``TILESTORED``, ``TILEZERO``, ``TDPB*`` and ``TDPBF16PS``.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune.sketches.intrinsics.tile_registers import REQUEST

_REGISTERS, _ROWS, _ROW_BYTES = 8, 16, 64
_BYTE, _WORD, _POINTER = ctypes.c_uint8, ctypes.c_int64, ctypes.c_void_p
_MOVE = (_BYTE, _POINTER, _WORD)
_PRODUCT = (_BYTE, _BYTE, _BYTE)

INTRINSICS: dict[str, tuple[Any, ...]] = {
    "ldtilecfg": (_POINTER,),
    "tilerelease": (),
    "tilezero": (_BYTE,),
    "tileloadd64": _MOVE,
    "tilestored64": _MOVE,
    "tdpbssd": _PRODUCT,
    "tdpbusd": _PRODUCT,
    "tdpbf16ps": _PRODUCT,
}
"""Types of the arguments of what programs call, by LLVM's names without ``llvm.x86.``."""


@cache
def has_tiles() -> bool:
    """Tell if Linux gives a process the tile registers: another one, which need not ask again."""
    asking = f"import ctypes; print(ctypes.CDLL(None).syscall{REQUEST})"
    done = subprocess.run([sys.executable, "-c", asking], capture_output=True, check=True)
    return int(done.stdout) == 0


@define
class _Thread:
    """Registers of a thread, all of them [registers, rows, bytes], and their configuration.

    Attributes:
        tiles: What they hold.
        rows: Rows of each; none without a configuration.
        row_bytes: Bytes of the rows of each.
    """

    tiles: NDArray[np.uint8] = field(
        factory=lambda: np.zeros((_REGISTERS, _ROWS, _ROW_BYTES), np.uint8)
    )
    rows: tuple[int, ...] = ()
    row_bytes: tuple[int, ...] = ()


class TileMachine:
    """Functions that programs call in place of instructions.

    Exceptions cannot leave such a function: what the processor would not do is among ``faults``.

    Args:
        grants: Whether a process that asks for the registers is given them.
    """

    def __init__(self, *, grants: bool = True) -> None:
        self.counts: Counter[str] = Counter()
        """Number of calls of each."""
        self.faults: list[str] = []
        """Faults so far."""
        self.asked: list[tuple[int, ...]] = []
        """System calls that were made."""
        self._grants = grants
        self._given = False
        self._threads: dict[int, _Thread] = {}
        self._lock = threading.Lock()
        made = {
            name: ctypes.CFUNCTYPE(None, *kinds)(self._checked(name))
            for name, kinds in INTRINSICS.items()
        }
        syscall = ctypes.CFUNCTYPE(_WORD, _WORD, _WORD, _WORD)(self._syscall)
        self.functions: dict[str, Any] = {**made, "syscall": syscall}
        """Functions of C by name."""

    @property
    def addresses(self) -> dict[str, int]:
        """Addresses of the functions."""
        return {
            name: int(ctypes.cast(function, ctypes.c_void_p).value or 0)
            for name, function in self.functions.items()
        }

    def _syscall(self, *words: int) -> int:
        self.asked.append(words)
        self._given = self._grants
        return 0 if self._grants else -1

    def _checked(self, name: str) -> Callable[..., None]:
        run = {
            "ldtilecfg": self._configure,
            "tilerelease": self._release,
            "tilezero": self._zero,
            "tileloadd64": self._load,
            "tilestored64": self._store,
        }.get(name)

        def call(*arguments: int) -> None:
            with self._lock:
                self.counts[name] += 1
                thread = self._threads.setdefault(threading.get_ident(), _Thread())
                try:
                    self._check(name, thread, arguments)
                    if run is None:
                        self._multiply(name, thread, *arguments)
                    else:
                        run(thread, *arguments)
                except Exception as error:
                    self.faults.append(f"{name}{arguments}: {error}")

        return call

    def _check(self, name: str, thread: _Thread, arguments: tuple[int, ...]) -> None:
        if not self._given:
            raise ValueError("the process has not been given the registers")
        if name not in ("ldtilecfg", "tilerelease"):
            if not thread.rows:
                raise ValueError("the registers are not configured")
            registers = arguments if INTRINSICS[name] == _PRODUCT else arguments[:1]
            if len(set(registers)) < len(registers) or max(registers) >= _REGISTERS:
                raise ValueError("these are no distinct registers")

    def _configure(self, thread: _Thread, place: int) -> None:
        layout = np.frombuffer(ctypes.string_at(place, 64), np.uint8)
        if layout[0] != 1 or layout[1:16].any() or layout[32:48].any() or layout[56:].any():
            raise ValueError("this is no configuration of palette 1")
        thread.row_bytes = tuple(int(it) for it in layout[16:32].view(np.uint16))
        thread.rows = tuple(int(it) for it in layout[48:56])
        if max(thread.rows) > _ROWS or max(thread.row_bytes) > _ROW_BYTES:
            raise ValueError("registers are not that large")
        thread.tiles[:] = 0

    def _release(self, thread: _Thread) -> None:
        thread.rows = thread.row_bytes = ()
        thread.tiles[:] = 0

    def _zero(self, thread: _Thread, register: int) -> None:
        thread.tiles[register] = 0

    def _load(self, thread: _Thread, register: int, place: int, stride: int) -> None:
        thread.tiles[register] = 0
        size = thread.row_bytes[register]
        for row in range(thread.rows[register]):
            found = ctypes.string_at(place + row * stride, size)
            thread.tiles[register, row, :size] = np.frombuffer(found, np.uint8)

    def _store(self, thread: _Thread, register: int, place: int, stride: int) -> None:
        size = thread.row_bytes[register]
        for row in range(thread.rows[register]):
            data = thread.tiles[register, row, :size].tobytes()
            ctypes.memmove(place + row * stride, data, size)

    def _multiply(self, name: str, thread: _Thread, sums: int, left: int, right: int) -> None:
        rows, columns = thread.rows[sums], thread.row_bytes[sums] // 4
        depth = thread.row_bytes[left] // 4
        if (thread.rows[left], thread.rows[right]) != (rows, depth):
            raise ValueError("rows of the registers do not fit")
        if thread.row_bytes[right] != thread.row_bytes[sums]:
            raise ValueError("columns of the registers do not fit")
        data = thread.tiles[left, :rows, : depth * 4]
        weights = thread.tiles[right, :depth, : columns * 4]
        floats = name == "tdpbf16ps"
        first, second = (_elements(name, it, at) for at, it in enumerate((data, weights)))
        size = first.shape[1] // depth
        made = np.einsum(
            "mkg,kng->mn",
            first.reshape(rows, depth, size),
            second.reshape(depth, columns, size),
        )
        kind = np.float32 if floats else np.int32
        held = thread.tiles[sums, :rows, : columns * 4].copy().view(kind)
        total = (held + made).astype(kind)
        thread.tiles[sums] = 0
        thread.tiles[sums, :rows, : columns * 4] = total.view(np.uint8)


def _elements(name: str, rows: NDArray[np.uint8], factor: int) -> NDArray[Any]:
    """Numbers in the rows of a factor: the first or the second one."""
    rows = np.ascontiguousarray(rows)
    if name == "tdpbf16ps":
        return (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    signed = name == "tdpbssd" or factor == 1
    return rows.view(np.int8 if signed else np.uint8).astype(np.int32)
