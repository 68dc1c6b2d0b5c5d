"""Stages that run over padded extents: operands are padded, writes are clipped."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Workload
from autotune_mlir.schedule.pack import padding_values
from autotune_mlir.schedule.padding import assume_inside, is_shifted
from autotune_mlir.schedule.plan import PackedOperand, StagePlan
from autotune_mlir.schedule.script import Script, tag
from autotune_mlir.schedule.windows import window_axes

__all__ = [
    "clipped_tags",
    "is_padded",
    "pad_stage_extents",
    "padding_tag",
    "split_padded",
    "vectorize_padded",
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
        InvalidSchedule: an operand that depends on a padded axis is not packed.
    """
    stage = own.stage
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


def clipped_tags(own: StagePlan) -> list[str]:
    """Attributes of what takes a padded result out of tiles, and of what puts it into them."""
    return [tag(kind, own.stage.name) for kind in ("clip", "tile") if own.is_clipped]


def is_padded(own: StagePlan, operand: str) -> bool:
    """Return whether the copy of an operand is one that pads it."""
    return operand in own.padded_operands


def padding_tag(own: StagePlan, operand: str) -> str:
    """Attribute of what pads an operand, which is its copy."""
    return tag("pack", f"{own.stage.name}.{operand}")


def split_padded(
    script: Script, workload: Workload, own: StagePlan, packed: PackedOperand
) -> None:
    """Make the loops of a copy that pads, around vectors of its innermost dimension."""
    padding = script.match(padding_tag(own, packed.operand))
    script.tile(padding, _vector_sizes(workload, own, packed))
    assume_inside(script)


def vectorize_padded(
    script: Script, workload: Workload, own: StagePlan, packed: PackedOperand
) -> None:
    """Turn what a copy that pads reads into loads of which lanes in the margin are masked."""
    sizes = _vector_sizes(workload, own, packed)
    padding = script.match(padding_tag(own, packed.operand))
    script.vectorize(padding, f" vector_sizes {sizes}")


def _vector_sizes(workload: Workload, own: StagePlan, packed: PackedOperand) -> list[int]:
    """Extents of what is one vector of a copy that pads.

    What pads the operand with the same number has become a part of the copy; see
    :func:`~autotune_mlir.schedule.padding.is_shifted`.
    """
    rank = next(len(load.indices) for load in own.stage.loads if load.tensor == packed.operand)
    stages = {stage.name: stage for stage in workload.stages}
    source = stages.get(packed.operand)
    shifted = source is not None and is_shifted(source, workload)
    return [*[1] * (rank - 1), 1 if shifted else packed.lanes]


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
