"""Copies of whole operands, made before the stage that reads them."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Workload
from autotune_mlir.schedule.pack import isolate_operand
from autotune_mlir.schedule.padded import is_padded
from autotune_mlir.schedule.padding import assume_inside
from autotune_mlir.schedule.plan import StagePlan, WholeOperand
from autotune_mlir.schedule.script import Script, tag

__all__ = ["copy_whole_operands", "read_blocks", "unpack_tags", "vectorize_whole"]

_ANY = "!transform.any_op"
_GENERIC = '!transform.op<"linalg.generic">'
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
            _split_margins(script, own, whole, tag("pack", _name(own, whole)))
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
        padding = script.match(tag("pack", _name(own, whole)))
        script.vectorize(padding, f" vector_sizes {_vector_sizes(own, whole)}")
    else:
        script.vectorize(script.match(tag("pack", _name(own, whole))))


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
    _split_margins(script, own, whole, tag("pack", _name(own, whole)), parallel=False)


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


def _vector_sizes(own: StagePlan, whole: WholeOperand) -> list[int]:
    """Elements that a copy that pads reads at once."""
    rank = next(len(load.indices) for load in own.stage.loads if load.tensor == whole.operand)
    return [*[1] * (rank - 1), whole.lanes]


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
    copy = tag("pack", _name(own, whole))
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
