"""Programs of CUDA kernels as data: machine code and how it is launched.

Nothing of a compiler is needed to run one. It travels to the process that owns a device as JSON.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from autotune.backends.backend import Array, BoundCall, Executable
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.sketches.copy_engine import MOST_BOX_EXTENT, MOST_DIMENSIONS, SWIZZLED_ROW_BYTES

__all__ = ["CudaExecutable", "CudaProgram", "DeviceBuffer", "KernelLaunch", "TensorMap"]

_MOST_EXTENT = 2**32 - 1
_MAPPED_BYTES = {"int8": 1, "uint8": 1, "float16": 2, "bfloat16": 2}
# Of a launch in x, y and z, and of all threads of a block ("Technical Specifications per Compute
# Capability" of CUDA's guide).
_MOST_BLOCKS, _MOST_THREADS = (2**31 - 1, 65535, 65535), (1024, 1024, 64)
_MOST_IN_BLOCK = 1024


@frozen
class DeviceBuffer:
    """Memory that a program needs beside the tensors of its workload.

    Attributes:
        name: What launches call it.
        bytes: Its size.
        is_float: Whether it holds floating-point numbers, so that NaN can poison it.
    """

    name: str
    bytes: int
    is_float: bool


@frozen
class TensorMap:
    """A tensor as the copy engine of the device needs it: boxes of it are copied to shared memory.

    Attributes:
        buffer: Name of the buffer that holds the tensor, row by row.
        dtype: Type of its elements.
        shape: Its extents.
        box: Extents of what one copy moves; the last one is 32, 64 or 128 bytes, whose parts of 16
            bytes are exchanged by the engine's pattern for rows of so many bytes.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    box: tuple[int, ...]


@frozen
class KernelLaunch:
    """A launch of a kernel.

    Attributes:
        kernel: Name of the kernel in the machine code.
        grid: Blocks in x, y and z.
        block: Threads of a block in x, y and z.
        shared_bytes: Dynamic shared memory of a block.
        arguments: Names of the buffers that it takes, in its order, as pointers.
        maps: Descriptors of tensors, its parameters behind the pointers.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[str, ...]
    maps: tuple[TensorMap, ...] = ()


@frozen
class CudaProgram:
    """Machine code for one architecture, and its launches in order.

    Attributes:
        cubin: The machine code.
        launches: What is launched, in order.
        intermediates: Buffers that are no tensors of the workload.
        fast_math: Whether it was compiled with ``--use_fast_math``.
    """

    cubin: bytes = field(repr=False)
    launches: tuple[KernelLaunch, ...]
    intermediates: tuple[DeviceBuffer, ...] = ()
    fast_math: bool = False

    @property
    def digest(self) -> str:
        """Of the machine code and the launches."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON; the machine code is in base 64."""
        return {
            "cubin": base64.b64encode(self.cubin).decode("ascii"),
            "fast_math": self.fast_math,
            "launches": [
                {
                    "kernel": launch.kernel,
                    "grid": list(launch.grid),
                    "block": list(launch.block),
                    "shared_bytes": launch.shared_bytes,
                    "arguments": list(launch.arguments),
                    # Programs without descriptors have the digests that they had.
                    **({"maps": [_map_to_json(it) for it in launch.maps]} if launch.maps else {}),
                }
                for launch in self.launches
            ],
            "intermediates": [
                {"name": it.name, "bytes": it.bytes, "is_float": it.is_float}
                for it in self.intermediates
            ],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CudaProgram:
        """Read what :meth:`to_json` gave.

        Raises:
            InvalidValueError: it is something else, or a launch is out of range.
        """
        try:
            return CudaProgram(
                base64.b64decode(data["cubin"], validate=True),
                tuple(_launch(launch) for launch in data["launches"]),
                tuple(
                    DeviceBuffer(str(it["name"]), _whole(it["bytes"], 2**48), bool(it["is_float"]))
                    for it in data["intermediates"]
                ),
                bool(data["fast_math"]),
            )
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise InvalidValueError(f"this is no program of CUDA kernels: {error}") from error


class CudaExecutable(Executable):
    """A program that another process, which owns a device, runs."""

    def __init__(self, program: CudaProgram) -> None:
        self.program = program
        self.digest = program.digest

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        """Refused: arrays of the host are not what it runs on.

        Raises:
            UnsupportedTarget: always.
        """
        raise UnsupportedTarget(
            "a CUDA program is run by the measurer's device process, not on arrays of the host"
        )


def _launch(data: Mapping[str, Any]) -> KernelLaunch:
    grid, block = _three(data["grid"], _MOST_BLOCKS), _three(data["block"], _MOST_THREADS)
    if math.prod(block) > _MOST_IN_BLOCK:
        raise ValueError(f"a block of {block} threads")
    shared = _whole(data["shared_bytes"], 2**20, least=0)
    arguments = tuple(str(name) for name in data["arguments"])
    maps = tuple(_map(it) for it in data.get("maps", ()))
    return KernelLaunch(str(data["kernel"]), grid, block, shared, arguments, maps)


def _map_to_json(known: TensorMap) -> dict[str, Any]:
    return {
        "buffer": known.buffer,
        "dtype": known.dtype,
        "shape": list(known.shape),
        "box": list(known.box),
    }


def _map(data: Mapping[str, Any]) -> TensorMap:
    shape = tuple(_whole(extent, _MOST_EXTENT) for extent in data["shape"])
    box = tuple(_whole(extent, MOST_BOX_EXTENT) for extent in data["box"])
    if len(shape) != len(box) or not 2 <= len(shape) <= MOST_DIMENSIONS:
        raise ValueError(f"a box of {len(box)} dimensions of {len(shape)}")
    dtype = str(data["dtype"])
    if dtype not in _MAPPED_BYTES or box[-1] * _MAPPED_BYTES[dtype] not in SWIZZLED_ROW_BYTES:
        raise ValueError(f"a box with rows of {box[-1]} elements of {dtype}")
    return TensorMap(str(data["buffer"]), dtype, shape, box)


def _three(values: Any, most: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, z = (_whole(value, limit) for value, limit in zip(values, most, strict=True))
    return x, y, z


def _whole(value: Any, most: int, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is no whole number from {least} to {most}")
    return value
