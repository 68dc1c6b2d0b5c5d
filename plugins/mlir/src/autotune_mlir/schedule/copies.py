"""Copies of operands, in loops or as a whole, and operands and results at padded extents."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.backends import InvalidSchedule
from autotune.ir.element_types import element_type
from autotune.ir.expressions import affine_form
from autotune.ir.workloads import Stage, Workload
from autotune_mlir.emit import identity_of
from autotune_mlir.scalar_emit import literal, memory_type
from autotune_mlir.schedule.levels import assume_inside, is_shifted
from autotune_mlir.schedule.plan import PackedOperand, StagePlan, WholeOperand
from autotune_mlir.schedule.script import Script, tag

__all__ = [
    "clipped_tags",
    "copy_operand",
    "copy_tag",
    "copy_whole_operands",
    "has_vectors",
    "is_padded",
    "isolate_operand",
    "pad_stage_extents",
    "pieces",
    "read_blocks",
    "split_copy",
    "split_padded",
    "take_apart",
    "unpack_tags",
    "vectorize_copy",
    "vectorize_padded",
    "vectorize_whole",
    "window_axes",
]

_ANY = "!transform.any_op"
_FILL = '!transform.op<"linalg.fill">'
_GENERIC = '!transform.op<"linalg.generic">'


def pad_stage_extents(
    script: Script, workload: Workload, own: StagePlan, operands: Sequence[str]
) -> None:
    """Have a stage run over padded extents, before it has loops.

    Operands that depend on a padded axis are padded; these operations are the copies that packing
    asks for, and move into the stage's loops. A result that has become larger is put into tiles
    and taken out of them again, without what is beyond its extents (:func:`clipped_tags`): loops
    are made on what takes it out, of which a tile needs the whole tile of the stage.

    Args:
        script: Where to write.
        workload: Says what the elements are.
        own: The stage; it has padded axes.
        operands: Tensors that the stage's operation reads, in the order of its operands.

    Raises:
        InvalidSchedule: an operand that depends on a padded axis is not packed, or a tile lies
            in the margin as a whole, for which what is clipped has no loop.
    """
    stage = own.stage
    _check_margins(own)
    axes = [axis.name for axis in (*stage.spatial_axes, *stage.reduce_axes)]
    values = padding_values(workload, stage, operands)
    target = script.match(tag("stage", stage.name))
    if set(own.padded) & set(window_axes(stage)):
        sizes = [own.padded.get(name, 0) for name in axes]
        (reader, _) = script.apply(
            f"transform.structured.pad_tiling_interface {{}} to padding_sizes {sizes} "
            f"pad_to_multiple_of {{{{padding_values = [{values}]}}}}",
            [target],
            2,
        )
    else:
        dimensions = [axes.index(name) for name in own.padded]
        (reader, _, _) = script.apply(
            f"transform.structured.pad {{}} pad_to_multiple_of {list(own.padded.values())} "
            f"{{{{padding_values = [{values}], padding_dimensions = {dimensions}, "
            'copy_back_op = "none"}}',
            [target],
            3,
        )
    copied = {packed.operand for packed in own.packed} | {whole.operand for whole in own.whole}
    for operand in sorted(own.padded_operands):
        if operand not in copied:
            raise InvalidSchedule(f"padding {stage.name} needs {operand} to be packed")
        made = script.producer(reader, list(operands).index(operand))
        script.annotate(made, "pack", f"{stage.name}.{operand}")
    function = script.match_kind("func.func")
    script.patterns(function, ["canonicalization"])
    if own.is_clipped:
        _put_into_tiles(script, own, values)
    script.clean(function, "tensor.fold_tensor_empty")
    start = script.producer(script.match(tag("stage", stage.name)), len(operands))
    if stage.combiner is not None:
        # What starts with another number has been padded, and not made larger.
        fill, again = script.handle(), script.handle()
        script.add(f"{fill} = transform.cast {start} : {_ANY} to {_FILL}")
        script.add(f"{again} = transform.cast {fill} : {_FILL} to {_ANY}")
        start = again
    script.annotate(start, "init", stage.name)


def _check_margins(own: StagePlan) -> None:
    at = own.accumulated_at
    outside = own.order if at is None else own.order[: own.order.index(at) + 1]
    for axis, padded in own.padded.items():
        extent = own.stage.axis(axis).extent
        loops = [it for it in outside if own.axis_of(it) == axis]
        tile = min(map(own.tile_inside, loops), default=padded)
        if padded - extent >= tile:
            raise InvalidSchedule(
                f"{own.stage.name}.{axis} goes on from {extent} to {padded}, which adds whole "
                f"tiles of {tile}"
            )


def clipped_tags(own: StagePlan) -> list[str]:
    """Attributes of what takes a padded result out of tiles, and of what puts it into them."""
    return [tag(kind, own.stage.name) for kind in ("clip", "tile") if own.is_clipped]


def is_padded(own: StagePlan, operand: str) -> bool:
    """Return whether the copy of an operand is one that pads it."""
    return operand in own.padded_operands


def copy_tag(own: StagePlan, operand: str) -> str:
    """Attribute of the copy of an operand, also where it is what pads it."""
    return tag("pack", f"{own.stage.name}.{operand}")


def split_padded(
    script: Script, workload: Workload, own: StagePlan, packed: PackedOperand
) -> None:
    """Make the loops of a copy that pads, around vectors of its innermost dimension."""
    padding = script.match(copy_tag(own, packed.operand))
    script.tile(padding, _padded_sizes(workload, own, packed))
    assume_inside(script)


def vectorize_padded(
    script: Script, workload: Workload, own: StagePlan, packed: PackedOperand
) -> None:
    """Turn what a copy that pads reads into loads of which lanes in the margin are masked."""
    sizes = _padded_sizes(workload, own, packed)
    padding = script.match(copy_tag(own, packed.operand))
    script.vectorize(padding, f" vector_sizes {sizes}")


def _padded_sizes(workload: Workload, own: StagePlan, packed: PackedOperand) -> list[int]:
    """Extents of what is one vector of a copy that pads.

    What pads the operand with the same number has become a part of the copy; see
    :func:`~autotune_mlir.schedule.levels.is_shifted`.
    """
    sizes = _vector_sizes(own, packed)
    stages = {stage.name: stage for stage in workload.stages}
    source = stages.get(packed.operand)
    shifted = source is not None and is_shifted(source, workload)
    return [1] * len(sizes) if shifted else sizes


def _put_into_tiles(script: Script, own: StagePlan, values: str) -> None:
    """Put the padded result into tiles, and take out of them what belongs to the result.

    Both come from a copy of the result that is then packed, and of which nothing else is left.
    """
    if own.accumulated_at is None:
        raise InvalidSchedule(f"the padded stage {own.stage.name!r} has no tile that is written")
    axes = [axis.name for axis in own.stage.spatial_axes]
    sizes = [own.extent_inside(own.accumulated_at, axis) for axis in axes]
    (_, _, copy) = script.apply(
        f"transform.structured.pad {{}} {{{{padding_values = [{values}], padding_dimensions = "
        f'{list(range(len(axes)))}, copy_back_op = "linalg.copy"}}}}',
        [script.match(tag("stage", own.stage.name))],
        3,
    )
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
        script.annotate(found, kind, own.stage.name)


def window_axes(stage: Stage) -> tuple[str, ...]:
    """Spatial axes that an operand is read at together with another axis, or at a multiple of.

    Vectors along such an axis are no slices of the operand: a tile is taken apart until each piece
    is one iteration of it. Stages that reduce nothing read such operands element by element.
    """
    found: set[str] = set()
    if not stage.reduce_axes:
        return ()
    for load in stage.loads:
        for form in stage.forms(load):
            scales = form.coefficients
            if len(scales) > 1 or any(scale != 1 for scale in scales.values()):
                found.update(scales)
    return tuple(axis.name for axis in stage.spatial_axes if axis.name in found)


def pieces(own: StagePlan) -> list[str]:
    """Loops around the pieces that the innermost tile is taken apart into.

    They are unrolled before there are vectors.
    """
    found = []
    for axis in window_axes(own.stage):
        loops = [loop for loop in own.order if own.axis_of(loop) == axis]
        if loops and loops[-1] in own.unrolled:
            found.append(loops[-1])
    return found


def has_vectors(own: StagePlan) -> bool:
    """Tell if the lanes of a stage with windows are next to each other in all that it reads.

    Where they are not, as at every second element, what is innermost stays as it is.
    """
    if own.vector is None:
        return False
    lanes = own.axis_of(own.vector)
    forms = [affine_form(index) for load in own.stage.loads for index in load.indices]
    return all(form is None or form.coefficients.get(lanes, 1) <= 1 for form in forms)


def take_apart(script: Script, own: StagePlan) -> None:
    """Make the loops around the pieces of the innermost tile.

    They are made all at once, so that each piece is a slice of the tile and not of another slice.
    """
    loops = [loop for loop in pieces(own) if own.extent(loop) > 1]
    if not loops:
        return
    axes = [*own.stage.spatial_axes, *own.stage.reduce_axes]
    inner = {own.axis_of(loop): own.tile_inside(loop) for loop in loops}
    sizes = [inner.get(axis.name, 0) for axis in axes]
    made = script.tile(script.match(tag("stage", own.stage.name)), sizes)
    order = sorted(loops, key=lambda loop: [axis.name for axis in axes].index(own.axis_of(loop)))
    for handle, loop in zip(made[1:], order, strict=True):
        script.annotate(handle, "unroll", f"{own.stage.name}.{loop}")


def copy_operand(
    script: Script,
    workload: Workload,
    own: StagePlan,
    packed: PackedOperand,
    operands: Sequence[str],
) -> None:
    """Copy what a stage reads of an operand at this place, and have it read the copy.

    Padding by nothing that is not folded away makes a tensor of its own, which becomes a buffer
    and an operation that fills it.

    Args:
        script: Where to write.
        workload: Says what the elements are.
        own: The stage that reads.
        packed: What to copy.
        operands: Tensors that the stage's operation reads, in the order of its operands; an empty
            name is of an operand that is no tensor of the workload.

    Raises:
        InvalidSchedule: the stage reads the operand element by element.
    """
    reader = isolate_operand(script, workload, own, packed.operand, operands)
    found = [at for at, name in enumerate(operands) if name == packed.operand]
    pads = script.together([script.producer(reader, at) for at in found])
    buffer, made = script.handle(), script.handle()
    script.add(
        f"{buffer}, {made} = transform.structured.bufferize_to_allocation {pads} "
        '{memory_space = 0 : i64, memcpy_op = "linalg.copy"} : !transform.any_op'
    )
    (copy,) = script.apply('transform.select "linalg.copy" in {}', [made])
    script.annotate(copy, "pack", f"{own.stage.name}.{packed.operand}")


def isolate_operand(
    script: Script, workload: Workload, own: StagePlan, operand: str, operands: Sequence[str]
) -> str:
    """Pad an operand by nothing, in a way that is not folded away.

    In a stage with padded extents, no dimension is named: the others of its operands whose tiles
    have extents that are computed would be padded along with it.

    Arguments and errors are those of :func:`copy_operand`.

    Returns:
        The stage's operation, which reads the padding.
    """
    stage = own.stage
    if operand not in operands:
        raise InvalidSchedule(
            f"stage {stage.name!r} reads {operand!r} beyond its bounds, element by "
            "element: there is no part of it that could be packed"
        )
    values = padding_values(workload, stage, operands)
    flags = [int(name == operand) for name in (*operands, "")]
    read = [index for load in stage.loads if load.tensor == operand for index in load.indices]
    axes = [axis.name for axis in (*stage.spatial_axes, *stage.reduce_axes)]
    found = {axes.index(name) for index in read for name in index.variables}
    dimensions = [] if own.padded else sorted(found)
    reader, _, _ = script.apply(
        "transform.structured.pad {} {{padding_values = ["
        + values
        + f"], padding_dimensions = {dimensions}, nofold_flags = {flags}, "
        + 'copy_back_op = "none"}}',
        [script.match(tag("stage", stage.name))],
        3,
    )
    return reader


def padding_values(workload: Workload, stage: Stage, operands: Sequence[str]) -> str:
    """Values to pad with: zeros for the operands of a stage's operation, and for its result.

    That of a reduction is what it starts with, which is then no more than a larger tensor of it.
    """
    output = stage.output.dtype
    dtypes = [workload.tensors[name].dtype if name else output for name in operands]
    start = _zero(output)
    if stage.combiner is not None:
        kind = "int8" if output == "bool" else output
        start = f"{literal(identity_of(stage), kind)} : {memory_type(output)}"
    return ", ".join([*(_zero(dtype) for dtype in dtypes), start])


def split_copy(script: Script, own: StagePlan, packed: PackedOperand) -> None:
    """Make the loops of a copy, around vectors of its innermost dimension."""
    copy = script.match(copy_tag(own, packed.operand))
    script.tile(copy, _vector_sizes(own, packed))


def vectorize_copy(script: Script, own: StagePlan, packed: PackedOperand) -> None:
    """Turn a copy into vectors, of which the last lanes are masked where a row has no more."""
    copy = script.match(copy_tag(own, packed.operand))
    sizes = _vector_sizes(own, packed)
    whole = all(extent % packed.lanes == 0 for extent in _row_extents(own, packed))
    script.vectorize(copy, "" if whole else f" vector_sizes {sizes}")


def _row_extents(own: StagePlan, packed: PackedOperand) -> set[int]:
    """Elements of the operand's last dimension that are copied at a time, by each affine read."""
    found = set()
    for load in own.stage.loads:
        if load.tensor == packed.operand and load.indices:
            last = own.stage.forms(load)[-1]
            if not last.terms:
                steps = (
                    abs(scale) * (own.extent_inside(packed.at, axis) - 1)
                    for axis, scale in last.coefficients.items()
                )
                found.add(1 + sum(steps))
    return found


def _zero(dtype: str) -> str:
    kind = memory_type(dtype)
    return f"0.0 : {kind}" if element_type(dtype).is_float else f"0 : {kind}"


_PACK = '!transform.op<"linalg.pack">'
_UNPACK = '!transform.op<"linalg.unpack">'
_FOLD = "tensor.fold_into_pack_and_unpack"
_LOWERED = ("tensor.pad", "tensor.expand_shape", "linalg.transpose")


def copy_whole_operands(
    script: Script, workload: Workload, own: StagePlan, operands: Sequence[str]
) -> None:
    """Copy operands, with loops around the vectors of the copies, before the stage has loops.

    What the stage reads is then an operation that takes blocks apart again. It moves into the
    loops of the stage with everything else that is computed there, until it is a single block
    (:func:`read_blocks`).

    Args:
        script: Where to write.
        workload: Says what the elements are.
        own: The stage that reads.
        operands: Tensors that the stage's operation reads, in the order of its operands.

    Raises:
        InvalidSchedule: the stage reads an operand at other indices than its axes.
    """
    for whole in own.whole:
        if whole.block is None and is_padded(own, whole.operand):
            _split_margins(script, own, whole, copy_tag(own, whole.operand))
            continue
        reader = isolate_operand(script, workload, own, whole.operand, operands)
        pads = script.producer(reader, list(operands).index(whole.operand))
        text = "transform.structured.rewrite_in_destination_passing_style {}"
        (copy,) = script.apply(text, [pads])
        if whole.block is None:
            script.annotate(copy, "pack", _name(own, whole))
        else:
            pack = _block(script, own, whole, copy)
            if is_padded(own, whole.operand):
                _pad_blocks(script, own, whole)
                continue
            _write_out(script, own, whole, pack)
        _split(script, workload, own, whole)


def vectorize_whole(script: Script, own: StagePlan, whole: WholeOperand) -> None:
    """Turn the copy of a whole operand into vectors, of which lanes in margins are masked."""
    if is_padded(own, whole.operand):
        padding = script.match(copy_tag(own, whole.operand))
        script.vectorize(padding, f" vector_sizes {_vector_sizes(own, whole)}")
    else:
        script.vectorize(script.match(copy_tag(own, whole.operand)))


def unpack_tags(own: StagePlan) -> list[str]:
    """Attributes of what takes blocks apart."""
    blocked = [whole for whole in own.whole if whole.block is not None]
    return [tag("unpack", _name(own, whole)) for whole in blocked]


def read_blocks(script: Script) -> None:
    """Have what reads or writes blocks work on slices, where loops have left one block of each."""
    names = [
        "linalg.decompose_pack_unpack",
        "memref.resolve_ranked_shaped_type_result_dims",
        "tensor.fold_tensor_empty",
        "tensor.merge_consecutive_insert_extract_slice",
    ]
    script.patterns(script.match_kind("func.func"), names)


def _name(own: StagePlan, whole: WholeOperand) -> str:
    return f"{own.stage.name}.{whole.operand}"


def _block(script: Script, own: StagePlan, whole: WholeOperand, copy: str) -> str:
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
    script.annotate(unpack, "unpack", _name(own, whole))
    return pack


def _write_out(script: Script, own: StagePlan, whole: WholeOperand, pack: str) -> None:
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
    script.annotate(made, "pack", _name(own, whole))
    script.clean(script.match_kind("func.func"))


def _pad_blocks(script: Script, own: StagePlan, whole: WholeOperand) -> None:
    """Pad an operand where its blocks are made, and make the loops of that: blocks on all cores.

    What pads the whole operand becomes a part of what makes blocks, and is a padding of slices
    again when there are loops over the blocks.
    """
    function = script.match_kind("func.func")
    # Without padding, what makes blocks and what takes them apart would be simplified away.
    script.patterns(function, [_FOLD])
    script.clean(function)
    pack = script.producer(script.match(tag("unpack", _name(own, whole))), 0)
    blocks = script.tile_parallel(pack, [1] * len(_vector_sizes(own, whole)))
    script.patterns(blocks, ["linalg.decompose_pack_unpack"])
    script.annotate(script.match_kind("tensor.pad", blocks), "pack", _name(own, whole))
    _split_margins(script, own, whole, copy_tag(own, whole.operand), parallel=False)


def _split_margins(
    script: Script, own: StagePlan, whole: WholeOperand, copy: str, *, parallel: bool = True
) -> None:
    """Make the loops of a copy that pads, around vectors of its innermost dimension."""
    sizes = _vector_sizes(own, whole)
    if parallel and len(sizes) > 1:
        outer = len(sizes) - 1
        script.tile_parallel(script.match(copy), [*sizes[:outer], 0])
        assume_inside(script)
        sizes = [*[0] * outer, sizes[-1]]
    script.tile(script.match(copy), sizes)
    assume_inside(script)


def _vector_sizes(own: StagePlan, copied: PackedOperand | WholeOperand) -> list[int]:
    """Elements that a copy reads at once."""
    rank = next(len(load.indices) for load in own.stage.loads if load.tensor == copied.operand)
    return [*[1] * (rank - 1), copied.lanes]


def _transposed(
    script: Script, target: str, compute: str, kind: str, order: list[int]
) -> tuple[str, str, str]:
    """Transpose what packs or unpacks: what computes, packs and unpacks then."""
    results = [script.handle() for _ in range(3)]
    pack = _PACK if kind == _PACK else _ANY
    script.add(
        f"{', '.join(results)} = transform.structured.pack_transpose {target} "
        f"with_compute_op({compute}) outer_perm = {order} : "
        f"({kind}, {_GENERIC}) -> ({_GENERIC}, {pack}, {_ANY})"
    )
    return results[0], results[1], results[2]


def _tile_extents(own: StagePlan, whole: WholeOperand) -> list[int]:
    """The part of each dimension of an operand that one tile of the stage reads."""
    if own.accumulated_at is None:
        raise InvalidSchedule(f"stage {own.stage.name!r} has no tile that could read a block")
    extents = _extents_inside(own, whole, own.accumulated_at)
    if extents[-1] != whole.block:
        raise InvalidSchedule(
            f"a tile of stage {own.stage.name!r} reads {extents[-1]} elements of the last "
            f"dimension of {whole.operand!r}, and blocks have {whole.block}"
        )
    return extents


def _extents_inside(own: StagePlan, whole: WholeOperand, loop: str) -> list[int]:
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


def _split(script: Script, workload: Workload, own: StagePlan, whole: WholeOperand) -> None:
    """Make the loops of a copy in the order of the operand, the outer ones on all cores."""
    rank = len(workload.tensors[whole.operand].shape)
    copy = copy_tag(own, whole.operand)
    places = [_places(rank, whole, dimension) for dimension in range(rank)]
    total = 1 + max(place for pair in places for place in pair)
    outer = min(max(1, rank - 2), rank - 1)
    parallel = {place for pair in places[:outer] for place in pair}
    if parallel:
        script.tile_parallel(
            script.match(copy), [int(place in parallel) for place in range(total)]
        )
    for dimension in range(outer, rank):
        sizes = [0] * total
        for place in places[dimension]:
            sizes[place] = 1
        if dimension == rank - 1:
            sizes[places[dimension][-1]] = whole.lanes
        script.tile(script.match(copy), sizes)


def _order(rank: int) -> list[int]:
    """The order of what counts blocks: those of the last dimension are the outermost."""
    return [rank - 1, *range(rank - 1)]


def _places(rank: int, whole: WholeOperand, dimension: int) -> list[int]:
    """Dimensions of the copy that a dimension of the operand is split into, blocks first."""
    if whole.block is None:
        return [dimension]
    return [_order(rank).index(dimension), rank + dimension]
