"""Statements and buffers of a loop nest, from the schedule of every stage."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from attrs import define, evolve, field, frozen

from autotune.ir.expressions import (
    AffineForm,
    IntExpr,
    Load,
    ceildiv,
    const,
    maximum,
    minimum,
    operation_counts,
    product,
    substitute,
    var,
)
from autotune.ir.expressions.scalar import ScalarExpr, reads
from autotune.ir.workloads import Axis, Stage, Workload
from autotune.nest.loop_nest import (
    ELEMENT,
    Access,
    Buffer,
    EarlyRead,
    Loop,
    LoopNest,
    Statement,
    clipped_hull,
    copy_axis,
    hull,
    is_axis,
    scope_inside,
)
from autotune.sketches import (
    Accumulate,
    BulkCopy,
    CooperativeFetch,
    CoreMatrices,
    Interleave,
    Pack,
    SharedLayout,
)


@define(eq=False)
class StageSchedule:
    """The schedule of one stage.

    Attributes:
        stage: The stage.
        body: Its body, with inlined producers substituted.
        extents: Extent of each axis, padding included.
        loops: Loops by name; fused loops share one object.
        order: Names of the loops, outermost first.
        inlined: Whether consumers compute it.
        attached: Stage and loop inside which it is computed.
        fused_after: Whether it is attached as a consumer (else as a producer).
        write_factors: Split of the innermost axis of its write-back.
        packs: Operands packed for it.
        interleaved: How packed copies are laid out in groups, by operand.
        prepacked: Operands whose packed copies are made before the program runs.
        accumulate: Where its result is accumulated, unless a consumer is fused.
        lanes: Vector width of a fused producer.
        padded: Axes with padded extents.
        fetches: Operands that the threads of a block fetch together.
        layouts: How fetched copies are laid out where that is not as they are indexed, by operand.
        fetch_stages: How many iterations of a loop have what they fetch in memory at once.
        covered: Axes whose loops may pass their extent.
        unroll_limit: Statements that the compiler may make by unrolling.
        intrinsic: The instruction that its innermost loops are calls of.
        in_fragments: Whether the threads of a warp share it, each with a part of the result.
        pipelined: The loop of which it is one iteration late, and the stage in whose loops it is.
        streams: 1 where its result is written past the caches.
        early: What it asks for early.
    """

    stage: Stage
    body: ScalarExpr
    extents: dict[str, IntExpr]
    loops: dict[str, Loop]
    order: list[str]
    inlined: bool = False
    attached: tuple[str, str] | None = None
    fused_after: bool = False
    write_factors: tuple[IntExpr, ...] = ()
    packs: list[Pack] = field(factory=list)
    interleaved: dict[str, Interleave] = field(factory=dict)
    prepacked: set[str] = field(factory=set)
    accumulate: Accumulate | None = None
    lanes: int = 1
    padded: set[str] = field(factory=set)
    fetches: list[CooperativeFetch] = field(factory=list)
    layouts: dict[str, SharedLayout | CoreMatrices | BulkCopy] = field(factory=dict)
    fetch_stages: dict[str, IntExpr] = field(factory=dict)
    covered: set[str] = field(factory=set)
    unroll_limit: IntExpr = const(0)
    intrinsic: str = ""
    in_fragments: bool = False
    pipelined: tuple[str, str] | None = None
    streams: IntExpr = const(0)
    early: tuple[EarlyRead, ...] = ()

    @property
    def copied(self) -> set[str]:
        """Tensors of which the stage reads a copy."""
        return {pack.operand for pack in self.packs} | {step.operand for step in self.fetches}

    @property
    def ordered_loops(self) -> list[Loop]:
        """The stage's own loops, outermost first; fused loops once."""
        loops: list[Loop] = []
        for name in self.order:
            loop = self.loops[name]
            if not any(loop is known for known in loops):
                loops.append(loop)
        return loops

    @property
    def guards(self) -> dict[str, IntExpr]:
        """Covered axes with their extents: iterations beyond these are skipped."""
        return {axis: self.extents[axis] for axis in sorted(self.covered)}

    @property
    def padding(self) -> dict[str, IntExpr]:
        """Padded axes with their own extents: results beyond these are dropped.

        A producer inside another's loop is not padded: its extents are those of what is needed.
        """
        if self.attached is not None and not self.fused_after:
            return {}
        return {
            axis.name: const(axis.extent)
            for axis in self.stage.spatial_axes
            if self.extents[axis.name].value != axis.extent
        }

    def split(self, axis: str, factors: Sequence[IntExpr]) -> None:
        """Split the one loop of an axis into ``AXIS.0``, ``AXIS.1``, ..., outermost first."""
        del self.loops[f"{axis}.0"]
        position = self.order.index(f"{axis}.0")
        names = [f"{axis}.{level}" for level in range(len(factors))]
        for name, factor in zip(names, factors, strict=True):
            self.loops[name] = Loop(f"{self.stage.name}.{name}", factor, ((axis, factor),))
        self.order[position : position + 1] = names

    def arrange(self, order: Sequence[str]) -> None:
        """Put the loops into an order; an axis may have an inner level outside an outer one."""
        self.order = list(order)
        for axis in self.stage.axes:
            names, unit = self._levels(axis.name), const(1)
            for name in sorted(names, key=_level, reverse=True):
                loop = self.loops[name]
                inside = names[names.index(name) + 1 :]
                deeper = [other for other in names if _level(other) > _level(name)]
                if set(inside) != set(deeper):
                    self.loops[name] = evolve(loop, units=(unit,))
                unit = unit * loop.extent

    def levels_inside(self, axis: str, path: tuple[Loop, ...]) -> list[tuple[str, Loop]]:
        """Names and loops of the levels of an axis that are inside the loops of ``path``."""
        outside = {loop.name for loop in path}
        return [
            (name, self.loops[name])
            for name in sorted(self._levels(axis), key=_level)
            if self.loops[name].name not in outside
        ]

    def _levels(self, axis: str) -> list[str]:
        return [name for name in self.order if name.rpartition(".")[0] == axis]

    def reach_inside(self, path: tuple[Loop, ...]) -> dict[str, IntExpr]:
        """Distance that each axis of the stage moves inside the loops of ``path``."""
        reach = {axis.name: const(1) for axis in self.stage.axes}
        outside: set[str] = set()
        for loop in self.ordered_loops:
            if any(loop is outer for outer in path):
                outside.update(name for name, _ in loop.parts)
                continue
            for name, extent in loop.parts:
                reach[name] = reach[name] * extent
        # The factors of an axis multiply to its extent: say so where all of them are inside.
        return {
            name: value if name in outside else self.extents[name] for name, value in reach.items()
        }


def _level(name: str) -> int:
    return int(name.rpartition(".")[2])


def emit_nest(workload: Workload, schedules: dict[str, StageSchedule]) -> LoopNest:
    """The statements in program order and the buffers that the schedules allocate."""
    return _Emission(workload, schedules).nest()


class _Emission:
    def __init__(self, workload: Workload, schedules: dict[str, StageSchedule]) -> None:
        self.workload = workload
        self.schedules = schedules
        self.statements: list[Statement] = []
        self.packing: list[Statement] = []
        self.buffers: list[Buffer] = []

    def nest(self) -> LoopNest:
        for stage in self.workload.stages:
            schedule = self.schedules[stage.name]
            if not schedule.inlined and schedule.attached is None:
                first = len(self.statements)
                self._emit_whole_copies(schedule)
                self._emit(schedule, ())
                self.statements[first:] = [
                    evolve(statement, unroll_limit=schedule.unroll_limit)
                    for statement in self.statements[first:]
                ]
        statements = tuple(self._with_hints(statement) for statement in self.statements)
        return LoopNest(statements, tuple(self.buffers), self.workload, tuple(self.packing))

    def _with_hints(self, statement: Statement) -> Statement:
        """A statement with how it reads and writes memory, apart from what."""
        schedule = self.schedules[statement.stage]
        early = schedule.early if statement.role == "compute" else ()
        return evolve(statement, streams=schedule.streams, early=early)

    def _emit_whole_copies(self, schedule: StageSchedule) -> None:
        """Copies of whole operands: of a stage, and of those that are attached inside its loops.

        All of them are made before these loops.
        """
        for stage in self.workload.stages:
            inner = self.schedules[stage.name]
            if inner.attached is not None and inner.attached[0] == schedule.stage.name:
                self._emit_whole_copies(inner)
        for pack in schedule.packs:
            if pack.at is None:
                self._emit_pack(schedule, pack, ())

    def _emit(self, schedule: StageSchedule, outer: tuple[Loop, ...]) -> None:
        """Statements of one stage and of everything attached inside its loops."""
        stage = schedule.stage
        loops = [*outer, *schedule.ordered_loops]
        reduce = {axis.name for axis in stage.reduce_axes}
        first = next(
            (i for i, loop in enumerate(loops) if any(axis in reduce for axis, _ in loop.parts)),
            len(loops),
        )
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

    def _names_of(self, schedule: StageSchedule, loop: Loop) -> list[str]:
        return [name for name in schedule.order if schedule.loops[name] is loop]

    def _attached_at(self, schedule: StageSchedule, path: tuple[Loop, ...], loop: str) -> None:
        """Statements that run before the rest of the stage inside ``loop``."""
        for stage in self.workload.stages:
            fused = self.schedules[stage.name]
            if fused.attached == (schedule.stage.name, loop) and not fused.fused_after:
                self._emit_fused_producer(schedule, fused, path)
        for pack in schedule.packs:
            if pack.at == loop:
                self._emit_pack(schedule, pack, path)
        for fetch in schedule.fetches:
            if fetch.at == loop:
                self._emit_fetch(schedule, fetch, path)

    def _attached_after(self, schedule: StageSchedule, path: tuple[Loop, ...], loop: str) -> None:
        if schedule.accumulate is not None and schedule.accumulate.at == loop:
            self._emit_write(schedule, path)
        for stage in self.workload.stages:
            fused = self.schedules[stage.name]
            if fused.attached == (schedule.stage.name, loop) and fused.fused_after:
                self._emit_fused_consumer(schedule, fused, path)

    def _result_buffer(self, schedule: StageSchedule) -> str:
        name = schedule.stage.name
        return name if self._tile_loop(schedule) is None else f"{name}.tile"

    def _accesses(self, schedule: StageSchedule) -> list[Access]:
        """Reads of the stage's body, each place once."""
        found: list[Access] = []
        probe = evolve(schedule.stage, body=schedule.body)
        for read in probe.accesses:
            forms = probe.forms(read)
            shape = self._bounds(schedule, read.tensor, forms)
            access = Access(self._read_buffer(schedule, read.tensor), forms, shape)
            if access not in found:
                found.append(access)
        return found

    def _read_buffer(self, schedule: StageSchedule, tensor: str) -> str:
        if schedule.fused_after and schedule.attached and schedule.attached[0] == tensor:
            return self._result_buffer(self.schedules[tensor])
        return self._copy_name(schedule, tensor) if tensor in schedule.copied else tensor

    def _copy_name(self, schedule: StageSchedule, tensor: str) -> str:
        """Name of the copy of ``tensor`` made for a stage, also where several stages copy it."""
        fetched = any(step.operand == tensor for step in schedule.fetches)
        name = f"{tensor}.fetch" if fetched else f"{tensor}.pack"
        sharing = sum(tensor in other.copied for other in self.schedules.values())
        return name if sharing == 1 else f"{name}.{schedule.stage.name}"

    def _sources(self, schedule: StageSchedule) -> dict[str, str]:
        tensors = dict.fromkeys(read.tensor for read in reads(schedule.body))
        return {tensor: self._read_buffer(schedule, tensor) for tensor in tensors}

    def _bounds(
        self, schedule: StageSchedule, tensor: str, forms: tuple[AffineForm, ...]
    ) -> tuple[IntExpr, ...]:
        """Extents of the tensor, grown where the stage's padded axes reach beyond them."""
        shape = self.workload.tensors[tensor].shape
        grown = []
        for form, extent in zip(forms, shape, strict=True):
            own: IntExpr = const(extent)
            if not form.terms and schedule.padded & form.axes:
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
        spatial_names = {axis.name for axis in schedule.stage.spatial_axes}
        guards = {a: n for a, n in schedule.guards.items() if a in spatial_names}
        self.statements.append(
            Statement(f"{stage}.init", stage, "init", path + own, (access,), guards=guards)
        )

    def _emit_compute(self, schedule: StageSchedule, loops: tuple[Loop, ...]) -> None:
        stage = schedule.stage
        result = self._result_buffer(schedule)
        write = self._write_access(schedule, result)
        reads, operations = self._accesses(schedule), operation_counts(schedule.body)
        if stage.combiner is not None:
            reads.append(evolve(write, write=False))
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
                guards=schedule.guards,
                intrinsic=schedule.intrinsic,
                pipelined=schedule.pipelined,
            )
        )
        tile_loop = self._tile_loop(schedule)
        if tile_loop is not None:
            path = self._around_tile(schedule, loops, tile_loop)
            inside = schedule.reach_inside(path)
            shape = tuple(inside[axis.name] for axis in stage.spatial_axes)
            self.buffers.append(
                Buffer(result, shape, stage.output.dtype, len(path), scope_inside(path))
            )
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
        # Of a part, indices have to be affine; a whole operand is copied however it is read.
        forms = stage.forms(load) if pack.at is None else stage.access_map(load)
        inside = schedule.reach_inside(path) if pack.at else dict(schedule.extents)
        bounds = self._bounds(schedule, pack.operand, forms)
        region = list(bounds)
        if pack.at is not None:
            region = [
                clipped_hull(form, inside, bound)
                for form, bound in zip(forms, bounds, strict=True)
            ]
        group = schedule.interleaved.get(pack.operand)
        label = self._copy_name(schedule, pack.operand)
        loops = packing_loops(label, region, pack, group)
        own = tuple(AffineForm({copy_axis(index): 1}, 0) for index in range(len(forms)))
        write = Access(label, own, tuple(region), write=True)
        body, reads, sources = self._copied(pack.operand, own)
        corners = corner_steps(forms, inside, path) if pack.at else {}
        ahead = pack.operand in schedule.prepacked
        (self.packing if ahead else self.statements).append(
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
                corner_starts(forms, inside) if pack.at else {},
                falling_corners(forms) if pack.at else frozenset(),
            )
        )
        dtype = self.workload.tensors[pack.operand].dtype
        buffer = Buffer(
            label,
            packed_shape(region, pack, group),
            dtype,
            len(path),
            block_dim=pack.block_dim if pack.block is not None else None,
            group_dim=None if group is None else group.dim,
        )
        self.buffers.append(buffer)

    def _emit_fetch(
        self, schedule: StageSchedule, fetch: CooperativeFetch, path: tuple[Loop, ...]
    ) -> None:
        """A copy that all threads of a block make together, of what all of them read."""
        stage = schedule.stage
        if sum(loop.kind == "thread" for loop in path) > 1:
            raise ValueError(f"{fetch.operand!r} is fetched by threads of two dimensions")
        load = next(load for load in stage.loads if load.tensor == fetch.operand)
        forms = stage.access_map(load)
        grid = tuple(loop for loop in path if loop.kind not in ("thread", "vthread"))
        inside = schedule.reach_inside(grid)
        bounds = self._bounds(schedule, fetch.operand, forms)
        region = tuple(
            hull(form, inside)
            if stays_within(schedule, form, bound)
            else clipped_hull(form, inside, bound)
            for form, bound in zip(forms, bounds, strict=True)
        )
        label = self._copy_name(schedule, fetch.operand)
        own = tuple(AffineForm({copy_axis(index): 1}, 0) for index in range(len(forms)))
        body, reads, sources = self._copied(fetch.operand, own)
        dtype = self.workload.tensors[fetch.operand].dtype
        layout = laid_out(region, schedule.layouts.get(fetch.operand))
        buffer = Buffer(
            *(label, layout.shape, dtype, len(path), "shared"),
            block_dim=layout.block_dim,
            dims=layout.dims,
            stages=schedule.fetch_stages.get(fetch.at, const(1)),
            bulk=isinstance(schedule.layouts.get(fetch.operand), BulkCopy),
        )
        elements = product(region)
        loops = cooperative_copy(label, elements, fetch.threads, fetch.lanes)
        self.statements.append(
            Statement(
                label,
                stage.name,
                "pack",
                (*path, *loops),
                (*reads, Access(label, own, region, write=True)),
                operation_counts(body),
                body,
                sources,
                corner_steps(forms, inside, grid),
                cooperating=frozenset(loop.name for loop in path if loop not in grid),
                flattened=tuple((copy_axis(index), extent) for index, extent in enumerate(region)),
                guards={ELEMENT: elements},
            )
        )
        self.buffers.append(buffer)

    def _copied(
        self, operand: str, own: tuple[AffineForm, ...]
    ) -> tuple[ScalarExpr, list[Access], dict[str, str]]:
        """Body and reads of a copy, over its axes; an inlined operand on the way."""
        producer = self.schedules.get(operand)
        if producer is None or not producer.inlined:
            whole = tuple(const(extent) for extent in self.workload.tensors[operand].shape)
            body: ScalarExpr = Load(operand, tuple(var(copy_axis(i)) for i in range(len(own))))
            return body, [Access(operand, own, whole)], {operand: operand}
        names = [axis.name for axis in producer.stage.spatial_axes]
        dims = {name: copy_axis(index) for index, name in enumerate(names)}
        reads = [
            evolve(
                access,
                forms=tuple(form.renamed(dims) for form in access.forms),
            )
            for access in self._accesses(producer)
        ]
        return body_of_copy(producer), reads, self._sources(producer)

    def _emit_write(self, schedule: StageSchedule, path: tuple[Loop, ...]) -> None:
        stage = schedule.stage
        name = f"{stage.name}.write"
        inside = schedule.reach_inside(path)
        loops = self._tile_loops(schedule, name, inside, schedule.write_factors)
        loops = fragment_loops(schedule, name, path, {}) if schedule.in_fragments else loops
        tile = evolve(self._write_access(schedule, f"{stage.name}.tile"), write=False)
        forms = tile.forms
        shape = tuple(const(extent) for extent in stage.output.shape)
        write = Access(stage.name, forms, shape, write=True)
        self.statements.append(
            Statement(
                name,
                stage.name,
                "write",
                (*path, *loops),
                (tile, write),
                guards=schedule.padding,
            )
        )
        if stage.name not in self.workload.outputs and schedule.attached is None:
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
            if axis.name in schedule.padding:
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
        reach = producer.reach_inside(path)
        inside = {own: reach[theirs] for theirs, own in names.items()}
        fused.extents = {own: producer.extents[theirs] for theirs, own in names.items()}
        loops = self._tile_loops(fused, fused.stage.name, inside, fused.write_factors)
        if producer.in_fragments:
            loops = fragment_loops(producer, fused.stage.name, path, names)
        reads = self._accesses(fused)
        name = fused.stage.name
        shape = tuple(const(extent) for extent in fused.stage.output.shape)
        write = evolve(self._write_access(fused, name), shape=shape)
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
                guards=fused.padding,
            )
        )

    def _emit_fused_producer(
        self, consumer: StageSchedule, fused: StageSchedule, path: tuple[Loop, ...]
    ) -> None:
        region = needed_region(self.workload, self.schedules, consumer, fused, path)
        fused.extents = {
            axis.name: region[axis.name] if axis.name in region else const(axis.extent)
            for axis in fused.stage.axes
        }
        for axis in fused.stage.axes:
            extent = fused.extents[axis.name]
            name = f"{axis.name}.0"
            if f"{axis.name}.1" in fused.loops:
                continue  # The factors of its tiling multiply to the region.
            parts = ((axis.name, extent),)
            fused.loops[name] = evolve(fused.loops[name], extent=extent, parts=parts)
        if fused.lanes > 1:
            last = fused.stage.axes[-1].name
            loop = fused.loops.pop(f"{last}.0")
            rest, vector = vectorized_copy([loop], fused.lanes)
            fused.loops[f"{last}.0"], fused.loops[f"{last}.1"] = rest, vector
            fused.order = [*fused.order, f"{last}.1"]
        names = names_in_producer(self.workload, self.schedules, consumer, fused)
        self._emit(fused, tuple(with_axes(loop, names) for loop in path))
        if fused.stage.name not in self.workload.outputs:
            shape = tuple(fused.extents[axis.name] for axis in fused.stage.spatial_axes)
            self.buffers.append(
                Buffer(
                    fused.stage.name,
                    shape,
                    fused.stage.output.dtype,
                    len(path),
                    scope_inside(path),
                )
            )


def names_in_producer(
    workload: Workload,
    schedules: dict[str, StageSchedule],
    consumer: StageSchedule,
    fused: StageSchedule,
) -> dict[str, str]:
    """Axis of a fused producer by the axis of the consumer that moves it in step."""
    for user in workload.consumers(fused.stage.name):
        load = next(load for load in user.loads if load.tensor == fused.stage.name)
        in_step = {
            next(iter(form.coefficients)): axis.name
            for axis, form in zip(fused.stage.spatial_axes, user.access_map(load), strict=True)
            if is_axis(form)
        }
        if user.name == consumer.stage.name:
            return in_step
        upper = names_in_producer(workload, schedules, consumer, schedules[user.name])
        return {outer: in_step[name] for outer, name in upper.items() if name in in_step}
    return {}


def needed_region(
    workload: Workload,
    schedules: dict[str, StageSchedule],
    consumer: StageSchedule,
    fused: StageSchedule,
    path: tuple[Loop, ...],
) -> dict[str, IntExpr]:
    """Region of the fused producer that is computed inside the loop, by axis.

    It is what everything there reads, and whole tiles.
    """
    needed = {axis.name: const(1) for axis in fused.stage.spatial_axes}
    for user in workload.consumers(fused.stage.name):
        schedule = schedules[user.name]
        if schedule is consumer:
            reach = consumer.reach_inside(path)
        else:
            reach = needed_region(workload, schedules, consumer, schedule, path)
            for axis in user.reduce_axes:
                reach[axis.name] = const(axis.extent)
        for load in user.loads:
            if load.tensor != fused.stage.name:
                continue
            forms = user.access_map(load)
            for axis, form in zip(fused.stage.spatial_axes, forms, strict=True):
                extent = clipped_hull(form, reach, const(axis.extent))
                needed[axis.name] = maximum(needed[axis.name], extent)
    return {
        axis.name: _in_whole_tiles(fused, axis, needed[axis.name])
        for axis in fused.stage.spatial_axes
    }


def _in_whole_tiles(fused: StageSchedule, axis: Axis, needed: IntExpr) -> IntExpr:
    """The part of an axis that is computed, where ``needed`` is read.

    The tiles of an axis may be of all of it where windows that move by more than one end before
    its end. Covered axes have guards, which leave out what is not needed.
    """
    parts = [part for loop in fused.ordered_loops for part in loop.parts]
    levels = [extent for name, extent in parts if name == axis.name]
    if len(levels) == 1 or axis.name in fused.covered or needed.value == axis.extent:
        return needed
    tiled = product(levels)
    return needed if tiled == needed else maximum(needed, tiled)


def body_of_copy(producer: StageSchedule) -> ScalarExpr:
    """The body of a pointwise stage over the axes of a copy of its result."""
    names = {axis.name: var(copy_axis(i)) for i, axis in enumerate(producer.stage.spatial_axes)}
    return substitute(producer.body, names)


def with_axes(loop: Loop, names: dict[str, str]) -> Loop:
    """A loop around a fused stage, with its axes named as the fused stage names them."""
    parts = tuple((names.get(axis, axis), extent) for axis, extent in loop.parts)
    bound = loop.bound
    if bound is not None:
        bound = evolve(bound, axis=names.get(bound.axis, bound.axis))
    return evolve(loop, parts=parts, bound=bound)


def vectorized_copy(loops: list[Loop], lanes: int) -> list[Loop]:
    """The innermost loop split into vectors of ``lanes``."""
    if lanes <= 1:
        return loops
    *outer, last = loops
    (axis, extent), *_ = last.parts
    rest = extent // lanes
    return [
        *outer,
        Loop(f"{last.name}.0", rest, ((axis, rest),)),
        Loop(f"{last.name}.1", const(lanes), ((axis, const(lanes)),), "vectorized"),
    ]


def interleaved_copy(loops: list[Loop], dim: int, size: int, lanes: int) -> list[Loop]:
    """A copy whose innermost loops handle ``size`` vectors at a time, along loop ``dim``."""
    if dim == len(loops) - 1:
        return vectorized_copy(loops, lanes)
    *outer, rest, vector = vectorized_copy(loops, lanes)
    (axis, extent), *_ = outer[dim].parts
    name, groups = outer[dim].name, extent // size
    outer[dim] = Loop(f"{name}.0", groups, ((axis, groups),))
    group = Loop(f"{name}.1", const(size), ((axis, const(size)),), "unrolled")
    return [*outer, rest, group, vector]


def parallel_copy(loops: list[Loop]) -> list[Loop]:
    """A copy before the stage: its outer loops fused and parallel."""
    own = [loop for loop in loops if loop.kind == "serial"]
    inner = len(loops) - len(own) + 1
    outer = loops[:-inner]
    if not outer:
        return loops
    count = max(1, len(outer) - 1)
    extent = const(1)
    parts: list[tuple[str, IntExpr]] = []
    for loop in outer[:count]:
        extent = extent * loop.extent
        parts.extend(loop.parts)
    fused = Loop("*".join(loop.name for loop in outer[:count]), extent, tuple(parts), "parallel")
    return [fused, *loops[count:]]


def packing_loops(
    label: str, region: Sequence[IntExpr], pack: Pack, group: Interleave | None
) -> list[Loop]:
    """The loops of a packed copy over its region.

    Args:
        label: Of the copy.
        region: Extents of what is copied.
        pack: The step that makes the copy.
        group: How it is laid out in groups of vectors, where it is.
    """
    loops = [
        Loop(f"{label}.{index}", extent, ((copy_axis(index), extent),))
        for index, extent in enumerate(region)
    ]
    if group is None:
        loops = vectorized_copy(loops, pack.lanes)
    else:
        loops = interleaved_copy(loops, group.dim, group.size, pack.lanes)
    return parallel_copy(loops) if pack.at is None else loops


def packed_shape(
    region: Sequence[IntExpr], pack: Pack, group: Interleave | None
) -> tuple[IntExpr, ...]:
    """Extents in memory of a packed region: blocks go first, what is in them and groups last."""
    shape = list(region)
    if group is not None:
        shape[group.dim] = shape[group.dim] // group.size
    if pack.block_dim is not None and pack.block is not None:
        blocked = shape.pop(pack.block_dim)
        shape = [blocked // pack.block, *shape, pack.block]
    if group is not None:
        shape.append(const(group.size))
    return tuple(shape)


def cooperative_copy(
    label: str, elements: IntExpr, threads: IntExpr, lanes: IntExpr
) -> tuple[Loop, ...]:
    """The loops of a copy that all threads of a block make together, over its elements."""
    rounds = ceildiv(elements, threads * lanes)
    extents = ((rounds, "serial"), (threads, "thread"), (lanes, "vectorized"))
    return tuple(
        Loop(f"{label}.{level}", extent, ((ELEMENT, extent),), kind)
        for level, (extent, kind) in enumerate(extents)
    )


def fragment_loops(
    schedule: StageSchedule, name: str, path: tuple[Loop, ...], names: dict[str, str]
) -> list[Loop]:
    """The loops over what a thread has of a warp's tile inside ``path``, each level by itself.

    Args:
        schedule: Of the stage that the tile is of.
        name: Of the statement.
        path: The loops around.
        names: What the statement calls the stage's axes, where it calls them otherwise.
    """
    loops = []
    for axis in schedule.stage.spatial_axes:
        own = names.get(axis.name, axis.name)
        for level, loop in schedule.levels_inside(axis.name, path):
            label = f"{name}.{own}.{level.rpartition('.')[2]}"
            loops.append(Loop(label, loop.extent, ((own, loop.extent),), "unrolled", loop.units))
    return [*loops[:-1], evolve(loops[-1], kind="vectorized")]


@frozen
class CopyLayout:
    """Layout of a fetched region in shared memory; all as in :class:`~autotune.nest.Buffer`."""

    shape: tuple[IntExpr, ...]
    dims: tuple[int, ...] | None = None
    block_dim: int | None = None


def laid_out(
    region: tuple[IntExpr, ...], layout: SharedLayout | CoreMatrices | BulkCopy | None
) -> CopyLayout:
    """The layout of a fetched region."""
    if layout is None:
        return CopyLayout(region)
    if isinstance(layout, CoreMatrices):
        *outer, rows = (extent for at, extent in enumerate(region) if at != layout.dim)
        planes = region[layout.dim] // layout.width
        shape = (planes, *outer, rows + layout.pad, const(layout.width))
        return CopyLayout(shape, block_dim=layout.dim)
    if isinstance(layout, BulkCopy):
        *outer, last = region
        return CopyLayout((last // layout.row, *outer, layout.row), block_dim=len(outer))
    *outer, row = (region[dimension] for dimension in layout.dims)
    plain = layout.dims == tuple(range(len(region)))
    return CopyLayout((*outer, row + layout.pad), None if plain else layout.dims)


def corner_steps(
    forms: tuple[AffineForm, ...], inside: dict[str, IntExpr], path: tuple[Loop, ...]
) -> dict[str, dict[str, IntExpr]]:
    """Distance that the corner of a copied region moves along each of the copy's own axes."""
    moved = {axis for loop in path for axis, _ in loop.parts}
    return {
        copy_axis(index): {
            axis: inside[axis] * abs(coefficient)
            for axis, coefficient in form.coefficients.items()
            if axis in moved
        }
        for index, form in enumerate(forms)
    }


def corner_starts(forms: tuple[AffineForm, ...], inside: dict[str, IntExpr]) -> dict[str, IntExpr]:
    """Corner of a copied region with all loops at 0, in the dimensions in which that is not 0."""
    starts = {}
    for index, form in enumerate(forms):
        start = const(form.constant)
        for axis, coefficient in form.coefficients.items():
            if coefficient < 0:
                start = start + (inside[axis] - 1) * coefficient
        if start.value != 0:
            starts[copy_axis(index)] = start
    return starts


def falling_corners(forms: tuple[AffineForm, ...]) -> frozenset[tuple[str, str]]:
    """Pairs of a copy's own axes and of axes whose steps move its corner down."""
    return frozenset(
        (copy_axis(index), axis)
        for index, form in enumerate(forms)
        for axis, coefficient in form.coefficients.items()
        if coefficient < 0
    )


def stays_within(schedule: StageSchedule, form: AffineForm, bound: IntExpr) -> bool:
    """Return whether an index never passes its bound; bounds grow with padded axes."""
    whole = hull(form, schedule.extents).value
    grown = any(axis in schedule.padded for axis in form.coefficients)
    return grown or (whole is not None and bound.value is not None and whole <= bound.value)
