"""Operands of which a program may be given a packed copy that was made before."""

from __future__ import annotations

from autotune.ir.workloads import Stage, Workload
from autotune.sketches.candidates import Candidate
from autotune.sketches.steps import Prepack

__all__ = ["is_prepackable", "prepacked_operands"]


def is_prepackable(workload: Workload, stage: Stage, operand: str) -> bool:
    """Return whether an operand of a stage is a constant input that nothing else reads.

    Args:
        workload: What is computed.
        stage: One of its stages.
        operand: Name of a tensor.
    """
    readers = [it.name for it in workload.stages for read in it.accesses if read.tensor == operand]
    constant = any(it.name == operand and it.constant for it in workload.inputs)
    return constant and readers == [stage.name]


def prepacked_operands(candidate: Candidate | None) -> tuple[str, ...]:
    """The operands that a candidate's program is given packed; None is the untuned program."""
    if candidate is None:
        return ()
    steps = candidate.sketch.core_steps
    return tuple(step.operand for step in steps if isinstance(step, Prepack))
