"""From a module of compiled functions to tasks."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Any

from tvm import relax, tirx
from tvm.ir import IRModule, Op
from tvm.s_tir.analysis import estimate_tir_flops

from autotune.networks import NetworkTask
from autotune_tvm.networks.graph import ENTRY, tensor_calls
from autotune_tvm.networks.passes import fuse_attention, winograd

__all__ = ["extract_tasks", "operators_in"]


def extract_tasks(module: IRModule) -> tuple[NetworkTask, ...]:
    """Every function that ``main`` calls, in the order of its first call.

    A task has the name of its function, which is unique in the module.

    Args:
        module: What the passes made.
    """
    calls = Counter(name for name, _ in tensor_calls(module))
    return tuple(_task(module, name, count) for name, count in calls.items())


def _task(module: IRModule, name: str, occurrences: int) -> NetworkTask:
    function = module[name]
    assert isinstance(function, tirx.PrimFunc)  # `call_tir` calls nothing else
    return NetworkTask(
        name=name,
        program=function,
        occurrences=occurrences,
        flop=_flop(function),
        nodes=operators_in(name),
        view=bool(relax.analysis.has_reshape_pattern(function)),
    )


def _flop(function: Any) -> float:
    """Operations of one call, as TVM counts them; 0 where it cannot."""
    try:
        return float(estimate_tir_flops(IRModule({ENTRY: function})))
    except Exception:  # TVM raises whatever it meets: data-dependent loops have no count
        return 0.0


def operators_in(name: str) -> tuple[str, ...]:
    """The operators that the name of a fused function is made of.

    ``fused_conv2d4_add3_relu`` is ``("conv2d", "add", "relu")``.
    """
    words = [re.sub(r"\d+$", "", word) or word for word in name.split("_")]
    known = _operator_names()
    found = []
    position = 1 if words[0] == "fused" else 0
    while position < len(words):
        for end in range(len(words), position, -1):
            candidate = "_".join(words[position:end])
            if candidate in known or end == position + 1:
                found.append(candidate)
                position = end
                break
    return tuple(word for word in found if word not in ("tir", "te"))


@lru_cache(maxsize=1)
def _operator_names() -> frozenset[str]:
    names = (str(name) for name in Op.list_op_names())
    operators = (re.sub(r"\d+$", "", n.split(".")[-1]) for n in names if n.startswith("relax."))
    return frozenset([*operators, *winograd.FUNCTIONS, fuse_attention.FUNCTION])
