"""Number of blocks that a multiprocessor is to hold, said to the compiler of a kernel.

Where that is not said, ptxas gives kernels on tensor cores few registers, so that more blocks fit:
it loads fragments right before the products that read them, in whatever order the source has the
two. With a number of blocks it takes the registers that these leave, and loads a step ahead.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.ir import IRModule
from tvm_ffi import structural_walk

from autotune.backends import KernelLaunch
from autotune.ir.element_types import element_type
from autotune.targets import Target

__all__ = ["REGISTERS", "with_resident_blocks"]

REGISTERS = "pragma_autotune_registers"
"""Annotation of the loop over threads: how many registers each of them needs."""

_RESIDENT = "tirx.launch_bounds_min_blocks_per_sm"
# What blocks share, of a target.
_SHARED = (
    "multiprocessors",
    "max_blocks_per_multiprocessor",
    "max_threads_per_multiprocessor",
    "registers_per_multiprocessor",
    "shared_memory_per_multiprocessor",
)
# Registers are given to threads by eights, and shared memory to blocks with so many bytes more.
_REGISTER_UNIT, _RESERVED_SHARED = 8, 1024


def with_resident_blocks(
    kernels: IRModule, launches: tuple[KernelLaunch, ...], target: Target
) -> IRModule:
    """Kernels that say how many of their blocks fit a multiprocessor, where registers are noted.

    Args:
        kernels: Functions of the device.
        launches: How they are launched.
        target: What the blocks share; a target that does not say it has the kernels as they are.
    """
    by_name = {launch.kernel: launch for launch in launches}
    functions = {}
    for variable, function in kernels.functions.items():
        functions[variable] = function
        launch = by_name.get(variable.name_hint)
        needed = _noted_registers(function.body)
        if launch is None or not needed or not all(getattr(target, name) for name in _SHARED):
            continue
        shared = launch.shared_bytes + _static_shared_bytes(function.body)
        resident = _resident(launch, needed, shared, target)
        functions[variable] = function.with_attr(_RESIDENT, resident)
    return IRModule(functions, attrs=kernels.attrs)


def _noted_registers(body: Any) -> int:
    found = (it for it in _nodes(body, tirx.AttrStmt) if str(it.attr_key) == REGISTERS)
    return max((int(it.value) for it in found), default=0)


def _nodes(body: Any, kind: type[Any]) -> list[Any]:
    found: list[Any] = []
    structural_walk(body, (kind, found.append))
    return found


def _static_shared_bytes(body: Any) -> int:
    found = 0
    for it in _nodes(body, tirx.AllocBuffer):
        if str(it.buffer.scope()) == "shared":
            name, _, lanes = str(it.buffer.dtype).partition("x")
            extents = [int(extent) for extent in it.buffer.shape]
            found += element_type(name).bytes * int(lanes or 1) * math.prod(extents)
    return found


def _resident(launch: KernelLaunch, registers: int, shared: int, target: Target) -> int:
    """Blocks that a multiprocessor holds, of those there are; at least one."""
    threads = math.prod(launch.block)
    held = math.ceil(registers / _REGISTER_UNIT) * _REGISTER_UNIT
    limits = (
        math.ceil(math.prod(launch.grid) / target.multiprocessors),
        target.max_blocks_per_multiprocessor,
        target.max_threads_per_multiprocessor // threads,
        target.registers_per_multiprocessor // (held * threads),
        target.shared_memory_per_multiprocessor // (shared + _RESERVED_SHARED),
    )
    return max(1, min(limits))
