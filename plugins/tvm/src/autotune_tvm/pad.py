"""Padding the iteration space of a block with schedule primitives.

TVM's own ``pad_einsum`` pads a block whose declared reads are at single variables; convolutions
read windows. Here every operand that depends on a padded axis first gets a copy that is padded
on its own (a copy does read at single variables), and while the block itself is padded, its reads
are declared at a trivial place. Everything is recorded in the schedule's trace, so the
schedule can be replayed without this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from attrs import frozen
from tvm import tirx

from autotune.ir.workloads import Stage

__all__ = ["PaddedBlock", "declare_read", "pad_block", "undeclare_reads"]

_READ = 0
_EXPLICIT_READS = "explicit_read_region"


@frozen
class PaddedBlock:
    """The blocks that padding added.

    Attributes:
        copies: By operand, the block that fills its zero-extended copy.
        write: The block that copies the result back, without what lies beyond its extents.
        extents: Extents of the block's axes, padding included.
    """

    copies: Mapping[str, Any]
    write: Any
    extents: Mapping[str, int]


def pad_block(
    sch: Any,
    block: Any,
    stage: Stage,
    extents: Mapping[str, int],
    buffers: Mapping[str, str],
) -> PaddedBlock:
    """Pad axes of one block, so that it runs over more than its result without predicates.

    Args:
        sch: A schedule in which nothing was done to the block.
        block: The block, a plain loop nest.
        stage: What the block computes; its axes are the block's variables, in order.
        extents: New extent, larger than its own, by axis name.
        buffers: Name of the buffer that holds each tensor.
    """
    full = {**stage.extents, **extents}
    shapes = _operand_shapes(stage, set(extents), full)
    copies, behind = {}, []
    for operand, shape in shapes.items():
        copy, narrow = _padded_copy(sch, block, buffers.get(operand, operand), shape)
        copies[operand] = copy
        behind.extend(narrow)
    regions = [read.region for read in sch.get(block).reads]
    for position, region in enumerate(regions):
        declare_read(sch, block, position, [0, 1] * len(region))
    sch.pad_einsum(block, [full[axis.name] for axis in stage.axes])
    for position, region in enumerate(regions):
        bounds = [bound for item in region for bound in (item.min, item.min + item.extent)]
        declare_read(sch, block, position, bounds)
    undeclare_reads(sch, block)
    for narrow in behind:
        sch.compute_inline(narrow)
    if any(axis.name in extents for axis in stage.spatial_axes):
        (write,) = sch.get_consumers(block)
    else:
        write = sch.cache_write(block, 0, "global")
    return PaddedBlock(copies, write, full)


def _operand_shapes(
    stage: Stage, grown: set[str], extents: dict[str, int]
) -> dict[str, list[int]]:
    """Distance that the padded block reads, for every operand that depends on a padded axis."""
    shapes: dict[str, list[int]] = {}
    for load in stage.loads:
        forms = stage.forms(load)
        if any(axis in form.axes for form in forms for axis in grown):
            # Padded axes are not divided: such an index moves as before.
            reach = [1 if form.terms else form.bounds(extents)[1] + 1 for form in forms]
            before = shapes.get(load.tensor, reach)
            shapes[load.tensor] = [max(pair) for pair in zip(before, reach, strict=True)]
    return shapes


def _padded_copy(sch: Any, block: Any, buffer: str, reach: list[int]) -> tuple[Any, list[Any]]:
    """Copy an operand into a buffer of at least the shape ``reach``, with zeros beyond its end.

    Returns:
        The copying block, and a block behind it (if there is one) that the padded copy is to be
        read around: inlining it is possible when ``block`` has been padded.
    """
    reads = sch.get(block).reads
    position = [str(read.source.name) for read in reads].index(buffer)
    own = [int(extent) for extent in reads[position].source.shape]
    copy = sch.cache_read(block, position, "global", [block])
    shape = [max(pair) for pair in zip(own, reach, strict=True)]
    if shape == own:
        return copy, []
    sch.pad_einsum(copy, shape)
    (extended,) = sch.get_producers(copy)
    (narrow,) = sch.get_consumers(copy)
    sch.compute_inline(extended)
    return copy, [narrow]


def undeclare_reads(sch: Any, block: Any) -> None:
    """Let TVM find out again what a block reads, after :func:`declare_read`."""
    sch.unannotate(block, _EXPLICIT_READS)


def declare_read(sch: Any, block: Any, position: int, bounds: list[Any]) -> None:
    """Say which region of its n-th operand a block reads: begin and end of every dimension."""
    own = [item.var for item in sch.get(block).iter_vars]
    # Written traces call blocks and loops b0, l1 and so on, and variables must not be.
    fresh = [tirx.Var(f"axis_{index}", var.ty) for index, var in enumerate(own)]
    bounds = tirx.IndexMap(own, bounds, None).map_indices(fresh)
    declare = tvm.get_global_func("s_tir.schedule.ScheduleAnnotateBufferAccess")
    declare(sch, block, position, _READ, tirx.IndexMap(fresh, bounds, None))
