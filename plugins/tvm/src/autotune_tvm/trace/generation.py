"""From a program to the sketches of its trace space, by MetaSchedule's rules."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from attrs import define, field, frozen
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import _ffi_api
from tvm.s_tir.meta_schedule.logging import get_logging_func
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply
from tvm.s_tir.meta_schedule.tune_context import TuneContext

from autotune.backends import InvalidSchedule
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.expressions import IntExpr, const, var
from autotune.ir.workloads import Workload
from autotune.sketches import Constraint, Factor, Ordinal, Param, ProductEquals, Sketch
from autotune_tvm import compiler
from autotune_tvm.trace.instructions import (
    ANNOTATIONS,
    CATEGORICAL,
    LOCATION,
    LOOKUP,
    ROOT,
    TILE,
    read_instructions,
    sampled,
)
from autotune_tvm.trace.replay import apply_instructions
from autotune_tvm.trace.step import TraceStep

__all__ = [
    "MOST_SKETCHES",
    "Generated",
    "generate_sketches",
    "plain_json",
    "trace_sketch",
    "tune_context",
]

MOST_SKETCHES = 12
"""Every reduction that TVM may split multiplies their number by three."""

_PROBES = 4
# Farther inside than any loop: TVM then takes the innermost one that it accepts.
_INNERMOST = 1 << 20
_INLINED, _OUTSIDE = -2, -1


@frozen
class Generated:
    """The sketches of a program.

    Attributes:
        sketches: Those whose decisions are parameters.
        left_out: Why others are not among them, by name.
    """

    sketches: tuple[Sketch, ...]
    left_out: Mapping[str, str]


def generate_sketches(
    workload: Workload, module: Any, blocks: Mapping[str, str], target: Any
) -> Generated:
    """The design space of MetaSchedule's rules for CPUs.

    Args:
        workload: What the program computes.
        module: The program, with loops and block variables in the order of the stages' axes.
        blocks: Name of the block that computes each stage.
        target: TVM's target object, with the number of cores.

    Raises:
        UnsupportedWorkload: TVM's rules fail on the program, or make no schedule of it.
    """
    try:
        rules = PostOrderApply(sch_rules="llvm", postprocs=[], mutator_probs={})
        context = tune_context(target, module, rules)
        schedules = context.generate_design_space()
    except Exception as error:  # TVM raises whatever its rules raise
        raise UnsupportedWorkload(
            f"TVM's schedule rules fail on {workload.name!r}: {compiler.brief(error)}"
        ) from error
    sketches: dict[str, Sketch] = {}
    left_out: dict[str, str] = {}
    for number, schedule in enumerate(schedules, 1):
        name = f"trace {number}"
        if len(sketches) == MOST_SKETCHES:
            left_out[name] = f"is one more than {MOST_SKETCHES}"
            continue
        try:
            instructions, _ = plain_json(schedule.trace)
            sketch = trace_sketch(name, workload, module, blocks, instructions)
        except (InvalidSchedule, InvalidValueError) as error:
            left_out[name] = f"has no parameters: {error}"
            continue
        if sketch.digest in {it.digest for it in sketches.values()}:
            left_out[name] = "is an earlier one again"
        else:
            sketches[name] = sketch
    if not sketches:
        reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
        raise UnsupportedWorkload(
            f"TVM's schedule rules make nothing of {workload.name!r}: {reasons or 'no schedule'}"
        )
    return Generated(tuple(sketches.values()), left_out)


def trace_sketch(
    name: str,
    workload: Workload,
    module: Any,
    blocks: Mapping[str, str],
    instructions: Sequence[Sequence[Any]],
) -> Sketch:
    """The sketch of a trace, whose decisions are its parameters.

    Args:
        name: Of the sketch.
        workload: As of :func:`generate_sketches`.
        module: As of :func:`generate_sketches`.
        blocks: As of :func:`generate_sketches`.
        instructions: The trace before postprocessors, as of :func:`plain_json`.

    Raises:
        InvalidValueError: an instruction is none that a trace may have, or looks up something
            else than the block of a stage.
        InvalidSchedule: TVM refuses an instruction.
    """
    return _SketchMaker(name, workload, module, blocks).make(instructions)


def tune_context(target: Any, module: Any = None, generator: Any = None, threads: int = 1) -> Any:
    """A ``TuneContext`` of MetaSchedule with a fixed seed.

    Made without its own constructor, which registers every tensor intrinsic first: that takes
    seconds, and the rules for CPUs use none.
    """
    made = TuneContext.__new__(TuneContext)
    log = get_logging_func(logging.getLogger("autotune.tvm.trace"))
    made.__init_handle_by_constructor__(
        _ffi_api.TuneContext, module, target, generator, None, "main", threads, 1, log
    )
    _ffi_api.TuneContextInitialize(made)
    return made


@define(eq=False)
class _SketchMaker:
    """Sketch under construction.

    ``stages`` are those whose blocks are looked up; ``called`` says by the names of the results of
    instructions of what stage a block is, of what stage and axis a loop, and what a number is for.
    """

    name: str
    workload: Workload
    module: Any
    blocks: Mapping[str, str]
    stages: list[str] = field(factory=list)
    params: list[Param] = field(factory=list)
    constraints: list[Constraint] = field(factory=list)
    decisions: list[IntExpr] = field(factory=list)
    called: dict[str, str] = field(factory=dict)
    count: Counter[str] = field(factory=Counter)

    def make(self, trace: Sequence[Sequence[Any]]) -> Sketch:
        """The sketch of a trace, before any of whose instructions is applied all are checked."""
        given = [self._instruction(it) for it in trace]
        text = json.dumps(given, separators=(",", ":"))
        instructions = read_instructions(text, len(self.stages))
        probes = self._probes(instructions)
        for instruction in instructions:
            self._name_results(instruction)
        for position, kind, _ in sampled(instructions):
            values = [probe[position] for probe in probes]
            if kind == TILE:
                self._tile(instructions[position], values)
            elif kind == CATEGORICAL:
                _, _, attributes, (result,) = instructions[position]
                name = self.called.get(result, "choice")
                self._one_of(self._unique(name), tuple(attributes[0]))
            else:
                block = self.called.get(instructions[position][1][0])
                name = "location" if block is None else f"{block}.location"
                inlined = (_INLINED,) if _INLINED in values else ()
                places = (*inlined, *range(_OUTSIDE, max(_OUTSIDE, *values) + 1))
                self._one_of(self._unique(name), places)
        last = self.workload.stages[-1].name
        step = TraceStep(last, tuple(self.stages), text, tuple(self.decisions))
        params, constraints = tuple(self.params), tuple(self.constraints)
        return Sketch(self.name, self.workload, params, constraints, (step,))

    def _instruction(self, instruction: Sequence[Any]) -> list[Any]:
        """An instruction with the position of the stage in place of a block's name."""
        kind, inputs, attributes, results = instruction
        if kind == LOOKUP and attributes[0] != ROOT:
            stage = next((s for s, block in self.blocks.items() if block == attributes[0]), None)
            if stage is None:
                raise InvalidValueError(f"it looks up {attributes[0]!r}, the block of no stage")
            if stage not in self.stages:
                self.stages.append(stage)
            attributes = [self.stages.index(stage), *attributes[1:]]
        return [kind, inputs, attributes, results]

    def _probes(self, instructions: Sequence[Sequence[Any]]) -> list[dict[int, Any]]:
        """Decisions of each sampling instruction in a few schedules.

        Most are drawn by TVM; in one every location is the innermost that there is, in another
        every block is inlined that can be. Of tiles the product of the factors is taken.
        """
        locations = [at for at, kind, _ in sampled(instructions) if kind == LOCATION]
        wanted: list[list[list[int]]] = [[] for _ in range(_PROBES if locations else 2)]
        if locations:
            wanted += [[[at, place] for at in locations] for place in (_INNERMOST, _INLINED)]
        names = [self.blocks[stage] for stage in self.stages]
        found = []
        for seed, decisions in enumerate(wanted, 1):
            schedule = Schedule(self.module, seed=seed)
            apply_instructions(instructions, decisions, schedule, names)
            _, made = plain_json(schedule.trace)
            found.append({at: prod(it) if isinstance(it, list) else it for at, it in made})
        return found

    def _name_results(self, instruction: Sequence[Any]) -> None:
        kind, inputs, attributes, results = instruction
        if kind == LOOKUP and attributes[0] != ROOT:
            self.called[results[0]] = self.stages[attributes[0]]
        elif kind == "GetLoops" and inputs[0] in self.called:
            stage = self.workload.stage(self.called[inputs[0]])
            if len(results) == len(stage.axes):
                for loop, axis in zip(results, stage.axes, strict=True):
                    self.called[loop] = f"{stage.name}.{axis.name}"
        elif kind == "Annotate":
            # What is chosen is called after what it is for.
            self.called.setdefault(str(inputs[-1]), attributes[0].removeprefix(ANNOTATIONS))

    def _tile(self, instruction: Sequence[Any], extents: Sequence[int]) -> None:
        """Factors of a loop, the innermost of which TVM limits."""
        if len(set(extents)) > 1:
            raise InvalidValueError("it tiles a loop whose extent depends on another decision")
        loop, (count, innermost) = instruction[1][0], instruction[2]
        stem = self._unique(self.called.get(loop, "tile"))
        extent = extents[0]
        names = [f"{stem}.{level}" for level in range(count)]
        allowed = tuple(it for it in range(1, min(innermost, extent) + 1) if extent % it == 0)
        for level, name in enumerate(names):
            self.params.append(Factor(name, allowed if level == count - 1 else None))
            self.decisions.append(var(name))
        self.constraints.append(ProductEquals(tuple(names), const(extent)))

    def _one_of(self, name: str, values: tuple[int, ...]) -> None:
        if len(values) == 1:
            self.decisions.append(const(values[0]))
            return
        self.params.append(Ordinal(name, values))
        self.decisions.append(var(name))

    def _unique(self, stem: str) -> str:
        self.count[stem] += 1
        return stem if self.count[stem] == 1 else f"{stem}{self.count[stem]}"


def plain_json(trace: Any) -> tuple[list[Any], list[Any]]:
    """TVM's JSON form of a trace with Python's own numbers: its instructions and decisions."""
    instructions, decisions = _plain(trace.as_json())
    return instructions, decisions


def _plain(value: Any) -> Any:
    if isinstance(value, (tirx.IntImm, tirx.FloatImm)):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
