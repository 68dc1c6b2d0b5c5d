"""Blocks that reduce to several tensors at once, as one block for each of them.

TVM's operator library sums a tensor and its squares in one block, for means and variances. What
is summed for one of the tensors does not depend on the others, so that each can be a block of its
own. So can an extreme value and its index (``argmax``), in this order: see
:mod:`autotune_tvm.arg_reductions`. That is the first thing done to an imported program before it
is scheduled; the program itself stays as it came. A reduction of truth values becomes one of bytes
and a comparison: see :mod:`autotune_tvm.logical_reductions`. A reduction over windows of different
sizes (adaptive pooling) becomes one over windows of one size: see
:mod:`autotune_tvm.varying_windows`. Scans become blocks of single elements: see
:mod:`autotune_tvm.scan_loops`.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import IRModule, TensorLoad, Var
from tvm.s_tir import SBlock, SBlockRealize

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import Axis
from autotune_tvm.arg_reductions import arg_reduction
from autotune_tvm.blocks import walk
from autotune_tvm.emit import ENTRY
from autotune_tvm.logical_reductions import as_numbers
from autotune_tvm.passes.statements import at, region_at, store_at
from autotune_tvm.scalar_import import Unsupported
from autotune_tvm.scan_loops import as_scan
from autotune_tvm.varying_windows import with_equal_windows

__all__ = ["separated"]


def separated(module: IRModule) -> IRModule:
    """The same program with a block for each tensor that a reduction writes.

    New blocks are called after the old one and the tensor.

    Args:
        module: One function ``main``, whose blocks have names of their own.

    Returns:
        ``module`` itself where every block stands in loops alone and stores once.

    Raises:
        UnsupportedWorkload: names the block whose tensors depend on one another, or whose windows
            differ in a way that has no other form.
    """
    function = module[ENTRY]
    root = function.body
    if not isinstance(root, SBlockRealize):
        return module
    body = root.block.body
    nests = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    numbers = _Numbers(function, nests, str(root.block.name_hint))
    parts = [numbers.parts(nest) for nest in nests]
    if all(part[0] is nest for part, nest in zip(parts, nests, strict=True)):
        return module
    block, made = root.block, [nest for part in parts for nest in part]
    whole = SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        str(block.name_hint),
        tirx.SeqStmt(made) if len(made) > 1 else made[0],
        block.init,
        [*block.alloc_buffers, *numbers.allocated],
        block.match_buffers,
        block.annotations,
    )
    realize = SBlockRealize(root.iter_values, root.predicate, whole)
    return IRModule({ENTRY: function.with_body(realize)}, attrs=module.attrs)


class _Numbers:
    """Takes nests apart, and allocates the bytes that stand for truth values.

    Args:
        function: Names of its parameters are taken.
        nests: Its loop nests; names of their blocks and of what these store to are taken.
        name: Of the block around them.
    """

    def __init__(self, function: Any, nests: list[Any], name: str) -> None:
        self.allocated: list[Any] = []
        self._name = name
        self._taken = {name, *(str(parameter.name) for parameter in function.params)}
        for nest in nests:
            _, inner = _loops_around(nest)
            if isinstance(inner, SBlockRealize):
                buffers = [region.source for region in inner.block.writes]
                self._taken |= {str(inner.block.name_hint), *(str(it.name) for it in buffers)}

    def parts(self, nest: Any) -> list[Any]:
        """A loop nest of its own for every tensor that the block of a nest reduces to."""
        loops, inner = _loops_around(nest)
        if not isinstance(inner, SBlockRealize):
            # A block without variables that is a function's only one is its outermost.
            made = as_scan(nest, self._unique(f"{self._name}_elements"))
            return [nest] if made is None else [made]
        if not loops and len(inner.block.iter_vars) == 0:
            made = as_scan(inner.block.body, str(inner.block.name_hint))
            if made is not None:
                return [made]
        nest = _in_equal_windows(nest, loops, inner)
        loops, inner = _loops_around(nest)
        found = as_numbers(inner, self._unique(f"{inner.block.name_hint}_number"))
        if found is not None:
            buffer, reduced, compared = found
            self.allocated.append(buffer)
            self._taken.add(str(buffer.name))
            return [_alone(loops, reduced, reduced.block.body, reduced.block.init), compared]
        stores = _stores(loops, inner)
        return [nest] if stores is None else [_alone(loops, inner, *store) for store in stores]

    def _unique(self, name: str) -> str:
        stem, count = name, 1
        while name in self._taken:
            name, count = f"{stem}_{count}", count + 1
        return name


def _in_equal_windows(nest: Any, loops: list[Any], realize: Any) -> Any:
    """A nest with windows of one size; the very ``nest`` if it reduces over no others."""
    try:
        made = with_equal_windows(loops, realize)
    except Unsupported as reason:
        raise UnsupportedWorkload(f"block {str(realize.block.name_hint)!r}: {reason}") from None
    return nest if made is None else made


def _loops_around(nest: Any) -> tuple[list[Any], Any]:
    """The loops of a nest, outermost first, and what is inside."""
    loops, inner = [], nest
    while isinstance(inner, tirx.For):
        loops.append(inner)
        inner = inner.body
    return loops, inner


def _stores(loops: list[Any], realize: Any) -> list[tuple[Any, Any]] | None:
    """What a reduction to several tensors stores, with what it stores first; None of others.

    Raises:
        UnsupportedWorkload: what is stored to one depends on another, and not as in ``argmax``.
    """
    block = realize.block
    if not isinstance(block.body, tirx.SeqStmt) or not isinstance(block.init, tirx.SeqStmt):
        return None
    bound = {it.var: it.value for it in block.body.seq if isinstance(it, tirx.Bind)}
    stores = [it for it in block.body.seq if isinstance(it, tirx.BufferStore)]
    first = {it.buffer: it for it in block.init.seq if isinstance(it, tirx.BufferStore)}
    if len(bound) + len(stores) != len(block.body.seq) or len(first) != len(block.init.seq):
        return None
    if {it.buffer for it in stores} != set(first) or len(first) != len(stores):
        return None
    found = []
    for store in stores:
        value = store.value
        if isinstance(value, Var):
            value = bound.get(value, value)
        if any(isinstance(node, Var) and node in bound for node in walk(value)):
            return None
        found.append(tirx.BufferStore(store.buffer, value, store.indices))
    dependence = next(filter(None, map(_dependence, found, [found] * len(found))), None)
    if dependence is None:
        return [(store, first[store.buffer]) for store in found]
    try:
        _check_simultaneous(block)
        extreme, index, start = arg_reduction(_reduced(loops, realize), found)
    except Unsupported as reason:
        raise UnsupportedWorkload(
            f"block {str(block.name_hint)!r}: {dependence}, which it reduces as well, and they "
            f"are no extreme value and its index (argmax, argmin): {reason}"
        ) from None
    return [(extreme, first[extreme.buffer]), (index, start)]


def _dependence(store: Any, stores: list[Any]) -> str | None:
    """How what is stored to a tensor depends on another such tensor; None if it does not."""
    others = [it.buffer for it in stores if not it.buffer.same_as(store.buffer)]
    for node in walk(store.value):
        read = node.source if isinstance(node, TensorLoad) else None
        if read is not None and any(read.same_as(other) for other in others):
            return f"what it reduces to {str(store.buffer.name)!r} depends on {str(read.name)!r}"
    return None


def _check_simultaneous(block: SBlock) -> None:
    """Check that nothing is computed from what was stored at the same point.

    Raises:
        Unsupported: it is.
    """
    written: list[Any] = []
    for statement in block.body.seq:
        for node in walk(statement.value):
            if isinstance(node, TensorLoad) and any(map(node.source.same_as, written)):
                raise Unsupported(f"{str(node.source.name)!r} is read after it was stored to")
        if isinstance(statement, tirx.BufferStore):
            written.append(statement.buffer)


def _reduced(loops: list[Any], realize: Any) -> dict[Any, Axis]:
    """The variables over which a block reduces, outermost loop first.

    Raises:
        Unsupported: one is not bound to a loop of its own of known extent.
    """
    found = {}
    order = {loop.loop_var: position for position, loop in enumerate(loops)}
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if int(axis.iter_type) == tirx.IterVar.DataPar:
            continue
        if value not in order or not isinstance(axis.dom.extent, tirx.IntImm):
            raise Unsupported(f"{str(axis.var.name)!r} is not bound to a loop of its own")
        position = order[value]
        extent = int(axis.dom.extent.value)
        found[position] = axis.var, Axis(f"d{position}", extent, "reduce")
    return dict(found[position] for position in sorted(found))


def _alone(loops: list[Any], realize: Any, store: Any, first: Any) -> Any:
    """The loop nest with one of its stores, over variables of its own."""
    block = realize.block
    old = [axis.var for axis in block.iter_vars]
    new = [tirx.Var(str(var.name), var.ty) for var in old]
    counters = [tirx.Var(str(loop.loop_var.name), loop.loop_var.ty) for loop in loops]

    axes = [
        tirx.IterVar(axis.dom, var, axis.iter_type)
        for axis, var in zip(block.iter_vars, new, strict=True)
    ]
    name = f"{block.name_hint}_{store.buffer.name}"
    used = {node.source for node in walk(store.value) if isinstance(node, TensorLoad)}
    known = [it for it in (*block.reads, *block.writes) if not it.source.same_as(store.buffer)]
    reads = [region_at(it, old, new) for it in known if it.source in used]
    writes = [region_at(it, old, new) for it in block.writes if it.source.same_as(store.buffer)]
    body, init = store_at(store, old, new), store_at(first, old, new)
    alone = SBlock(axes, reads, writes, name, body, init)
    old = [loop.loop_var for loop in loops]
    values = [at(value, old, counters) for value in realize.iter_values]
    nest: Any = SBlockRealize(values, realize.predicate, alone)
    for loop, counter in zip(reversed(loops), reversed(counters), strict=True):
        nest = tirx.For(counter, loop.min, loop.extent, loop.kind, nest)
    return nest
