"""Copies of operands with another dimension innermost than that of the operand itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.ir.expressions import Load
from autotune.ir.workloads import Stage
from autotune_mlir.schedule.padding import assume_inside
from autotune_mlir.schedule.plan import PackedOperand, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = [
    "drop_block",
    "is_transposed",
    "place_to_drop_block",
    "read_sizes",
    "split_padded_transposed",
    "split_transposed",
    "transpose_operand",
    "transposes",
]

_GENERIC = '!transform.op<"linalg.generic">'
_PACK = '!transform.op<"linalg.pack">'
_ANY = "!transform.any_op"


def place_to_drop_block(own: StagePlan) -> str | None:
    """The loop inside of which the dimension that blocks operands vanishes.

    It does so inside of a sequential loop, and with all others of one iteration: where there are
    others, they are needed for the loops that follow.

    Returns:
        None where there is no such loop, and where no copy is transposed.
    """
    places = [packed.at for packed in own.packed if is_transposed(own.stage, packed)]
    if not places or own.accumulated_at is None:
        return None
    inner = max(own.order.index(place) for place in places)
    last = own.order.index(own.accumulated_at)
    is_inside = False
    for position, loop in enumerate(own.order[: last + 1]):
        is_inside |= loop not in own.parallel and own.extent(loop) > 1
        others = [own.extent_inside(loop, axis.name) for axis in own.stage.axes]
        if position >= inner and is_inside and min(others) > 1:
            return loop
    return None


def transposes(own: StagePlan) -> bool:
    """Whether an operand of the stage is copied with its dimensions in another order."""
    return any(is_transposed(own.stage, packed) for packed in own.packed)


def drop_block(script: Script, own: StagePlan) -> None:
    """Have the dimension that blocks operands vanish, before loops over a reduction are made."""
    operation = script.match(tag("stage", own.stage.name))
    (around,) = script.apply("transform.get_parent_op {}", [operation])
    script.patterns(around, ["linalg.fold_unit_extent_dims_via_reshapes"])
    script.annotate(operation, "stage", own.stage.name)


def is_transposed(stage: Stage, packed: PackedOperand) -> bool:
    """Whether a copy has its dimensions in another order, and can be made by the compiler.

    It can where the operand is read once, and at one dimension at an axis of the reduction alone
    at which no operand is read in a sum.
    """
    return packed.innermost is not None and _axis(stage, packed.operand) is not None


def transpose_operand(
    script: Script, stage: Stage, packed: PackedOperand, operands: Sequence[str]
) -> None:
    """Copy what a stage reads of an operand, with one of its dimensions as the innermost.

    The stage's operation gets one more dimension to reduce, of one iteration, which makes all
    operands with the axis blocked; blocks come in any order.

    Args:
        script: Where to write.
        stage: The stage that reads.
        packed: What to copy.
        operands: Tensors that the stage's operation reads, in the order of its operands.
    """
    names = [axis.name for axis in (*stage.spatial_axes, *stage.reduce_axes)]
    axis = _axis(stage, packed.operand)
    sizes = [int(name == axis) for name in names]
    rank = len(_load(stage, packed.operand).indices)
    order = [dimension for dimension in range(rank) if dimension != packed.innermost]
    order.append(packed.innermost or 0)
    target = script.match(tag("stage", stage.name))
    blocked, source, compute, copy, dead = (script.handle() for _ in range(5))
    script.add(
        f"{blocked} = transform.structured.pack {target} packed_sizes = {sizes} : "
        f"({_ANY}) -> {_GENERIC}"
    )
    script.add(
        f"{source} = transform.get_producer_of_operand "
        f"{blocked}[{list(operands).index(packed.operand)}] : ({_GENERIC}) -> {_PACK}"
    )
    script.add(
        f"{compute}, {copy}, {dead} = transform.structured.pack_transpose {source} "
        f"with_compute_op({blocked}) outer_perm = {order} : ({_PACK}, {_GENERIC}) -> "
        f"({_GENERIC}, {_PACK}, {_ANY})"
    )
    operation = script.handle()
    script.add(f"{operation} = transform.cast {compute} : {_GENERIC} to {_ANY}")
    script.annotate(operation, "stage", stage.name)
    others = [at for at, name in enumerate(operands) if name != packed.operand]
    _write_out(script, stage, packed, copy, [script.producer(operation, at) for at in others])


def _write_out(
    script: Script, stage: Stage, packed: PackedOperand, copy: str, producers: Sequence[str]
) -> None:
    """Make operations that can be tiled of what blocks the operands.

    Args:
        script: Where to write.
        stage: The stage that reads.
        packed: The operand that is copied.
        copy: What blocks it.
        producers: What produces the others.
    """
    plain = ", ".join(f'!transform.op<"{kind}">' for kind in _LOWERED)
    function = script.match_kind("func.func")
    pad, expand, transposed = (script.handle() for _ in range(3))
    script.add(
        f"{pad}, {expand}, {transposed} = transform.structured.lower_pack {copy} : "
        f"({_PACK}) -> ({plain})"
    )
    found = script.handle()
    script.add(
        f'{found} = transform.cast {transposed} : !transform.op<"linalg.transpose"> to {_ANY}'
    )
    script.annotate(found, "pack", f"{stage.name}.{packed.operand}")
    if producers:
        (others,) = script.apply(
            'transform.select "linalg.pack" in {}', [script.together(producers)]
        )
        cast = script.handle()
        script.add(f"{cast} = transform.cast {others} : {_ANY} to {_PACK}")
        unused = [script.handle() for _ in _LOWERED]
        script.add(
            f"{', '.join(unused)} = transform.structured.lower_pack {cast} : "
            f"({_PACK}) -> ({plain})"
        )
    # More would simplify away that a padded result is put into tiles and taken out of them.
    script.patterns(function, ["linalg.tiling_canonicalization"])
    script.merge(function)


_LOWERED = ("tensor.pad", "tensor.expand_shape", "linalg.transpose")


def split_transposed(script: Script, stage: Stage, packed: PackedOperand) -> None:
    """Make the loops of such a copy, around a vector's worth of its innermost dimension."""
    rank = len(_load(stage, packed.operand).indices)
    sizes = [*[1] * (rank - 1), packed.lanes, 1]
    script.tile(script.match(tag("pack", f"{stage.name}.{packed.operand}")), sizes)


def split_padded_transposed(script: Script, own: StagePlan, packed: PackedOperand) -> None:
    """As :func:`split_transposed`, of a copy that pads: around vectors of what is read.

    What pads moves into the loops, through the dimension of one iteration that the copy has more.
    """
    name = f"{own.stage.name}.{packed.operand}"
    # The operand's last dimension is the last one before that which is the innermost.
    *outer, lanes = read_sizes(own, packed)
    loop = script.tile(script.match(tag("pack", name)), [*outer[1:], lanes, 1, 0])[-1]
    script.annotate(loop, "loop", name)
    script.patterns(script.match(tag("loop", name)), ["tensor.bubble_up_extract_slice"])
    script.fuse_into(script.match(tag("margin", name)), script.match(tag("loop", name)))
    assume_inside(script)


def read_sizes(own: StagePlan, packed: PackedOperand) -> list[int]:
    """Extents of what a copy that pads reads at once: a vector of the operand's last dimension."""
    indices = _load(own.stage, packed.operand).indices
    last = indices[-1]
    extent = own.extent_inside(packed.at, str(last.args[0])) if last.op == "var" else 1
    return [*[1] * (len(indices) - 1), math.gcd(extent, packed.lanes)]


def _load(stage: Stage, operand: str) -> Load:
    return next(load for load in stage.loads if load.tensor == operand)


def _axis(stage: Stage, operand: str) -> str | None:
    """An axis that can be blocked: the operand has it, and no operand has it in a sum."""
    loads = set(stage.loads)
    if len([load for load in loads if load.tensor == operand]) != 1:
        return None
    plain = {str(index.args[0]) for index in _load(stage, operand).indices if index.op == "var"}
    indices = [index for load in loads for index in load.indices if index.op != "var"]
    summed = {name for index in indices for name in index.variables}
    reduced = [axis.name for axis in stage.reduce_axes]
    return next((name for name in reduced if name in plain - summed), None)
