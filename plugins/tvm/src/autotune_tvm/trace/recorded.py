"""Reading a JSON database of TVM's MetaSchedule as schedules of the trace space.

A database is two files with a JSON value a line: programs, and records that refer to them by
position. Lines are read here, and TVM is given two things only: the text of a program, and
instructions of kinds that a trace may have. What MetaSchedule's postprocessors did is not applied
but compared with what those of this package do: a record is taken only if its whole trace comes
out again, instruction for instruction.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn, TypeVar

import numpy as np
from attrs import define, field, frozen
from tvm.s_tir import Schedule
from tvm_ffi import structural_equal

from autotune.backends import ForeignSchedule, ForeignSchedules
from autotune.errors import (
    AutotuneError,
    InvalidValueError,
    UnsupportedTarget,
    UnsupportedWorkload,
)
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, Sketch
from autotune.spaces import FeasibleSet
from autotune.spaces.feasible import build_feasible_set
from autotune.store.records.validity import check_content
from autotune.targets import Target
from autotune_tvm import compiler, importer, runtime
from autotune_tvm.metaschedule import FILES, OTHER_BLOCKS, has_other_blocks
from autotune_tvm.scheduled import program_of
from autotune_tvm.trace.generation import generate_sketches, plain_json, trace_sketch
from autotune_tvm.trace.instructions import CATEGORICAL, TILE, read_instructions, sampled
from autotune_tvm.trace.replay import apply_instructions, apply_trace
from autotune_tvm.trace.space import TraceSpace, prepared
from autotune_tvm.trace.step import trace_of

__all__ = ["read_database"]

MOST_BYTES = 64 << 20
"""A longer line is no part of a database, and is not kept in memory to find out."""

POSTPROCESSED = "EnterPostproc"
"""The instruction before those of postprocessors."""

_FAILED = 1e9
"""Seconds from which on MetaSchedule means that a candidate failed: it records 1e10."""

_MOST_THREADS = 1 << 20
_LARGEST = 1 << 62
# Features that change what programs run; a processor's other features are how it is best tuned.
_INSTRUCTION_SETS = ("sse", "avx", "amx", "fma")

Value = TypeVar("Value")


def read_database(folder: Path, target: Target) -> ForeignSchedules:
    """Read the records of a folder.

    Args:
        folder: Has both of :data:`FILES`.
        target: What the records are taken for: it must have what they were compiled for.

    Raises:
        InvalidValueError: a file is missing or cannot be read.
        UnsupportedTarget: the target is no CPU that TVM compiles for.
    """
    compiler.check_target(target)
    if target.kind != "cpu":
        raise UnsupportedTarget(
            f"schedules of MetaSchedule are taken for CPUs only; target {target.name!r} is of "
            f"kind {target.kind!r}"
        )
    for name in FILES:
        if not (folder / name).is_file():
            raise InvalidValueError(
                f"{str(folder)!r} is no database of MetaSchedule: it has no file {name!r}"
            )
    reader = _Reader(target, list(_lines(folder / FILES[0])))
    found: list[ForeignSchedule] = []
    refused: list[tuple[str, str]] = []
    for number, line in enumerate(_lines(folder / FILES[1]), 1):
        try:
            found.append(reader.schedule(line))
        except AutotuneError as error:
            refused.append((f"line {number}", str(error)))
    return ForeignSchedules(tuple(found), tuple(refused))


def _lines(path: Path) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is too long."""
    try:
        with path.open("rb") as stream:
            while line := stream.readline(MOST_BYTES):
                if line.endswith(b"\n") or len(line) < MOST_BYTES:
                    yield line
                    continue
                while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                    pass
                yield None
    except OSError as error:
        raise InvalidValueError(f"{str(path)!r} cannot be read: {error.strerror}") from error


@frozen
class _Line:
    """A record as it is written.

    Attributes:
        program: Position of its program.
        instructions: Of its trace.
        decisions: Pairs of the position of an instruction and what was decided there.
        seconds: Per call, of every measurement.
        target: TVM's target in JSON form.
        arguments: Kind, element type and shape of each argument.
    """

    program: int
    instructions: list[Any]
    decisions: list[Any]
    seconds: tuple[float, ...]
    target: Mapping[str, Any]
    arguments: object


@frozen(eq=False)
class _Program:
    """A program of a database, understood.

    Attributes:
        workload: Its meaning.
        text: Its text form, as of :func:`autotune_tvm.importer.text_of`.
        module: As traces are applied to it.
        blocks: Name of the block that computes each stage.
        scheduled: What its candidates are schedules of, where blocks are called after stages.
        arguments: As records describe them.
    """

    workload: Workload
    text: str
    module: Any
    blocks: Mapping[str, str]
    scheduled: Any
    arguments: list[Any]


@frozen(eq=False)
class _Space:
    """A trace, understood.

    Attributes:
        own: The sketch of just this trace.
        sketch: The one of the trace space with the same instructions that matter, if there is
            one, and otherwise ``own``: while it searches, TVM drops those without a use.
        feasible: The configurations that TVM's rules draw.
    """

    own: Sketch
    sketch: Sketch
    feasible: FeasibleSet


@define(eq=False)
class _Reader:
    """A database whose programs and sketches are read when the first record needs them."""

    target: Target
    texts: Sequence[bytes | None]
    programs: dict[int, _Program | AutotuneError] = field(factory=dict)
    spaces: dict[tuple[int, int, str], _Space | AutotuneError] = field(factory=dict)
    generated: dict[tuple[str, int], Mapping[str, Sketch] | AutotuneError] = field(factory=dict)

    def schedule(self, line: bytes | None) -> ForeignSchedule:
        """The schedule in a line.

        Raises:
            AutotuneError: it holds none that can be replayed here.
        """
        read = _read_line(_json(line))
        latency = _latency(read.seconds)
        threads = _threads(read.target)
        _check_processor(read.target, self.target, threads)
        program = _once(self.programs, read.program, lambda: self._program(read.program))
        if read.arguments is not None and read.arguments != program.arguments:
            raise InvalidValueError(f"its arguments are not those of program {read.program}")
        instructions = _before_postprocessors(read.instructions)
        key = read.program, threads, json.dumps(instructions)
        space = _once(self.spaces, key, lambda: self._space(program, threads, instructions))
        values = _decided(instructions, read.decisions)
        program_made = _replayed_whole(_candidate(space.own, values), program, read)
        candidate = _candidate(space.sketch, values)
        if not space.feasible.contains(np.array([candidate.values], dtype=np.int64)).all():
            raise InvalidValueError("it decides what TVM's rules do not draw for this program")
        if not structural_equal(program_made, _replayed(candidate, program).mod):
            raise InvalidValueError("its trace makes another program here")
        names = {stage.name: stage.name for stage in program.workload.stages}
        step, made = trace_of(candidate.sketch), Schedule(program.scheduled)
        apply_trace(step, made, names, candidate.config)
        named = f"{TraceSpace.name}-{TraceSpace.version}"
        return ForeignSchedule(candidate, program.text, named, threads, latency, read.seconds)

    def _program(self, number: int) -> _Program:
        if not 0 <= number < len(self.texts):
            raise InvalidValueError(
                f"it is of program {number}, and {FILES[0]} has {len(self.texts)}"
            )
        try:
            return _read_program(_json(self.texts[number]))
        except AutotuneError as error:
            raise InvalidValueError(f"its program, line {number + 1}: {error}") from error

    def _space(self, program: _Program, threads: int, instructions: list[Any]) -> _Space:
        name = f"trace {len(self.spaces) + 1}"
        own = trace_sketch(name, program.workload, program.module, program.blocks, instructions)
        known = _once(
            self.generated,
            (program.text, threads),
            lambda: _by_live_instructions(program, self.target, threads),
        )
        sketch = known.get(_live_instructions(own, program), own)
        return _Space(own, sketch, build_feasible_set(sketch))


def _by_live_instructions(program: _Program, target: Target, threads: int) -> Mapping[str, Sketch]:
    """The sketches of the trace space of a program; none where there is no such space."""
    described = compiler.described_target(target, threads)
    try:
        generated = generate_sketches(program.workload, program.module, program.blocks, described)
    except UnsupportedWorkload:
        return {}
    return {_live_instructions(it, program): it for it in generated.sketches}


def _live_instructions(sketch: Sketch, program: _Program) -> str:
    """The instructions of a trace that TVM does not drop while it searches."""
    step = trace_of(sketch)
    schedule = Schedule(program.module, seed=1)
    instructions = read_instructions(step.trace, len(step.stages))
    apply_instructions(instructions, [], schedule, [program.blocks[it] for it in step.stages])
    live, _ = plain_json(schedule.trace.simplified(remove_postproc=True))
    return json.dumps([len(step.decisions), live])


def _once(
    known: dict[Any, Value | AutotuneError], key: object, make: Callable[[], Value]
) -> Value:
    """Make a value of a key, or keep why it cannot be made; it is tried once."""
    if key not in known:
        try:
            known[key] = make()
        except AutotuneError as error:
            known[key] = error
    found = known[key]
    if isinstance(found, AutotuneError):
        raise found
    return found


def _json(line: bytes | None) -> Any:
    if line is None:
        raise InvalidValueError(f"it is longer than {MOST_BYTES} bytes")
    try:
        data = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"not JSON: {error}") from error
    check_content(data)
    return data


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _read_line(data: Any) -> _Line:
    """The parts of a record.

    Raises:
        InvalidValueError: it is of another form.
    """
    program, entry = _parts(data, 2)
    trace, seconds, target, arguments = _parts(entry, 4)
    instructions, decisions = _parts(trace, 2)
    if not (
        type(program) is int
        and isinstance(instructions, list)
        and all(map(_is_instruction, instructions))
        and isinstance(decisions, list)
        and all(_is_list(it, 2) and type(it[0]) is int for it in decisions)
        and isinstance(target, dict)
    ):
        raise InvalidValueError(
            "not a record of MetaSchedule: the position of a program, and a trace, seconds, a "
            "target and arguments"
        )
    times = seconds if isinstance(seconds, list) else []
    if not all(type(it) in (int, float) and it > 0 for it in times):
        raise InvalidValueError("its seconds are no numbers above 0")
    return _Line(program, instructions, decisions, tuple(map(float, times)), target, arguments)


def _parts(value: Any, count: int) -> list[Any]:
    """The items of a list of so many; as many times None for anything else."""
    return list(value) if _is_list(value, count) else [None] * count


def _is_list(value: object, length: int) -> bool:
    return isinstance(value, list) and len(value) == length


def _is_instruction(value: Any) -> bool:
    return _is_list(value, 4) and isinstance(value[0], str) and _has_lists(value)


def _has_lists(value: Sequence[Any]) -> bool:
    return all(isinstance(part, list) for part in value[1:])


def _latency(seconds: Sequence[float]) -> float:
    """The mean, by which MetaSchedule chooses."""
    if not seconds:
        raise InvalidValueError("it was not timed")
    if (mean := fmean(seconds)) >= _FAILED:
        raise InvalidValueError("its candidate failed there")
    return mean


def _threads(target: Mapping[str, Any]) -> int:
    kind, threads = target.get("kind"), target.get("num-cores")
    if kind != "llvm":
        raise InvalidValueError(
            f"its target is of kind {str(kind)[:40]!r}; taken are those of kind 'llvm', CPUs"
        )
    if type(threads) is not int or not 1 <= threads <= _MOST_THREADS:
        raise InvalidValueError("its target does not say on how many cores it ran ('num-cores')")
    return threads


def _check_processor(recorded: Mapping[str, Any], target: Target, threads: int) -> None:
    """Refuse programs that were compiled for what a target lacks."""
    processor, features = recorded.get("mcpu", ""), recorded.get("mattr", [])
    if not isinstance(processor, str) or not (
        isinstance(features, list)
        and all(isinstance(it, str) and re.fullmatch(r"[+-][\w.-]+", it) for it in features)
    ):
        raise InvalidValueError("its target has no name of a processor, or no list of features")
    own = compiler.tvm_target(target, threads)
    known = _instruction_sets(str(own["mcpu"]), tuple(own.get("mattr", ())))
    lacking = _instruction_sets(processor, tuple(features)) - known
    if lacking:
        raise InvalidValueError(
            f"it was compiled for {processor!r}, and target {target.name!r} lacks "
            f"{', '.join(sorted(lacking))}"
        )


@lru_cache(maxsize=64)
def _instruction_sets(processor: str, features: tuple[str, ...]) -> frozenset[str]:
    """The instruction sets of a processor of LLVM with further features."""
    tvm = runtime.load()
    codegen, make = tvm.target.codegen, tvm.target.Target
    if processor and processor not in map(str, codegen.llvm_get_cpu_archlist(make("llvm"))):
        raise InvalidValueError(f"it was compiled for {processor[:40]!r}, no processor of LLVM's")
    named = {"mcpu": processor} if processor else {}
    found = codegen.llvm_get_cpu_features(make({"kind": "llvm", **named, "mattr": [*features]}))
    return frozenset(it for it in map(str, found) if it.startswith(_INSTRUCTION_SETS))


def _read_program(data: Any) -> _Program:
    """A program from its hash and its encoded text.

    Raises:
        AutotuneError: it is of another form, or can be no workload.
    """
    if not (_is_list(data, 2) and all(isinstance(it, str) for it in data)):
        raise InvalidValueError("not a program of MetaSchedule: a hash and a text")
    try:
        encoded = base64.b64decode(data[1], validate=True)
        length = int.from_bytes(encoded[:8], "little")
        text = encoded[8 : 8 + length].decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InvalidValueError(
            f"its text is not encoded as MetaSchedule does: {error}"
        ) from error
    workload, module = importer.import_module(importer.module_from_text(text))
    if has_other_blocks(workload, module):
        raise InvalidValueError(f"it {OTHER_BLOCKS}")
    text = importer.text_of(module)
    names = importer.argument_names(module)
    arguments = [
        ["TENSOR", it.dtype, list(it.shape)] for it in map(workload.tensors.get, names) if it
    ]
    replayed, blocks = prepared(workload, module, importer.blocks_of(module))
    if not structural_equal(replayed, module):
        raise InvalidValueError("its loops are in another order than the axes of its stages")
    return _Program(workload, text, replayed, blocks, program_of(workload, text), arguments)


def _before_postprocessors(instructions: list[Any]) -> list[Any]:
    kinds = [kind for kind, *_ in instructions]
    end = kinds.index(POSTPROCESSED) if POSTPROCESSED in kinds else len(kinds)
    return instructions[:end]


def _decided(instructions: Sequence[Any], decisions: Sequence[Any]) -> list[int]:
    """Decisions of a trace's sampling instructions, in order.

    Raises:
        InvalidValueError: one decides nothing, or something that it cannot.
    """
    made = dict(decisions)
    values: list[int] = []
    for position, kind, count in sampled(instructions):
        value = made.get(position)
        own: list[Any] = value if kind == TILE and isinstance(value, list) else [value]
        if kind == CATEGORICAL:
            choices = instructions[position][2][0]
            own = [choices[at] for at in own if type(at) is int and 0 <= at < len(choices)]
        if len(own) != count or not all(type(it) is int and abs(it) < _LARGEST for it in own):
            raise InvalidValueError(
                f"instruction {position} of its trace, {kind!r}, cannot decide "
                f"{json.dumps(value)[:40]}"
            )
        values += own
    return values


def _candidate(sketch: Sketch, values: Sequence[int]) -> Candidate:
    """The configuration of a sketch that takes these decisions.

    Raises:
        InvalidValueError: one is not among those that TVM's rules draw.
    """
    step = trace_of(sketch)
    pairs = zip(step.decisions, values, strict=True)
    config = {str(it.args[0]): value for it, value in pairs if it.op == "var"}
    candidate = Candidate.from_config(sketch, config)
    if step.values(candidate.config) != list(values):
        raise InvalidValueError("it decides what TVM's rules do not draw for this program")
    return candidate


def _replayed(candidate: Candidate, program: _Program) -> Any:
    """A schedule of a program with a candidate's trace and the postprocessors.

    Raises:
        InvalidSchedule: TVM refuses an instruction, or a postprocessor the program.
    """
    schedule = Schedule(program.module)
    apply_trace(trace_of(candidate.sketch), schedule, program.blocks, candidate.config)
    return schedule


def _replayed_whole(candidate: Candidate, program: _Program, read: _Line) -> Any:
    """The program that a record's own trace makes here.

    Raises:
        InvalidSchedule: as of :func:`_replayed`.
        InvalidValueError: another trace comes out than is recorded; names what differs first.
    """
    schedule = _replayed(candidate, program)
    instructions, decisions = plain_json(schedule.trace)
    pairs = zip_longest(read.instructions, instructions, fillvalue=["nothing"])
    for position, (theirs, ours) in enumerate(pairs):
        if theirs != ours:
            raise InvalidValueError(
                f"its postprocessors did something else than those of this package: instruction "
                f"{position} is {str(theirs[0])[:40]!r} there and {ours[0]!r} here"
            )
    if read.decisions != decisions:
        raise InvalidValueError("TVM decides otherwise when it is replayed")
    return schedule.mod
