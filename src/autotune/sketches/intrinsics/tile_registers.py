"""The tile registers of AMX, as programs of every backend use them.

Eight registers of up to 16 rows of 64 bytes belong to each thread, which configures them. Linux
lets a process use them only when it has asked for them; threads and forked processes inherit that.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter "Advanced
Matrix Extensions"; Linux, Documentation/arch/x86/xstate.rst.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType

from attrs import frozen

from autotune.ir.element_types import element_type
from autotune.sketches.intrinsics.intrinsic import Intrinsic

__all__ = [
    "LEFT",
    "REFUSED",
    "REQUEST",
    "RIGHT",
    "ROWS",
    "ROW_BYTES",
    "SUMS",
    "TileCall",
    "configuration",
]

ROWS = 16
"""The most rows of a register."""

ROW_BYTES = 64
"""Bytes of a row."""

SUMS = (0, 1, 2, 3)
"""The registers of sums: two for every block of rows."""

LEFT = (4, 5)
"""Blocks of rows of the left factor."""

RIGHT = (6, 7)
"""Halves of the right factor, whose rows are groups."""

REQUEST = (158, 0x1023, 18)
"""The system call that asks for the registers, ``arch_prctl``, and its arguments,
``ARCH_REQ_XCOMP_PERM`` and ``XFEATURE_XTILEDATA``; it returns 0 where they are given."""

REFUSED = (
    "Linux does not give this process the tile registers (AMX) that the program was built for"
)
"""Error where they are not."""

_REGISTERS = 8
# By types of the factors.
_PRODUCTS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("uint8", "int8"): "tdpbusd",
        ("int8", "int8"): "tdpbssd",
        ("bfloat16", "bfloat16"): "tdpbf16ps",
    }
)


@frozen
class TileCall:
    """Use of the registers by a call of a declared instruction.

    Rows that fit one register are one block, others are two: a product takes as many cycles as it
    has rows, but the right factor is loaded for every block.

    Attributes:
        product: The instruction that multiplies two registers, such as ``"tdpbusd"``.
        rows: Rows of the call.
        blocks: How many blocks they are.
        steps: How often 64 bytes of a row are multiplied.
        group: Elements of the right factor that lie together, of as many rows of it.
    """

    product: str
    rows: int
    blocks: int
    steps: int
    group: int

    @classmethod
    def of(cls, intrinsic: Intrinsic) -> TileCall:
        """The call of a declaration, one of those whose names begin with ``amx``."""
        dtypes = intrinsic.left.dtype, intrinsic.right.dtype
        size = element_type(dtypes[0]).bytes
        rows, depth = intrinsic.spatial_axes[0].extent, intrinsic.reduce_axes[0].extent
        blocks = 1 if rows <= ROWS else 2
        group = intrinsic.right.layout[-1][1]
        return cls(_PRODUCTS[dtypes], rows, blocks, depth * size // ROW_BYTES, group)

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return self.rows // self.blocks

    @property
    def registers(self) -> int:
        """Registers of sums."""
        return 2 * self.blocks


def configuration(rows: int) -> bytes:
    """The 64 bytes that ``ldtilecfg`` reads: palette 1, and rows of 64 bytes in all registers.

    Args:
        rows: Of the registers of sums and of the left factor; those of the right one have 16.
    """
    layout = bytearray(64)
    layout[0] = 1
    for register in range(_REGISTERS):
        struct.pack_into("<H", layout, 16 + 2 * register, ROW_BYTES)
        layout[48 + register] = ROWS if register in RIGHT else rows
    return bytes(layout)
