"""Attention as torch captures it on GPUs, by names of the kernels that it would launch there."""

from __future__ import annotations

import operator
from typing import Any

from autotune_tvm.networks.sources.random_operators import arguments_of

__all__ = ["plain_attention"]

_KERNELS = (
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_cudnn_attention",
)


def plain_attention(program: Any) -> bool:
    """Have a program compute attention by the operator that every device has.

    What needs more than the result, as gradients do, or drops weights stays as it is.

    Args:
        program: An ``ExportedProgram``, which is changed.

    Returns:
        Whether there was any.
    """
    import torch

    aten = torch.ops.aten
    targets = {getattr(aten, name).default for name in _KERNELS if hasattr(aten, name)}
    graph, found = program.graph, False
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in targets:
            continue
        given = arguments_of(node)
        results = [it for it in node.users if it.users]
        if given["dropout_p"] or any(it.target is not operator.getitem for it in results):
            continue
        if [it.args[1] for it in results] != [0]:
            continue
        (result,) = results
        with graph.inserting_before(node):
            plain = graph.call_function(
                aten.scaled_dot_product_attention.default,
                tuple(given[name] for name in ("query", "key", "value")),
                {
                    "attn_mask": given.get("attn_bias"),
                    "is_causal": given["is_causal"],
                    "scale": given["scale"],
                },
            )
        plain.meta = dict(result.meta)
        result.replace_all_uses_with(plain)
        found = True
    if found:
        graph.eliminate_dead_code()
        program.graph_module.recompile()
    return found
