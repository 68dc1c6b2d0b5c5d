"""The walk over a concrete nest: loops, lanes and expanded copies, in program order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import groupby
from typing import Any

from attrs import evolve, field, frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Gather, IndexValue, Load, ScalarExpr, Select
from autotune.ir.expressions.integer import evaluate
from autotune.ir.expressions.scalar import children, loads, walk
from autotune.lower.bodies import below, computed, reads_square
from autotune.lower.concrete import (
    ConcreteLoop,
    ConcreteStatement,
    check_factors,
    concrete_statements,
)
from autotune.lower.conditions import (
    Below,
    Uniform,
    all_below,
    comparison,
    constant_of,
    decided,
    uniform,
)
from autotune.lower.copies import in_vectors, with_wide_copies
from autotune.lower.emitter import Emitter, Value
from autotune.lower.instructions import (
    Call,
    Instruction,
    call_of,
    configured,
    instruction_of,
)
from autotune.lower.invariants import invariants_held
from autotune.lower.linear import Digits, Linear
from autotune.lower.memory import load, store
from autotune.lower.places import Place, address, expanded_loops, placed, within
from autotune.lower.regrouping import with_lanes_combined, with_short_bodies_repeated
from autotune.lower.state import State, Tile
from autotune.nest import LoopNest, derive_nest
from autotune.nest.corrections import with_corrections
from autotune.nest.loop_nest import Access, copy_axis
from autotune.sketches import Candidate

__all__ = ["Program", "Walk", "print_candidate", "sharing"]

MOST_STATEMENTS = 40
"""Vector statements, at most, that a short loop is expanded into."""

MOST_WITH_NUMBERS = 64
"""The same where numbers of iterations are values, which expanded loops make constants."""

MOST_EXPANDED = 256
"""Iterations, at most, of a loop that is expanded."""

_MOST_EXPANDED_UNASKED = 8


@frozen(eq=False)
class Program:
    """A printed program.

    Attributes:
        text: What the printer made.
        inputs: The arrays that it reads, in order.
        outputs: Those that it writes.
        scratch: Memory that the caller gives beside them; of one with a ``depth``, every thread
            has its own.
        packed: Which of it holds what is made of a constant before: the entry that does it, the
            constant, and the place. An entry writes all places that come with it.
        uses_tiles: Whether its process has to ask for the tile registers of AMX before it runs.
    """

    text: Any
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    scratch: tuple[Place, ...]
    packed: tuple[tuple[str, str, Place], ...] = ()
    uses_tiles: bool = False


def print_candidate(candidate: Candidate, emitter: Emitter, width: int) -> Program:
    """Print the program of a candidate.

    Args:
        candidate: What to print.
        emitter: In which language.
        width: Lanes of a vector register, of numbers of single precision.

    Raises:
        InvalidValueError: its values give no nest.
        UnsupportedWorkload: its nest has what is not printed, which is named.
    """
    nest = with_wide_copies(with_corrections(derive_nest(candidate.sketch)))
    workload = candidate.sketch.workload
    check_factors(candidate, nest.workload)
    digits = Digits()
    packing, statements = concrete_statements(nest, candidate.config, digits)
    _check_loops(statements)
    statements = with_lanes_combined(statements, nest.workload, digits)
    arguments = {
        name: (tensor.dtype, tensor.shape)
        for name, tensor in workload.tensors.items()
        if name in workload.outputs or any(name == it.name for it in workload.inputs)
    }
    places = placed(
        nest,
        arguments,
        [*packing, *statements],
        lambda expression: int(evaluate(expression, candidate.config)),
        digits,
    )
    both = in_vectors([*packing, *statements], nest.workload, places, width, digits)
    both = with_short_bodies_repeated(both, width, digits)
    state = State(emitter, digits, places, nest.workload, width)
    inputs = tuple(places[tensor.name] for tensor in workload.inputs)
    outputs = tuple(places[name] for name in workload.outputs)
    scratch = tuple(place for place in places.values() if place.kind == "scratch")
    emitter.begin(digits, inputs, outputs, scratch)
    walk, packed = Walk(state, nest), []
    by_operand = groupby(both[: len(packing)], lambda it: it.name.split(".", 1)[0])
    for number, (operand, group) in enumerate(by_operand):
        copies = [*group]
        made = dict.fromkeys(places[it.write.buffer] for it in copies)
        packed += [(f"pack{number}", operand, place) for place in made]
        with emitter.entry(f"pack{number}"), state.forgetting():
            walk.run(copies, 0)
    with emitter.entry("run"), state.forgetting():
        walk.run(both[len(packing) :], 0)
    uses_tiles = any(instruction.tile_rows for _, instruction in walk.calls.values())
    return Program(emitter.finish(), inputs, outputs, scratch, tuple(packed), uses_tiles)


def _check_loops(statements: Sequence[ConcreteStatement]) -> None:
    for loop in {loop for statement in statements for loop in statement.loops}:
        if loop.kind in ("block", "vthread", "thread"):
            raise UnsupportedWorkload(f"loop {loop.name!r} runs as a {loop.kind} of a GPU")


@frozen(eq=False)
class Walk:
    """The walk of one program.

    Attributes:
        state: What is printed by now.
        nest: The program.
        calls: Instructions of statements, by their names.
    """

    state: State
    nest: LoopNest
    calls: dict[str, tuple[Call, Instruction]] = field(factory=dict)

    def run(self, statements: Sequence[ConcreteStatement], depth: int) -> None:
        """Print statements that share their first ``depth`` loops."""
        position = 0
        while position < len(statements):
            group = sharing(statements[position:], depth)
            position += len(group)
            with self._tiles(group, depth):
                if depth == group[0].body_depth:
                    self._point(group[0])
                else:
                    self._group(group, depth)

    def _group(self, group: Sequence[ConcreteStatement], depth: int) -> None:
        """Print the loop at ``depth``, which all of a group share."""
        first, loop = group[0], group[0].loops[depth]
        late = group[-1].source.pipelined
        if len(group) == 1 and self._choice_outside(first, depth):
            return
        if len(group) == 1 and self._adds_to_same_sums(first, depth):
            self._sums(first, lambda: self._group(group, depth))
        elif late is not None and late[0] == loop.name:
            self._pipelined(group, depth, late[1])
        elif first.tile is not None and depth == len(first.loops) - 2:
            self._tile(first, *first.tile)
        elif first.interleaves and depth == len(first.loops) - 2:
            self._interleaved(first)
        elif len(group) == 1 and first.lane == loop.name:
            with self.state.in_lanes((loop.name, loop.extent)):
                self.leaf(first)
        elif self._is_expanded(group, depth):
            for value in range(loop.extent):
                with self.state.digits.at(loop.name, value):
                    self._inside(group, depth + 1)
        elif (first_ones := self._apart(group, depth)) is not None:
            self._part(group, depth, 0, first_ones)
            self._part(group, depth, first_ones, loop.extent)
        else:
            begin, end = limits(first, depth, self.state.digits)
            with self._invariants(group, depth), self._loop(loop, begin, end):
                self._inside(group, depth + 1)

    def _apart(self, group: Sequence[ConcreteStatement], depth: int) -> int | None:
        """First iterations of the loop at ``depth`` that are worth printing apart.

        They need no masks, or begin scans, which the others continue.
        """
        loop, state = group[0].loops[depth], self.state
        if loop.bound is not None or loop.kind == "parallel":
            return None
        if sum(self._copies(statement, depth + 1) for statement in group) > _most_copies(group):
            return None
        found = [
            unmasked_iterations(statement, loop.name, state.places, state.digits)
            for statement in group
        ]
        found += [1 for statement in group if self._begins_scan(statement, loop.name)]
        first = min((count for count in found if count is not None), default=loop.extent)
        return first if first < loop.extent else None

    def _part(self, group: Sequence[ConcreteStatement], depth: int, begin: int, end: int) -> None:
        """Print some iterations of the loop at ``depth``."""
        loop, digits = group[0].loops[depth], self.state.digits
        if end - begin == 1:
            with digits.at(loop.name, begin):
                self._inside(group, depth + 1)
            return
        span = Linear((), begin), Linear((), end)
        with (
            self.state.within(loop.name, begin, end),
            self._invariants(group, depth),
            self._loop(loop, *span),
        ):
            self._inside(group, depth + 1)

    def _invariants(
        self, group: Sequence[ConcreteStatement], depth: int
    ) -> AbstractContextManager[object]:
        """Before the loop at ``depth``, what it does not change of the statement in it."""
        if len(group) > 1:
            return nullcontext()
        ends = self.state.once(group[0], self, lambda: self._ends(group[0]))
        stack = ExitStack()
        stack.enter_context(
            sum_in_register(self.state, group[0], depth, *self.target(group[0]), ends)
        )
        stack.enter_context(
            invariants_held(
                self.state, group[0], depth, lambda inner: self._is_expanded(group, inner), ends
            )
        )
        return stack

    def _tiles(
        self, group: Sequence[ConcreteStatement], depth: int
    ) -> AbstractContextManager[None]:
        """Tile registers as all instructions in a group take them, unless they are so by now.

        They belong to a thread: what runs in parallel loops is configured in each iteration.
        """
        wanted = {self._call(it)[1].tile_rows for it in group if it.intrinsic} - {0}
        parallel = any(
            loop.kind == "parallel" for it in group if it.intrinsic for loop in it.loops[depth:]
        )
        if self.state.has_tiles or parallel or len(wanted) != 1:
            return nullcontext()
        return self.state.with_tiles(configured(self.state.emitter, wanted.pop()))

    def _call(self, statement: ConcreteStatement) -> tuple[Call, Instruction]:
        """The instruction that a statement calls, and how."""
        if statement.name not in self.calls:
            call = call_of(self.state, statement)
            self.calls[statement.name] = call, instruction_of(call.intrinsic)
        return self.calls[statement.name]

    def _adds_to_same_sums(self, statement: ConcreteStatement, depth: int) -> bool:
        """Tell whether the calls of all loops from a depth on add to the same sums."""
        if statement.intrinsic is None or self.state.holds_sums:
            return False
        index = self.state.digits.resolved(self._call(statement)[0].sums.index)
        inner = statement.loops[depth : statement.body_depth]
        return not any(self.state.digits.depends(index, loop.name) for loop in inner)

    def _sums(self, statement: ConcreteStatement, calls: Callable[[], None]) -> None:
        """Print calls behind what begins their sums, and before what finishes them."""
        call, instruction = self._call(statement)
        instruction.begin(self.state, call)
        self.state.holds_sums = True
        calls()
        self.state.holds_sums = False
        instruction.finish(self.state, call)

    def _point(self, statement: ConcreteStatement) -> None:
        """Print a statement where all loops around its body are known."""
        if statement.intrinsic is None:
            self.leaf(statement)
        elif self.state.holds_sums:
            call, instruction = self._call(statement)
            instruction.print(self.state, call)
        else:
            self._sums(statement, lambda: self._point(statement))

    def _loop(
        self, loop: ConcreteLoop, begin: Linear, end: Linear
    ) -> AbstractContextManager[object]:
        stack = ExitStack()
        stack.enter_context(self.state.forgetting())
        stack.enter_context(self.state.emitter.loop(loop.name, begin, end, loop.kind))
        return stack

    def _inside(self, group: Sequence[ConcreteStatement], depth: int) -> None:
        """Print the body of a loop, behind the buffers that are allocated in it."""
        touched = {it.buffer for statement in group for it in statement.source.accesses}
        for buffer in self.nest.buffers:
            if buffer.depth == depth and buffer.name in touched:
                self.state.emitter.allocate(self.state.places[buffer.name])
        self.run(group, depth)

    def _is_expanded(self, group: Sequence[ConcreteStatement], depth: int) -> bool:
        """Tell whether the copies of a loop's body stand one after the other."""
        loop = group[0].loops[depth]
        if len(loop.axes) > 1 or loop.bound is not None or loop.extent > MOST_EXPANDED:
            return False
        if loop.kind == "unrolled" or loop.extent == 1:
            return True
        if any(loop.name in self._fixed(statement) for statement in group):
            return True
        made = sum(self._copies(statement, depth) for statement in group)
        return loop.extent <= _MOST_EXPANDED_UNASKED and made <= _most_copies(group)

    def _fixed(self, statement: ConcreteStatement) -> set[str]:
        """Loops that have to be expanded, as registers have no addresses."""
        found: set[str] = set()
        for access in statement.source.accesses:
            place = self.state.places[access.buffer]
            if place.kind == "registers":
                found |= set(expanded_loops(statement, access, place, self.state.digits))
        return found

    def _copies(self, statement: ConcreteStatement, depth: int) -> float:
        """Vector statements, if all loops from ``depth`` on were expanded."""
        result = 1.0
        for loop in statement.loops[depth : statement.body_depth]:
            if loop.bound is not None:
                return float("inf")
            lanes = self.state.width if loop.name == statement.lane else 1
            result *= max(1, loop.extent // lanes)
        return result

    def _tile(self, statement: ConcreteStatement, row: str, column: str) -> None:
        width = statement.loops[-1].extent
        self.state.tile = Tile(row)
        with self.state.in_lanes((column, width)):
            for number in range(width):
                with self.state.digits.at(row, number):
                    self.leaf(statement)
        self.state.tile = None

    def _interleaved(self, statement: ConcreteStatement) -> None:
        """Print the copy of a group of rows."""
        state, (rows, lanes) = self.state, statement.loops[-2:]
        place, body = self.state.places[statement.write.buffer], statement.body
        assert body is not None
        found = []
        with state.in_lanes((lanes.name, lanes.extent)):
            for number in range(rows.extent):
                with state.digits.at(rows.name, number):
                    found.append(self._packed(statement, body, place))
        with state.digits.at(rows.name, 0), state.digits.at(lanes.name, 0):
            _, at = self.target(statement)
            store(state, place, at, _in_turn(state.emitter, found), None, stream=False)

    def _pipelined(self, group: Sequence[ConcreteStatement], depth: int, host: str) -> None:
        """Iterations of which the last statement runs late, just before ``host``.

        ``for i: a(i), host(i), late(i)`` becomes
        ``a(0), host(0); for i < n - 1: a(i + 1), late(i), host(i + 1); late(n - 1)``.
        """
        *others, late = group
        loop, digits = late.loops[depth], self.state.digits
        at = [statement.name for statement in others].index(host)
        with digits.at(loop.name, 0):
            self._inside(others, depth + 1)
        if loop.extent > 1:
            last, span = loop.extent - 1, (Linear(), Linear((), loop.extent - 1))
            with self.state.within(loop.name, 0, last), self._loop(loop, *span):
                self._shifted(others[:at], depth, loop.name)
                self.run([late], depth + 1)
                self._shifted(others[at:], depth, loop.name)
        with digits.at(loop.name, loop.extent - 1):
            self.run([late], depth + 1)

    def _shifted(self, statements: Sequence[ConcreteStatement], depth: int, loop: str) -> None:
        """Statements of the next iteration."""
        self.state.forget()
        self.state.digits.shifts[loop] = 1
        self.run(statements, depth + 1)
        del self.state.digits.shifts[loop]
        self.state.forget()

    def _choice_outside(self, statement: ConcreteStatement, depth: int) -> bool:
        """Print a statement whose choice is the same in all loops from here on as two.

        ``for i: A = x if c else y`` becomes ``if c: for i: A = x`` and ``if not c: ...``.
        """
        body, digits = statement.body, self.state.digits
        if not isinstance(body, Select) or self._has_order(statement):
            return False
        if decided(body.condition, dict(statement.axes), digits) is not None:
            return False

        def inner(digit: str) -> bool:
            return statement.depth(digit, digits) >= depth and digit not in digits.fixed

        condition = uniform(body.condition, statement, inner, digits)
        if condition is None:
            return False
        value = self._value(condition)
        for holds, chosen in ((value, body.on_true), (None, body.on_false)):
            one = evolve(statement, body=chosen)
            found = self.state.emitter.negated(value) if holds is None else holds
            with self.state.forgetting(), self.state.emitter.when(found):
                self._group([one], depth)
        return True

    def _value(self, condition: Uniform) -> Value:
        emitter = self.state.emitter
        if condition.below is not None:
            value = emitter.below(self.state.digits.resolved(condition.below.form))
            return emitter.negated(value) if condition.negated else value
        value, *others = (self._value(part) for part in condition.parts)
        for other in others:
            value = emitter.binary(condition.op, value, other)
        return value

    def _has_order(self, statement: ConcreteStatement) -> bool:
        stage = self.nest.workload.stage(statement.source.stage)
        combines = stage.combiner is not None or stage.scan_axis is not None
        return statement.source.role == "compute" and combines

    def target(self, statement: ConcreteStatement) -> tuple[Place, Linear]:
        """The place that a statement writes to."""
        return self._at(statement, statement.write)

    def _at(self, statement: ConcreteStatement, access: Access) -> tuple[Place, Linear]:
        """The place that an access of a statement goes to."""
        state, place = self.state, self.state.places[access.buffer]

        def found() -> Linear:
            indices = [state.digits.of_form(form, statement.axes) for form in access.forms]
            return state.address(statement, place, indices)

        return place, state.once(statement, access, found)

    def leaf(self, statement: ConcreteStatement) -> None:
        """Print a statement where all of its loops are known."""
        if self._changes_nothing(statement):
            return
        state, emitter = self.state, self.state.emitter
        place, at = self.target(statement)
        ends = state.once(statement, self, lambda: self._ends(statement))
        scalar, mask = self._conditions(ends)
        self._ask_early(statement)
        with self._when(scalar), self._knowing(ends):
            value = self._stored(statement, place, at, mask)
            value = emitter.cast(value, place.dtype)
            if statement.name in state.sums:
                emitter.set_register(state.sums[statement.name], 0, value)
                return
            with state.in_lanes(None) if statement.combines_lanes else nullcontext():
                store(state, place, at, value, mask, self._streams(statement, place))

    def _changes_nothing(self, statement: ConcreteStatement) -> bool:
        """Tell whether a reduction combines with its identity here: zeros between what is read."""
        stage, body = self.nest.workload.stage(statement.source.stage), statement.body
        if body is None or stage.scan_axis is not None or not self._has_order(statement):
            return False
        value = constant_of(body, dict(statement.axes), self.state.digits)
        return value is not None and value == stage.identity()

    def _ends(self, statement: ConcreteStatement) -> list[Below]:
        """The conditions under which a statement runs within its axes and what it writes."""
        place, digits = self.state.places[statement.write.buffer], self.state.digits
        pairs = [(statement.axes.get(axis, Linear()), n) for axis, n in statement.guards.items()]
        if place.kind == "argument":
            forms = [digits.of_form(it, statement.axes) for it in statement.write.forms]
            pairs += zip(forms, place.shape, strict=True)
        return all_below(pairs, digits)

    def _ask_early(self, statement: ConcreteStatement) -> None:
        """Ask for what the next iteration of a loop reads, once for each vector."""
        digits = self.state.digits
        for operand, loop in statement.early:
            place = self.state.places[operand]
            body = statement.body or Load(operand, ())
            for read in {it for it in loads(body) if it.tensor == operand}:
                indices = [digits.of_expression(index, statement.axes) for index in read.indices]
                with digits.at(self.state.lane[0], 0) if self.state.lane else nullcontext():
                    at = address(place, indices, digits)
                    moved = digits.resolved(at) + at.coefficient(loop)
                    self.state.emitter.prefetch(place, moved)

    def _when(self, condition: Value | None) -> AbstractContextManager[Any]:
        if condition is None:
            return nullcontext()
        stack = ExitStack()
        stack.enter_context(self.state.forgetting())
        stack.enter_context(self.state.emitter.when(condition))
        return stack

    def _knowing(self, _conditions: Sequence[Below]) -> AbstractContextManager[Any]:
        """Inside, conditions hold, by which indices may have shorter forms."""
        return nullcontext()

    def _streams(self, statement: ConcreteStatement, place: Place) -> bool:
        return statement.streams and place.kind == "argument"

    def _conditions(self, conditions: Sequence[Below]) -> tuple[Value | None, Value | None]:
        """Split conditions into what is tested for all lanes, and for each of them."""
        found: dict[bool, Value] = {}
        for condition in conditions:
            if condition.decided(self.state.digits) is True:
                continue
            value = below(self.state, condition)
            masks = value.lanes > 1
            both = self.state.emitter.binary
            found[masks] = both("and", found[masks], value) if masks in found else value
        return found.get(False), found.get(True)

    def _stored(
        self, statement: ConcreteStatement, place: Place, at: Linear, mask: Value | None
    ) -> Value:
        """The value that a statement writes."""
        state, emitter, source = self.state, self.state.emitter, statement.source
        stage = self.nest.workload.stage(source.stage)
        if source.role == "init" and statement.body is None:
            return emitter.constant(stage.identity(), place.dtype)
        if statement.body is None:
            return self._copied(statement)
        if source.role == "pack":
            return self._packed(statement, statement.body, place)
        value = computed(state, statement, statement.body, mask)
        if source.role != "compute" or stage.combiner is None:
            return value
        if statement.combines_lanes:
            value = emitter.reduced(stage.combiner, emitter.wide(value, state.lanes))
        if statement.name in state.sums:
            old = emitter.register(state.sums[statement.name], 0)
        elif stage.scan_axis is None:
            old = load(state, place, at)
        else:
            old = self._before(statement, place)
        return emitter.binary(stage.combiner, emitter.cast(value, old.dtype), old)

    def _copied(self, statement: ConcreteStatement) -> Value:
        access = next(access for access in statement.source.accesses if not access.write)
        place, at = self._at(statement, access)
        return load(self.state, place, at)

    def _packed(self, statement: ConcreteStatement, body: ScalarExpr, place: Place) -> Value:
        """A part of an operand, with zeros beyond its own extent."""
        state, emitter = self.state, self.state.emitter
        scalar, mask = self._conditions(self._within(statement))
        zero = emitter.wide(emitter.constant(0, place.dtype), state.lanes)

        def inside() -> Value:
            value = computed(state, statement, body, mask)
            value = emitter.wide(emitter.cast(value, place.dtype), state.lanes)
            return value if mask is None else emitter.select(mask, value, zero)

        def chosen() -> Value:
            with state.aside():
                return inside()

        if scalar is None:
            return inside()
        if reads_square(state, statement, body):
            return emitter.select(scalar, inside(), zero)
        return emitter.choose(scalar, chosen, lambda: zero)

    def _within(self, statement: ConcreteStatement) -> list[Below]:
        """The conditions under which a copy reads elements of its operand, and no zeros."""
        operand = statement.name.split(".", 1)[0]
        shape = self.nest.workload.tensors[operand].shape
        pairs = [
            (statement.axes.get(copy_axis(dim), Linear()), extent)
            for dim, extent in enumerate(shape)
        ]
        if statement.source.starts or statement.source.falling:
            pairs += [(index * -1, 1) for index, _ in pairs]
        return all_below(pairs, self.state.digits)

    def _scanned(self, statement: ConcreteStatement) -> tuple[list[Linear], int]:
        """Indices of what a scan writes, and which of them is along it."""
        state, stage = self.state, self.nest.workload.stage(statement.source.stage)
        place = state.places[statement.write.buffer]
        indices = [state.digits.of_form(it, statement.axes) for it in statement.write.forms]
        along = [axis.kind for axis in stage.spatial_axes].index("scan")
        return [within(statement, index, place, state.digits) for index in indices], along

    def _begins_scan(self, statement: ConcreteStatement, loop: str) -> bool:
        """Tell if a scan begins in the first iteration of a loop, and in no other."""
        stage = self.nest.workload.stage(statement.source.stage)
        if stage.scan_axis is None or statement.source.role != "compute":
            return False
        indices, along = self._scanned(statement)
        at = self.state.digits.resolved(indices[along])
        return at.coefficient(loop) > 0 and self.state.digits.bounds(at)[0] == 0

    def _before(self, statement: ConcreteStatement, place: Place) -> Value:
        """The value that a scan continues: the result before this one, or the identity."""
        state, emitter = self.state, self.state.emitter
        stage = self.nest.workload.stage(statement.source.stage)
        inside, along = self._scanned(statement)
        identity = emitter.wide(emitter.constant(stage.identity(), place.dtype), state.lanes)
        at = state.digits.resolved(inside[along])
        inside[along] = inside[along] - 1
        before = address(place, inside, state.digits)
        if state.digits.bounds(at)[0] > 0:
            return load(state, place, before)
        if not at.terms:
            return identity

        def earlier() -> Value:
            with state.aside():
                return emitter.wide(load(state, place, before), state.lanes)

        return emitter.choose(emitter.below(at - 1), lambda: identity, earlier)


def _most_copies(group: Sequence[ConcreteStatement]) -> int:
    """Vector statements that a loop around a group is expanded into at most."""
    numbers = any(it.lane and it.body and _holds_numbers(it.body) for it in group)
    return MOST_WITH_NUMBERS if numbers else MOST_STATEMENTS


def _holds_numbers(body: ScalarExpr) -> bool:
    """Tell whether a value is computed of indices, other than in conditions and in addresses."""
    if isinstance(body, Select):
        return _holds_numbers(body.on_true) or _holds_numbers(body.on_false)
    if isinstance(body, Gather):
        return False
    return isinstance(body, IndexValue) or any(map(_holds_numbers, children(body)))


def _in_turn(emitter: Emitter, rows: Sequence[Value]) -> Value:
    """The elements of a power of two of vectors: the first ones, then the second ones."""
    if len(rows) == 1:
        return rows[0]
    return emitter.interleaved(_in_turn(emitter, rows[::2]), _in_turn(emitter, rows[1::2]))


def sharing(statements: Sequence[ConcreteStatement], depth: int) -> list[ConcreteStatement]:
    """The first statements that share their loop at ``depth``; one without loops is alone."""
    first = statements[0]
    if depth == first.body_depth:
        return [first]
    name, found = first.loops[depth].name, [first]
    for other in statements[1:]:
        if depth >= len(other.loops) or other.loops[depth].name != name:
            break
        found.append(other)
    return found


# S[i] for k: S[i] = S[i] + X[i, k]  ->  sum = S[i]; for k: sum = sum + X[i, k]; S[i] = sum
#
# Long pipelines of compilers do this; the short one of a race would wait for memory in each
# iteration.
@contextmanager
def sum_in_register(
    state: State,
    statement: ConcreteStatement,
    depth: int,
    place: Place,
    at: Linear,
    conditions: Sequence[Below],
) -> Iterator[None]:
    """Print the loops of a statement from ``depth`` on with what it adds to in a register.

    Args:
        state: Where the walk is.
        statement: The only one in these loops.
        depth: Number of the outermost of them.
        place: Where it writes.
        at: The element there.
        conditions: What has to hold so that it runs; where that is not sure, memory is used.
    """
    if not _adds(state, statement) or not _is_one_place(state, statement, depth, place, at):
        yield
        return
    if any(condition.decided(state.digits) is not True for condition in conditions):
        yield
        return
    lane = None
    if statement.lane is not None and not statement.combines_lanes:
        lane = (statement.lane, statement.loops[-1].extent)
    lanes = lane[1] if lane else 1
    register = Place(f"{statement.name}.sum", place.dtype, "registers", (lanes,), lanes=lanes)
    state.emitter.allocate(register)
    with state.in_lanes(lane):
        state.emitter.set_register(register, 0, load(state, place, at))
    state.sums[statement.name] = register
    yield
    del state.sums[statement.name]
    with state.in_lanes(lane):
        store(state, place, at, state.emitter.register(register, 0), None, stream=False)


def _adds(state: State, statement: ConcreteStatement) -> bool:
    """Tell if a statement combines values with what it finds, and not in a register yet."""
    if statement.source.role != "compute" or statement.intrinsic or statement.body is None:
        return False
    stage = state.workload.stage(statement.source.stage)
    is_sum = stage.combiner is not None and stage.scan_axis is None
    return is_sum and statement.name not in state.sums


def _is_one_place(
    state: State, statement: ConcreteStatement, depth: int, place: Place, at: Linear
) -> bool:
    """Tell if no loop from ``depth`` on moves what is written, but for neighbouring lanes."""
    loops, digits, lane = statement.loops[depth:], state.digits, statement.lane
    if place.kind == "registers" or any(loop.kind == "parallel" for loop in loops):
        return False
    at = digits.resolved(at)
    if lane is not None and not statement.combines_lanes:
        if at.coefficient(lane) != 1 or not digits.is_apart(at, lane):
            return False
        at = at.without(lane)
    return not any(digits.depends(at, loop.name) for loop in loops)


# Only some iterations run under causal masks and of windows on padding. Leading ones in which no
# vector needs a mask stand by themselves:
#
#     for i < 4: under a mask, A[i*8 : +8]  ->  for i < 3: A[i*8 : +8]; under a mask, A[24 : +8]
def limits(statement: ConcreteStatement, depth: int, digits: Digits) -> tuple[Linear, Linear]:
    """First iteration of the loop at ``depth``, and the one behind its last.

    A point is at ``scale * own + stride * other``; an iteration runs if its least position is at
    most ``offset`` and its greatest at least ``least``. Both are linear in the loop's counter,
    so that what runs is an interval.
    """
    loop = statement.loops[depth]
    bound, end = loop.bound, Linear((), loop.extent)
    if bound is None:
        return Linear(), end

    def at_end(form: Linear, last: bool) -> Linear:
        """The form in the first or the last iteration of the loops further inside."""
        constant, kept = form.constant, []
        for name, value in form.terms:
            if statement.depth(name, digits) > depth:
                constant += value * digits.ranges[name][int(last)]
            else:
                kept.append((name, value))
        return Linear(tuple(kept), constant)

    own, other = statement.axes[loop.axes[0]], statement.axes.get(bound.axis, Linear())
    # A loop of one iteration has no digit: whether it runs is then the same for every step.
    step = own.coefficient(loop.name) * bound.scale or 1
    falls = bound.stride < 0
    lowest = at_end(own, False).without(loop.name) * bound.scale
    lowest = lowest + at_end(other, falls) * bound.stride
    room = digits.resolved(lowest * -1 + bound.offset)
    end = digits.smaller(digits.quotient(room, step) + 1, end)
    if bound.least is None:
        return Linear(), end
    highest = at_end(own, True).without(loop.name) * bound.scale
    highest = highest + at_end(other, not falls) * bound.stride
    missing = digits.resolved(highest * -1 + bound.least)
    return digits.larger(digits.quotient(missing + (step - 1), step), Linear()), end


def unmasked_iterations(
    statement: ConcreteStatement, loop: str, places: Mapping[str, Place], digits: Digits
) -> int | None:
    """First iterations of a loop that decide a mask which further ones need; None if none do."""
    found = [
        decided
        for below in _conditions(statement, places, digits)
        if (decided := _decided_iterations(below, statement, loop, digits)) > 0
    ]
    return min(found, default=None)


def _conditions(
    statement: ConcreteStatement, places: Mapping[str, Place], digits: Digits
) -> Iterator[Below]:
    """The comparisons of lanes: guards, ends of arrays that are written, choices."""
    axes = dict(statement.axes)
    for axis, extent in statement.guards.items():
        yield Below(axes.get(axis, Linear()) - extent)
    place = places[statement.write.buffer]
    if place.kind == "argument":
        for form, extent in zip(statement.write.forms, place.shape, strict=True):
            yield Below(digits.of_form(form, axes) - extent)
    for node in walk(statement.body) if statement.body is not None else ():
        found = comparison(node, axes, digits)
        if found is not None:
            yield found


def _decided_iterations(
    below: Below, statement: ConcreteStatement, loop: str, digits: Digits
) -> int:
    """The number of first iterations that decide what is a mask in later ones; 0 if none do."""
    form, lane = digits.resolved(below.form), statement.lane
    if lane is None or not digits.depends(form, lane) or not digits.is_apart(form, loop):
        return 0
    step = form.coefficient(loop)
    if step == 0 or below.decided(digits) is not None:
        return 0
    if below.without(lane, statement.loops[-1].extent, digits) is not None:
        return 0
    low, high = digits.bounds(form.without(loop))
    count = (-1 - high) // step + 1 if step > 0 else low // -step + 1
    return max(0, count)
