"""The search space ``trace``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autotune.errors import UnsupportedTarget, UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune.plugins.options import NoOptions, read_options
from autotune.sketches import Sketch
from autotune.spaces import FeasibleSet, FeasibleSpace, SpaceContext
from autotune.spaces.feasible import build_feasible_set
from autotune.targets import Target
from autotune_tvm import compiler, runtime
from autotune_tvm.scheduled import program_of

if TYPE_CHECKING:
    from autotune_tvm.blocks import Block

__all__ = ["TraceSpace", "make_trace_space", "prepared"]

_SCORED = 128
"""Features of a candidate take a replay and TVM's lowering, 10 to 60 ms: those of a round should
take no longer than building it does."""


class TraceSpace(FeasibleSpace):
    """Schedules of TVM's own rules (MetaSchedule's, in post-order) for programs on CPUs.

    A sketch is what the rules make of the program, without the decisions that they sample: these
    are its parameters. It has no symbolic loop nest.

    Args:
        workload: What the program computes.
        program: Text of the imported program; None for one made from the workload.
        target: What it runs on.
        threads: How many threads it uses, of which the rules make their parallel loops.

    Raises:
        UnsupportedTarget: the target is no CPU that TVM compiles for here.
        UnsupportedWorkload: TVM's rules make no schedule of the program.
    """

    name = "trace"
    version = "1"
    score_limit = _SCORED

    def __init__(
        self, workload: Workload, program: str | None, target: Target, threads: int
    ) -> None:
        compiler.check_target(target)
        if target.kind != "cpu":
            raise UnsupportedTarget(
                f"search space 'trace' is for CPUs only; target {target.name!r} is of kind "
                f"{target.kind!r}"
            )
        runtime.load()
        from autotune_tvm.trace.generation import generate_sketches

        module, blocks = prepared(workload, program_of(workload, program))
        described = compiler.described_target(target, threads)
        generated = generate_sketches(workload, module, blocks, described)
        feasible: dict[Sketch, FeasibleSet] = {
            sketch: build_feasible_set(sketch) for sketch in generated.sketches
        }
        self.left_out = generated.left_out
        super().__init__(feasible)


def make_trace_space(context: SpaceContext) -> TraceSpace:
    """The space of what the context says.

    Raises:
        InvalidValueError: an option is given.
        UnsupportedTarget: as of :class:`TraceSpace`.
        UnsupportedWorkload: as of :class:`TraceSpace`, or the program is another backend's.
    """
    read_options("search space 'trace'", NoOptions, context.options)
    if context.backend != "tvm":
        raise UnsupportedWorkload(
            f"search space 'trace' has schedules of TVM, and backend {context.backend!r} cannot "
            "replay them; choose backend 'tvm' or space 'sketch'"
        )
    return TraceSpace(context.workload, context.program, context.target, context.target.cores)


def prepared(
    workload: Workload, module: Any, known: Mapping[str, Block] = MappingProxyType({})
) -> tuple[Any, dict[str, str]]:
    """The module as traces are applied to it, and the name of the block of each stage.

    Args:
        workload: What the module computes.
        module: One function ``main``.
        known: The blocks of stages that are not called as these.
    """
    from autotune_tvm.replay import sorted_schedule

    schedule, blocks = sorted_schedule(module, workload, known)
    names = {stage: str(schedule.get(block).name_hint) for stage, block in blocks.items()}
    return schedule.mod, names
