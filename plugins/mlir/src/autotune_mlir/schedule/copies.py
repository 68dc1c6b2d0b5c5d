"""Copies of operands, in loops or as a whole, and operands and results at padded extents."""

from __future__ import annotations

from autotune.backends import InvalidSchedule
from autotune.ir.element_types import element_type
from autotune_mlir.emit import identity_of
from autotune_mlir.scalar_emit import literal, memory_type
from autotune_mlir.schedule.plan import Copied, Plan, StagePlan
from autotune_mlir.schedule.script import Script

__all__ = [
    "copy_operand",
    "copy_whole_operands",
    "pad_stage",
    "pad_stage_extents",
    "read_blocks",
    "split_copy",
    "split_padded",
    "split_padding",
    "take_apart",
    "vectorize_copy",
    "vectorize_padding",
]

_ANY = "!transform.any_op"
_FILL = '!transform.op<"linalg.fill">'
_GENERIC = '!transform.op<"linalg.generic">'
_PACK = '!transform.op<"linalg.pack">'
_UNPACK = '!transform.op<"linalg.unpack">'
_FOLD = "tensor.fold_into_pack_and_unpack"
_LOWERED = ("tensor.pad", "tensor.expand_shape", "linalg.transpose")


def pad_stage_extents(script: Script, own: StagePlan) -> None:
    """Have a stage run over padded extents, before it has loops.

    Operands that depend on a padded axis are padded; these operations are the copies that packing
    asks for, and move into the stage's loops. A result that has become larger is put into tiles
    and taken out of them again, without what is beyond its extents: loops are made on what takes
    it out, of which a tile needs the whole tile of the stage.

    Raises:
        InvalidSchedule: an operand that depends on a padded axis is not packed, or a tile lies
            in the margin as a whole, for which what is clipped has no loop.
    """
    _check_margins(own)
    axes = [axis.name for axis in own.axes]
    values = _padding_values(own)
    target = script.match("stage", own.name)
    if set(own.padded) & set(own.window_axes):
        sizes = [own.padded.get(name, 0) for name in axes]
        (reader, _) = script.apply(
            f"transform.structured.pad_tiling_interface {{}} to padding_sizes {sizes} "
            f"pad_to_multiple_of {{{{padding_values = [{values}]}}}}",
            [target],
            2,
        )
    else:
        dimensions = [axes.index(name) for name in own.padded]
        about = (
            f"padding_values = [{values}], padding_dimensions = {dimensions}, "
            'copy_back_op = "none"'
        )
        multiples = f"pad_to_multiple_of {list(own.padded.values())} "
        (reader, _, _) = _pad(script, target, about, multiples)
    copied = {it.operand for it in own.copied}
    for operand in sorted(own.padded_operands):
        if operand not in copied:
            raise InvalidSchedule(f"padding {own.name} needs {operand} to be packed")
        made = script.producer(reader, own.operands.index(operand))
        script.annotate(made, *own.copy_tag(operand))
    function = script.function()
    script.patterns(function, ["canonicalization"])
    if own.is_clipped:
        _put_into_tiles(script, own, values)
    script.clean(function, "tensor.fold_tensor_empty")
    start = script.producer(script.match("stage", own.name), len(own.operands))
    if own.stage.combiner is not None:
        # What starts with another number has been padded, and not made larger.
        fill, again = script.handle(), script.handle()
        script.add(f"{fill} = transform.cast {start} : {_ANY} to {_FILL}")
        script.add(f"{again} = transform.cast {fill} : {_FILL} to {_ANY}")
        start = again
    script.annotate(start, "init", own.name)


def _pad(script: Script, target: str, about: str, multiples: str = "") -> list[str]:
    text = f"transform.structured.pad {{}} {multiples}{{{{{about}}}}}"
    return script.apply(text, [target], 3)


def _check_margins(own: StagePlan) -> None:
    at = own.accumulated_at
    outside = own.order if at is None else own.order[: own.order.index(at) + 1]
    for axis, padded in own.padded.items():
        extent = own.stage.axis(axis).extent
        loops = [it for it in outside if own.axis_of(it) == axis]
        tile = min(map(own.tile_inside, loops), default=padded)
        if padded - extent >= tile:
            raise InvalidSchedule(
                f"{own.name}.{axis} goes on from {extent} to {padded}, which adds whole "
                f"tiles of {tile}"
            )


def _put_into_tiles(script: Script, own: StagePlan, values: str) -> None:
    """Put the padded result into tiles, and take out of them what belongs to the result.

    Both come from a copy of the result that is then packed, and of which nothing else is left.
    """
    if own.accumulated_at is None:
        raise InvalidSchedule(f"the padded stage {own.name!r} has no tile that is written")
    axes = [axis.name for axis in own.stage.spatial_axes]
    sizes = [own.extent_inside(own.accumulated_at, axis) for axis in axes]
    about = (
        f"padding_values = [{values}], padding_dimensions = "
        f'{list(range(len(axes)))}, copy_back_op = "linalg.copy"'
    )
    (_, _, copy) = _pad(script, script.match("stage", own.name), about)
    packed = script.handle()
    script.add(
        f"{packed} = transform.structured.pack {copy} packed_sizes = {sizes} : "
        f"({_ANY}) -> {_GENERIC}"
    )
    for kind, text in (
        ("tile", f"transform.get_producer_of_operand {packed}[0]"),
        ("clip", f"transform.get_consumers_of_result {packed}[0]"),
    ):
        found = script.handle()
        script.add(f"{found} = {text} : ({_GENERIC}) -> {_ANY}")
        script.annotate(found, kind, own.name)


def take_apart(script: Script, own: StagePlan) -> None:
    """Make the loops around the pieces of the innermost tile.

    They are made all at once, so that each piece is a slice of the tile and not of another slice.
    """
    loops = {own.axis_of(loop): loop for loop in own.pieces if own.extent(loop) > 1}
    if not loops:
        return
    names = [axis.name for axis in own.axes]
    sizes = [own.tile_inside(loops[name]) if name in loops else 0 for name in names]
    made = script.tile(script.match("stage", own.name), sizes)
    order = sorted(loops, key=names.index)
    for handle, name in zip(made[1:], order, strict=True):
        script.annotate(handle, "unroll", f"{own.name}.{loops[name]}")


# Copies inside of loops


def copy_operand(script: Script, own: StagePlan, packed: Copied) -> None:
    """Copy what a stage reads of an operand at this place, and have it read the copy.

    Padding by nothing that is not folded away makes a tensor of its own, which becomes a buffer
    and an operation that fills it.

    Raises:
        InvalidSchedule: the stage reads the operand element by element.
    """
    reader = _isolated(script, own, packed.operand)
    found = [at for at, name in enumerate(own.operands) if name == packed.operand]
    pads = script.together([script.producer(reader, at) for at in found])
    buffer, made = script.handle(), script.handle()
    script.add(
        f"{buffer}, {made} = transform.structured.bufferize_to_allocation {pads} "
        '{memory_space = 0 : i64, memcpy_op = "linalg.copy"} : !transform.any_op'
    )
    (copy,) = script.apply('transform.select "linalg.copy" in {}', [made])
    script.annotate(copy, *own.copy_tag(packed.operand))


def _isolated(script: Script, own: StagePlan, operand: str) -> str:
    """Pad an operand by nothing, in a way that is not folded away.

    In a stage with padded extents, no dimension is named: the others of its operands whose tiles
    have extents that are computed would be padded along with it.

    Returns:
        The stage's operation, which reads the padding.
    """
    stage = own.stage
    if operand not in own.operands:
        raise InvalidSchedule(
            f"stage {stage.name!r} reads {operand!r} beyond its bounds, element by "
            "element: there is no part of it that could be packed"
        )
    flags = [int(name == operand) for name in (*own.operands, "")]
    read = [index for load in stage.loads if load.tensor == operand for index in load.indices]
    axes = [axis.name for axis in own.axes]
    found = {axes.index(name) for index in read for name in index.variables}
    dimensions = [] if own.padded else sorted(found)
    about = (
        f"padding_values = [{_padding_values(own)}], padding_dimensions = {dimensions}, "
        f'nofold_flags = {flags}, copy_back_op = "none"'
    )
    return _pad(script, script.match("stage", stage.name), about)[0]


def _padding_values(own: StagePlan) -> str:
    """Values to pad with: zeros for the operands of a stage's operation, and for its result.

    That of a reduction is what it starts with, which is then no more than a larger tensor of it.
    """
    output = own.stage.output.dtype
    dtypes = [own.workload.tensors[name].dtype if name else output for name in own.operands]
    start = _zero(output)
    if own.stage.combiner is not None:
        kind = "int8" if output == "bool" else output
        start = f"{literal(identity_of(own.stage), kind)} : {memory_type(output)}"
    return ", ".join([*map(_zero, dtypes), start])


def _zero(dtype: str) -> str:
    kind = memory_type(dtype)
    return f"0.0 : {kind}" if element_type(dtype).is_float else f"0 : {kind}"


def split_copy(script: Script, own: StagePlan, packed: Copied) -> None:
    """Make the loops of a copy, around vectors of its innermost dimension."""
    script.tile(script.match(*own.copy_tag(packed.operand)), _vector_sizes(own, packed))


def split_padded(script: Script, plan: Plan, own: StagePlan, packed: Copied) -> None:
    """Make the loops of a copy that pads, around vectors of its innermost dimension."""
    padding = script.match(*own.copy_tag(packed.operand))
    script.tile(padding, _padded_sizes(plan, own, packed))
    script.assume_inside()


def vectorize_copy(script: Script, plan: Plan, own: StagePlan, copied: Copied) -> None:
    """Turn a copy into vectors, of which lanes in margins, and behind a row's end, are masked."""
    sizes = _vector_sizes(own, copied)
    if copied.operand in own.padded_operands:
        masked = True
        sizes = sizes if copied.at is None else _padded_sizes(plan, own, copied)
    else:
        uneven = any(it % copied.lanes for it in _row_extents(own, copied))
        masked = copied.at is not None and uneven
    copy = script.match(*own.copy_tag(copied.operand))
    script.vectorize(copy, f" vector_sizes {sizes}" if masked else "")


def _padded_sizes(plan: Plan, own: StagePlan, packed: Copied) -> list[int]:
    """Extents of what is one vector of a copy that pads.

    What pads the operand with the same number has become a part of the copy, and is computed in
    single elements where it is shifted.
    """
    sizes, source = _vector_sizes(own, packed), plan.stages.get(packed.operand)
    return [1] * len(sizes) if source is not None and source.is_shifted else sizes


def _row_extents(own: StagePlan, packed: Copied) -> set[int]:
    """Elements of the operand's last dimension that are copied at a time, by each affine read."""
    found = set()
    for load in own.stage.loads:
        if packed.at is not None and load.tensor == packed.operand and load.indices:
            last = own.stage.forms(load)[-1]
            if not last.terms:
                steps = (
                    abs(scale) * (own.extent_inside(packed.at, axis) - 1)
                    for axis, scale in last.coefficients.items()
                )
                found.add(1 + sum(steps))
    return found


def _vector_sizes(own: StagePlan, copied: Copied) -> list[int]:
    """Elements that a copy reads at once."""
    rank = next(len(load.indices) for load in own.stage.loads if load.tensor == copied.operand)
    return [*[1] * (rank - 1), copied.lanes]


# Stages that pad


def pad_stage(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a stage that pads, in parallel where the stage is.

    Its loops are in the order of its axes.
    """
    sizes = own.sizes(*own.parallel)
    if any(sizes):
        script.tile_parallel(script.match("stage", own.name), sizes)
        script.assume_inside()
    split_padding(script, plan, own)


def split_padding(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a tile that is padded, around vectors of its innermost dimension."""
    script.tile(script.match("stage", own.name), _padding_sizes(plan, own))
    script.assume_inside()


def vectorize_padding(script: Script, plan: Plan, own: StagePlan) -> None:
    """Turn what is padded into a load of which the lanes in the margins are masked."""
    sizes = _padding_sizes(plan, own)
    script.vectorize(script.match("stage", own.name), f" vector_sizes {sizes}")


def _padding_sizes(plan: Plan, own: StagePlan) -> list[int]:
    """Extents of what is one vector: a part of the innermost dimension.

    Its lanes are the stage's own, or those of the copy that it is computed in.
    """
    lanes = 1
    if not own.is_shifted and own.vector is not None:
        lanes = own.extent(own.vector)
    elif not own.is_shifted and own.inlined:
        copies = (it for stage in plan.stages.values() for it in stage.packed)
        lanes = next((it.lanes for it in copies if it.operand == own.name), 1)
    return [*[1] * (len(own.stage.spatial_axes) - 1), lanes]


# Copies of whole operands


def copy_whole_operands(script: Script, own: StagePlan) -> None:
    """Copy operands, with loops around the vectors of the copies, before the stage has loops.

    What the stage reads is then an operation that takes blocks apart again. It moves into the
    loops of the stage with everything else that is computed there, until it is a single block
    (:func:`read_blocks`).

    Raises:
        InvalidSchedule: the stage reads an operand at other indices than its axes.
    """
    for whole in own.whole:
        padded = whole.operand in own.padded_operands
        if whole.block is None and padded:
            _split_margins(script, own, whole)
            continue
        reader = _isolated(script, own, whole.operand)
        pads = script.producer(reader, own.operands.index(whole.operand))
        text = "transform.structured.rewrite_in_destination_passing_style {}"
        (copy,) = script.apply(text, [pads])
        if whole.block is None:
            script.annotate(copy, *own.copy_tag(whole.operand))
        else:
            pack = _blocked(script, own, whole, copy)
            if padded:
                _pad_blocks(script, own, whole)
                continue
            _write_out(script, own, whole, pack)
        _split(script, own, whole)


def read_blocks(script: Script) -> None:
    """Have what reads or writes blocks work on slices, where loops have left one block of each."""
    names = [
        "linalg.decompose_pack_unpack",
        "memref.resolve_ranked_shaped_type_result_dims",
        "tensor.fold_tensor_empty",
        "tensor.merge_consecutive_insert_extract_slice",
    ]
    script.patterns(script.function(), names)


def _blocked(script: Script, own: StagePlan, whole: Copied, copy: str) -> str:
    """Change the layout that a copy has, and then change it back for the stage.

    All dimensions are split by what a tile reads of them, so that a tile reads a single block: its
    slice of the copy has no other dimensions than the operand. Blocks of the last dimension come
    first.

    Returns:
        What changes it first.
    """
    sizes = _tile_extents(own, whole)
    order = _order(len(sizes))
    packed, pack, unpack = (script.handle() for _ in range(3))
    script.add(
        f"{packed} = transform.structured.pack {copy} packed_sizes = {sizes} : "
        f"({_ANY}) -> {_GENERIC}"
    )
    script.add(f"{pack} = transform.get_producer_of_operand {packed}[0] : ({_GENERIC}) -> {_PACK}")
    packed, pack, _ = _transposed(script, pack, packed, _PACK, order)
    script.add(
        f"{unpack} = transform.get_consumers_of_result {packed}[0] : ({_GENERIC}) -> {_UNPACK}"
    )
    _, _, unpack = _transposed(script, unpack, packed, _UNPACK, order)
    script.annotate(unpack, "unpack", f"{own.name}.{whole.operand}")
    return pack


def _transposed(
    script: Script, target: str, compute: str, kind: str, order: list[int]
) -> tuple[str, str, str]:
    """Transpose what packs or unpacks: what computes, packs and unpacks then."""
    results = script.handle(), script.handle(), script.handle()
    pack = _PACK if kind == _PACK else _ANY
    script.add(
        f"{', '.join(results)} = transform.structured.pack_transpose {target} "
        f"with_compute_op({compute}) outer_perm = {order} : "
        f"({kind}, {_GENERIC}) -> ({_GENERIC}, {pack}, {_ANY})"
    )
    return results


def _write_out(script: Script, own: StagePlan, whole: Copied, pack: str) -> None:
    """Make an operation that can be tiled of what makes blocks."""
    kinds = ", ".join(f'!transform.op<"{kind}">' for kind in _LOWERED)
    lowered = [script.handle() for _ in _LOWERED]
    script.add(
        f"{', '.join(lowered)} = transform.structured.lower_pack {pack} "
        f"{{lowerPadLikeWithInsertSlice = false}} : ({_PACK}) -> ({kinds})"
    )
    made = script.handle()
    script.add(
        f'{made} = transform.cast {lowered[-1]} : !transform.op<"linalg.transpose"> to {_ANY}'
    )
    script.annotate(made, *own.copy_tag(whole.operand))
    script.clean(script.function())


def _pad_blocks(script: Script, own: StagePlan, whole: Copied) -> None:
    """Pad an operand where its blocks are made, and make the loops of that: blocks on all cores.

    What pads the whole operand becomes a part of what makes blocks, and is a padding of slices
    again when there are loops over the blocks.
    """
    function = script.function()
    # Without padding, what makes blocks and what takes them apart would be simplified away.
    script.patterns(function, [_FOLD])
    script.clean(function)
    unpack = script.match("unpack", f"{own.name}.{whole.operand}")
    pack = script.producer(unpack, 0)
    blocks = script.tile_parallel(pack, [1] * len(_vector_sizes(own, whole)))
    script.patterns(blocks, ["linalg.decompose_pack_unpack"])
    script.annotate(script.match_kind("tensor.pad", blocks), *own.copy_tag(whole.operand))
    _split_margins(script, own, whole, parallel=False)


def _split_margins(
    script: Script, own: StagePlan, whole: Copied, *, parallel: bool = True
) -> None:
    """Make the loops of a copy that pads, around vectors of its innermost dimension."""
    sizes, tag = _vector_sizes(own, whole), own.copy_tag(whole.operand)
    if parallel and len(sizes) > 1:
        outer = len(sizes) - 1
        script.tile_parallel(script.match(*tag), [*sizes[:outer], 0])
        script.assume_inside()
        sizes = [*[0] * outer, sizes[-1]]
    script.tile(script.match(*tag), sizes)
    script.assume_inside()


def _tile_extents(own: StagePlan, whole: Copied) -> list[int]:
    """The part of each dimension of an operand that one tile of the stage reads."""
    if own.accumulated_at is None:
        raise InvalidSchedule(f"stage {own.name!r} has no tile that could read a block")
    extents = _extents_inside(own, whole, own.accumulated_at)
    if extents[-1] != whole.block:
        raise InvalidSchedule(
            f"a tile of stage {own.name!r} reads {extents[-1]} elements of the last "
            f"dimension of {whole.operand!r}, and blocks have {whole.block}"
        )
    return extents


def _extents_inside(own: StagePlan, whole: Copied, loop: str) -> list[int]:
    """The part of each dimension of an operand that the stage reads inside of a loop."""
    stage = own.stage
    loads = {load for load in stage.loads if load.tensor == whole.operand}
    forms = [form for load in loads for form in stage.forms(load)]
    found = []
    for form in forms:
        if not form.terms and not form.constant and list(form.coefficients.values()) == [1]:
            found.append(own.extent_inside(loop, next(iter(form.coefficients))))
        elif not (form.terms or form.coefficients or form.constant):
            found.append(1)
    if len(loads) != 1 or len(found) < len(forms):
        raise InvalidSchedule(
            f"stage {stage.name!r} reads {whole.operand!r} at other indices than its axes: there "
            "are no blocks that tiles could read"
        )
    return found


def _split(script: Script, own: StagePlan, whole: Copied) -> None:
    """Make the loops of a copy in the order of the operand, the outer ones on all cores."""
    rank = len(own.workload.tensors[whole.operand].shape)
    tag = own.copy_tag(whole.operand)
    places = [_places(rank, whole, dimension) for dimension in range(rank)]
    total = 1 + max(place for pair in places for place in pair)
    outer = min(max(1, rank - 2), rank - 1)
    parallel = {place for pair in places[:outer] for place in pair}
    if parallel:
        sizes = [int(place in parallel) for place in range(total)]
        script.tile_parallel(script.match(*tag), sizes)
    for dimension in range(outer, rank):
        sizes = [0] * total
        for place in places[dimension]:
            sizes[place] = 1
        if dimension == rank - 1:
            sizes[places[dimension][-1]] = whole.lanes
        script.tile(script.match(*tag), sizes)


def _order(rank: int) -> list[int]:
    """The order of what counts blocks: those of the last dimension are the outermost."""
    return [rank - 1, *range(rank - 1)]


def _places(rank: int, whole: Copied, dimension: int) -> list[int]:
    """Dimensions of the copy that a dimension of the operand is split into, blocks first."""
    if whole.block is None:
        return [dimension]
    return [_order(rank).index(dimension), rank + dimension]
