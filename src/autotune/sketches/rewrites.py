"""Rewrites of the workload by steps that change more than loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve, frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    const,
    substitute,
    var,
)
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches.steps import ChunkReduction, ChunkScan, SplitReduction, Step


def partial_name(stage: str) -> str:
    """Name of the stage that computes the partial results of a split reduction."""
    return f"{stage}_partial"


def lane_axis(axis: str) -> str:
    """Name of the axis over the partial results."""
    return f"{axis}_lane"


def chunk_axis(axis: str) -> str:
    """Name of the axis over the results of consecutive parts."""
    return f"{axis}_chunk"


def scanned_parts_name(stage: str) -> str:
    """Name of the stage that scans the parts of a scan, each by itself."""
    return f"{stage}_parts"


def carried_name(stage: str) -> str:
    """Name of the stage with the result of all parts before each."""
    return f"{stage}_carried"


def added_axis(step: SplitReduction | ChunkReduction) -> str:
    """Name of the axis that a step adds, over what it combines at the end."""
    chunked = isinstance(step, ChunkReduction)
    return chunk_axis(step.axis) if chunked else lane_axis(step.axis)


def is_uneven(workload: Workload, step: SplitReduction) -> bool:
    """Return whether the lanes of a split do not divide its axis."""
    return workload.stage(step.stage).axis(step.axis).extent % step.lanes != 0


def is_indexed(stage: Stage) -> bool:
    """Tell if a reduction computes with an index of an axis that it reduces, as of an argmax."""
    reduced = {axis.name for axis in stage.reduce_axes}
    return any(
        isinstance(node, IndexValue) and reduced & set(node.index.variables)
        for node in walk(stage.body)
    )


def lane_splits(
    workload: Workload, steps: Iterable[Step]
) -> Iterator[tuple[Workload, SplitReduction]]:
    """Each step that splits a reduction into lanes, with the workload that it is applied to."""
    for step in steps:
        if isinstance(step, SplitReduction):
            yield workload, step
        if isinstance(step, (SplitReduction, ChunkReduction)):
            workload = split_reduction(workload, step)


def neutral_element(stage: Stage) -> Constant:
    """Value that a reduction may combine without changing its result."""
    return Constant(stage.identity(), stage.output.dtype)


def _typed(workload: Workload, stage: Stage, body: ScalarExpr) -> ScalarExpr:
    """Body that a stage combines, in the type of its output."""
    types = {workload.tensors[read.tensor].dtype for read in stage.accesses}
    return body if types == {stage.output.dtype} else Cast(stage.output.dtype, body)


def split_reduction(workload: Workload, step: SplitReduction | ChunkReduction) -> Workload:
    """The workload with the stage split in two: partial results, then their reduction.

    Where the lanes do not divide the axis, the last ones have no element in the last round, and
    combine the neutral one.

    Raises:
        InvalidValueError: the axis is not reduced over, the chunks do not divide it, or there are
            more lanes than elements.
    """
    stage = workload.stage(step.stage)
    axis = stage.axis(step.axis)
    if isinstance(step, ChunkReduction):
        parts, noun = step.chunks, "chunks"
    else:
        parts, noun = step.lanes, "lanes"
    chunked = isinstance(step, ChunkReduction)
    fits = axis.extent % parts == 0 if chunked and parts > 0 else parts <= axis.extent
    if axis.kind != "reduce" or parts < 1 or not fits:
        raise InvalidValueError(
            f"cannot split axis {axis.name!r} of stage {stage.name!r}: "
            f"{parts} {noun} of a {axis.kind} axis of extent {axis.extent}"
        )
    lane, length = added_axis(step), -(-axis.extent // parts)
    if chunked:
        position = var(lane) * length + var(axis.name)
    else:
        position = var(axis.name) * parts + var(lane)
    body = substitute(stage.body, {axis.name: position})
    if axis.extent % parts:
        inside = Binary("lt", IndexValue(position), Constant(axis.extent, "int32"))
        body = Select(inside, _typed(workload, stage, body), neutral_element(stage))
    shape = (parts, *stage.output.shape)
    partial = Stage(
        Tensor(partial_name(stage.name), shape, stage.output.dtype),
        (
            Axis(lane, parts),
            *(evolve(other, extent=length) if other is axis else other for other in stage.axes),
        ),
        body,
        stage.combiner,
    )
    names = (lane, *(other.name for other in stage.spatial_axes))
    final = Stage(
        stage.output,
        (Axis(lane, parts, "reduce"), *stage.spatial_axes),
        Load(partial.name, tuple(var(name) for name in names)),
        stage.combiner,
    )
    stages = [
        part
        for other in workload.stages
        for part in ((partial, final) if other.name == stage.name else (other,))
    ]
    return evolve(workload, stages=tuple(stages))


def chunk_scan(workload: Workload, step: ChunkScan) -> Workload:
    """The workload with a scan in three stages: its parts, what each continues, and all results.

    For ``Y`` along ``t`` in parts of ``l``, these are the scan ``Y_parts[c, ..., t]`` of what
    ``Y`` combines at ``c * l + t``; the scan ``Y_carried[c, ...]`` of the last results of the
    parts before ``c``; and ``Y[..., t]``, point by point, what ``Y_carried`` at ``t // l`` and
    ``Y_parts`` at ``t // l`` and ``t % l`` combine to.

    Raises:
        InvalidValueError: the stage does not scan, or the chunks do not divide its axis.
    """
    stage = workload.stage(step.stage)
    axis = stage.scan_axis
    if axis is None or stage.combiner is None or step.chunks < 1 or axis.extent % step.chunks:
        along = "no axis" if axis is None else f"an axis of extent {axis.extent}"
        raise InvalidValueError(f"{step}: stage {stage.name!r} scans along {along}")
    scan = _ChunkedScan(stage, axis, step.chunks, stage.combiner)
    made = (scan.parts, scan.carried, scan.combined)
    stages = [
        part
        for other in workload.stages
        for part in (made if other.name == stage.name else (other,))
    ]
    return evolve(workload, stages=tuple(stages))


@frozen
class _ChunkedScan:
    """The three stages of :func:`chunk_scan`.

    Attributes:
        stage: What scans.
        axis: Along which.
        chunks: Into how many parts.
        combiner: Of the stage.
    """

    stage: Stage
    axis: Axis
    chunks: int
    combiner: str

    @property
    def parts(self) -> Stage:
        """The scan of each part, by itself."""
        axes, length = self.stage.axes, self._length
        shape = tuple(length if other is self.axis else other.extent for other in axes)
        position = var(self._chunk) * length + var(self.axis.name)
        return Stage(
            self._tensor(scanned_parts_name(self.stage.name), shape),
            (
                Axis(self._chunk, self.chunks),
                *(evolve(other, extent=length) if other is self.axis else other for other in axes),
            ),
            substitute(self.stage.body, {self.axis.name: position}),
            self.combiner,
        )

    @property
    def carried(self) -> Stage:
        """Values that each part continues: the scan of the last results of those before."""
        shape = tuple(other.extent for other in self._others)
        last = self._read_parts(var(self._chunk) - 1, const(self._length - 1))
        is_later = Binary("ge", IndexValue(var(self._chunk)), IndexValue(const(1)))
        return Stage(
            self._tensor(carried_name(self.stage.name), shape),
            (Axis(self._chunk, self.chunks, "scan"), *self._others),
            Select(is_later, last, neutral_element(self.stage)),
            self.combiner,
        )

    @property
    def combined(self) -> Stage:
        """All results, point by point."""
        own, inside = var(self.axis.name) // self._length, var(self.axis.name) % self._length
        continued = (own, *(var(other.name) for other in self._others))
        return Stage(
            self.stage.output,
            tuple(evolve(other, kind="spatial") for other in self.stage.axes),
            Binary(
                self.combiner,
                Load(carried_name(self.stage.name), continued),
                self._read_parts(own, inside),
            ),
        )

    @property
    def _chunk(self) -> str:
        return chunk_axis(self.axis.name)

    @property
    def _length(self) -> int:
        return self.axis.extent // self.chunks

    @property
    def _others(self) -> list[Axis]:
        return [other for other in self.stage.axes if other is not self.axis]

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return Tensor(name, (self.chunks, *shape), self.stage.output.dtype)

    def _read_parts(self, chunk: IntExpr, position: IntExpr) -> Load:
        inside = (position if other is self.axis else var(other.name) for other in self.stage.axes)
        return Load(scanned_parts_name(self.stage.name), (chunk, *inside))
