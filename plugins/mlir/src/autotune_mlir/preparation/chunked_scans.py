"""Scans in parts, as step ``chunk_scan`` has them, in the program before its schedule.

The operation of a scan becomes three: one that scans each part, one that scans what each part
continues, and one that continues all of them. Parts are a dimension of what these read and write,
so that MLIR makes vectors of it: read at quotients and remainders of one index, elements would be
gathered. The last one writes where the first one did. What reads the scan, and its output, are
views of that, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import Binary, IntExpr, Load, ScalarExpr, affine_form, transform, var
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches import (
    Candidate,
    ChunkScan,
    carried_name,
    chunk_axis,
    chunk_scan,
    scanned_parts_name,
)
from autotune.sketches.steps import Order, Parallel, Step, Tile, Unroll, UnrollLimit, Vectorize
from autotune_mlir import bindings
from autotune_mlir.building import Builder, stage_operation
from autotune_mlir.parsing import parse_payload
from autotune_mlir.preparation.insertion import MATERIALIZE, Inside, erase_unused, users

__all__ = [
    "ChunkedScan",
    "chunk_scans",
    "chunked_scans",
    "with_chunked_scans",
]


@frozen
class ChunkedScan:
    """A scan in parts.

    Attributes:
        step: Which one, and how many parts.
        axis: The axis that is scanned along.
        place: Which dimension of the result it is.
        length: Elements of a part.
    """

    step: ChunkScan
    axis: str
    place: int
    length: int

    @property
    def continued(self) -> str:
        """The stage with all results, which has parts as a dimension."""
        return f"{self.step.stage}.continued"

    @property
    def made(self) -> tuple[str, ...]:
        """The stages that compute something."""
        name = self.step.stage
        return (scanned_parts_name(name), carried_name(name), self.continued)

    def expanded(self, shape: Sequence[int], places: Iterable[int]) -> list[int]:
        """Extents of a tensor with some of its dimensions as parts and what is inside of them."""
        split = set(places)
        return [
            extent
            for place, whole in enumerate(shape)
            for extent in ((self.step.chunks, self.length) if place in split else (whole,))
        ]

    def step_on_continued(self, step: Step, config: Mapping[str, int]) -> Step:
        """A step of the stage, about the loops of the one that has parts as an axis.

        The outermost loop of the scanned axis is that of the parts; the others are of what is
        inside of them.

        Raises:
            InvalidSchedule: it cannot be replayed, or parts are no loop.
        """
        if isinstance(step, Tile):
            factors = step.factors
            if step.axis == self.axis:
                if int(evaluate(factors[0], config)) != self.step.chunks:
                    raise InvalidSchedule(f"{step}: {self.step.chunks} parts are to be a loop")
                factors = factors[1:]
            return evolve(step, stage=self.continued, factors=factors)
        if isinstance(step, (Order, Parallel, Unroll)):
            loops = tuple(map(self._loop, step.loops))
            return evolve(step, stage=self.continued, loops=loops)
        if isinstance(step, Vectorize):
            return evolve(step, stage=self.continued, loop=self._loop(step.loop))
        if isinstance(step, UnrollLimit):
            return evolve(step, stage=self.continued)
        raise InvalidSchedule(f"backend 'mlir' cannot replay {step} of a scan in parts")

    def _loop(self, loop: str) -> str:
        axis, _, level = loop.rpartition(".")
        if axis != self.axis:
            return loop
        return f"{axis}.{int(level) - 1}" if int(level) else f"{chunk_axis(axis)}.0"


def chunked_scans(candidate: Candidate | None, workload: Workload) -> tuple[ChunkedScan, ...]:
    """Those that a candidate asks for.

    Args:
        candidate: The steps; None is the untuned program.
        workload: What is computed.

    Raises:
        InvalidSchedule: the parts of one are no loop of its stage.
    """
    steps = () if candidate is None else candidate.sketch.core_steps
    return tuple(_chunked(step, workload, steps) for step in steps if isinstance(step, ChunkScan))


def _chunked(step: ChunkScan, workload: Workload, steps: Sequence[Step]) -> ChunkedScan:
    stage = workload.stage(step.stage)
    axis = stage.scan_axis
    tiled = {it.axis for it in steps if isinstance(it, Tile) and it.stage == step.stage}
    if axis is None or axis.name not in tiled:
        raise InvalidSchedule(f"{step}: its {step.chunks} parts are to be a loop")
    place = stage.spatial_axes.index(axis)
    return ChunkedScan(step, axis.name, place, axis.extent // step.chunks)


def with_chunked_scans(workload: Workload, scans: Sequence[ChunkedScan]) -> Workload:
    """A workload with scans in parts.

    The stage of a scan is then a view of the one that has parts as a dimension, and so are the
    operands that parts are read from.
    """
    for scan in scans:
        workload = _with_one(workload, scan)
    return workload


def _with_one(workload: Workload, scan: ChunkedScan) -> Workload:
    views, computing, whole = _stages(workload, scan)
    stages = [
        made
        for stage in workload.stages
        for made in ((*views, *computing, whole) if stage.name == whole.name else (stage,))
    ]
    return evolve(workload, stages=tuple(stages))


def _stages(
    workload: Workload, scan: ChunkedScan
) -> tuple[list[Stage], tuple[Stage, Stage, Stage], Stage]:
    """The stages of a scan in parts: views of operands, what is computed, and a view of that."""
    name, place, length = scan.step.stage, scan.place, scan.length
    stage, scheduled = workload.stage(name), chunk_scan(workload, scan.step)
    parts, carried = (scheduled.stage(made) for made in scan.made[:2])
    chunk, *others = parts.axes
    axes = (*others[:place], chunk, *others[place:])

    def moved(indices: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
        first, *rest = indices
        return (*rest[:place], first, *rest[place:])

    def read_moved(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Load) or node.tensor != parts.name:
            return None
        return Load(parts.name, moved(node.indices))

    views: dict[str, Stage] = {}
    shape = tuple(axis.extent for axis in axes)
    dtype = stage.output.dtype
    scanned = Stage(
        Tensor(parts.name, shape, dtype),
        axes,
        transform(parts.body, lambda node: _read_view(workload, scan, node, views)),
        parts.combiner,
    )
    assert stage.combiner is not None
    own = tuple(var(axis.name) for axis in axes)
    before = tuple(var(axis.name) for axis in carried.axes)
    continued = Stage(
        Tensor(scan.continued, shape, dtype),
        tuple(evolve(axis, kind="spatial") for axis in axes),
        Binary(stage.combiner, Load(carried.name, before), Load(parts.name, own)),
    )
    at, inside = var(scan.axis) // length, var(scan.axis) % length
    indices = [
        made
        for axis in stage.axes
        for made in ((at, inside) if axis.name == scan.axis else (var(axis.name),))
    ]
    plain = tuple(evolve(axis, kind="spatial") for axis in stage.axes)
    whole = Stage(stage.output, plain, Load(scan.continued, tuple(indices)))
    carried = evolve(carried, body=transform(carried.body, read_moved))
    return list(views.values()), (scanned, carried, continued), whole


def _read_view(
    workload: Workload, scan: ChunkedScan, node: ScalarExpr, made: dict[str, Stage]
) -> ScalarExpr | None:
    """A read of a tensor at a part and a place in it; notes the view in ``made``.

    Where dimensions are read at anything else of the scanned axis, the tensor itself is read.
    """
    if not isinstance(node, Load):
        return None
    tensor, chunk = workload.tensors[node.tensor], chunk_axis(scan.axis)
    extent = scan.step.chunks * scan.length
    places = []
    for place, index in enumerate(node.indices):
        if not {chunk, scan.axis} & set(index.variables):
            continue
        form = affine_form(index)
        at_place = {chunk: scan.length, scan.axis: 1}
        if form is None or form.coefficients != at_place or form.constant:
            return None
        if tensor.shape[place] != extent:
            return None
        places.append(place)
    if not places:
        return None
    view = _view(tensor, scan, places)
    made.setdefault(view.name, view)
    indices = [
        it
        for place, index in enumerate(node.indices)
        for it in ((var(chunk), var(scan.axis)) if place in places else (index,))
    ]
    return Load(view.name, tuple(indices))


def _view(tensor: Tensor, scan: ChunkedScan, places: Sequence[int]) -> Stage:
    """A stage that is an operand with parts as dimensions."""
    name = ".".join([scan.made[0], tensor.name, *map(str, places), "chunks"])
    extents = scan.expanded(tensor.shape, places)
    axes = tuple(Axis(f"d{number}", extent) for number, extent in enumerate(extents))
    names = iter(axes)
    indices = [
        var(next(names).name) * scan.length + var(next(names).name)
        if place in places
        else var(next(names).name)
        for place in range(len(tensor.shape))
    ]
    output = Tensor(name, tuple(extents), tensor.dtype)
    return Stage(output, axes, Load(tensor.name, tuple(indices)))


def chunk_scans(program: str, workload: Workload, scans: Sequence[ChunkedScan]) -> str:
    """A program with scans in parts.

    Args:
        program: The text of a program with attributes for stages.
        workload: What it computes.
        scans: Which ones.
    """
    if not scans:
        return program
    mlir = bindings.load()
    module = parse_payload(program)
    with module.context, mlir.ir.Location.unknown():
        made: dict[str, Any] = {}
        for scan in scans:
            _Chunks(mlir, module, workload, scan, made).write()
            workload = _with_one(workload, scan)
    return str(module)


class _Chunks:
    """Writes one scan in parts.

    Args:
        mlir: The bindings.
        module: The program.
        workload: What it computes.
        scan: What to divide.
        made: Results of scans that are in parts already, by stage; gets this one's.
    """

    def __init__(
        self,
        mlir: bindings.Bindings,
        module: Any,
        workload: Workload,
        scan: ChunkedScan,
        made: dict[str, Any],
    ) -> None:
        self._mlir, self._ir, self._module = mlir, mlir.ir, module
        self._workload, self._scan, self._made = workload, scan, made
        self._build = Builder(mlir)

    def write(self) -> None:
        """Make the operations, in the place of the one that scans."""
        scan, ir = self._scan, self._ir
        old = stage_operation(self._module, scan.step.stage)
        result, place = old.results[1], scan.place
        with ir.InsertionPoint(old), old.location:
            self._insert(old)
            continued = self._in_place()
            self._write_outputs(result, continued)
            whole = self._build.reshaped("tensor.collapse_shape", continued, result.type, [place])
        result.replace_all_uses_with(whole)
        self._made[scan.step.stage] = whole
        erase_unused(old)

    def _insert(self, old: Any) -> None:
        """Put what computes before an operation."""
        views, stages, _ = _stages(self._workload, self._scan)
        tensors = {**self._workload.tensors, **{it.name: it.output for it in views}}
        known = dict(self._made)
        for view in views:
            known[view.name] = self._expanded(view)
        inside = Inside(self._mlir, self._module, self._workload.inputs, known)
        inside.insert(stages, tensors, old)

    def _in_place(self) -> Any:
        """Have the last operation write where the first one did; returns its result."""
        ir = self._ir
        parts, carried, _ = (
            stage_operation(self._module, name).results[-1] for name in self._scan.made
        )
        found = stage_operation(self._module, self._scan.continued)
        *maps, written = [item.value for item in found.attributes["indexing_maps"]]
        operands = list(found.operands)[:-1]
        at = operands.index(carried)
        body = found.regions[0].blocks[0]
        with ir.InsertionPoint(found), found.location:
            name = self._scan.continued
            made = self._build.generic(name, [carried], [maps[at], written], parts)
        body.append_to(made.regions[0])
        new = made.regions[0].blocks[0]
        other = 1 - at
        new.arguments[other].replace_all_uses_with(new.arguments[2])
        new.erase_argument(other)
        found.results[0].replace_all_uses_with(made.results[0])
        found.erase()
        return made.results[0]

    def _write_outputs(self, result: Any, continued: Any) -> None:
        """Write what is an output of the program into a view of that."""
        ir, scan = self._ir, self._scan
        for write in users(result, MATERIALIZE):
            buffer = write.operands[1]
            shape = scan.expanded(buffer.type.shape, [scan.place])
            kind = ir.MemRefType.get(shape, buffer.type.element_type)
            first = self._function().regions[0].blocks[0].operations[0]
            with ir.InsertionPoint(first):
                view = self._build.reshaped("memref.expand_shape", buffer, kind, [scan.place])
            write.operands[0], write.operands[1] = continued, view

    def _expanded(self, view: Stage) -> Any:
        """An operand with parts as dimensions."""
        (load,) = view.loads
        inside = Inside(self._mlir, self._module, self._workload.inputs, self._made)
        value = inside.value(load.tensor)
        places = [place for place, index in enumerate(load.indices) if index.op != "var"]
        kind = self._ir.RankedTensorType.get(view.output.shape, value.type.element_type)
        return self._build.reshaped("tensor.expand_shape", value, kind, places)

    def _function(self) -> Any:
        return self._module.body.operations[0].operation
