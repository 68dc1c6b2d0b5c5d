"""A schedule under construction: what the loops and blocks of its stages are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from tvm import s_tir
from tvm.ir import IRModule

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload
from autotune.sketches import Step, WarpTensorize
from autotune_tvm.blocks import Block
from autotune_tvm.pad import PaddedBlock

__all__ = ["THREAD_TAGS", "FetchedCopy", "ScheduleState", "WarpLoops"]

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
