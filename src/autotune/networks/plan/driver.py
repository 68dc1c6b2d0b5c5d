"""The function that makes all calls of a plan, printed as LLVM IR.

``int run(void **frame)`` is given the words of :data:`FRAME` and returns 0; a positive number is
that of the check that failed, of all in the order of the steps, and a negative one that of the
operator of the host, both counted from 1. Calls at the same time need frames of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field

from autotune.backends import ALIGNMENT
from autotune.ir.element_types import element_type
from autotune.networks.plan.native_program import NativeProgram
from autotune.runtime.plan import (
    Call,
    Check,
    Copy,
    HostCall,
    Leaf,
    Place,
    Plan,
    Repeat,
    Step,
)

__all__ = ["FRAME", "print_driver"]

FRAME = (
    "inputs",
    "outputs",
    "constants",
    "programs",
    "hosts",
    "arena",
    "scratch",
    "threads",
    "launch",
    "pool",
    "times",
    "failure",
)
"""The words that the driver is given, all of 8 bytes:

- ``inputs``, ``outputs``, ``constants``: tables of addresses, of the plan's in order;
- ``programs``: addresses of ``int run(void **arrays, launch, pool)`` of the plan's programs;
- ``hosts``: for each of its calls of the host, in the order of the steps, the address of
  ``int host(void **arrays, int64_t number)``, which is given operands and results and how many
  calls come before it in that order, and returns 0 unless it fails;
- ``arena``, ``scratch``: memory; for scratch see :func:`~.native_program.scratch_bytes`;
- ``threads``, ``launch``, ``pool``: what parallel loops are started with: at most so many threads;
- ``times``: 0, or an array of integers: the time (CLOCK_MONOTONIC, in nanoseconds) that the call
  begins at, which is written to, then what each of :attr:`~.plan.Plan.task_names` has taken in all
  calls, added to what is there, then what all else has;
- ``failure``: where the number is stored that a check refuses.

Every array begins at a multiple of 64 bytes.
"""

# Steps of one function: what LLVM does with a function takes more than twice as long for twice
# the steps.
_STEPS = 48

_MOST, _LEAST, _WORD = (1 << 63) - 1, -(1 << 63), (1 << 64) - 1

_NOTE = """
declare i32 @clock_gettime(i32, ptr)

define internal void @note(ptr %times, i64 %index) #0 {
entry:
  %now = alloca [2 x i64]
  %off = icmp eq ptr %times, null
  br i1 %off, label %done, label %on
on:
  %ignored = call i32 @clock_gettime(i32 1, ptr %now)
  %seconds = load i64, ptr %now
  %rest.at = getelementptr i64, ptr %now, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %time = add i64 %whole, %rest
  %last = load i64, ptr %times
  %taken = sub i64 %time, %last
  store i64 %time, ptr %times
  %sum.at = getelementptr i64, ptr %times, i64 %index
  %before = load i64, ptr %sum.at
  %sum = add i64 %before, %taken
  store i64 %sum, ptr %sum.at
  br label %done
done:
  ret void
}
"""


def print_driver(plan: Plan[NativeProgram], name: str = "run") -> str:
    """The driver of a plan.

    Args:
        plan: The plan.
        name: What the function is called.
    """
    printer = _Printer(plan)
    whole = printer.sequence(plan.steps, 0)
    entry = (
        f"define i32 @{name}(ptr %frame) {{\n  %status = call i32 @{whole}(ptr %frame)\n"
        "  ret i32 %status\n}"
    )
    return "\n".join([*printer.texts, entry, _NOTE, "attributes #0 = { nounwind noinline }", ""])


@define(eq=False)
class _Printer:
    """Functions that are printed so far.

    Attributes:
        plan: What is printed.
        texts: The functions.
        numbers: Of the programs.
        tasks: Where the times of tasks are kept.
        checks: Number of checks so far.
        hosts: Number of calls of the host so far.
    """

    plan: Plan[NativeProgram]
    texts: list[str] = field(factory=list)
    numbers: dict[str, int] = field(init=False)
    tasks: dict[str, int] = field(init=False)
    checks: int = 0
    hosts: int = 0
    _known: set[str] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.numbers = {key: number for number, key in enumerate(self.plan.programs)}
        self.tasks = {name: number + 1 for number, name in enumerate(self.plan.task_names)}

    def sequence(self, steps: Sequence[Step], depth: int) -> str:
        """The name of a function that makes steps inside of so many loops."""
        if len(steps) > _STEPS:
            size = max(_STEPS, -(-len(steps) // _STEPS))
            parts = [
                self.sequence(steps[at : at + size], depth) for at in range(0, len(steps), size)
            ]
            return self._function(depth, _Body(depth).calls(parts))
        body = _Body(depth)
        for step in steps:
            if isinstance(step, Repeat):
                body.repeat(self.sequence(step.steps, depth + 1), step.trips)
            else:
                self._step(step, body)
        return self._function(depth, body)

    def _function(self, depth: int, body: _Body) -> str:
        name = f"block{len(self.texts)}"
        lines = "\n".join(["entry:", *body.head(), *body.lines, "  ret i32 0"])
        parameters = ", ".join(["ptr %frame", *(f"i64 %i{number}" for number in range(depth))])
        self.texts.append(f"define internal i32 @{name}({parameters}) #0 {{\n{lines}\n}}")
        return name

    def _step(self, step: Leaf, body: _Body) -> None:
        index = len(self.tasks) + 1
        if isinstance(step, Call):
            program = self.plan.programs[step.program]
            body.call(program, self.numbers[step.program], step.arguments)
            index = self.tasks[self.plan.tasks[step.program]]
        elif isinstance(step, HostCall):
            body.host([it.place for it in (*step.operands, *step.results)], self.hosts)
            self.hosts += 1
        elif isinstance(step, Copy):
            body.copy(step)
            self.texts += self._once("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        else:
            self.checks += 1
            self._check(step, body)
        body.line(f"call void @note(ptr {body.word('times')}, i64 {index})")

    def _check(self, step: Check, body: _Body) -> None:
        dtype, count = step.operand.dtype, step.operand.bytes // _size(step.operand.dtype)
        if not count:
            return
        data, failure = body.address(step.operand.place), body.word("failure")
        if step.requirement.nonzero:
            self.texts += self._once(_nonzero(dtype))
            given = f"ptr {data}, i64 {count}, ptr {failure}"
            body.checked(f"@nonzero.{dtype}({given})", str(self.checks))
        bounds = _bounds(step)
        if bounds is not None:
            own, period = f"bounds{self.checks}", len(bounds[0])
            for side, numbers in zip(("low", "high"), bounds, strict=True):
                listed = ", ".join(f"i64 {number}" for number in numbers)
                kind = f"[{period} x i64]"
                self.texts.append(f"@{own}.{side} = private constant {kind} [{listed}]")
            self.texts += self._once(_within(dtype))
            tables = f"ptr @{own}.low, ptr @{own}.high, i64 {period}"
            given = f"ptr {data}, i64 {count}, {tables}, ptr {failure}"
            body.checked(f"@within.{dtype}({given})", str(self.checks))

    def _once(self, text: str) -> list[str]:
        if text in self._known:
            return []
        self._known.add(text)
        return [text]


@define(eq=False)
class _Body:
    """The lines of a function.

    Attributes:
        depth: How many loops are around.
        lines: What is there so far.
        arrays: The most arrays that one of its calls is given.
    """

    depth: int
    lines: list[str] = field(factory=list)
    arrays: int = 0
    _words: dict[str, None] = field(factory=dict)
    _bases: dict[tuple[str, int], None] = field(factory=dict)
    _block: str = "entry"
    _names: int = 0

    def head(self) -> Iterator[str]:
        """Lines before the others: words of the frame, and where arrays begin."""
        if self.arrays:
            yield f"  %table = alloca [{self.arrays} x ptr], align {ALIGNMENT}"
        for word in dict.fromkeys([*(f"{kind}s" for kind, _ in self._bases), *self._words]):
            kind = "i64" if word == "threads" else "ptr"
            yield f"  %{word}.at = getelementptr i64, ptr %frame, i64 {FRAME.index(word)}"
            yield f"  %{word} = load {kind}, ptr %{word}.at"
        for kind, number in self._bases:
            base = f"%{kind}{number}"
            yield f"  {base}.at = getelementptr ptr, ptr %{kind}s, i64 {number}"
            yield f"  {base} = load ptr, ptr {base}.at"

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """The name of what an instruction computes."""
        self._names += 1
        self.line(f"%v{self._names} = {text}")
        return f"%v{self._names}"

    def word(self, name: str) -> str:
        """A word of the frame."""
        self._words[name] = None
        return f"%{name}"

    def address(self, place: Place) -> str:
        """Address at which an array begins."""
        if place.kind == "arena":
            found = self.word("arena")
        else:
            self._bases[place.kind, place.number] = None
            found = f"%{place.kind}{place.number}"
        if place.offset:
            found = self.value(f"getelementptr i8, ptr {found}, i64 {place.offset}")
        for depth, stride in enumerate(place.strides):
            if stride:
                passed = self.value(f"mul i64 %i{depth}, {stride}")
                found = self.value(f"getelementptr i8, ptr {found}, i64 {passed}")
        return found

    def call(self, program: NativeProgram, number: int, arguments: Sequence[Place]) -> None:
        """The call of a program."""
        found = dict(zip(program.positions, map(self.address, arguments), strict=True))
        for part in program.parts:
            offset = str(part.fixed)
            if part.each:
                each = self.value(f"mul i64 {self.word('threads')}, {part.each}")
                offset = self.value(f"add i64 {each}, {part.fixed}")
            base = self.word("scratch")
            found[part.position] = self.value(f"getelementptr i8, ptr {base}, i64 {offset}")
        self._fill(found)
        function = self._entry("programs", number)
        pool = f"ptr {self.word('launch')}, ptr {self.word('pool')}"
        self.value(f"call i32 {function}(ptr %table, {pool})")

    def host(self, places: Sequence[Place], number: int) -> None:
        """The call of an operator of the host."""
        self._fill(dict(enumerate(map(self.address, places))))
        function = self._entry("hosts", number)
        self.checked(f"{function}(ptr %table, i64 {number})", str(-1 - number))

    def copy(self, step: Copy) -> None:
        """A copy."""
        given = f"ptr {self.address(step.target)}, ptr {self.address(step.source)}"
        self.line(f"call void @llvm.memcpy.p0.p0.i64({given}, i64 {step.bytes}, i1 false)")

    def checked(self, call: str, status: str) -> None:
        """A call after which nothing else is done, if it does not return 0."""
        self._leave_unless_zero(self.value(f"call i32 {call}"), status)

    def calls(self, blocks: Sequence[str]) -> _Body:
        """Calls of functions inside of the same loops, one after the other."""
        for name in blocks:
            found = self.value(f"call i32 @{name}({self._parameters()})")
            self._leave_unless_zero(found, found)
        return self

    def repeat(self, block: str, trips: int) -> None:
        """A loop whose body is a function."""
        self._names += 1
        own = f"loop{self._names}"
        before, self._block = self._block, own
        self.line(f"br label %{own}")
        self.lines.append(f"{own}:")
        self.line(f"%{own}.i = phi i64 [ 0, %{before} ], [ %{own}.next, %{own}.fine ]")
        found = self.value(f"call i32 @{block}({self._parameters()}, i64 %{own}.i)")
        bad = self.value(f"icmp ne i32 {found}, 0")
        self.line(f"br i1 {bad}, label %{own}.bad, label %{own}.fine")
        self.lines += [f"{own}.bad:", f"  ret i32 {found}", f"{own}.fine:"]
        self.line(f"%{own}.next = add i64 %{own}.i, 1")
        more = self.value(f"icmp ult i64 %{own}.next, {trips}")
        self.line(f"br i1 {more}, label %{own}, label %{own}.done")
        self._begin(f"{own}.done")

    def _leave_unless_zero(self, found: str, status: str) -> None:
        self._names += 1
        bad, fine = f"bad{self._names}", f"fine{self._names}"
        is_bad = self.value(f"icmp ne i32 {found}, 0")
        self.line(f"br i1 {is_bad}, label %{bad}, label %{fine}")
        self.lines += [f"{bad}:", f"  ret i32 {status}"]
        self._begin(fine)

    def _begin(self, block: str) -> None:
        self.lines.append(f"{block}:")
        self._block = block

    def _fill(self, arrays: dict[int, str]) -> None:
        self.arrays = max(self.arrays, len(arrays))
        for position, array in sorted(arrays.items()):
            at = self.value(f"getelementptr ptr, ptr %table, i64 {position}")
            self.line(f"store ptr {array}, ptr {at}")

    def _entry(self, table: str, number: int) -> str:
        at = self.value(f"getelementptr ptr, ptr {self.word(table)}, i64 {number}")
        return self.value(f"load ptr, ptr {at}")

    def _parameters(self) -> str:
        return ", ".join(["ptr %frame", *(f"i64 %i{number}" for number in range(self.depth))])


def _size(dtype: str) -> int:
    return element_type(dtype).bytes


def _bounds(step: Check) -> tuple[list[int], list[int]] | None:
    """The least and the largest numbers allowed, of each place along the last axis; None where
    all are.

    Numbers of types without sign are compared as such.
    """
    requirement = step.requirement
    if requirement.low is None and requirement.high is None:
        return None
    least, most = (0, _WORD) if _is_unsigned(step.operand.dtype) else (_LEAST, _MOST)
    sides = []
    for bound, free in ((requirement.low, least), (requirement.high, most)):
        numbers = [free if bound is None else bound] if not isinstance(bound, tuple) else bound
        sides.append([min(max(it, least), most) for it in numbers])
    period = max(map(len, sides))
    low, high = (it * period if len(it) < period else it for it in sides)
    return low, high


def _is_unsigned(dtype: str) -> bool:
    return dtype == "bool" or dtype.startswith("u")


_LOOP = """define internal i32 @{name}({parameters}) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %fine ]
{place}  %at = getelementptr {kind}, ptr %data, i64 %i
  %element = load {kind}, ptr %at
{test}
  br i1 %bad, label %refused, label %fine
fine:
  %next = add i64 %i, 1
{moved}  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret i32 0
refused:
{told}  ret i32 1
}}"""


def _nonzero(dtype: str) -> str:
    """A function that looks for a zero."""
    kind = f"i{8 * _size(dtype)}"
    return _LOOP.format(
        name=f"nonzero.{dtype}",
        parameters="ptr %data, i64 %count, ptr %failure",
        kind=kind,
        place="",
        test=f"  %bad = icmp eq {kind} %element, 0",
        moved="",
        told="  store i64 0, ptr %failure\n",
    )


def _within(dtype: str) -> str:
    """A function that looks for what is out of bounds, and tells it."""
    kind = f"i{8 * _size(dtype)}"
    less, more, wider = ("ult", "ugt", "zext") if _is_unsigned(dtype) else ("slt", "sgt", "sext")
    wide = "add i64 %element, 0" if kind == "i64" else f"{wider} {kind} %element to i64"
    test = [f"  %wide = {wide}"]
    for side, order in (("low", less), ("high", more)):
        test += [
            f"  %{side}.at = getelementptr i64, ptr %{side}, i64 %place",
            f"  %{side}.bound = load i64, ptr %{side}.at",
            f"  %{side}.bad = icmp {order} i64 %wide, %{side}.bound",
        ]
    test.append("  %bad = or i1 %low.bad, %high.bad")
    return _LOOP.format(
        name=f"within.{dtype}",
        parameters="ptr %data, i64 %count, ptr %low, ptr %high, i64 %period, ptr %failure",
        kind=kind,
        place="  %place = phi i64 [ 0, %entry ], [ %following, %fine ]\n",
        test="\n".join(test),
        moved="  %behind = add i64 %place, 1\n  %last = icmp eq i64 %behind, %period\n"
        "  %following = select i1 %last, i64 0, i64 %behind\n",
        told="  store i64 %wide, ptr %failure\n",
    )
