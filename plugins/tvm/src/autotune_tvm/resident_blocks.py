"""Number of blocks that a multiprocessor is to hold, as an attribute of TVM's kernels.

See :mod:`autotune.lower.resident_blocks`.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.ir import IRModule

from autotune.backends import KernelLaunch
from autotune.ir.element_types import element_type
from autotune.lower.resident_blocks import resident_blocks
from autotune.targets import Target
from autotune_tvm.passes.statements import nodes_in

__all__ = ["REGISTERS", "with_resident_blocks"]

REGISTERS = "pragma_autotune_registers"
"""Annotation of the loop over threads: how many registers each of them needs."""

_RESIDENT = "tirx.launch_bounds_min_blocks_per_sm"


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
        if launch is None or not needed:
            continue
        shared = launch.shared_bytes + _static_shared_bytes(function.body)
        resident = resident_blocks(launch.grid, launch.block, needed, shared, target)
        if resident:
            functions[variable] = function.with_attr(_RESIDENT, resident)
    return IRModule(functions, attrs=kernels.attrs)


def _noted_registers(body: Any) -> int:
    found = (it for it in nodes_in(body, tirx.AttrStmt) if str(it.attr_key) == REGISTERS)
    return max((int(it.value) for it in found), default=0)


def _static_shared_bytes(body: Any) -> int:
    found = 0
    for it in nodes_in(body, tirx.AllocBuffer):
        if str(it.buffer.scope()) == "shared":
            name, _, lanes = str(it.buffer.dtype).partition("x")
            extents = [int(extent) for extent in it.buffer.shape]
            found += element_type(name).bytes * int(lanes or 1) * math.prod(extents)
    return found
