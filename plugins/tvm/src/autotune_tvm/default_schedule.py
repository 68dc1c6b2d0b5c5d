"""Default schedule of TVM for an untuned program: the rules of its dlight."""

from __future__ import annotations

from typing import Any

from autotune.backends import InvalidSchedule
from autotune.errors import AutotuneError
from autotune.spaces.rules.inline import nodes_if_inlined
from autotune.targets import Target
from autotune_tvm import compiler

__all__ = ["DEFAULT_SCHEDULE", "default_schedule", "fallback_schedule"]

DEFAULT_SCHEDULE = "TVM's default schedule"

# Nodes of expressions: TVM takes a second to inline stages until there are so many.
_MOST_NODES = 50_000


def default_schedule(module: Any, target: Target, threads: int) -> Any:
    """The ``tvm.s_tir.Schedule`` that the first fitting rule of dlight makes, with its trace.

    For GPUs these are the rules of TVM's pipeline for models, in its order; for CPUs those that
    dlight has: for matrix-vector products, and for softmax and similar operators. A rule that
    fails counts as one that declines: the rule for matrix-vector products takes a depthwise
    convolution of one pixel for such a product, and finds no rows.

    Args:
        module: One function ``main``.
        target: What it is for.
        threads: Threads that it may use.

    Raises:
        InvalidSchedule: no rule fits; says why the first one that failed did. Or the rules, which
            inline whatever they can, would repeat stages without end.
    """
    from tvm.s_tir import dlight

    _check_size(module)

    if target.kind == "cuda":
        gpu = dlight.gpu
        rules = [gpu.Matmul, gpu.GEMV, gpu.Reduction, gpu.GeneralReduction, gpu.Fallback]
    else:
        rules = [dlight.cpu.GEMV, dlight.cpu.Reduction]
    return _first_fitting(rules, module, target, threads)


def fallback_schedule(module: Any, target: Target) -> Any:
    """Schedule an unscheduled program for a GPU by dlight's rule for any program.

    Without one, no loop is bound to threads, and nothing runs. That rule refuses programs with
    scans, whose sequences get a thread each.

    Raises:
        InvalidSchedule: no rule fits, or they would repeat stages without end.
    """
    from tvm.s_tir import dlight

    _check_size(module)

    return _first_fitting([dlight.gpu.Fallback, _Sequences], module, target, 1)


class _Sequences:
    """Schedules programs with scans: a thread for each sequence, or for each element of others."""

    def apply(self, function: Any, target: Any, _tunable: bool) -> Any:
        """The schedule; None where nothing is scanned."""
        from tvm import IRModule, s_tir, tirx
        from tvm.s_tir.dlight.base import max_threads_per_block

        from autotune_tvm import scans

        def blocks_of(schedule: Any) -> list[Any]:
            return list(schedule.get_child_blocks(schedule.get_sblock("root")))

        module = IRModule({"main": function})
        before = s_tir.Schedule(module)
        found = [scans.continuation(before.get(block)) for block in blocks_of(before)]
        if not any(found):
            return None
        schedule = s_tir.Schedule(scans.opened(module))
        for block, scan in zip(blocks_of(schedule), found, strict=True):
            kinds = [axis.iter_type for axis in schedule.get(block).iter_vars]
            inner: list[Any] = []
            shared: list[Any] = []
            for at, (loop, kind) in enumerate(zip(schedule.get_loops(block), kinds, strict=True)):
                stays = kind != tirx.IterVar.DataPar or (scan is not None and at == scan[0].along)
                (inner if stays else shared).append(loop)
            shared = shared or [schedule.add_unit_loop(block)]
            schedule.reorder(*shared, *inner)
            factors = [None, max_threads_per_block(target)]
            blocks, threads = schedule.split(schedule.fuse(*shared), factors=factors)
            schedule.bind(blocks, "blockIdx.x")
            schedule.bind(threads, "threadIdx.x")
        return schedule


def _first_fitting(rules: list[Any], module: Any, target: Target, threads: int) -> Any:
    described = compiler.described_target(target, threads)
    failed: Exception | None = None
    with described:
        for rule in rules:
            try:
                found = rule().apply(module["main"], described, False)
            except Exception as error:  # rules raise whatever TVM does
                failed = failed or error
                continue
            if found is not None:
                return found
    if failed is not None:
        raise InvalidSchedule(f"{DEFAULT_SCHEDULE}: {compiler.brief(failed)}") from failed
    raise InvalidSchedule("TVM has no default schedule for this program")


def _check_size(module: Any) -> None:
    from autotune_tvm.importer import import_module

    try:
        workload, _ = import_module(module)
    except AutotuneError:  # nothing is known of what it computes
        return
    nodes = nodes_if_inlined(workload)
    if nodes > _MOST_NODES:
        raise InvalidSchedule(
            f"{DEFAULT_SCHEDULE} inlines pointwise stages, and theirs read one another so often "
            f"that there would be {nodes:,} operations; at most {_MOST_NODES:,} are inlined"
        )
