"""Weaving the whole groups of a padded copy, and only its last ones element by element.

A copy that is interleaved is one call of :func:`autotune_tvm.dot_products.interleaving` for every
group of rows (:mod:`autotune_tvm.replay`). Where the copy is padded, every element has a
condition, which TVM asks for each byte alone. Yet all but the last groups lie inside the operand:
here the condition is asked once for a group, and what holds for its last element holds for all.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import IRModule, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize, TensorIntrin

from autotune_tvm.passes.statements import at, replaced, with_bodies

__all__ = ["INTERLEAVED", "vectorize_full_groups"]

INTERLEAVED = "autotune.interleaved"
"""Annotation of the block of a padded copy: the name of the call for a group that is whole."""

_CONDITIONAL = tvm.ir.Op.get("prim.if_then_else")


def vectorize_full_groups(module: IRModule) -> IRModule:
    """A scheduled module whose padded copies are woven where groups lie inside the operand.

    The loops over the rows of a group and over its lanes are the innermost two around a block
    with the annotation :data:`INTERLEAVED`. Other copies stay as they are.
    """
    return with_bodies(module, lambda body: replaced(body, _vectorized))


def _vectorized(node: Any) -> Any:
    realize = _group(node)
    if realize is None:
        return None
    whole = _whole_group(node, realize)
    return node if whole is None else whole


def _group(node: Any) -> Any:
    """The copy inside of the two loops of a group; None where the statement is something else."""
    if not isinstance(node, tirx.For) or not isinstance(node.body, tirx.For):
        return None
    found = node.body.body
    if not isinstance(found, SBlockRealize) or INTERLEAVED not in found.block.annotations:
        return None
    return found


def _whole_group(rows: Any, realize: Any) -> Any:
    """A call where all of a group lies inside the operand, else the loops; None if unknown."""
    block, lanes = realize.block, rows.body
    store = block.body
    load, bounds = _padded_load(store.value)
    if load is None:
        return None
    own = [item.var for item in block.iter_vars]
    first, last = (
        [at(value, [rows.loop_var, lanes.loop_var], corner) for value in realize.iter_values]
        for corner in ((0, 0), (int(rows.extent) - 1, int(lanes.extent) - 1))
    )
    fits = [at(variable, own, last) < limit for variable, limit in bounds]
    source = _region(load, own, first, (int(rows.extent), int(lanes.extent)))
    target = _region(store, own, first, (int(lanes.extent), int(rows.extent)))
    call = _call(str(block.annotations[INTERLEAVED]), str(block.name_hint), source, target)
    condition = fits[0]
    for other in fits[1:]:
        condition = tirx.And(condition, other)
    return tirx.IfThenElse(condition, call, rows)


def _padded_load(value: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """What a padded copy reads, and which of its variables are below which limits."""
    if not isinstance(value, tvm.ir.Call) or not value.op.same_as(_CONDITIONAL):
        return None, []
    condition, load, _ = value.args
    bounds = []
    for term in _terms(condition):
        if not isinstance(term, tirx.LT) or not isinstance(term.b, tirx.IntImm):
            return None, []
        bounds.append((term.a, term.b))
    if not isinstance(load, TensorLoad) or not all(isinstance(a, tirx.Var) for a, _ in bounds):
        return None, []
    return load, bounds


def _terms(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return [*_terms(condition.a), *_terms(condition.b)]
    return [condition]


def _region(access: Any, own: list[Any], first: list[Any], extents: tuple[int, int]) -> Any:
    """What a group reads or writes: so much of the last two dimensions, from its first element."""
    begin = [at(index, own, first) for index in access.indices]
    sizes = [*(1 for _ in begin[:-2]), *extents]
    ranges = [
        tvm.ir.Range.from_min_extent(at, size) for at, size in zip(begin, sizes, strict=True)
    ]
    buffer = access.buffer if isinstance(access, tirx.BufferStore) else access.source
    return tirx.BufferRegion(buffer, ranges)


def _call(name: str, label: str, source: Any, target: Any) -> Any:
    """The block of a call, on regions."""
    # A copy: buffers and variables of one block must not be those of another.
    made = tvm.ir.load_json(tvm.ir.save_json(TensorIntrin.get(name).impl))
    matched = [
        tvm.s_tir.stmt.MatchBufferRegion(buffer, region)
        for buffer, region in zip(made.params, (source, target), strict=True)
    ]
    body = made.body.block.body
    block = SBlock([], [source], [target], f"{label}_o", body, None, [], matched)
    return SBlockRealize([], True, block)
