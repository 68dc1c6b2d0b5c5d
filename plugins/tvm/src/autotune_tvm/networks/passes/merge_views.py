"""Shapes and permutations that follow one another become one, or none."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import IRModule

from autotune_tvm.networks.graph import Graph, dtype_of, operator_of, rewrite, shape_of

__all__ = ["merge_views", "merged", "permuted_axes", "reshaped"]

_RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten")


def merge_views(module: IRModule) -> tuple[IRModule, str]:
    """Merge what only moves or renames elements.

    A reshape of a reshape is one reshape, a permutation of a permutation one permutation; those
    and broadcasts that change nothing are left out. A permutation that only moves axes of length
    one is a reshape, which costs nothing when it runs.
    """
    count = 0

    def merge(call: Any, graph: Graph) -> Any:
        nonlocal count
        found = merged(call, graph)
        count += found is not None
        return found

    changed = rewrite(module, merge)
    cleaned = relax.transform.DeadCodeElimination()(changed)
    return cleaned, f"{count} merged" if count else ""


def merged(call: Any, graph: Graph) -> Any:
    """What takes the place of a call that only moves or renames elements; None to keep it."""
    operator = operator_of(call)
    if operator not in (*_RESHAPES, "permute_dims", "broadcast_to", "astype"):
        return None
    source = call.args[0]
    before, after = shape_of(source), shape_of(graph.builder.normalize(call))
    if before is None or after is None:
        return None
    if operator == "astype":
        return source if str(call.attrs.dtype) == dtype_of(source) else None
    if operator == "permute_dims":
        return _permuted(call, graph, before, after)
    if before == after:
        return source
    if operator not in _RESHAPES or (
        operator == "reshape" and operator_of(graph.source(source)) != "reshape"
    ):
        return None
    return reshaped(source, after, graph)


def reshaped(source: Any, shape: tuple[int, ...], graph: Graph) -> Any:
    """A value in another shape: of a reshape, what it reshapes."""
    inner = graph.source(source)
    if operator_of(inner) == "reshape":
        source = inner.args[0]
    return source if shape_of(source) == shape else relax.op.reshape(source, shape)


def _permuted(call: Any, graph: Graph, before: tuple[int, ...], after: tuple[int, ...]) -> Any:
    axes = permuted_axes(call, len(before))
    source = call.args[0]
    inner = graph.source(source)
    if operator_of(inner) == "permute_dims":
        first = permuted_axes(inner, len(before))
        axes = [first[axis] for axis in axes]
        source = inner.args[0]
    long = [axis for axis in axes if (shape_of(source) or ())[axis] != 1]
    if long == sorted(long):
        return reshaped(source, after, graph)
    return relax.op.permute_dims(source, axes) if source is not call.args[0] else None


def permuted_axes(call: Any, rank: int) -> list[int]:
    """The axes of its operand that a permutation's result has, in order."""
    if call.attrs.axes is None:
        return list(range(rank))[::-1]
    return [int(axis) % rank for axis in call.attrs.axes]
