"""Features of one candidate, from running its loops one execution at a time.

Only the lists of statements, loops, accesses and buffers come from the nest, with numbers in
place of expressions; regions, strides, reuse and everything after that are counted here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from autotune.ir.element_types import element_type
from autotune.ir.expressions import Binary, Constant, Load, Select, Unary, affine_form
from autotune.ir.expressions.integer import evaluate
from autotune.ir.expressions.scalar import Cast, ScalarExpr, children, walk
from autotune.nest import LoopNest, Statement
from oracles.nest import StatementWalk, Touch, hull

ARITHMETIC = ("mad", "add", "mul", "div", "cmp", "function", "other")
MARKED = ("vectorized", "unrolled", "parallel")
NEEDLE = "20101112"


@frozen
class Access:
    """Columns of one buffer of a statement, before logarithms."""

    buffer: str
    kind: int
    numbers: tuple[float, ...]
    reuse: int
    stride: float

    @property
    def lines(self) -> float:
        return self.numbers[2]

    def columns(self) -> list[float]:
        kinds = [float(self.kind == kind) for kind in range(3)]
        reuses = [float(self.reuse == kind) for kind in range(3)]
        logs = [math.log2(1 + number) for number in self.numbers]
        return [*kinds, *logs[:4], *reuses, *logs[4:], math.log2(1 + self.stride)]


@define(eq=False)
class Program:
    """A nest with numbers: one walk per statement, and how features are to be counted."""

    nest: LoopNest
    config: Mapping[str, int]
    fidelity: str
    gpu: bool
    regions: dict[tuple[int, str, int], int] = field(factory=dict)

    @cached_property
    def walks(self) -> list[StatementWalk]:
        return [StatementWalk(self.nest, item, self.config) for item in self.nest.statements]

    def width(self, buffer: str) -> int:
        known = {item.name: item.dtype for item in self.nest.buffers}
        return element_type(known.get(buffer) or self.nest.workload.tensors[buffer].dtype).bytes

    def memory(self, buffer: str) -> tuple[list[int], int | None]:
        """Extents of a buffer in memory, and which of its indices is blocked."""
        for item in self.nest.buffers:
            if item.name == buffer:
                sizes = [int(evaluate(extent, self.config)) for extent in item.shape]
                return sizes, item.block_dim
        return list(self.nest.workload.tensors[buffer].shape), None

    def placed(self, buffer: str, element: tuple[int, ...]) -> tuple[int, ...]:
        """Place of an element by dimension of memory."""
        sizes, blocked = self.memory(buffer)
        for item in self.nest.buffers:
            if item.name == buffer and item.dims is not None:
                return tuple(element[index] for index in item.dims)
        if blocked is None:
            return element
        others = [at for index, at in enumerate(element) if index != blocked]
        return (element[blocked] // sizes[-1], *others, element[blocked] % sizes[-1])

    def address(self, buffer: str, element: tuple[int, ...]) -> int:
        result = 0
        sizes, _ = self.memory(buffer)
        for at, size in zip(self.placed(buffer, element), sizes, strict=True):
            result = result * size + at
        return result

    def allocated(self, buffer: str) -> tuple[int, int]:
        """Elements of a buffer, and the number of loops outside its allocation."""
        depth = max([0, *(item.depth for item in self.nest.buffers if item.name == buffer)])
        return math.prod(self.memory(buffer)[0]), depth


@define(eq=False)
class StatementOracle:
    """All that is asked about one statement of a program."""

    program: Program
    index: int

    @property
    def walk(self) -> StatementWalk:
        return self.program.walks[self.index]

    @property
    def statement(self) -> Statement:
        return self.walk.statement

    @property
    def annotated(self) -> bool:
        return self.program.fidelity != "corrected"

    def counts(self, loop: int) -> bool:
        if self.walk.idle[loop]:
            return False
        return self.walk.sizes[loop] > 1 or (self.annotated and self.walk.kinds[loop] != "serial")

    def repeats(self, loop: int) -> bool:
        """Tell whether a loop multiplies executions."""
        vthread = self.annotated and self.walk.kinds[loop] == "vthread"
        return vthread or not self.walk.idle[loop]

    @cached_property
    def executions(self) -> int:
        sizes = enumerate(self.walk.sizes)
        return math.prod(size for loop, size in sizes if self.repeats(loop))

    def inner(self, loop: int) -> int:
        """Executions in one iteration of a loop."""
        rest = range(loop + 1, len(self.walk.sizes))
        return math.prod(self.walk.sizes[at] for at in rest if not self.walk.idle[at])

    def touch(self, buffer: str) -> Touch:
        return next(touch for touch in self.walk.touches if touch.buffer == buffer)

    def touched(self, touch: Touch, depth: int) -> set[tuple[int, ...]]:
        """Elements that the first iteration of the loops outside ``depth`` touches."""
        inside = max(depth, touch.held)
        first = range(self.inner(inside - 1)) if inside else range(len(self.walk.axes))
        found: set[tuple[int, ...]] = set()
        for index in first:
            axes = self.walk.axes[index]
            if all(axes.get(axis, 0) < bound for axis, bound in self.walk.guards.items()):
                found |= touch.places[index]
        return found

    def region(self, buffer: str, depth: int) -> int:
        known = self.program.regions
        if (self.index, buffer, depth) not in known:
            touch = self.touch(buffer)
            known[self.index, buffer, depth] = math.prod(hull(touch, self.touched(touch, depth)))
        return known[self.index, buffer, depth]

    def region_bytes(self, depth: int) -> int:
        names = [touch.buffer for touch in self.walk.touches]
        return sum(self.region(name, depth) * self.program.width(name) for name in names)

    def stride(self, touch: Touch, loop: int) -> int:
        """Elements in memory by which a loop first moves a buffer; 0 if it never does."""
        scopes = {buffer.name: buffer.scope for buffer in self.program.nest.buffers}
        shares = scopes.get(touch.buffer) == "shared" and "thread" in self.walk.kinds[loop]
        if (loop < touch.held and not shares) or self.walk.idle[loop]:
            return 0
        start = touch.places[0]
        for at in range(1, self.walk.sizes[loop]):
            moved = touch.places[at * self.inner(loop)]
            if moved == start:
                continue
            before, after = min(start), min(moved)
            if self.walk.flattened and any(a == "element" for a, _ in self.walk.parts[loop]):
                # Of the digits of a counted element, the slowest that changes.
                slowest = next(
                    i for i, (x, y) in enumerate(zip(before, after, strict=True)) if x != y
                )
                after = tuple(
                    y if i == slowest else x
                    for i, (x, y) in enumerate(zip(before, after, strict=True))
                )
            name = touch.buffer
            return abs(self.program.address(name, after) - self.program.address(name, before))
        return 0

    def lines(self, touch: Touch) -> float:
        width = self.program.width(touch.buffer)
        counted = [at for at in range(len(self.walk.sizes)) if self.counts(at)]
        trips = math.prod(
            s for s, idle in zip(self.walk.sizes, self.walk.idle, strict=True) if not idle
        )
        for position, loop in enumerate(reversed(counted)):
            stride = self.stride(touch, loop)
            if stride == 0:
                continue
            rest = trips / self.inner(loop)
            if self.program.fidelity == "published":
                rest = trips / self.walk.sizes[counted[-1]] ** position
            return max(1.0, rest * min(1.0, stride * width / 64))
        return 1.0

    def innermost_stride(self, touch: Touch) -> int:
        counted = [at for at in range(len(self.walk.sizes)) if self.counts(at)]
        return self.stride(touch, counted[-1]) if counted else 0

    def contiguous_bytes(self, touch: Touch) -> int:
        name = touch.buffer
        width = self.program.width(name)
        if self.program.fidelity == "corrected":
            return self._run(touch) * width
        published = self.program.fidelity == "published"
        other = self.touch(written(self.statement)) if published else touch
        sizes, _ = self.program.memory(name)
        spans = self._physical_span(other)
        for size, span in reversed(list(zip(sizes, spans, strict=False))):
            if size == span:
                return size * width
        return width if published else 1

    def _box(self, touch: Touch) -> list[int]:
        return hull(touch, self.touched(touch, touch.held))

    def _physical_span(self, touch: Touch) -> list[int]:
        corner = [extent - 1 for extent in self._box(touch)]
        sizes, blocked = self.program.memory(touch.buffer)
        spans = [at + 1 for at in self.program.placed(touch.buffer, tuple(corner))]
        if blocked is not None:
            spans[-1] = min(sizes[-1], corner[blocked] + 1)
        return spans

    def _run(self, touch: Touch) -> int:
        """Elements from the first of a region on that lie one after the other."""
        elements = itertools.product(*map(range, self._box(touch)))
        addresses = {self.program.address(touch.buffer, element) for element in elements}
        return next(at for at in itertools.count() if at not in addresses)

    def companions(self, loop: int) -> list[StatementOracle]:
        names = [item.name for item in self.statement.loops[: loop + 1]]
        found = []
        for index in range(self.index + 1):
            other = StatementOracle(self.program, index)
            shared = [item.name for item in other.statement.loops[: loop + 1]] == names
            if shared and (other.statement.role != "init" or index == self.index):
                found.append(other)
        return found

    def reuse(self, touch: Touch) -> tuple[int, float, float, float]:
        """Kind (0 loop, 1 serial, 2 none), iterations, bytes and count."""
        name = touch.buffer
        for loop in range(len(self.walk.sizes) - 1, -1, -1):
            if not self.counts(loop):
                continue
            size = self.walk.sizes[loop]
            if self.stride(touch, loop) == 0:
                return 0, self.inner(loop), self._between(loop + 1), size
            touching = [
                other.region(name, loop)
                for other in self.companions(loop)
                if any(item.buffer == name for item in other.walk.touches)
            ]
            if len(touching) > 1:
                total = sum(other.region_bytes(loop) for other in self.companions(loop))
                return 1, min(touching) / size, total / size, len(touching) - 1
        return 2, 0.0, 0.0, 0.0

    def _between(self, depth: int) -> int:
        for loop in range(depth, len(self.walk.sizes)):
            if self.counts(loop):
                return sum(other.region_bytes(loop) for other in self.companions(loop))
        return self.region_bytes(len(self.walk.sizes))

    def access(self, buffer: str) -> Access:
        touch, width = self.touch(buffer), self.program.width(buffer)
        kinds = {item.write for item in self.statement.accesses if item.buffer == buffer}
        total = self.executions * width
        unique = self.region(buffer, 0) * width
        lines = self.lines(touch)
        unique_lines = max(1.0, unique / min(64, self.contiguous_bytes(touch)))
        kind, iterations, between, count = self.reuse(touch)
        shared = [x / (count or 0.5) for x in (total, unique, lines, unique_lines)]
        numbers = (total, unique, lines, unique_lines, iterations, between, count, *shared)
        access = 2 if len(kinds) == 2 else int(True in kinds)
        return Access(buffer, access, numbers, kind, self.innermost_stride(touch))

    @cached_property
    def accesses(self) -> dict[str, Access]:
        names = [touch.buffer for touch in self.walk.touches]
        return {name: self.access(name) for name in names}

    def marked(self, kind: str) -> list[float]:
        sizes = [
            size
            for loop, size in enumerate(self.walk.sizes)
            if self.walk.kinds[loop] == kind and self.counts(loop)
        ]
        logs = [len(sizes), math.prod(sizes) if sizes else 0, sizes[-1] if sizes else 0]
        return [
            *(math.log2(1 + x) for x in logs),
            float(not sizes),
            *[0.0] * 6,
            float(bool(sizes)),
        ]

    def bound(self) -> list[float]:
        def first(kind: str) -> float:
            own = [s for s, k in zip(self.walk.sizes, self.walk.kinds, strict=True) if k == kind]
            return math.log2(1 + own[0]) if own else 1.0

        walk = self.walk
        loops = zip(walk.sizes, walk.kinds, walk.idle, strict=True)
        own = [size for size, kind, idle in loops if kind == "thread" and not idle]
        # The inner one of two dimensions is x.
        threads = [*(math.log2(1 + size) for size in reversed(own)), 1.0, 1.0, 1.0][:3]
        blocks = [first("block"), 1.0, 1.0]
        return [float(self.program.gpu), *blocks, *threads, first("vthread")]

    def curve(self, operations: int) -> list[float]:
        points: list[tuple[float, float]] = []
        done = float(operations)
        for loop in range(len(self.walk.sizes) - 1, -1, -1):
            if self.counts(loop):
                done *= self.walk.sizes[loop]
                points.append((done, done / self.region_bytes(loop)))
        samples = []
        for sample in range(1, 11):
            at = sample / 10 * points[-1][0] if points else 0.0
            place = next((i for i, p in enumerate(points) if p[0] >= at - 1e-4), None)
            if not operations or place is None:
                samples.append(0.0)
                continue
            value = points[place][1]
            if place > 0:
                (x0, y0), (x1, y1) = points[place - 1], points[place]
                value = y0 + (y1 - y0) / (x1 - x0) * (at - x0)
            samples.append(math.log2(1 + value))
        return samples

    def tail(self) -> list[float]:
        name = written(self.statement)
        elements, depth = self.program.allocated(name)
        sizes = list(enumerate(self.walk.sizes))
        outer = math.prod(size for loop, size in sizes if loop < depth and self.repeats(loop))
        loops = sum(self.counts(loop) for loop, _ in sizes)
        unroll = int(evaluate(self.statement.unroll_limit, self.program.config))
        values = [
            elements * self.program.width(name),
            elements * outer,
            outer,
            self.executions / outer,
            self.executions,
            loops,
            unroll,
        ]
        return [math.log2(1 + value) for value in values]

    @cached_property
    def operations(self) -> dict[str, int]:
        return operations(self.program, self.statement)

    @property
    def float_operations(self) -> int:
        return sum(n for name, n in self.operations.items() if name.startswith("float"))

    def row(self) -> list[float]:
        names = [f"{kind}_{name}" for kind in ("float", "int") for name in ARITHMETIC]
        counts = [self.operations.get(name, 0) for name in (*names, "bool", "select")]
        row = [math.log2(1 + self.executions * count) for count in counts]
        for kind in MARKED:
            row += self.marked(kind)
        row += self.bound()
        ordered = sorted(self.accesses.values(), key=lambda a: (-a.lines, -a.numbers[0], a.buffer))
        columns = [column for access in ordered[:5] for column in access.columns()]
        row += columns + [0.0] * (90 - len(columns))
        return [*row, *self.curve(self.float_operations), *self.tail()]


def written(statement: Statement) -> str:
    return next(access.buffer for access in statement.accesses if access.write)


def operations(program: Program, statement: Statement) -> dict[str, int]:
    """Operations of one execution by published class."""
    counts: dict[str, int] = {}
    tensors = program.nest.workload.tensors

    def add(name: str, number: int = 1) -> None:
        counts[name] = counts.get(name, 0) + number

    def kind(node: ScalarExpr) -> str:
        inner = list(walk(node))
        for item in inner:
            if isinstance(item, (Cast, Load)):
                dtype = item.dtype if isinstance(item, Cast) else tensors[item.tensor].dtype
                return "float" if "float" in dtype else "int"
        constants = [item.dtype for item in inner if isinstance(item, Constant)]
        return "float" if constants and "float" in constants[0] else "int"

    def one(op: str, number: str) -> None:
        classes = {"sub": "add", "neg": "add", "add": "add", "mul": "mul", "div": "div"}
        classes.update(dict.fromkeys(("max", "min", "lt", "le", "gt", "ge", "eq", "ne"), "cmp"))
        if op in ("and", "or", "not"):
            add("bool")
        else:
            add(f"{number}_{classes.get(op, 'function')}")

    def visit(node: ScalarExpr) -> None:
        if isinstance(node, Select):
            loads = any(isinstance(item, Load) for item in walk(node))
            if loads and program.fidelity != "corrected":
                one("guard", kind(node.on_true))
            else:
                add("select")
        elif isinstance(node, (Unary, Binary)):
            one(node.op, kind(node))
        elif isinstance(node, Load):
            for index in node.indices:
                index_operations(index)
        for child in children(node):
            visit(child)

    def index_operations(index: object) -> None:
        form = affine_form(index)  # type: ignore[arg-type]
        assert form is not None
        parts = [
            (place, len(loop.parts))
            for loop in statement.loops
            for place, (axis, _) in enumerate(loop.parts)
            if axis in form.coefficients
        ]
        add("int_mul", len(parts))
        add("int_div", sum((at > 0) + (at < count - 1) for at, count in parts))
        add("int_add", max(0, len(parts) - 1) + int(form.constant != 0 and bool(parts)))

    if statement.body is not None:
        visit(statement.body)
    stage = program.nest.workload.stage(statement.stage)
    if statement.role == "compute" and stage.combiner is not None:
        one(stage.combiner, "float" if "float" in stage.output.dtype else "int")
    return counts


def pam_rows(
    nest: LoopNest, config: Mapping[str, int], fidelity: str, gpu: bool = False
) -> NDArray[np.float64]:
    """The rows ``[statements, 164]`` of one configuration."""
    program = Program(nest, config, fidelity, gpu)
    rows = [
        StatementOracle(program, index).row()
        for index, statement in enumerate(nest.statements)
        if statement.role != "init"
    ]
    return np.array(rows)


def published_flow(
    nest: LoopNest, config: Mapping[str, int], *, squared: bool, fidelity: str
) -> NDArray[np.float64]:
    """The published data-flow block ``[8, 23]``: zeros where the pattern does not occur."""
    program = Program(nest, config, fidelity, True)
    scopes = {buffer.name: buffer.scope for buffer in nest.buffers}
    sequence = []
    for index, statement in enumerate(nest.statements):
        result = written(statement)
        reads = list(dict.fromkeys(a.buffer for a in statement.accesses if a.buffer != result))
        sequence += [(index, buffer) for buffer in (*reversed(reads), result)]
    places = [["global", "shared", "local"].index(scopes.get(b, "global")) for _, b in sequence]
    block = np.zeros((8, 23))
    at = "".join(map(str, places)).find(NEEDLE)
    if at < 0:
        return block
    for row in range(8):
        (index, buffer), place = sequence[at + row], places[at + row]
        oracle = StatementOracle(program, index)
        runs = oracle.executions ** (2 if squared else 1)
        elements, _ = program.allocated(buffer)
        size = elements * program.width(buffer) if place else 0
        block[row] = [
            math.log2(1 + oracle.float_operations * runs),
            *(float(place == other) for other in range(3)),
            *oracle.accesses[buffer].columns(),
            math.log2(1 + size),
        ]
    return block
