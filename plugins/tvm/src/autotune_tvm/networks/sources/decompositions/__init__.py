"""Operators of torch in terms of others, where TVM's translator lacks them or reads them wrongly.

What is here computes with torch's own tensors, and is traced into the graph in place of the
operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import Any

from autotune_tvm.networks.sources.decompositions.attention import plain_attention
from autotune_tvm.networks.sources.decompositions.distances import distances
from autotune_tvm.networks.sources.decompositions.elementwise import elementwise
from autotune_tvm.networks.sources.decompositions.gathering import gathering
from autotune_tvm.networks.sources.decompositions.resampling import resampling
from autotune_tvm.networks.sources.decompositions.scans import scans
from autotune_tvm.networks.sources.decompositions.statistics import norms_with_moments, statistics
from autotune_tvm.networks.sources.decompositions.windows import windows

__all__ = ["decompose"]

Decomposition = Callable[..., Any]

_MOST_ROUNDS = 3
"""How often what a decomposition leads to is decomposed again."""


def decompose(program: Any, known: Collection[str]) -> Any:
    """An exported program of operators that can be translated, as far as torch can express it so.

    Args:
        program: The ``ExportedProgram``.
        known: Names of the operators that can be translated, such as ``"add.Tensor"``.

    Raises:
        Exception: whatever torch meets.
    """
    import torch

    table = torch.export.default_decompositions()
    table.update(_own_table())
    decomposed = program.run_decompositions(table)
    if plain_attention(decomposed):
        decomposed = decomposed.run_decompositions(table)
    moments = norms_with_moments(torch.ops.aten)
    if any(node.target in moments and _has_more_outputs(node) for node in decomposed.graph.nodes):
        table.update(moments)
        decomposed = decomposed.run_decompositions(table)
    possible = torch._decomp.decomposition_table
    for _ in range(_MOST_ROUNDS):
        targets = {node.target for node in decomposed.graph.nodes if node.op == "call_function"}
        missing = [it for it in targets if it in possible and it.__name__ not in known]
        if not missing:
            break
        table.update({target: possible[target] for target in missing})
        decomposed = decomposed.run_decompositions(table)
    return decomposed


def _has_more_outputs(node: Any) -> bool:
    """Whether another output than the first is used."""
    return any(it.target is operator.getitem and it.args[1] and it.users for it in node.users)


def _own_table() -> dict[Any, Decomposition]:
    import torch

    parts = (distances, elementwise, gathering, resampling, scans, statistics, windows)
    return {name: rule for part in parts for name, rule in part(torch.ops.aten).items()}
