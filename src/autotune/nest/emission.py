"""Statements and buffers of a loop nest, from what was decided about every stage."""

from __future__ import annotations

from itertools import takewhile

from attrs import evolve

from autotune.expressions import (
    AffineForm,
    IntExpr,
    Load,
    ScalarExpr,
    const,
    loads,
    maximum,
    minimum,
    operation_counts,
    var,
)
from autotune.nest.copies import parallel_copy, renamed_body, vectorized_copy, with_axes
from autotune.nest.loop_nest import (
    Access,
    Buffer,
    Loop,
    LoopNest,
    Statement,
    clipped_hull,
    hull,
    is_axis,
)
from autotune.nest.stage_schedule import StageSchedule
from autotune.sketches import Pack
from autotune.workloads import Workload


def emit_nest(workload: Workload, schedules: dict[str, StageSchedule]) -> LoopNest:
    """The statements in program order and the buffers that the schedules allocate."""
    return _Emission(workload, schedules).nest()


def _corners(
    forms: tuple[AffineForm, ...], inside: dict[str, IntExpr], path: tuple[Loop, ...]
) -> dict[str, dict[str, IntExpr]]:
    """How far the corner of a copied region moves along each of the copy's own axes."""
    moved = {axis for loop in path for axis, _ in loop.parts}
    return {
        f"d{index}": {
            axis: inside[axis] * abs(coefficient)
            for axis, coefficient in form.coefficients.items()
            if axis in moved
        }
        for index, form in enumerate(forms)
    }


class _Emission:
    def __init__(self, workload: Workload, schedules: dict[str, StageSchedule]) -> None:
        self.workload = workload
        self.schedules = schedules
        self.statements: list[Statement] = []
        self.buffers: list[Buffer] = []

    def nest(self) -> LoopNest:
        for stage in self.workload.stages:
            schedule = self.schedules[stage.name]
            if not schedule.inlined and schedule.attached is None:
                self._emit(schedule, ())
        return LoopNest(tuple(self.statements), tuple(self.buffers), self.workload)

    def _emit(self, schedule: StageSchedule, outer: tuple[Loop, ...]) -> None:
        """Statements of one stage and of everything attached inside its loops."""
        stage = schedule.stage
        loops = [*outer, *self._ordered_loops(schedule)]
        reduce = {axis.name for axis in stage.reduce_axes}
        first = next(
            (i for i, loop in enumerate(loops) if any(axis in reduce for axis, _ in loop.parts)),
            len(loops),
        )
        self._attached_at(schedule, tuple(outer), None)
        after: list[tuple[int, str]] = []
        for depth in range(len(outer), len(loops) + 1):
            path = tuple(loops[:depth])
            if stage.reduce_axes and depth == first:
                self._emit_init(schedule, path, tuple(loops[first:]), reduce)
            if depth > len(outer):
                for name in self._names_of(schedule, loops[depth - 1]):
                    self._attached_at(schedule, path, name)
                    after.append((depth, name))
        self._emit_compute(schedule, tuple(loops))
        for depth, name in reversed(after):
            self._attached_after(schedule, tuple(loops[:depth]), name)

    def _ordered_loops(self, schedule: StageSchedule) -> list[Loop]:
        loops: list[Loop] = []
        for name in schedule.order:
            loop = schedule.loops[name]
            if not any(loop is known for known in loops):
                loops.append(loop)
        return loops

    def _names_of(self, schedule: StageSchedule, loop: Loop) -> list[str]:
        return [name for name in schedule.order if schedule.loops[name] is loop]

    def _attached_at(
        self, schedule: StageSchedule, path: tuple[Loop, ...], loop: str | None
    ) -> None:
        """What runs before the rest of the stage inside ``loop`` (None: before its loops)."""
        for stage in self.workload.stages:
            fused = self.schedules[stage.name]
            if fused.attached == (schedule.stage.name, loop) and not fused.fused_after:
                self._emit_fused_producer(schedule, fused, path)
        for pack in schedule.packs:
            if pack.at == loop:
                self._emit_pack(schedule, pack, path)

    def _attached_after(self, schedule: StageSchedule, path: tuple[Loop, ...], loop: str) -> None:
        if schedule.accumulate is not None and schedule.accumulate.at == loop:
            self._emit_write(schedule, path)
        for stage in self.workload.stages:
            fused = self.schedules[stage.name]
            if fused.attached == (schedule.stage.name, loop) and fused.fused_after:
                self._emit_fused_consumer(schedule, fused, path)

    def _reach_inside(self, schedule: StageSchedule, path: tuple[Loop, ...]) -> dict[str, IntExpr]:
        """How far each axis of the stage moves inside the loops of ``path``."""
        reach = {axis.name: const(1) for axis in schedule.stage.axes}
        outside: set[str] = set()
        for loop in self._ordered_loops(schedule):
            if any(loop is outer for outer in path):
                outside.update(name for name, _ in loop.parts)
                continue
            for name, extent in loop.parts:
                reach[name] = reach[name] * extent
        # The factors of an axis multiply to its extent: say so where all of them are inside.
        return {
            name: value if name in outside else schedule.extents[name]
            for name, value in reach.items()
        }

    def _result_buffer(self, schedule: StageSchedule) -> str:
        name = schedule.stage.name
        return name if self._tile_loop(schedule) is None else f"{name}.tile"

    def _accesses(self, schedule: StageSchedule) -> list[Access]:
        """Reads of the stage's body, each place once."""
        found: list[Access] = []
        probe = evolve(schedule.stage, body=schedule.body)
        for load in probe.loads:
            forms = probe.access_map(load)
            shape = self._bounds(schedule, load.tensor, forms)
            access = Access(self._read_buffer(schedule, load.tensor), forms, shape)
            if access not in found:
                found.append(access)
        return found

    def _read_buffer(self, schedule: StageSchedule, tensor: str) -> str:
        if schedule.fused_after and schedule.attached and schedule.attached[0] == tensor:
            return self._result_buffer(self.schedules[tensor])
        packed = any(pack.operand == tensor for pack in schedule.packs)
        return self._pack_name(schedule, tensor) if packed else tensor

    def _pack_name(self, schedule: StageSchedule, tensor: str) -> str:
        """Name of the copy of ``tensor`` packed for a stage, also where several stages pack it."""
        stages = [
            other
            for other in self.schedules.values()
            if any(pack.operand == tensor for pack in other.packs)
        ]
        return f"{tensor}.pack" if len(stages) == 1 else f"{tensor}.pack.{schedule.stage.name}"

    def _sources(self, schedule: StageSchedule) -> dict[str, str]:
        return {
            load.tensor: self._read_buffer(schedule, load.tensor) for load in loads(schedule.body)
        }

    def _bounds(
        self, schedule: StageSchedule, tensor: str, forms: tuple[AffineForm, ...]
    ) -> tuple[IntExpr, ...]:
        """Extents of the tensor, grown where the stage's padded axes reach beyond them."""
        shape = self.workload.tensors[tensor].shape
        grown = []
        for form, extent in zip(forms, shape, strict=True):
            own: IntExpr = const(extent)
            if any(axis in schedule.padded for axis in form.coefficients):
                grown_hull = hull(form, schedule.extents)
                own = grown_hull if is_axis(form) else maximum(own, grown_hull)
            grown.append(own)
        return tuple(grown)

    def _write_access(self, schedule: StageSchedule, buffer: str) -> Access:
        forms = tuple(AffineForm({a.name: 1}, 0) for a in schedule.stage.spatial_axes)
        shape = tuple(schedule.extents[a.name] for a in schedule.stage.spatial_axes)
        return Access(buffer, forms, shape, write=True)

    def _emit_init(
        self,
        schedule: StageSchedule,
        path: tuple[Loop, ...],
        rest: tuple[Loop, ...],
        reduce: set[str],
    ) -> None:
        spatial = tuple(loop for loop in rest if not any(axis in reduce for axis, _ in loop.parts))
        own = tuple(evolve(loop, name=f"{loop.name}.init") for loop in spatial)
        stage = schedule.stage.name
        access = self._write_access(schedule, self._result_buffer(schedule))
        self.statements.append(Statement(f"{stage}.init", stage, "init", path + own, (access,)))

    def _emit_compute(self, schedule: StageSchedule, loops: tuple[Loop, ...]) -> None:
        stage = schedule.stage
        result = self._result_buffer(schedule)
        write = self._write_access(schedule, result)
        reads = self._accesses(schedule)
        if stage.combiner is not None:
            reads.append(evolve(write, write=False))
        operations = operation_counts(schedule.body)
        if stage.combiner is not None:
            operations[stage.combiner] = operations.get(stage.combiner, 0) + 1
        self.statements.append(
            Statement(
                stage.name,
                stage.name,
                "compute",
                loops,
                (*reads, write),
                operations,
                schedule.body,
                self._sources(schedule),
            )
        )
        tile_loop = self._tile_loop(schedule)
        if tile_loop is not None:
            path = self._around_tile(schedule, loops, tile_loop)
            inside = self._reach_inside(schedule, path)
            shape = tuple(inside[axis.name] for axis in stage.spatial_axes)
            self.buffers.append(Buffer(result, shape, stage.output.dtype, len(path)))
        elif stage.name not in self.workload.outputs and schedule.attached is None:
            shape = tuple(const(extent) for extent in stage.output.shape)
            self.buffers.append(Buffer(result, shape, stage.output.dtype, 0))

    def _tile_loop(self, schedule: StageSchedule) -> str | None:
        """The loop inside which the stage's result is kept in a tile; None if it is not."""
        if schedule.accumulate is not None:
            return schedule.accumulate.at
        for other in self.schedules.values():
            if other.fused_after and other.attached and other.attached[0] == schedule.stage.name:
                return other.attached[1]
        return None

    def _around_tile(
        self, schedule: StageSchedule, loops: tuple[Loop, ...], tile_loop: str
    ) -> tuple[Loop, ...]:
        """The loops around the tile's buffer: none that reduces, for those carry it."""
        target = schedule.loops[tile_loop]
        reduce = {axis.name for axis in schedule.stage.reduce_axes}
        path = loops[: loops.index(target) + 1]
        return tuple(takewhile(lambda loop: not any(a in reduce for a, _ in loop.parts), path))

    def _emit_pack(self, schedule: StageSchedule, pack: Pack, path: tuple[Loop, ...]) -> None:
        stage = schedule.stage
        load = next(load for load in stage.loads if load.tensor == pack.operand)
        forms = stage.access_map(load)
        inside = self._reach_inside(schedule, path) if pack.at else dict(schedule.extents)
        bounds = self._bounds(schedule, pack.operand, forms)
        whole = [const(extent) for extent in self.workload.tensors[pack.operand].shape]
        region = list(bounds)
        if pack.at is not None:
            region = [
                clipped_hull(form, inside, bound)
                for form, bound in zip(forms, bounds, strict=True)
            ]
        allocated = list(region)
        if pack.block_dim is not None and pack.block is not None:
            blocked = allocated.pop(pack.block_dim)
            allocated = [blocked // pack.block, *allocated, pack.block]
        label = self._pack_name(schedule, pack.operand)
        loops = [
            Loop(f"{label}.{index}", extent, ((f"d{index}", extent),))
            for index, extent in enumerate(region)
        ]
        loops = vectorized_copy(loops, pack.lanes)
        if pack.at is None:
            loops = parallel_copy(loops, split=pack.lanes > 1)
        own = tuple(AffineForm({f"d{index}": 1}, 0) for index in range(len(forms)))
        write = Access(label, own, tuple(region), write=True)
        producer = self.schedules.get(pack.operand)
        body: ScalarExpr = Load(pack.operand, tuple(var(f"d{i}") for i in range(len(forms))))
        reads = [Access(pack.operand, own, tuple(whole))]
        sources = {pack.operand: pack.operand}
        if producer is not None and producer.inlined:
            body = renamed_body(producer)
            reads = self._copied(producer)
            sources = {tensor: tensor for tensor in producer.stage.reads}
        corners = _corners(forms, inside, path) if pack.at else {}
        self.statements.append(
            Statement(
                label,
                stage.name,
                "pack",
                (*path, *loops),
                (*reads, write),
                operation_counts(body),
                body,
                sources,
                corners,
            )
        )
        dtype = self.workload.tensors[pack.operand].dtype
        self.buffers.append(Buffer(label, tuple(allocated), dtype, len(path)))

    def _copied(self, producer: StageSchedule) -> list[Access]:
        """What a pack reads when its operand is computed on the way, over the pack's axes."""
        names = [axis.name for axis in producer.stage.spatial_axes]
        dims = {name: f"d{index}" for index, name in enumerate(names)}
        return [
            evolve(
                access,
                forms=tuple(
                    AffineForm({dims[a]: c for a, c in form.coefficients.items()}, form.constant)
                    for form in access.forms
                ),
            )
            for access in self._accesses(producer)
        ]

    def _emit_write(self, schedule: StageSchedule, path: tuple[Loop, ...]) -> None:
        stage = schedule.stage
        name = f"{stage.name}.write"
        inside = self._reach_inside(schedule, path)
        loops = self._tile_loops(schedule, name, inside, schedule.write_factors)
        tile = evolve(self._write_access(schedule, f"{stage.name}.tile"), write=False)
        forms = tile.forms
        shape = tuple(const(extent) for extent in stage.output.shape)
        write = Access(stage.name, forms, shape, write=True)
        self.statements.append(
            Statement(name, stage.name, "write", (*path, *loops), (tile, write))
        )
        if stage.name not in self.workload.outputs:
            self.buffers.append(Buffer(stage.name, shape, stage.output.dtype, 0))

    def _tile_loops(
        self,
        schedule: StageSchedule,
        name: str,
        inside: dict[str, IntExpr],
        factors: tuple[IntExpr, ...],
    ) -> list[Loop]:
        *rows, vector = schedule.stage.spatial_axes
        loops = []
        for axis in rows:
            extent = inside[axis.name]
            if schedule.extents[axis.name].value != axis.extent:
                extent = minimum(extent, axis.extent)
            loops.append(Loop(f"{name}.{axis.name}", extent, ((axis.name, extent),)))
        for level, factor in enumerate(factors):
            kind = "vectorized" if level == len(factors) - 1 else "serial"
            loops.append(
                Loop(f"{name}.{vector.name}.{level}", factor, ((vector.name, factor),), kind)
            )
        return loops

    def _emit_fused_consumer(
        self, producer: StageSchedule, fused: StageSchedule, path: tuple[Loop, ...]
    ) -> None:
        names = {
            theirs.name: own.name
            for own, theirs in zip(
                fused.stage.spatial_axes, producer.stage.spatial_axes, strict=True
            )
        }
        reach = self._reach_inside(producer, path)
        inside = {own: reach[theirs] for theirs, own in names.items()}
        fused.extents = {own: producer.extents[theirs] for theirs, own in names.items()}
        loops = self._tile_loops(fused, fused.stage.name, inside, fused.write_factors)
        reads = self._accesses(fused)
        shape = tuple(const(extent) for extent in fused.stage.output.shape)
        write = evolve(self._write_access(fused, fused.stage.name), shape=shape)
        name = fused.stage.name
        path_axes = tuple(with_axes(loop, names) for loop in path)
        self.statements.append(
            Statement(
                name,
                name,
                "compute",
                (*path_axes, *loops),
                (*reads, write),
                operation_counts(fused.body),
                fused.body,
                self._sources(fused),
            )
        )

    def _names_in_producer(self, consumer: StageSchedule, fused: StageSchedule) -> dict[str, str]:
        """Axis of a fused producer by the axis of the consumer that moves it in step."""
        for user in self.workload.consumers(fused.stage.name):
            load = next(load for load in user.loads if load.tensor == fused.stage.name)
            in_step = {
                next(iter(form.coefficients)): axis.name
                for axis, form in zip(fused.stage.spatial_axes, user.access_map(load), strict=True)
                if is_axis(form)
            }
            if user.name == consumer.stage.name:
                return in_step
            upper = self._names_in_producer(consumer, self.schedules[user.name])
            return {outer: in_step[name] for outer, name in upper.items() if name in in_step}
        return {}

    def _emit_fused_producer(
        self, consumer: StageSchedule, fused: StageSchedule, path: tuple[Loop, ...]
    ) -> None:
        region = self._needed(consumer, fused, path)
        fused.extents = {
            axis.name: region[axis.name] if axis.name in region else const(axis.extent)
            for axis in fused.stage.axes
        }
        for axis in fused.stage.axes:
            extent = fused.extents[axis.name]
            name = f"{axis.name}.0"
            parts = ((axis.name, extent),)
            fused.loops[name] = evolve(fused.loops[name], extent=extent, parts=parts)
        if fused.lanes > 1:
            last = fused.stage.axes[-1].name
            loop = fused.loops.pop(f"{last}.0")
            rest, vector = vectorized_copy([loop], fused.lanes)
            fused.loops[f"{last}.0"], fused.loops[f"{last}.1"] = rest, vector
            fused.order = [*fused.order, f"{last}.1"]
        names = self._names_in_producer(consumer, fused)
        self._emit(fused, tuple(with_axes(loop, names) for loop in path))
        if fused.stage.name not in self.workload.outputs:
            shape = tuple(fused.extents[axis.name] for axis in fused.stage.spatial_axes)
            self.buffers.append(
                Buffer(fused.stage.name, shape, fused.stage.output.dtype, len(path))
            )

    def _needed(
        self, consumer: StageSchedule, fused: StageSchedule, path: tuple[Loop, ...]
    ) -> dict[str, IntExpr]:
        """Region of the fused producer that everything inside the loop reads, by axis."""
        needed = {axis.name: const(1) for axis in fused.stage.spatial_axes}
        for user in self.workload.consumers(fused.stage.name):
            schedule = self.schedules[user.name]
            if schedule is consumer:
                reach = self._reach_inside(consumer, path)
            else:
                reach = self._needed(consumer, schedule, path)
                for axis in user.reduce_axes:
                    reach[axis.name] = const(axis.extent)
            for load in user.loads:
                if load.tensor != fused.stage.name:
                    continue
                forms = user.access_map(load)
                for axis, form in zip(fused.stage.spatial_axes, forms, strict=True):
                    extent = clipped_hull(form, reach, const(axis.extent))
                    needed[axis.name] = maximum(needed[axis.name], extent)
        return needed
