"""Fetching into shared memory some iterations before threads compute on what is fetched.

A loop whose body fetches and then computes has every thread wait twice in each iteration: until
all have fetched, and until all have computed. Here shared memory holds what several iterations
read. An iteration waits once, for the oldest part, begins the fetch of the part that the iteration
before has freed, and computes meanwhile. Fetches are marked: once they are vectors,
:mod:`autotune_tvm.passes.async_copies` makes asynchronous copies of them. Products of warpgroups
are begun before that fetch, and end in the next iteration, before its barrier; floats for TF32 are
rounded where they are fetched, ahead or not. What the copy engine fetches one thread asks for
(:mod:`autotune_tvm.passes.bulk_copies`), and nobody has to share it.

TVM's own pass for this (``InjectSoftwarePipeline``) leaves the barriers to ``ThreadSync``, which
takes stages of one buffer for the same memory and keeps both of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.ir import IRModule, Range, TensorLoad
from tvm.s_tir import MatchBufferRegion, SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm.tirx import BufferRegion, floormod
from tvm.tirx.op import tvm_storage_sync
from tvm_ffi import structural_map

from autotune.backends import InvalidSchedule
from autotune.sketches.copy_engine import SWIZZLED_ALIGNMENT
from autotune_tvm.passes.async_copies import (
    end_of_group,
    marked,
    wait_for_group,
)
from autotune_tvm.passes.bulk_copies import (
    BULK,
    bulk_begin,
    bulk_fetch,
    bulk_wait,
)
from autotune_tvm.passes.statements import (
    at,
    blocks,
    nodes_in,
    rebuilt,
    region_at,
    replaced,
    statements,
    substituted,
    with_bodies,
    with_fields,
)
from autotune_tvm.passes.vectors import asked_once, once_for_all
from autotune_tvm.passes.warpgroup_calls import Products, find_products, share, wait

__all__ = ["AHEAD", "ROUNDED", "STAGES", "pipeline_fetches"]

AHEAD = "autotune.ahead"
"""The annotation of blocks that fetch ahead of time."""

ROUNDED = "autotune.rounded"
"""The annotation of blocks that copy for products that cut off what TF32 has no bits for."""

STAGES = "autotune.stages"
"""The annotation of the loops that they are in: how many iterations are in memory at once."""

_ALIGNMENT = "buffer_dim_align"


def pipeline_fetches(module: IRModule) -> IRModule:
    """A scheduled module whose marked loops fetch some iterations ahead."""
    return with_bodies(module, _pipelined)


@frozen
class _Rounds:
    """A loop whose iterations fetch and compute.

    Attributes:
        loop: The loop.
        stages: How many iterations are in memory at once.
        rounded: Whether threads round what they fetch, and so wait for it.
        bulk: Whether the copy engine fetches.
        fetches: The statements that fetch.
        rest: The others.
        products: Those of the others that are products of warpgroups.
        buffers: By buffer that they fill, the one with a dimension for the stages in front.
    """

    loop: Any
    stages: int
    rounded: bool
    bulk: bool
    fetches: Sequence[Any]
    rest: Sequence[Any]
    products: Sequence[Products]
    buffers: Mapping[Any, Any]


def _pipelined(body: Any) -> Any:
    loops = [_rounds(node) for node in statements(body) if _is_marked(node)]
    return replaced(_rewritten(body, loops) if loops else body, _rounding)


def _rounding(node: Any) -> Any | None:
    """Vectors that are rounded where they are fetched, and not ahead."""
    if not isinstance(node, tirx.For) or not isinstance(node.body, SBlockRealize):
        return None
    block = node.body.block
    if ROUNDED not in block.annotations:
        return None
    kept = {key: value for key, value in block.annotations.items() if key != ROUNDED}
    plain = rebuilt(node, [rebuilt(node.body, [with_fields(block, annotations=kept)])])
    return marked(_whole_vectors(plain) or plain, rounded=True)


def _is_marked(node: Any) -> bool:
    return isinstance(node, tirx.For) and STAGES in node.annotations


def _rounds(loop: Any) -> _Rounds:
    stages = int(loop.annotations[STAGES])
    parts = list(loop.body.seq) if isinstance(loop.body, tirx.SeqStmt) else [loop.body]
    fetches = [part for part in parts if any(AHEAD in it.annotations for it in blocks(part))]
    fetching = [block for part in fetches for block in blocks(part)]
    bulk = any(BULK in block.annotations for block in fetching)
    if not bulk:
        fetches = [replaced(part, _whole_vectors) for part in fetches]
    buffers = {}
    for part in fetches:
        for block in blocks(part):
            plain = block.writes[0].source
            shape = [tirx.IntImm(str(plain.shape[0].ty.dtype), stages), *plain.shape]
            buffers[plain] = tirx.decl_buffer(
                shape,
                str(plain.dtype),
                str(plain.name),
                scope=str(plain.scope()),
                data_alignment=SWIZZLED_ALIGNMENT if bulk else -1,
            )
    rest = parts[len(fetches) :]
    products = [found for found in map(find_products, rest) if found is not None]
    if bulk and not (products and all(BULK in block.annotations for block in fetching)):
        raise InvalidSchedule("bulk copies are for products of warpgroups, of all that they read")
    rounded = any(ROUNDED in block.annotations for block in fetching)
    return _Rounds(loop, stages, rounded, bulk, fetches, rest, products, buffers)


def _whole_vectors(node: Any) -> Any | None:
    """A loop over lanes of vectors that lie in one row, with one place and one condition of each.

    TVM makes no vector of elements of which it does not see that they are in one row.
    """
    if not isinstance(node, tirx.For) or node.kind != tirx.ForKind.VECTORIZED:
        return None
    if not isinstance(node.body, SBlockRealize):
        return None
    realize, lane, lanes = node.body, node.loop_var, int(node.extent)
    analyzer = Analyzer()

    def in_row(part: Any) -> Any:
        if not isinstance(part.b, tirx.IntImm) or int(part.b.value) % lanes:
            return part
        first = at(part.a, [lane], [0])
        place = analyzer.modular_set(first)
        step = analyzer.simplify(part.a - first)
        if not step.same_as(lane) or place.coeff % lanes or place.base % lanes:
            return part
        of_first = type(part)(first, part.b)
        return of_first + lane if isinstance(part, tirx.FloorMod) else of_first

    kinds = (tirx.FloorDiv, tirx.FloorMod)
    values = [structural_map(value, (kinds, in_row)) for value in realize.iter_values]
    block, store = realize.block, realize.block.body
    own = [item.var for item in block.iter_vars]
    value = structural_map(at(store.value, own, values), (kinds, in_row))
    block = with_fields(block, body=tirx.BufferStore(store.buffer, value, store.indices))
    predicate = once_for_all(realize.predicate, [], [], node)
    predicate = realize.predicate if predicate is None else predicate
    made = SBlockRealize(values, predicate, block)
    return asked_once(rebuilt(node, [made]), made)


def _rewritten(node: Any, loops: Sequence[_Rounds]) -> Any:
    """The statement with the loops pipelined, and room for their stages."""
    for rounds in loops:
        if node.same_as(rounds.loop):
            return _ahead(rounds)
    if isinstance(node, SBlock):
        staged = {plain: other for it in loops for plain, other in it.buffers.items()}
        node = with_fields(
            node, alloc_buffers=[staged.get(buffer, buffer) for buffer in node.alloc_buffers]
        )
        return with_fields(node, body=_rewritten(node.body, loops))
    if isinstance(node, SBlockRealize):
        return rebuilt(node, [_rewritten(node.block, loops)])
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt([_rewritten(each, loops) for each in node.seq])
    if isinstance(node, tirx.For):
        if node.thread_binding is None and int(node.extent) > 1:
            for rounds in loops:
                if rounds.bulk and any(it.same_as(rounds.loop) for it in statements(node.body)):
                    # Rounds of stages are counted from the beginning of the kernel.
                    raise InvalidSchedule(f"bulk copies are made inside of loop {node.loop_var}")
        return rebuilt(node, [_rewritten(node.body, loops)])
    return node


def _ahead(rounds: _Rounds) -> Any:
    """Fetch all stages but one; then in each iteration wait, fetch the next, and compute.

    Behind the end, groups without copies keep the count. Products of warpgroups are begun before
    the fetch, and waited for before the barrier of the next iteration: only then may any thread
    fill the stage that they read.
    """
    loop, variable = rounds.loop, rounds.loop.loop_var
    dtype = str(variable.ty.dtype)
    ahead, extent = rounds.stages - 1, int(loop.extent)
    # What threads round is there as soon as they go on.
    waits = not rounds.rounded and not rounds.bulk
    group = [end_of_group()] if waits else []
    arrived = [wait_for_group(rounds.stages - 2)] if waits else []
    first = tirx.Var("first", variable.ty)
    begin = tirx.For(
        first,
        tirx.const(0, dtype),
        tirx.const(ahead, dtype),
        tirx.ForKind.SERIAL,
        _in_order([_fetched(rounds, first, first), *group]),
    )
    stage = floormod(variable + ahead, rounds.stages)
    more = tirx.IfThenElse(
        variable < extent - ahead, _fetched(rounds, variable + ahead, stage), None
    )
    own = floormod(variable, rounds.stages)
    zero = {variable: tirx.const(0, dtype)}
    computed = [_reading(node, rounds, zero, own) for node in map(_begun, rounds.rest)]
    body = [*arrived, _barrier(), more, *group, *computed]
    if rounds.products:
        # What a thread has copied is shared by itself, before the barrier.
        body = [*arrived, share(), wait(), _barrier(), *computed, more, *group]
    if rounds.bulk:
        parity = floormod(variable // rounds.stages, 2)
        body = [bulk_wait(own, parity), wait(), _barrier(), *computed, more]
    annotations = {key: value for key, value in loop.annotations.items() if key != STAGES}
    repeated = with_fields(loop, body=tirx.SeqStmt(body), annotations=annotations)
    # Inside another loop, threads may still compute on what the last iterations fetched.
    ended = [it.ended(variable) for it in rounds.products]
    made = [bulk_begin(rounds.stages, len(rounds.fetches))] if rounds.bulk else []
    return tirx.SeqStmt([*made, _barrier(), begin, repeated, *ended])


def _begun(node: Any) -> Any:
    """The statement, or where it is products of warpgroups, one that only begins them."""
    products = find_products(node)
    return node if products is None else products.begun()


def _in_order(parts: Sequence[Any]) -> Any:
    return tirx.SeqStmt(parts) if len(parts) > 1 else parts[0]


def _barrier() -> Any:
    return tirx.Evaluate(tvm_storage_sync("shared"))


def _fetched(rounds: _Rounds, iteration: Any, stage: Any) -> Any:
    """The fetches of one iteration into one stage, with loops of their own."""
    variable = rounds.loop.loop_var
    if rounds.bulk:
        asked = [
            bulk_fetch(it, rounds.buffers[written], {variable: iteration}, stage)
            for it in rounds.fetches
            for written in (blocks(it)[0].writes[0].source,)
        ]
        return marked(_in_order(asked))
    copies = [_copied(it, rounds, {variable: iteration}, stage) for it in rounds.fetches]
    return marked(_in_order(copies), rounded=rounds.rounded)


def _copied(node: Any, rounds: _Rounds, values: Mapping[Any, Any], stage: Any) -> Any:
    if isinstance(node, tirx.For):
        variable = tirx.Var(str(node.loop_var.name), node.loop_var.ty)
        inner = _copied(node.body, rounds, {**values, node.loop_var: variable}, stage)
        return with_fields(node, loop_var=variable, body=inner)
    if not isinstance(node, SBlockRealize) or not isinstance(node.block.body, tirx.BufferStore):
        raise InvalidSchedule(f"what is fetched ahead is not one store: {type(node).__name__}")
    names, given = list(values), list(values.values())
    placed = [at(value, names, given) for value in node.iter_values]
    predicate = node.predicate
    if not isinstance(predicate, tirx.IntImm):
        predicate = at(predicate, names, given)
    # A part of the buffer holds one iteration: of its number nothing is left in the place.
    zero = tirx.const(0, str(names[0].ty.dtype))
    # Simplified places hide from TVM how far a condition lets them go.
    within = [substituted(value, names, [zero, *given[1:]]) for value in node.iter_values]
    return SBlockRealize(placed, predicate, _stored(node.block, rounds, values, within, stage))


def _stored(
    block: Any, rounds: _Rounds, values: Mapping[Any, Any], within: Sequence[Any], stage: Any
) -> Any:
    """A block over variables of its own that fills a place of one stage.

    Args:
        block: The block.
        rounds: The loop around it.
        values: By loop around the block; conditions that hold for a vector are in terms of these.
        within: What the block's variables are in the first iteration.
        stage: The stage.
    """
    own = [item.var for item in block.iter_vars]
    fresh = [tirx.Var(str(var.name), var.ty) for var in own]
    axes = [
        tirx.IterVar(item.dom, var, item.iter_type)
        for item, var in zip(block.iter_vars, fresh, strict=True)
    ]
    buffer = rounds.buffers[block.writes[0].source]
    place = [stage, *(substituted(index, own, within) for index in block.body.indices)]
    value = at(block.body.value, [*own, *values], [*fresh, *values.values()])
    written = BufferRegion(buffer, [_point(index) for index in place])
    gone = (AHEAD, ROUNDED)
    annotations = {key: value for key, value in block.annotations.items() if key not in gone}
    if _ALIGNMENT in annotations:
        annotations[_ALIGNMENT] = [
            [int(position), int(dimension) + 1, int(factor), int(offset)]
            for position, dimension, factor, offset in annotations[_ALIGNMENT]
        ]
    return SBlock(
        axes,
        [region_at(region, own, fresh) for region in block.reads],
        [written],
        str(block.name_hint),
        tirx.BufferStore(buffer, value, place),
        None,
        [],
        [],
        annotations,
    )


def _point(index: Any) -> Any:
    return Range.from_min_extent(index, tirx.IntImm(str(index.ty.dtype), 1))


def _reading(node: Any, rounds: _Rounds, values: Mapping[Any, Any], stage: Any) -> Any:
    """The statement with its reads of what is fetched moved to a stage.

    Args:
        node: The statement.
        rounds: The loop around it.
        values: What variables that move with the loop are within one stage.
        stage: The stage.
    """
    names, given = list(values), list(values.values())

    def load(found: Any) -> Any:
        buffer = rounds.buffers.get(found.source)
        if buffer is None:
            return found
        return tirx.BufferLoad(buffer, [stage, *(at(it, names, given) for it in found.indices)])

    def region(found: Any) -> Any:
        buffer = rounds.buffers.get(found.source)
        if buffer is None:
            return found
        ranges = [
            Range.from_min_extent(at(it.min, names, given), it.extent) for it in found.region
        ]
        return BufferRegion(buffer, [_point(stage), *ranges])

    if isinstance(node, tirx.BufferStore):
        value = structural_map(node.value, (TensorLoad, load))
        return tirx.BufferStore(node.buffer, value, node.indices)
    if isinstance(node, tirx.Evaluate):
        return tirx.Evaluate(structural_map(node.value, (TensorLoad, load)))
    if isinstance(node, SBlockRealize):
        moved = dict(values)
        for item, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            if any(part.same_as(name) for part in nodes_in(value, tirx.Var) for name in names):
                moved[item.var] = at(value, names, given)
        return rebuilt(node, [_reading(node.block, rounds, moved, stage)])
    if isinstance(node, SBlock):
        return with_fields(
            node,
            reads=[region(it) for it in node.reads],
            writes=[region(it) for it in node.writes],
            match_buffers=[
                MatchBufferRegion(it.buffer, region(it.source)) for it in node.match_buffers
            ],
            body=_reading(node.body, rounds, values, stage),
        )
    if isinstance(node, (tirx.For, tirx.SeqStmt)):
        inner = list(node.seq) if isinstance(node, tirx.SeqStmt) else [node.body]
        return rebuilt(node, [_reading(each, rounds, values, stage) for each in inner])
    raise InvalidSchedule(f"{type(node).__name__} cannot be moved to a stage of a pipeline")
