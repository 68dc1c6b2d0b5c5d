"""Attention becomes one program, whose scores need not be written to memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm import relax, te
from tvm.ir import IRModule

from autotune.errors import AutotuneError
from autotune.sketches import BoundLoop, Sketch
from autotune.spaces import SketchSpace
from autotune.spaces.rules.attention_tiles import ATTENTION_LABEL
from autotune.targets import Target
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import import_module
from autotune_tvm.networks.graph import Graph, rewrite
from autotune_tvm.networks.passes.attention_pattern import FoundAttention, find_attention
from autotune_tvm.networks.passes.attention_program import Attention

__all__ = ["FUNCTION", "LEAST_KEYS", "fuse_attention"]

FUNCTION = "attention"
"""Name of the compiled function."""


LEAST_KEYS = 256
"""With fewer keys the scores of a head are in the caches anyway. On one core, heads of width 64,
one program took 0.99, 1.02, 0.89, 0.92 and 0.84 of the time of all apart for 64, 128, 256, 512 and
1024 queries and keys; under causal masks, 0.79, 0.71, 0.58, 0.54 and 0.41."""


def fuse_attention(
    module: IRModule, machine: Target, least_keys: int = LEAST_KEYS
) -> tuple[IRModule, str]:
    """Make one program of each attention that is expected to be faster so.

    Those are attentions that the search space has tiles of queries for: under a causal mask, or
    with many keys that have to be transposed.

    Args:
        module: Operators.
        machine: What the network is for.
        least_keys: Keys without a causal mask.
    """
    count = 0

    def fuse(call: Any, graph: Graph) -> Any:
        nonlocal count
        found = find_attention(call, graph)
        if found is None or not _is_faster(found, machine, least_keys):
            return None
        count += 1
        return found.emitted(graph, FUNCTION)

    changed = rewrite(module, fuse)
    if not count:
        return module, ""
    return relax.transform.DeadCodeElimination()(changed), f"{count} attentions"


def _is_faster(found: FoundAttention, machine: Target, least_keys: int) -> bool:
    # Products of halves have instructions of their own, which tiles of queries do not use.
    if any(dtype not in ("float32", "float64") for _, dtype in found.types[:3]):
        return False
    tiles = _tiles(found.attention, found.types, machine)
    if tiles is None:
        return False
    if any(isinstance(step, BoundLoop) for step in tiles.steps):
        return True
    # What it saves otherwise is about what transposing the keys takes apart: where they are given
    # transposed, it took 1.06 of the time for 128 queries and 512 keys, and 1.5 for 8 and 1024.
    keys = found.shapes[2][1]
    return keys >= least_keys and not found.attention.is_transposed


@lru_cache(maxsize=64)
def _tiles(
    attention: Attention, types: tuple[tuple[tuple[int, ...], str], ...], machine: Target
) -> Sketch | None:
    """The tiles of queries in the search space of an attention; None where there are none."""
    arguments = [te.placeholder(shape, dtype, f"x{i}") for i, (shape, dtype) in enumerate(types)]
    function = te.create_prim_func([*arguments, attention.program(*arguments)])
    try:
        workload, _ = import_module(function)
        space = SketchSpace(workload, machine, TVMBackend().limits(machine))
    except AutotuneError:
        return None
    return next((it for it in space.sketches() if ATTENTION_LABEL in it.name), None)
