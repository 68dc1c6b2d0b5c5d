"""The walk over a GPU's nest: blocks, threads, shared memory and barriers.

Statements that share their outermost loop are one kernel. Threads and virtual threads are around
each of its statements, whatever serial loops these share: those hold the barriers, at which all
threads of a block meet. A barrier stands before a statement that reads what others may have
written since the last one, or writes what others may have read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import groupby

from attrs import define, evolve, field, frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions.integer import evaluate
from autotune.lower.concrete import (
    ConcreteLoop,
    ConcreteStatement,
    Number,
    check_factors,
    concrete_statements,
)
from autotune.lower.conditions import Below
from autotune.lower.cuda import CudaEmitter, PrintedKernel
from autotune.lower.emitter import Value
from autotune.lower.instructions import warpgroups, warps
from autotune.lower.linear import Digits, Linear
from autotune.lower.memory import store
from autotune.lower.pipelines import Pipeline, moved, pipelines_of, requests_of, swizzled_row
from autotune.lower.places import Place, address, from_corner
from autotune.lower.state import State
from autotune.lower.tensor_cores import (
    Fragments,
    fragments_of,
    is_of_warps,
    product_of,
    registers_of,
    rounded_copies,
)
from autotune.lower.walk import Walk, limits, sharing
from autotune.nest import Buffer, LoopNest, derive_nest, layout_conflict
from autotune.sketches import Candidate
from autotune.sketches.intrinsics import Intrinsic
from autotune.targets import Target

__all__ = ["PrintedKernels", "print_kernels"]

_WARP = 32
_THREADS = ("thread", "vthread")
# Threads of a block where no step says how many.
_UNBOUND_THREADS = 256
# An index of a kernel has 32 bits.
_MOST_ELEMENTS = 1 << 31


@frozen(eq=False)
class PrintedKernels:
    """A program of kernels.

    Attributes:
        source: In CUDA C++.
        kernels: Their launches, in order.
        intermediates: Places of memory that they need beside the arrays of the workload.
    """

    source: str
    kernels: tuple[PrintedKernel, ...]
    intermediates: tuple[Place, ...]


def print_kernels(candidate: Candidate, target: Target | None = None) -> PrintedKernels:
    """Print the program of a candidate as kernels.

    Args:
        candidate: What to print.
        target: For which blocks of kernels of matrix instructions are to fit; None: any.

    Raises:
        InvalidValueError: its values give no nest.
        UnsupportedWorkload: its nest has what is not printed, which is named.
    """
    nest = derive_nest(candidate.sketch)
    check_factors(candidate, nest.workload)
    digits, emitter = Digits(), CudaEmitter(target=target)
    _, statements = concrete_statements(nest, candidate.config, digits)
    _check(candidate, statements)
    fragments = fragments_of(statements, nest.workload)
    workload = candidate.sketch.workload

    def number(expression: object) -> int:
        return int(evaluate(expression, candidate.config))  # type: ignore[arg-type]

    # Steps may number the elements of arrays by other axes, in the same order.
    tensors = {**workload.tensors, **nest.workload.tensors}
    arrays = (*(tensor.name for tensor in workload.inputs), *workload.outputs)
    places = {
        name: Place(name, it.dtype, "argument", it.shape, order=tuple(range(len(it.shape))))
        for name, it in ((name, tensors[name]) for name in arrays)
    }
    filled = {it.write.buffer for it in statements if it.source.role == "pack"}
    for buffer in nest.buffers:
        place = _place(buffer, number)
        if buffer.name in fragments:
            place = fragments[buffer.name].laid_out(place)
        places[buffer.name] = evolve(place, is_copy=buffer.name in filled)
    for place in places.values():
        if place.elements >= _MOST_ELEMENTS:
            raise UnsupportedWorkload(f"{place.name!r} has more elements than a kernel can index")
    inputs = tuple(places[tensor.name] for tensor in workload.inputs)
    outputs = tuple(places[name] for name in workload.outputs)
    between = tuple(places[it.name] for it in nest.buffers if places[it.name].kind == "argument")
    emitter.begin(digits, inputs, outputs, between)
    scopes = {buffer.name: buffer.scope for buffer in nest.buffers}
    pipelines = pipelines_of(statements, nest, number)
    state = _State(
        *(emitter, digits, places, nest.workload, 1),
        scopes=scopes,
        pipelines=pipelines,
        fragments=fragments,
    )
    for _, group in groupby(statements, lambda it: it.loops[0].name if it.loops else it.name):
        _Kernel.of([*group], state, nest, number).print()
    return PrintedKernels(emitter.finish(), tuple(emitter.kernels), between)


def _check(candidate: Candidate, statements: Sequence[ConcreteStatement]) -> None:
    """Check that statements have nothing that kernels are not printed of."""
    if any(is_of_warps(statement.intrinsic) for statement in statements):
        conflict = layout_conflict(candidate)
        if conflict is not None:
            raise UnsupportedWorkload(conflict)
    for statement in statements:
        if statement.intrinsic is not None and not is_of_warps(statement.intrinsic):
            raise UnsupportedWorkload(
                f"instruction {statement.source.intrinsic!r} is not printed in kernels"
            )
        if statement.source.pipelined is not None:
            raise UnsupportedWorkload("statements that run late are not printed in kernels")


def _place(buffer: Buffer, number: Number) -> Place:
    """The place of a buffer: memory of the device, of a block or of a thread."""
    extents = tuple(number(extent) for extent in buffer.shape)
    order = tuple(range(len(extents))) if buffer.dims is None else buffer.dims
    shape = tuple(extents[order.index(index)] for index in range(len(order)))
    kind = "argument" if buffer.scope == "global" else "stack"
    return Place(
        *(buffer.name, buffer.dtype, kind, shape, buffer.depth, order),  # type: ignore[arg-type]
        block_dim=buffer.block_dim,
    )


@define(eq=False)
class _State(State):
    """The state of a walk over kernels.

    Attributes:
        scopes: Scope of each buffer.
        pipelines: The loop of each buffer that has several stages.
        fragments: Of results that instructions of warps add to, by buffer.
    """

    scopes: Mapping[str, str] = field(factory=dict)
    pipelines: Mapping[str, Pipeline] = field(factory=dict)
    fragments: Mapping[str, Fragments] = field(factory=dict)

    def address(
        self, statement: ConcreteStatement, place: Place, indices: Sequence[Linear]
    ) -> Linear:
        """The offset of an element within its allocation, of virtual threads one after another."""
        if place.kind == "argument":
            return address(place, indices, self.digits)
        shared = self.scopes[place.name] == "shared"
        inside = [self._inside(statement, index, place, shared=shared) for index in indices]
        if place.name in self.fragments:
            inside = self.fragments[place.name].numbered(inside)
        at = address(place, inside, self.digits)
        if place.name in self.pipelines:
            return at + self.pipelines[place.name].stage(self.digits) * place.elements
        size = place.elements
        for loop in reversed(_virtual(statement, place.depth) if not shared else ()):
            at = at + self.digits.counter(loop.name, loop.extent) * size
            size *= loop.extent
        return at

    def _inside(
        self, statement: ConcreteStatement, index: Linear, place: Place, *, shared: bool
    ) -> Linear:
        """An index within an allocation, which the threads share or not."""
        depths = {loop.name: depth for depth, loop in enumerate(statement.loops)}

        def moves(digit: str) -> bool:
            at = max((depths.get(it, 0) for it in self.digits.sources(digit)), default=0)
            return at >= place.depth or (shared and statement.loops[at].kind in _THREADS)

        return from_corner(statement, index.kept(moves), place)


def _virtual(statement: ConcreteStatement, depth: int) -> tuple[ConcreteLoop, ...]:
    """The loops over virtual threads around an allocation."""
    return tuple(loop for loop in statement.loops[:depth] if loop.kind == "vthread")


@frozen(eq=False)
class _Kernel(Walk):
    """The walk over one kernel.

    Attributes:
        statements: What it runs.
        number: Values of expressions over parameters.
        extents: Threads of a block, in x and y.
        bound: Serial loops whose iterations are a thread each, where no loop is bound by steps.
        grid: Its loops over blocks.
        rounded: Instructions that take copies rounded, by the names of the copies.
        touched: Places that threads share and that have been read and written since the last
            barrier.
        copied: Places that threads fill past their registers.
        begun: Statements whose instructions are begun, and end behind the loop around them.
    """

    statements: Sequence[ConcreteStatement] = field(kw_only=True)
    number: Number = field(kw_only=True)
    extents: tuple[int, int] = (1, 1)
    grid: tuple[ConcreteLoop, ...] = ()
    bound: tuple[ConcreteLoop, ...] = ()
    rounded: Mapping[str, Intrinsic] = field(factory=dict)
    touched: tuple[set[str], set[str]] = field(factory=lambda: (set(), set()))
    copied: set[str] = field(factory=set)
    begun: set[str] = field(factory=set)

    @staticmethod
    def of(
        statements: Sequence[ConcreteStatement], state: State, nest: LoopNest, number: Number
    ) -> _Kernel:
        """The kernel of statements that share their loops over blocks."""
        found = [_threads(statement) for statement in statements]
        columns = max((it[-1].extent for it in found if it), default=1)
        rows = max((it[0].extent for it in found if len(it) == 2), default=1)
        grid = tuple(loop for loop in statements[0].loops if loop.kind == "block")
        if len(grid) > 3:
            raise UnsupportedWorkload(f"{len(grid)} loops over blocks")
        bound: tuple[ConcreteLoop, ...] = ()
        if not grid and not any(found):
            bound = _independent(statements, nest)
            columns = min(_UNBOUND_THREADS, math.prod(loop.extent for loop in bound))
        return _Kernel(
            *(state, nest, {}),
            statements=statements,
            number=number,
            extents=(columns, rows),
            grid=grid,
            bound=bound,
            rounded=rounded_copies(statements),
        )

    @property
    def scopes(self) -> Mapping[str, str]:
        """The scope of each buffer."""
        assert isinstance(self.state, _State)
        return self.state.scopes

    @property
    def pipelines(self) -> Mapping[str, Pipeline]:
        """The loop of each buffer that has several stages."""
        assert isinstance(self.state, _State)
        return self.state.pipelines

    @property
    def emitter(self) -> CudaEmitter:
        """The printer."""
        emitter = self.state.emitter
        assert isinstance(emitter, CudaEmitter)
        return emitter

    def print(self) -> None:
        """Print it."""
        extents = [loop.extent for loop in reversed(self.grid)]
        columns, rows = self.extents
        if self.bound:
            extents = [-(-math.prod(loop.extent for loop in self.bound) // columns)]
        x, y, z = (*extents, *(1,) * (3 - len(extents)))
        taken = {access.buffer for it in self.statements for access in it.source.accesses}
        held, block = self._registers(), (columns, rows, 1)
        with self.emitter.kernel([*taken], (x, y, z), block, held), ExitStack() as stack:
            for axis, loop in zip("xyz", reversed(self.grid), strict=False):
                stack.enter_context(self.emitter.counter(loop.name, f"(int)blockIdx.{axis}"))
            for axis in "xy":
                stack.enter_context(self.emitter.counter(axis, f"(int)threadIdx.{axis}"))
            self._allocate()
            stack.enter_context(self._in_bound_loops())
            self.level(self.statements, len(self.bound), ())

    @contextmanager
    def _in_bound_loops(self) -> Iterator[None]:
        """Let a thread have an iteration of the loops that no step has bound."""
        if not self.bound:
            yield
            return
        total, size = math.prod(loop.extent for loop in self.bound), self.extents[0]
        with ExitStack() as stack:
            own = f"(int)(blockIdx.x * {size} + threadIdx.x)"
            if total % size:
                stack.enter_context(self.emitter.only(f"{own} < {total}"))
            inside = 1
            for loop in reversed(self.bound):
                text = f"MOD(DIV({own}, {inside}), {loop.extent})"
                stack.enter_context(self.emitter.counter(loop.name, text))
                inside *= loop.extent
            yield

    def _allocate(self) -> None:
        for buffer in self.nest.buffers:
            place = self.state.places[buffer.name]
            touching = [it for it in self.statements if buffer.name in _buffers(it)]
            if not touching or place.kind == "argument":
                continue
            if buffer.scope == "shared":
                known = self.pipelines.get(buffer.name)
                row = swizzled_row(place) if buffer.bulk else 0
                self.emitter.allocate_shared(place, known.stages if known else 1, row)
            else:
                loops = _virtual(touching[0], place.depth)
                copies = math.prod(loop.extent for loop in loops)
                self.emitter.allocate_local(place, copies)

    def level(
        self,
        statements: Sequence[ConcreteStatement],
        depth: int,
        pending: tuple[ConcreteLoop, ...],
    ) -> None:
        """Print statements that share their first ``depth`` loops.

        Args:
            statements: What is printed.
            depth: How many loops around it are printed, or are pending.
            pending: Threads and virtual threads of these, which go around each statement.
        """
        position = 0
        while position < len(statements):
            group = sharing(statements[position:], depth)
            position += len(group)
            first = group[0]
            if len(group) == 1 or depth == len(first.loops):
                self._alone(first, depth, pending)
                continue
            loop = first.loops[depth]
            if loop.kind == "block":
                self.level(group, depth + 1, pending)
            elif loop.kind in _THREADS:
                self.level(group, depth + 1, (*pending, loop))
            else:
                self._together(group, depth, pending)

    def _together(
        self,
        group: Sequence[ConcreteStatement],
        depth: int,
        pending: tuple[ConcreteLoop, ...],
    ) -> None:
        """Print a serial loop that all threads run in step."""
        state, loop = self.state, group[0].loops[depth]
        if fetches := [it for it in group if self._is_ahead(it, loop)]:
            self._ahead(fetches, [it for it in group if it not in fetches], depth, pending)
            return
        begin, end = limits(group[0], depth, state.digits)
        if any(self._is_of_thread(group[0], name) for name in (*begin.digits, *end.digits)):
            raise UnsupportedWorkload(f"loop {loop.name!r} ends elsewhere in every thread")
        self._repeat(group, loop)
        with state.forgetting(), self.emitter.loop(loop.name, begin, end, loop.kind):
            self.level(group, depth + 1, pending)

    def _repeat(self, group: Sequence[ConcreteStatement], loop: ConcreteLoop) -> None:
        """Note that an iteration of a loop follows one that touched all of it."""
        read, written = self.touched
        for statement in group if loop.extent > 1 else ():
            read |= self._shared(statement, written=False)
            written |= self._shared(statement, written=True)
            read.add(_exchanged(statement))

    def _is_of_thread(self, statement: ConcreteStatement, digit: str) -> bool:
        kinds = {loop.name: loop.kind for loop in statement.loops}
        return any(kinds.get(it) in _THREADS for it in self.state.digits.sources(digit))

    def _shared(self, statement: ConcreteStatement, *, written: bool) -> set[str]:
        """The places that a statement reads or writes and that other threads may, too."""
        return {
            access.buffer
            for access in statement.source.accesses
            if access.write == written and self.scopes.get(access.buffer) != "local"
        }

    def _meet(self, reads: set[str], writes: set[str]) -> None:
        """Wait for other threads where they may touch these places; they are touched then.

        Iterations of loops that no step has bound touch nothing of each other.
        """
        if self.bound:
            return
        read, written = self.touched
        if reads & written or writes & (read | written):
            self._wait()
        read |= reads
        written |= writes

    def _wait(self) -> None:
        """Wait for all threads of the block."""
        self.emitter.barrier()
        self.state.forget()
        for touched in self.touched:
            touched.clear()

    def _alone(
        self, statement: ConcreteStatement, depth: int, pending: tuple[ConcreteLoop, ...]
    ) -> None:
        """Print a statement in the loops that are its own, and in those that are pending."""
        if self._begins_across(statement):
            return
        if statement.name not in self.begun:
            self._share(statement)
        self._meet(self._shared(statement, written=False), self._shared(statement, written=True))
        self._in_own_loops(statement, depth, pending)

    def _in_own_loops(
        self, statement: ConcreteStatement, depth: int, pending: tuple[ConcreteLoop, ...]
    ) -> None:
        """Print a statement that may touch what it does."""
        own = (*pending, *statement.loops[depth : statement.body_depth])
        own = tuple(it for it in own if it.name not in statement.source.cooperating)
        inside = [loop for loop in own if loop.kind not in (*_THREADS, "block")]
        virtual = [loop for loop in own if loop.kind == "vthread"]
        if self._crosses(statement):
            self._across(statement, [*virtual, *inside])
            return
        loops = self._ordered(statement, inside, virtual)
        with self.state.forgetting(), self._in_threads(statement):
            self._loops(statement, loops)

    def _ordered(
        self,
        statement: ConcreteStatement,
        inside: Sequence[ConcreteLoop],
        virtual: Sequence[ConcreteLoop],
    ) -> list[ConcreteLoop]:
        """Loops of a thread: those of virtual threads inside of all but the lanes.

        What is summed in registers is summed with reductions outside of results: what they read is
        then used at once by all results that need it, and no loop over them is in the way of one
        that is not written out.
        """
        lanes = [loop for loop in inside if loop.name == statement.lane]
        others = [loop for loop in inside if loop.name != statement.lane]
        reduced = self._reduced(statement)
        if self.scopes.get(statement.write.buffer) == "local" and all(
            loop.bound is None for loop in others
        ):
            others.sort(key=lambda loop: not reduced & {*loop.axes})
        return [*others, *virtual, *lanes]

    @contextmanager
    def _in_threads(self, statement: ConcreteStatement, *, guarded: bool = True) -> Iterator[None]:
        """Let threads run a statement: those beyond its loops do not, if it is guarded."""
        loops = _threads(statement)
        axes = {1: "x", 2: "yx"}.get(len(loops), "")
        if len(loops) > len(axes):
            raise UnsupportedWorkload(f"{len(loops)} loops over threads")
        with ExitStack() as stack:
            stack.enter_context(self.emitter.scope())
            for axis, loop in zip(axes, loops, strict=True):
                stack.enter_context(self.emitter.counter(loop.name, f"(int)threadIdx.{axis}"))
            if guarded and not self.bound and (tests := self._tests(loops, axes)):
                stack.enter_context(self.emitter.only(tests))
            yield

    def _tests(self, loops: Sequence[ConcreteLoop], axes: str) -> str:
        """The condition of the threads that run loops; "" where all do."""
        wanted = {axis: loop.extent for axis, loop in zip(axes, loops, strict=True)}
        tests = [
            f"threadIdx.{axis} < {wanted.get(axis, 1)}"
            for axis, extent in zip("xy", self.extents, strict=True)
            if wanted.get(axis, 1) < extent
        ]
        return " && ".join(tests)

    def _loops(self, statement: ConcreteStatement, loops: Sequence[ConcreteLoop]) -> None:
        """Print a statement in loops of its own."""
        if not loops:
            self.leaf(statement)
            return
        loop, *others = loops
        if not others and loop.name == statement.lane:
            with self.state.in_lanes((loop.name, loop.extent)):
                self.leaf(statement)
            return
        if loop.extent == 1 and loop.bound is None:
            self._loops(statement, others)
            return
        depth = [it.name for it in statement.loops].index(loop.name)
        begin, end = limits(statement, depth, self.state.digits)
        kind = "unrolled" if self._is_unrolled(statement, loops) else "serial"
        if kind == "unrolled" and self._divides(statement, loop):
            for value in range(loop.extent):
                with self.state.forgetting(), self.state.digits.at(loop.name, value):
                    self._loops(statement, others)
            return
        with self.state.forgetting(), self.emitter.loop(loop.name, begin, end, kind):
            self._loops(statement, others)

    def _divides(self, statement: ConcreteStatement, loop: ConcreteLoop) -> bool:
        """Tell whether indices divide what a loop counts, together with threads.

        Each iteration is then printed by itself: a compiler does not know that indices are small,
        so it divides in each of them, where most quotients are known, or are those of others.
        """
        digits = self.state.digits
        return (
            bool(statement.source.cooperating)
            and loop.bound is None
            and any(not digits.is_apart(form, loop.name) for form in statement.axes.values())
        )

    def _is_unrolled(self, statement: ConcreteStatement, loops: Sequence[ConcreteLoop]) -> bool:
        """Tell whether a loop is written out: what is in registers has no addresses."""
        loop = loops[0]
        if loop.kind in ("unrolled", "vectorized", "vthread"):
            return True
        for access in statement.source.accesses:
            if self.scopes.get(access.buffer) != "local":
                continue
            place = self.state.places[access.buffer]
            forms = [self.state.digits.of_form(it, statement.axes) for it in access.forms]
            at = self.state.address(statement, place, forms)
            if self.state.digits.depends(at, loop.name):
                return True
        copies = math.prod(it.extent for it in loops)
        return copies <= int(self.number(statement.source.unroll_limit))

    # Copies ahead

    def _is_ahead(self, statement: ConcreteStatement, loop: ConcreteLoop) -> bool:
        """Tell whether a statement fills a stage of what iterations of a loop fetch."""
        known = self.pipelines.get(statement.write.buffer)
        return known is not None and known.loop == loop.name

    def _ahead(
        self,
        fetches: Sequence[ConcreteStatement],
        others: Sequence[ConcreteStatement],
        depth: int,
        pending: tuple[ConcreteLoop, ...],
    ) -> None:
        """Print a loop whose fetches run some iterations ahead.

        An iteration waits for its own stage, and with all threads for the iteration before, whose
        stage is filled next. Products of warpgroups are begun before that, and have ended before
        the barrier of the next iteration.
        """
        state, emitter, loop = self.state, self.emitter, fetches[0].loops[depth]
        staged = {it.write.buffer for it in fetches}
        made = {it.write.buffer for it in others} | staged
        if any(_reads(it, name) for it in fetches for name in made):
            raise UnsupportedWorkload(f"loop {loop.name!r} computes what it fetches ahead")
        self._begin_bulk(fetches, depth)
        self._meet(set(), staged)
        ahead, end = self.pipelines[min(staged)].stages - 1, Linear((), loop.extent)
        with state.forgetting(), emitter.loop(loop.name, Linear(), Linear((), ahead), "serial"):
            self._fetch(fetches, depth, pending)
            self._end_group(fetches)
        self._repeat(others, loop)
        self.touched[1].update(staged)
        products = all(map(_is_of_warpgroup, others))
        self.begun.update(it.name for it in others if products)
        with state.forgetting(), emitter.loop(loop.name, Linear(), end, loop.kind):
            self._arrive(fetches)
            self._free(fetches, others)
            self._meet(staged, set())
            if products:
                self.level(others, depth + 1, pending)
            with emitter.ahead(loop.name, ahead, loop.extent):
                self._fetch(fetches, depth, pending)
            # Beyond the last iteration groups without copies keep the count.
            self._end_group(fetches)
            if not products:
                self.level(others, depth + 1, pending)
        self.touched[0].update(staged)
        for statement in others if products else ():
            self._end(statement)

    def _fetch(
        self,
        fetches: Sequence[ConcreteStatement],
        depth: int,
        pending: tuple[ConcreteLoop, ...],
    ) -> None:
        """Begin to fill a stage."""
        state, emitter = self.state, self.emitter
        for statement in fetches:
            place = state.places[statement.write.buffer]
            pipeline = self.pipelines[place.name]
            if not pipeline.bulk:
                self._in_own_loops(statement, depth + 1, pending)
                continue
            stage = pipeline.stage(state.digits)
            with emitter.only("threadIdx.x == 0 && threadIdx.y == 0"):
                found = requests_of(state, statement, place, stage * place.elements)
                emitter.request(place, found, stage)

    def _begin_bulk(self, fetches: Sequence[ConcreteStatement], depth: int) -> None:
        """Make the barriers of what the copy engine fetches, whose rounds are of one loop."""
        found = [it for it in fetches if self.pipelines[it.write.buffer].bulk]
        if not found:
            return
        loops = found[0].loops[:depth]
        repeats = any(it.extent > 1 and it.kind not in (*_THREADS, "block") for it in loops)
        engine = {it.loop for it in self.pipelines.values() if it.bulk}
        if repeats or len(engine) > 1:
            raise UnsupportedWorkload(
                f"the copy engine fetches inside a loop around {found[0].loops[depth].name!r}, "
                "or in two loops"
            )
        self.emitter.begin_bulk(self.pipelines[found[0].write.buffer].stages, len(found))
        self._wait()

    def _end_group(self, fetches: Sequence[ConcreteStatement]) -> None:
        """Close the group of what has been begun, by which threads count what they wait for."""
        if any(it.write.buffer in self.copied for it in fetches):
            self.emitter.end_copies()

    def _arrive(self, fetches: Sequence[ConcreteStatement]) -> None:
        """Wait until an iteration's own stage is filled."""
        digits = self.state.digits
        pipelines = [self.pipelines[it.write.buffer] for it in fetches]
        if any(it.write.buffer in self.copied for it in fetches):
            self.emitter.wait_for_copies(pipelines[0].stages - 2)
        for it in [it for it in pipelines if it.bulk][:1]:
            parity = digits.remainder(it.round(digits), 2)
            self.emitter.wait_for_bulk(it.stage(digits), parity)

    def _fills_ahead(self, statement: ConcreteStatement) -> bool:
        """Tell whether a statement copies past registers what it can: what is not rounded."""
        name = statement.write.buffer
        return name in self.pipelines and name not in self.rounded

    def _moved(self, statement: ConcreteStatement) -> bool:
        """Print an asynchronous copy; False where a load and a store have to do it."""
        state, emitter = self.state, self.emitter
        place, at = self.target(statement)
        what = moved(state, statement, place, at)
        if what is None:
            return False
        ends = self._ends(statement)
        guard, mask = self._conditions(ends)
        with self._knowing(ends):
            inside, other = self._conditions(self._within(statement))
        if mask is not None or other is not None:
            return False
        with self._when(guard), self._knowing(ends):
            found = [it for it in (inside, *what.conditions(state, statement)) if it is not None]
            valid = None
            for it in found:
                valid = it if valid is None else emitter.binary("and", valid, it)
            emitter.copy(place, what, valid)
        self.copied.add(place.name)
        return True

    def _knowing(self, conditions: Sequence[Below]) -> AbstractContextManager[None]:
        """Inside, conditions hold for all lanes, by which threads compute fewer addresses."""
        digits, lane = self.state.digits, self.state.lane
        known = [it if lane is None else it.without(*lane, digits) for it in conditions]
        return digits.knowing([it.form for it in known if it is not None])

    # Instructions of warps

    def _registers(self) -> int:
        """Registers of a thread for the tiles of its warp; 0 where the compiler decides."""
        return max((registers_of(it) for it in self.statements), default=0)

    def _share(self, statement: ConcreteStatement) -> None:
        """Let instructions that read memory by a way of their own see what its thread wrote."""
        if _is_of_warpgroup(statement):
            self.emitter.define(warpgroups.shared_source())
            self.emitter.call(warpgroups.SHARE)

    def leaf(self, statement: ConcreteStatement) -> None:
        """Print a statement where all of its loops are known."""
        if not is_of_warps(statement.intrinsic):
            if not self._fills_ahead(statement) or not self._moved(statement):
                super().leaf(statement)
            return
        product, emitter = product_of(self.state, statement, self.nest.workload), self.emitter
        emitter.define(product.source)
        sums = emitter.place(product.sums, Linear())
        given = [
            text
            for factor in (product.left, product.right)
            for text in (emitter.place(factor.place, factor.at), str(factor.pitch))
        ]
        emitter.call(product.functions[0], sums, *given)
        if statement.name not in self.begun:
            self._end(statement)

    def _end(self, statement: ConcreteStatement) -> None:
        """Wait for the results of instructions that do not end by themselves."""
        product = product_of(self.state, statement, self.nest.workload)
        for name in product.functions[1:]:
            self.emitter.call(name, self.emitter.place(product.sums, Linear()))

    def _free(
        self, fetches: Sequence[ConcreteStatement], others: Sequence[ConcreteStatement]
    ) -> None:
        """Before a barrier, end the products that read what is fetched anew behind it.

        What the copy engine writes, instructions of warpgroups see as it is.
        """
        product = next(filter(_is_of_warpgroup, others), None)
        if product is None:
            return
        if not all(self.pipelines[it.write.buffer].bulk for it in fetches):
            self._share(product)
        self.emitter.call(warpgroups.WAIT)

    def _stored(
        self, statement: ConcreteStatement, place: Place, at: Linear, mask: Value | None
    ) -> Value:
        value = super()._stored(statement, place, at, mask)
        call = self.rounded.get(place.name)
        if call is None:
            return value
        self.emitter.define(warps.rounding_source(call))
        return self.emitter.rounded(warps.rounding_name(call), value)

    # Reductions across threads

    def _reduced(self, statement: ConcreteStatement) -> set[str]:
        if statement.source.role != "compute":
            return set()
        stage = self.nest.workload.stage(statement.source.stage)
        return {axis.name for axis in stage.reduce_axes}

    def _crosses(self, statement: ConcreteStatement) -> bool:
        """Tell whether threads of a row reduce together."""
        reduced = self._reduced(statement)
        return any(reduced & {*loop.axes} for loop in _threads(statement))

    def _begins_across(self, statement: ConcreteStatement) -> bool:
        """Tell whether it begins a reduction across threads, which does so itself."""
        return statement.source.role == "init" and any(
            it.source.stage == statement.source.stage and self._crosses(it)
            for it in self.statements
        )

    def _across(self, statement: ConcreteStatement, loops: Sequence[ConcreteLoop]) -> None:
        """Print a reduction: of each thread, then of the threads of a row.

        The first thread of the row writes it.
        """
        state, emitter, source = self.state, self.emitter, statement.source
        reduced = self._reduced(statement)
        around = [loop for loop in loops if not reduced & {*loop.axes}]
        if loops[: len(around)] != around:
            raise UnsupportedWorkload(f"{source.name!r} reduces around its results")
        stage = self.nest.workload.stage(source.stage)
        place, at = self.target(statement)
        with state.forgetting(), self._in_threads(statement, guarded=False), ExitStack() as stack:
            for loop in around:
                span = Linear(), Linear((), loop.extent)
                if loop.extent > 1:
                    self.touched[0].add(_exchanged(statement))
                stack.enter_context(emitter.loop(loop.name, *span, "serial"))
            total = Place(f"{source.name}.sum", place.dtype, "registers", (1,), order=(0,))
            emitter.allocate(total)
            emitter.set_register(
                total, 0, emitter.constant(self._identity(statement), place.dtype)
            )
            threads = _threads(statement)
            axes = {1: "x", 2: "yx"}[len(threads)]
            tests = self._tests(threads, axes)
            state.sums[source.name] = total
            with emitter.only(tests) if tests else emitter.scope():
                self._loops(statement, loops[len(around) :])
            del state.sums[source.name]
            found = self._of_row(statement, stage.combiner or "add", emitter.register(total, 0))
            rows = [loop for loop in threads if not reduced & {*loop.axes}]
            first = self._tests(rows, "y"[: len(rows)])
            with emitter.only(first or "threadIdx.x == 0"):
                store(state, place, state.digits.resolved(at), found, None, stream=False)
        # Barriers within the reduction are before what it writes.
        self.touched[1].update(self._shared(statement, written=True))

    def _of_row(self, statement: ConcreteStatement, op: str, value: Value) -> Value:
        """The values of the threads of a row combined; of its first thread."""
        (columns, rows), emitter, digits = self.extents, self.emitter, self.state.digits
        if columns <= _WARP and columns & (columns - 1) == 0:
            return self._of_lanes(op, value, columns)
        x, y = digits.counter("x", columns), digits.counter("y", rows)
        parts = _WARP if columns % _WARP == 0 else 1
        width = columns // parts
        name, dtype = _exchanged(statement), value.dtype
        kept = Place(name, dtype, "stack", (rows, width), order=(0, 1))
        emitter.allocate_shared(kept)
        self._meet(set(), {name})
        value = self._of_lanes(op, value, parts)
        with emitter.when(emitter.below(digits.remainder(x, parts) - 1)):
            emitter.store(kept, y * width + digits.quotient(x, parts), value, None, False)
        self._meet({name}, set())
        identity = emitter.constant(self._identity(statement), dtype)
        if width <= _WARP:
            is_one = emitter.below(x - width)
            own = emitter.choose(
                is_one, lambda: emitter.load(kept, y * width + x, 1), lambda: identity
            )
            return self._of_lanes(op, own, 1 << (width - 1).bit_length())
        total = Place(f"{name}.sum", dtype, "registers", (1,), order=(0,))
        emitter.allocate(total)
        emitter.set_register(total, 0, identity)
        at = digits.counter(name, width)
        with emitter.loop(name, Linear(), Linear((), width), "serial"):
            found = emitter.binary(
                op, emitter.register(total, 0), emitter.load(kept, y * width + at, 1)
            )
            emitter.set_register(total, 0, found)
        return emitter.register(total, 0)

    def _identity(self, statement: ConcreteStatement) -> float | int | bool:
        return self.nest.workload.stage(statement.source.stage).identity()

    def _of_lanes(self, op: str, value: Value, width: int) -> Value:
        """The values of neighbouring lanes combined; of the first one."""
        distance = width // 2
        while distance:
            value = self.emitter.binary(
                op, value, self.emitter.from_thread(value, distance, width)
            )
            distance //= 2
        return value


def _threads(statement: ConcreteStatement) -> list[ConcreteLoop]:
    """Its own loops over threads, the outermost first."""
    return [
        loop
        for loop in statement.loops
        if loop.kind == "thread" and loop.name not in statement.source.cooperating
    ]


def _independent(
    statements: Sequence[ConcreteStatement], nest: LoopNest
) -> tuple[ConcreteLoop, ...]:
    """The outermost loops that all statements share and whose iterations may run at once."""
    found: list[ConcreteLoop] = []
    for depth, loop in enumerate(statements[0].loops):
        for statement in statements:
            stage = nest.workload.stage(statement.source.stage)
            spatial = {it.name for it in stage.spatial_axes if it is not stage.scan_axis}
            shares = [other.name for other in statement.loops[depth : depth + 1]] == [loop.name]
            if not shares or not {*loop.axes} <= spatial or loop.bound is not None:
                return tuple(found)
        found.append(loop)
    return tuple(found)


def _exchanged(statement: ConcreteStatement) -> str:
    """The name of the place by which the warps of a row exchange what they have reduced."""
    return f"{statement.name}.threads"


def _is_of_warpgroup(statement: ConcreteStatement) -> bool:
    return statement.intrinsic is not None and statement.intrinsic.is_of_warpgroup


def _reads(statement: ConcreteStatement, buffer: str) -> bool:
    return any(it.buffer == buffer and not it.write for it in statement.source.accesses)


def _buffers(statement: ConcreteStatement) -> set[str]:
    return {access.buffer for access in statement.source.accesses}
