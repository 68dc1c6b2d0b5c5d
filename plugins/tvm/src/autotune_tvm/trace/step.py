"""The one step of a sketch of the trace space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.sketches import OpenStep, Sketch
from autotune_tvm.trace.instructions import read_instructions, sampled

__all__ = ["TraceStep", "trace_of"]


@frozen
class TraceStep(OpenStep):
    """A trace of TVM's schedule primitives, followed by TVM's own postprocessors.

    Attributes:
        stage: The stage that the schedule was begun for: the last one.
        stages: Stages whose blocks the trace looks up, by position.
        trace: Its instructions, as of :mod:`autotune_tvm.trace.instructions`.
        decisions: What the sampling instructions decide, in order.

    Raises:
        InvalidValueError: ``trace`` is no such text, or decides another number of values.
    """

    name: ClassVar[str] = "tvm_trace"
    backends: ClassVar[frozenset[str]] = frozenset({"tvm"})
    opaque: ClassVar[bool] = True
    stages: tuple[str, ...]
    trace: str = field(repr=False)
    decisions: tuple[IntExpr, ...] = field(repr=False)

    def __attrs_post_init__(self) -> None:
        instructions = read_instructions(self.trace, len(self.stages))
        wanted = sum(count for _, _, count in sampled(instructions))
        if len(self.decisions) != wanted:
            raise InvalidValueError(
                f"the trace decides {wanted} values, and not {len(self.decisions)}"
            )

    def values(self, config: Mapping[str, int]) -> list[int]:
        """Decisions of the sampling instructions in a configuration."""
        return [int(evaluate(decision, config)) for decision in self.decisions]

    def replay(self, backend: str, state: Any, config: Mapping[str, int]) -> None:
        """Apply the trace to the schedule ``state.sch``, and run the postprocessors.

        Raises:
            InvalidSchedule: TVM refuses an instruction, or a postprocessor the program.
        """
        from autotune_tvm.trace.replay import apply_trace

        schedule = state.sch
        names = {stage: str(schedule.get(it).name_hint) for stage, it in state.blocks.items()}
        apply_trace(self, schedule, names, config)


def trace_of(sketch: Sketch) -> TraceStep:
    """The one step of a sketch of the trace space.

    Raises:
        InvalidValueError: the sketch is of another space.
    """
    (step, *_) = (*sketch.steps, None)
    if not isinstance(step, TraceStep):
        raise InvalidValueError(f"sketch {sketch.name!r} is not one of the trace space")
    return step
