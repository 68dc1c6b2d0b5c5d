"""Copies of operands into buffers of their own."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.backends import InvalidSchedule
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Stage, Workload
from autotune_mlir.emit import identity_of
from autotune_mlir.scalar_emit import literal, memory_type
from autotune_mlir.schedule.plan import PackedOperand, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["copy_operand", "isolate_operand", "padding_values", "split_copy", "vectorize_copy"]


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


def split_copy(script: Script, workload: Workload, own: StagePlan, packed: PackedOperand) -> None:
    """Make the loops of a copy, around vectors of its innermost dimension."""
    copy = script.match(tag("pack", f"{own.stage.name}.{packed.operand}"))
    script.tile(copy, _vector_sizes(workload, packed))


def vectorize_copy(
    script: Script, workload: Workload, own: StagePlan, packed: PackedOperand
) -> None:
    """Turn a copy into vectors, of which the last lanes are masked where a row has no more."""
    copy = script.match(tag("pack", f"{own.stage.name}.{packed.operand}"))
    sizes = _vector_sizes(workload, packed)
    whole = all(extent % packed.lanes == 0 for extent in _row_extents(own, packed))
    script.vectorize(copy, "" if whole else f" vector_sizes {sizes}")


def _vector_sizes(workload: Workload, packed: PackedOperand) -> list[int]:
    rank = len(workload.tensors[packed.operand].shape)
    return [*[1] * (rank - 1), packed.lanes]


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
