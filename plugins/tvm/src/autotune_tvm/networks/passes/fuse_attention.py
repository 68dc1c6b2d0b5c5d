"""Attention becomes one program, whose scores need not be written to memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm import relax, te
from tvm.ir import IRModule

from autotune.errors import AutotuneError
from autotune.spaces import SketchSpace
from autotune.spaces.rules.attention_tiles import ATTENTION_LABEL
from autotune.targets import Target
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import import_module
from autotune_tvm.networks.graph import Graph, rewrite
from autotune_tvm.networks.passes.attention_pattern import find_attention
from autotune_tvm.networks.passes.attention_program import Attention

__all__ = ["FUNCTION", "fuse_attention"]

FUNCTION = "attention"
"""Name of the compiled function."""


def fuse_attention(module: IRModule, machine: Target) -> tuple[IRModule, str]:
    """Make one program of each attention that the search space has tiles of queries for.

    Args:
        module: Operators.
        machine: What the network is for.
    """
    count = 0

    def fuse(call: Any, graph: Graph) -> Any:
        nonlocal count
        found = find_attention(call, graph)
        if found is None or not _has_tiles(found.attention, found.types, machine):
            return None
        count += 1
        return found.emitted(graph, FUNCTION)

    changed = rewrite(module, fuse)
    if not count:
        return module, ""
    return relax.transform.DeadCodeElimination()(changed), f"{count} attentions"


@lru_cache(maxsize=64)
def _has_tiles(
    attention: Attention, types: tuple[tuple[tuple[int, ...], str], ...], machine: Target
) -> bool:
    """Whether the search space of an attention has tiles of queries on a machine."""
    arguments = [te.placeholder(shape, dtype, f"x{i}") for i, (shape, dtype) in enumerate(types)]
    function = te.create_prim_func([*arguments, attention.program(*arguments)])
    try:
        workload, _ = import_module(function)
        space = SketchSpace(workload, machine, TVMBackend().limits(machine))
    except AutotuneError:
        return False
    return any(ATTENTION_LABEL in sketch.name for sketch in space.sketches())
