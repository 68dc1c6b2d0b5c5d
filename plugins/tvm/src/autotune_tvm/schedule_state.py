"""A schedule under construction: what the loops and blocks of its stages are, and their padding.

TVM's own ``pad_einsum`` pads a block whose declared reads are at single variables; convolutions
read windows. Here every operand that depends on a padded axis first gets a copy that is padded
on its own (a copy does read at single variables), and while the block itself is padded, its reads
are declared at a trivial place. Everything is recorded in the schedule's trace, so the
schedule can be replayed without this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from attrs import define, field, frozen
from tvm import s_tir, tirx
from tvm.ir import IRModule

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import Step, WarpTensorize
from autotune_tvm.blocks import Block

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


__all__ = [
    "FetchedCopy",
    "PaddedBlock",
    "ScheduleState",
    "THREAD_TAGS",
    "WarpLoops",
    "declare_read",
    "pad_block",
    "undeclare_reads",
]

THREAD_TAGS = {
    "block": "blockIdx.x",
    "vthread": "vthread.x",
    "thread_y": "threadIdx.y",
    "thread": "threadIdx.x",
}
"""The levels of a GPU by the roles of loops, as TVM calls them."""

_LOCAL_TAGS = {THREAD_TAGS[role] for role in ("vthread", "thread_y", "thread")}


@frozen(eq=False)
class WarpLoops:
    """Loops made by splitting the block of a stage for the lanes of a warp.

    Attributes:
        write: The block that writes what threads collected.
        inner: The loops of one instruction, by axis, outermost first.
    """

    write: Any
    inner: Mapping[str, Sequence[Any]]


@frozen(eq=False)
class FetchedCopy:
    """A copy of an operand in shared memory.

    Attributes:
        block: The block that makes it.
        region: Extents of what is copied.
        at: The loop of the stage inside which it is made.
        vector_bytes: What a thread copies at a time.
        allocated_bytes: What it takes in memory.
    """

    block: Any
    region: tuple[int, ...]
    at: str
    vector_bytes: int
    allocated_bytes: int


@define(eq=False)
class ScheduleState:
    """Schedule under construction: blocks by statement, loops by stage and loop name.

    ``placed`` says where the buffers that hold the results of stages are: inside which loop, given
    by its stage and its name. ``bound`` says whether any loop is bound to a level of a GPU;
    ``fetched`` which operands are copied to shared memory, by stage, and ``layouts`` the order of
    their dimensions where it is another, ``rows`` the bytes of rows that
    the copy engine swizzles. ``warps`` holds the stages that warps compute together.
    ``matrices`` says which block copies the result of a stage that is a product of matrices to
    where it belongs, and ``reshaped`` which stages have other axes than their blocks.
    """

    workload: Workload
    config: Mapping[str, int]
    known: dict[str, Block]
    sch: Any = None
    current: Step | None = None
    blocks: dict[str, Any] = field(factory=dict)
    loops: dict[tuple[str, str], Any] = field(factory=dict)
    padded: dict[str, PaddedBlock] = field(factory=dict)
    order: dict[str, tuple[str, ...]] = field(factory=dict)
    placed: dict[str, tuple[str, str]] = field(factory=dict)
    bound: bool = False
    fetched: dict[tuple[str, str], FetchedCopy] = field(factory=dict)
    layouts: dict[tuple[str, str], tuple[int, ...]] = field(factory=dict)
    rows: dict[tuple[str, str], int] = field(factory=dict)
    warps: dict[str, WarpLoops] = field(factory=dict)
    warp_calls: list[WarpTensorize] = field(factory=list)
    matrices: dict[str, Any] = field(factory=dict)
    reshaped: set[str] = field(factory=set)

    def value(self, expression: IntExpr) -> int:
        """The value of an expression for the candidate's parameters."""
        return int(evaluate(expression, self.config))

    def start(self, module: IRModule) -> None:
        """Find the blocks, and bring their loops and variables into the stages' order."""
        self.sch = s_tir.Schedule(module)
        for stage in self.workload.stages:
            read = Block.of(stage, self.known)
            block = self.sch.get_sblock(read.name)
            self.blocks[stage.name] = block
            self._sort_axes(block, [axis.name for axis in stage.axes], read)

    def _sort_axes(self, block: Any, names: list[str], read: Block) -> None:
        order = [read.loop_axes.index(name) for name in names]
        if order != sorted(order):
            loops = self.sch.get_loops(block)
            self.sch.reorder(*(loops[position] for position in order))
        order = [read.variable_axes.index(name) for name in names]
        if order != sorted(order):
            self.sch.reorder_block_iter_var(block, order)

    def name_loops(self) -> None:
        """Name the loops of every stage after its axes, unless they have names already."""
        named = {stage for stage, _ in self.loops}
        for stage, block in self.blocks.items():
            if stage not in named and stage not in self.reshaped:
                self.name_axes(stage, self.sch.get_loops(block))

    def name_axes(self, stage: str, loops: list[Any]) -> None:
        """Name loops after the axes of a stage, one each."""
        axes = self.workload.stage(stage).axes
        for axis, loop in zip(axes, loops, strict=True):
            self.loops[stage, f"{axis.name}.0"] = loop

    def split(self, stage: str, axis: str, factors: Sequence[int]) -> None:
        """Split the one loop of an axis into ``AXIS.0``, ``AXIS.1``, ..., outermost first."""
        loop = self.loops.pop((stage, f"{axis}.0"))
        inner = self.warps[stage].inner[axis] if stage in self.warps else ()
        outer = factors[: len(factors) - len(inner)]
        parts = self.sch.split(loop, outer, preserve_unit_iters=True)
        for level, part in enumerate((*parts, *inner)):
            self.loops[stage, f"{axis}.{level}"] = part

    def fuse(self, stage: str, names: tuple[str, ...]) -> Any:
        """The loop that results from fusing loops of a stage, which all its names then mean."""
        loops = [self.loops[stage, name] for name in names]
        fused = self.sch.fuse(*loops, preserve_unit_iters=True)
        for name in names:
            self.loops[stage, name] = fused
        return fused

    def loops_inside(self, block: Any, loop: Any) -> list[Any]:
        """Loops around ``block`` that lie inside ``loop``."""
        loops = list(self.sch.get_loops(block))
        outer = self.sch.get(loop).loop_var
        for position, candidate in enumerate(loops):
            if self.sch.get(candidate).loop_var.same_as(outer):
                return loops[position + 1 :]
        raise InvalidSchedule(f"{self.current}: the statement is not inside the loop")

    def buffer_of(self, tensor: str) -> str:
        """Name of the buffer that holds ``tensor`` in the module."""
        if tensor in self.padded:
            # Its block writes what is padded, of which this is the part that others read.
            return str(self.sch.get(self.padded[tensor].write).writes[0].source.name)
        if tensor in self.blocks:
            return str(self.sch.get(self.blocks[tensor]).writes[0].source.name)
        return tensor

    def read_position(self, block: Any, buffer: str) -> int:
        """Position of a buffer among those that a block reads."""
        names = [read.source.name for read in self.sch.get(block).reads]
        return names.index(buffer)

    def scope_inside(self, stage: str, at: str) -> str:
        """The memory of a buffer that is allocated inside loop ``at`` of ``stage``."""
        innermost = self.loops[stage, at]
        inside = len(self.loops_inside(self.blocks[stage], innermost))
        loops = self.sch.get_loops(self.blocks[stage])
        tags = {self.tag(loop) for loop in loops[: len(loops) - inside]}
        if tags & _LOCAL_TAGS:
            return "local"
        return "shared" if THREAD_TAGS["block"] in tags else "global"

    def tag(self, loop: Any) -> str:
        """The level of a GPU that a loop is bound to, as TVM calls it; empty when to none."""
        binding = self.sch.get(loop).thread_binding
        return "" if binding is None else str(binding.thread_tag)
