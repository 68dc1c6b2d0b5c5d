"""32-bit loops and indices in imported programs that have 64-bit ones."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import IRModule

from autotune_tvm.blocks import nests_of, read_function
from autotune_tvm.emit import ENTRY

__all__ = ["narrow_indices"]


def narrow_indices(scheduled: IRModule, original: IRModule) -> IRModule:
    """A scheduled program with 32-bit loops and indices, where everything in it fits.

    Relax makes 64-bit ones. They are narrowed when everything is scheduled, so that schedules
    are made of the imported program itself.

    Args:
        scheduled: What a schedule made of ``original``.
        original: The imported program.
    """
    variables = [loop.loop_var for nest in nests_of(original[ENTRY]) for loop in nest.loops]
    if all(str(variable.ty.dtype) == "int32" for variable in variables):
        return scheduled
    reading = read_function(original[ENTRY])
    tensors = (*reading.parameters, *(block.stage.output for block in reading.blocks))
    if any(tensor.dtype == "int64" or tensor.elements >= 1 << 31 for tensor in tensors):
        return scheduled
    return tirx.transform.ForceNarrowIndexToInt32()(scheduled)
