"""Applying a trace to a schedule, with decisions of a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tvm.s_tir.meta_schedule.postproc import (
    DisallowDynamicLoop,
    RewriteParallelVectorizeUnroll,
    RewriteReductionBlock,
)
from tvm.s_tir.schedule import Trace

from autotune.backends import InvalidSchedule
from autotune_tvm import compiler
from autotune_tvm.trace.instructions import LOOKUP, ROOT, decided, read_instructions

if TYPE_CHECKING:
    from autotune_tvm.trace.step import TraceStep

__all__ = ["apply_instructions", "apply_trace", "run_postprocs"]


def apply_trace(
    step: TraceStep, sch: Any, blocks: Mapping[str, str], config: Mapping[str, int]
) -> None:
    """Apply a step to a schedule of a program, postprocessors included.

    Args:
        step: The trace.
        sch: A ``tvm.s_tir.Schedule`` that is changed.
        blocks: Name of the block that computes each stage.
        config: Values of the sketch's parameters.

    Raises:
        InvalidSchedule: TVM refuses an instruction, or a postprocessor the program.
    """
    instructions = read_instructions(step.trace, len(step.stages))
    decisions = decided(instructions, step.values(config))
    apply_instructions(instructions, decisions, sch, [blocks[stage] for stage in step.stages])
    run_postprocs(sch)


def apply_instructions(
    instructions: Sequence[Sequence[Any]],
    decisions: Sequence[Sequence[Any]],
    sch: Any,
    blocks: Sequence[str],
) -> None:
    """Apply instructions to a schedule; those without a decision draw one.

    Args:
        instructions: Of :mod:`autotune_tvm.trace.instructions`.
        decisions: Pairs of a position and what is decided there.
        sch: The schedule.
        blocks: Names of the blocks that they look up, by position.

    Raises:
        InvalidSchedule: TVM refuses an instruction.
    """
    named = [_named(instruction, blocks) for instruction in instructions]
    try:
        Trace.apply_json_to_schedule([named, [list(pair) for pair in decisions]], sch)
    except Exception as error:  # TVM raises whatever its primitives raise
        raise InvalidSchedule(f"its trace cannot be applied: {compiler.brief(error)}") from error


def _named(instruction: Sequence[Any], blocks: Sequence[str]) -> list[Any]:
    kind, inputs, attributes, results = instruction
    if kind == LOOKUP and attributes[0] != ROOT:
        attributes = [blocks[attributes[0]], attributes[1]]
    return [kind, inputs, attributes, results]


def run_postprocs(sch: Any) -> None:
    """Run what TVM runs after the trace of a schedule for a CPU.

    Its rewriting of the layouts of weights is left out: arguments are laid out as they come.

    Raises:
        InvalidSchedule: one of them refuses the program, or fails.
    """
    sch.enter_postproc()
    for name, postproc in _postprocs().items():
        try:
            accepted = postproc.apply(sch)
        except Exception as error:  # TVM raises whatever its primitives raise
            raise InvalidSchedule(f"{name}: {compiler.brief(error)}") from error
        if not accepted:
            raise InvalidSchedule(f"TVM's postprocessor {name} refuses the program")


@lru_cache(maxsize=1)
def _postprocs() -> dict[str, Any]:
    kinds = (DisallowDynamicLoop, RewriteParallelVectorizeUnroll, RewriteReductionBlock)
    return {kind.__name__: kind() for kind in kinds}
