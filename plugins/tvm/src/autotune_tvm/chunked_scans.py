"""Scans in parts, as step ``chunk_scan`` has them, in the program before it is scheduled.

The block of a scan becomes three: one that scans each part, one that scans their last results, and
one that combines both point by point, in the loops of the scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.ir import IRModule, Range
from tvm.s_tir import SBlock, SBlockRealize

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import Candidate, ChunkScan, carried_name, scanned_parts_name
from autotune_tvm.blocks import Block
from autotune_tvm.passes.statements import (
    at,
    blocks,
    region_at,
    replaced,
    with_bodies,
    with_fields,
)
from autotune_tvm.scans import COMBINE, Continuation, continuation, scan_block

__all__ = ["with_chunked_scans"]


def with_chunked_scans(
    module: IRModule, candidate: Candidate, workload: Workload, known: Mapping[str, Block]
) -> IRModule:
    """The same program with the scans in parts that a candidate has in parts.

    Args:
        module: One function ``main``.
        candidate: Sketch and configuration.
        workload: What the function computes.
        known: The block that computes each stage, where it is not called as the stage is.

    Returns:
        ``module`` itself where there is none.

    Raises:
        InvalidSchedule: a block does not scan as its stage says.
    """
    for step in candidate.sketch.core_steps:
        if isinstance(step, ChunkScan):
            stage = workload.stage(step.stage)
            block = Block.of(stage, known)
            chunked = partial(_with_chunks, block=block, stage=stage, chunks=step.chunks)
            module = with_bodies(module, chunked)
    return module


def _with_chunks(body: Any, block: Block, stage: Stage, chunks: int) -> Any:
    """The body of a function with three nests in the place of one."""
    root = body.block
    nests = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    made: list[Any] = []
    buffers = list(root.alloc_buffers)
    for nest in nests:
        (found,) = blocks(nest)
        if str(found.name_hint) != block.name:
            made.append(nest)
            continue
        scan = _Scan.of(found, block.variable_axes, stage, chunks)
        buffers += [scan.parts, scan.carried]
        made += [scan.scanned_parts(), scan.scanned_ends(), scan.combined(nest)]
    changed = with_fields(root, body=tirx.SeqStmt(made), alloc_buffers=buffers)
    return SBlockRealize([], True, changed)


@frozen(eq=False)
class _Scan:
    """A block that scans, and what takes its place.

    Attributes:
        block: The block.
        own: Its variables, in the order of the stage's axes.
        along: Position of the one that it scans along.
        how: How it continues.
        value: What each element adds.
        extents: Of the stage's axes.
        chunks: Number of parts.
        parts: The buffer of the scanned parts.
        carried: The buffer of what each part continues.
    """

    block: Any
    own: tuple[Any, ...]
    along: int
    how: Continuation
    value: Any
    extents: tuple[int, ...]
    chunks: int
    parts: Any
    carried: Any

    @classmethod
    def of(cls, block: Any, axes: Sequence[str], stage: Stage, chunks: int) -> _Scan:
        """Read a block whose variables are these axes of a stage."""
        found = continuation(block)
        if found is None:
            raise InvalidSchedule(f"chunk_scan: block {block.name_hint} does not scan")
        how, value = found
        names = [axis.name for axis in stage.axes]
        own = tuple(block.iter_vars[axes.index(name)].var for name in names)
        extents = tuple(axis.extent for axis in stage.axes)
        along = next(place for place, axis in enumerate(stage.axes) if axis is stage.scan_axis)
        length, dtype = extents[along] // chunks, str(block.body.buffer.dtype)
        before, behind = extents[:along], extents[along + 1 :]
        parts, carried = scanned_parts_name(stage.name), carried_name(stage.name)
        return cls(
            *(block, own, along, how, value, extents, chunks),
            tirx.decl_buffer((chunks, *before, length, *behind), dtype, parts),
            tirx.decl_buffer((chunks, *before, *behind), dtype, carried),
        )

    @property
    def length(self) -> int:
        """Elements of a part."""
        return self.extents[self.along] // self.chunks

    def scanned_parts(self) -> Any:
        """The loops in which each part is scanned by itself."""
        chunk, *inner = self._fresh(["chunk", *(str(it.name) for it in self.own)])
        values = [
            chunk * self.length + var if place == self.along else var
            for place, var in enumerate(inner)
        ]
        own, others = list(self.own), self.block.reads
        reads = [
            region_at(region, own, values)
            for region in others
            if not region.source.same_as(self.block.body.buffer)
        ]
        extents = list(self.extents)
        extents[self.along] = self.length
        how = Continuation(self.along + 1, self.how.combiner, self.how.start)
        value = at(self.value, own, values)
        return self._nest(self.parts, [chunk, *inner], [self.chunks, *extents], reads, value, how)

    def scanned_ends(self) -> Any:
        """The loops that scan the last results of the parts before each."""
        names = [str(it.name) for place, it in enumerate(self.own) if place != self.along]
        chunk, *others = self._fresh(["chunk", *names])
        one = self._number(1)
        ends = list(others)
        ends.insert(self.along, self._number(self.length - 1))
        last = tirx.BufferLoad(self.parts, [chunk - one, *ends])
        value = tirx.if_then_else(chunk >= one, last, self.how.start)
        reads = [_element(self.parts, [tirx.max(chunk - one, self._number(0)), *ends])]
        extents = [it for place, it in enumerate(self.extents) if place != self.along]
        how = Continuation(0, self.how.combiner, self.how.start)
        variables, extents = [chunk, *others], [self.chunks, *extents]
        return self._nest(self.carried, variables, extents, reads, value, how)

    def combined(self, nest: Any) -> Any:
        """The loops of the scan, in which its elements are combined of both."""
        along = self.own[self.along]
        length = self._number(self.length)
        chunk, inside = tirx.floordiv(along, length), tirx.floormod(along, length)
        within = [inside if it.same_as(along) else it for it in self.own]
        others = [it for it in self.own if not it.same_as(along)]
        places = ((self.carried, [chunk, *others]), (self.parts, [chunk, *within]))
        carried, part = (tirx.BufferLoad(buffer, indices) for buffer, indices in places)
        store = tirx.BufferStore(
            self.block.body.buffer,
            COMBINE[self.how.combiner](carried, part),
            list(self.block.body.indices),
        )
        block = SBlock(
            [tirx.IterVar(it.dom, it.var, tirx.IterVar.DataPar) for it in self.block.iter_vars],
            [_element(buffer, indices) for buffer, indices in places],
            self.block.writes,
            str(self.block.name_hint),
            store,
        )

        def changed(node: Any) -> Any | None:
            if not isinstance(node, SBlockRealize):
                return None
            return SBlockRealize(node.iter_values, node.predicate, block)

        return replaced(nest, changed)

    def _nest(
        self,
        buffer: Any,
        variables: list[Any],
        extents: list[int],
        reads: list[Any],
        value: Any,
        how: Continuation,
    ) -> Any:
        """Loops around a block that scans, and stores each element at its variables."""
        zero = self._number(0)
        axes = [
            tirx.IterVar(
                Range.from_min_extent(zero, self._number(extent)), var, tirx.IterVar.DataPar
            )
            for var, extent in zip(variables, extents, strict=True)
        ]
        store = tirx.BufferStore(buffer, value, variables)
        plain = SBlock(axes, reads, [_element(buffer, variables)], str(buffer.name), store)
        loops = self._fresh([f"{var.name}_loop" for var in variables])
        nest: Any = SBlockRealize(loops, True, scan_block(plain, how))
        for loop, extent in reversed(list(zip(loops, extents, strict=True))):
            nest = tirx.For(loop, zero, self._number(extent), tirx.ForKind.SERIAL, nest)
        return nest

    def _fresh(self, names: Sequence[str]) -> list[Any]:
        return [tirx.Var(name, self.own[self.along].ty) for name in names]

    def _number(self, value: int) -> Any:
        return tirx.const(value, str(self.own[self.along].ty.dtype))


def _element(buffer: Any, indices: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buffer, [Range.from_min_extent(index, 1) for index in indices])
