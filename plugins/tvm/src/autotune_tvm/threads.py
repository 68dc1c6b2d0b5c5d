"""Tell whether the loops of a GPU program are bound to blocks and threads consistently.

TVM does not ask: where loops of one kernel that are bound to its threads differ in extent, it
launches one of the two numbers and generates wrong code, and what is bound to nothing runs on the
host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from autotune.backends import InvalidSchedule
from autotune_tvm.schedule_state import THREAD_TAGS, ScheduleState

__all__ = ["bind_numbers", "check_threads"]


def bind_numbers(state: ScheduleState) -> None:
    """Make a block of each kernel that computes a single number, where no loop is one.

    What no loop is around runs on the host otherwise, and of a reduction across threads alone TVM
    gives all threads one partial result, in memory that they share.
    """
    for stage in state.workload.stages:
        block = None if stage.spatial_axes else state.blocks.get(stage.name)
        if block is None:
            continue
        loops = list(state.sch.get_loops(block))
        if not any(state.tag(loop).startswith("blockIdx") for loop in loops):
            around = state.sch.add_unit_loop(loops[0] if loops else block)
            state.sch.bind(around, THREAD_TAGS["block"])


def check_threads(function: tirx.PrimFunc) -> None:
    """Check every kernel of a scheduled function.

    Raises:
        InvalidSchedule: a statement runs on the host, or the threads of one kernel are of
            several numbers.
    """
    body = function.body.block.body
    for kernel in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        extents: dict[str, int] = {}
        for tag, extent in _bindings(kernel):
            if extents.setdefault(tag, extent) != extent:
                raise InvalidSchedule(
                    f"one kernel has {tag} of {extents[tag]} and of {extent}: loops bound to the "
                    "threads of a block have one extent"
                )
        if not extents:
            name = next(_blocks(kernel), "a statement")
            raise InvalidSchedule(f"no loop around {name} is bound to blocks or threads")


def _bindings(node: Any) -> Iterator[tuple[str, int]]:
    """Levels that loops are bound to, with the extents, outermost first."""
    if isinstance(node, tirx.For) and node.thread_binding is not None:
        yield str(node.thread_binding.thread_tag), int(node.extent)
    for inner in _inside(node):
        yield from _bindings(inner)


def _blocks(node: Any) -> Iterator[str]:
    if isinstance(node, SBlock):
        yield str(node.name_hint)
    for inner in _inside(node):
        yield from _blocks(inner)


def _inside(node: Any) -> list[Any]:
    """The statements directly inside one of those that a scheduled program consists of."""
    if isinstance(node, tirx.SeqStmt):
        return list(node.seq)
    if isinstance(node, SBlockRealize):
        return [node.block]
    return [node.body] if isinstance(node, (tirx.For, SBlock)) else []
