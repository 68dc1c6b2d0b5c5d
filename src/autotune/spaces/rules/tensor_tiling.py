"""Rule: multi-level tiling around an instruction that multiplies small tensors.

The nest is that of :mod:`~autotune.spaces.rules.multi_level_tiling` with the last reduce axis
split once more: ``... | r.0 r.1 | a.2 b.2 v.2 | r.2 v.3``, where the last two loops have the
extents of the instruction and become one call of it. An instruction with rows of its own takes
them from the last row axis: ``... | b.3 r.2 v.3``. The factor that differs along the vector is
always packed, with neighbours along ``r`` together, as the instruction reads them. The other
factor has them together where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import AffineForm, IntExpr, const
from autotune.ir.workloads import Axis, Stage, Workload
from autotune.sketches import AtMost, Constraint, Order, Sketch, Tensorize
from autotune.sketches.intrinsics import INTRINSICS, Intrinsic
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.rules.access import (
    depends_on,
    dimension_of,
    is_affine,
    operand_forms,
    product_factors,
)
from autotune.spaces.rules.draft import SketchDraft, loops, split
from autotune.spaces.rules.multi_level_tiling import (
    PACKINGS,
    Contraction,
    Operand,
    alike,
    applicable,
    tiled,
)
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.tile_params import padded_extents
from autotune.targets import Target

__all__ = [
    "TensorTilingRule",
    "contraction_of",
    "intrinsic_sketch",
    "lacking_instructions",
]


_STEPS = ("tensorize", "interleave", "pack")


@frozen
class TensorTilingRule(SketchRule):
    """Tiles a sum of products around an instruction, once for every packing that suits it.

    Applies where the backend implements one of ``intrinsics`` that the target has and that
    computes what the stage does; the first of them decides.
    """

    intrinsics: tuple[Intrinsic, ...] = tuple(INTRINSICS.values())
    name: str = "tensor-tiling"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if draft.on_gpu or not draft.can(*_STEPS):
            return None
        for intrinsic in self.intrinsics:
            if draft.limits.backend not in intrinsic.implementations:
                continue
            if not intrinsic.supported_by(draft.target):
                continue
            contraction = contraction_of(draft.workload, stage, intrinsic)
            if contraction is not None:
                drafts = _sketches(draft, stage, contraction)
                if drafts:
                    return drafts
        return None


def lacking_instructions(
    workload: Workload, target: Target, limits: ScheduleLimits
) -> tuple[str, ...]:
    """A sentence for each kind of product that the backend has instructions for and a CPU none."""
    if target.kind != "cpu" or limits.missing(_STEPS):
        return ()
    found: dict[str, None] = {}
    for stage in workload.stages:
        fitting = [
            it
            for it in INTRINSICS.values()
            if it.kind == target.kind
            and limits.backend in it.implementations
            and contraction_of(workload, stage, it) is not None
        ]
        if fitting and not any(it.supported_by(target) for it in fitting):
            left, right, total = (it.dtype for it in fitting[0].operands)
            needed = dict.fromkeys(" and ".join(it.features) for it in fitting)
            found[
                f"products of {left} and {right} run in plain loops, since target "
                f"{target.name!r} has no instruction that sums them up in {total}: it would take "
                + ", or ".join(needed)
            ] = None
    return tuple(found)


def contraction_of(workload: Workload, stage: Stage, intrinsic: Intrinsic) -> Contraction | None:
    """Computation of ``stage`` by calls of ``intrinsic``; None where there is none.

    One factor must be of the left operand's type, contiguous along the last reduce axis and the
    same for all vector lanes; the other of the right operand's type, with dimensions for the
    vector axis and for that reduce axis, one of which is the innermost.
    """
    if stage.combiner != "add" or not stage.spatial_axes or not stage.reduce_axes:
        return None
    if stage.output.dtype != intrinsic.result.dtype:
        return None
    if not 1 <= len(intrinsic.spatial_axes) <= min(2, len(stage.spatial_axes)):
        return None
    vector, reduced = stage.spatial_axes[-1].name, stage.reduce_axes[-1].name
    factors = product_factors(stage, intrinsic.result.dtype)
    for left, right in (factors, factors[::-1]) if factors else ():
        if left.tensor == right.tensor:
            continue
        dtypes = (workload.tensors[left.tensor].dtype, workload.tensors[right.tensor].dtype)
        if dtypes != (intrinsic.left.dtype, intrinsic.right.dtype):
            continue
        data, weights = operand_forms(stage, left.tensor), operand_forms(stage, right.tensor)
        if not is_affine((*data, *weights)):
            continue
        if depends_on(data, vector) or dimension_of(data, reduced) != len(data) - 1:
            continue
        if len(intrinsic.spatial_axes) == 2 and not _moves_rows(stage, data, weights):
            continue
        block_dim, group_dim = dimension_of(weights, vector), dimension_of(weights, reduced)
        if block_dim is None or group_dim is None:
            continue
        if len(weights) - 1 in (block_dim, group_dim):
            return Contraction(intrinsic, left.tensor, right.tensor, group_dim)
    return None


def _moves_rows(
    stage: Stage, data: tuple[AffineForm, ...], weights: tuple[AffineForm, ...]
) -> bool:
    """Tell if the stage's last row axis goes through rows of the left factor, evenly apart."""
    axis = stage.spatial_axes[-2].name
    steps = [form.coefficients[axis] for form in data if axis in form.coefficients]
    return len(steps) == 1 and steps[0] > 0 and not depends_on(weights, axis)


def _sketches(draft: SketchDraft, stage: Stage, contraction: Contraction) -> list[SketchDraft]:
    call, vector = contraction.call, stage.spatial_axes[-1]
    if not call.rows and draft.target.lanes(stage.output.dtype) != call.lanes:
        return []
    if call.rows and stage.reduce_axes[-1].extent % call.depth:
        return []
    operands = []
    for tensor in stage.reads:
        forms = operand_forms(stage, tensor)
        block_dim = dimension_of(forms, vector.name) if tensor == contraction.weights else None
        prepacked = block_dim is not None and draft.can_prepack(stage, tensor)
        operands.append(Operand(tensor, forms, block_dim, prepacked))
    packings = [
        packing
        for packing in applicable(PACKINGS, operands, stage, vector.name)
        if packing.blocked is not None
        and _fills(draft, stage, contraction, operands, packing.plain is not None)
    ]
    return [
        tiled(draft, stage, operands, packing, contraction) for packing in alike(packings, draft)
    ]


def _fills(
    draft: SketchDraft,
    stage: Stage,
    contraction: Contraction,
    operands: Sequence[Operand],
    data_copied: bool,
) -> bool:
    """Tell if calls fill the vector axis and the reduce axis, or padding makes them do so."""
    vector, reduced, call = stage.spatial_axes[-1], stage.reduce_axes[-1], contraction.call
    if vector.extent % call.lanes and not draft.can("pad_extent"):
        return False
    if call.rows and (rows := stage.spatial_axes[-2]).extent % call.rows:
        padded = padded_extents(rows.extent, (call.rows,), 0)[-1]
        if not data_copied or not draft.can("pad_extent") or padded % call.rows:
            return False
    if reduced.extent % call.depth == 0:
        return True
    return data_copied and draft.can("pad_extent")


# What accelerators with explicit memories need of a schedule is arithmetic on extents: every loop
# nest around the instruction splits each axis into loops outside the memories, loops over what the
# memories hold, and one call; what they hold must fit.
def intrinsic_sketch(workload: Workload, stage: str, intrinsic: Intrinsic) -> Sketch:
    """All ways to tile a matrix product around calls of ``intrinsic``.

    Every axis of a call is an axis of the stage: its reduce axis the stage's last one, its spatial
    axes the stage's last ones, in order. They have three levels: outside the memories, inside
    them, and one call; other axes stay outside. For every memory with a capacity, what its
    operands hold over the inner two levels adds up to at most that.

    Raises:
        UnsupportedWorkload: an axis is missing, or its extent is no multiple of the call's.
    """
    found = workload.stage(stage)
    axes = _matched(found.spatial_axes, intrinsic.spatial_axes, intrinsic, stage)
    axes |= _matched(found.reduce_axes, intrinsic.reduce_axes, intrinsic, stage)
    splits = [split(stage, axes[own.name], None, None, (own.extent,)) for own in intrinsic.axes]
    held = {own.name: it.factors[1] for own, it in zip(intrinsic.axes, splits, strict=True)}
    called = loops((axes[own.name] for own in intrinsic.axes), 2)
    order = (*loops(found.axes), *loops((axes[own.name] for own in intrinsic.axes), 1), *called)
    constraints = [it for own in splits for it in own.constraints]
    return Sketch(
        intrinsic.name,
        workload,
        tuple(param for it in splits for param in it.params),
        (*constraints, *_capacities(intrinsic, held)),
        (
            *(it.step for it in splits),
            Order(stage, order),
            Tensorize(stage, called, intrinsic.name),
        ),
    )


def _matched(
    axes: tuple[Axis, ...], called: tuple[Axis, ...], intrinsic: Intrinsic, stage: str
) -> dict[str, Axis]:
    """The axis of the stage for each of the call's."""
    if len(axes) < len(called):
        raise UnsupportedWorkload(
            f"intrinsic {intrinsic.name!r} needs {len(called)} {called[0].kind} axes; stage "
            f"{stage!r} has {len(axes)}"
        )
    pairs = dict(zip([own.name for own in called], axes[len(axes) - len(called) :], strict=True))
    for own in called:
        axis = pairs[own.name]
        if axis.extent % own.extent:
            raise UnsupportedWorkload(
                f"intrinsic {intrinsic.name!r} fits no loop of axis {axis.name!r} of stage "
                f"{stage!r}: {axis.extent} is no multiple of {own.extent}"
            )
    return pairs


def _capacities(intrinsic: Intrinsic, held: dict[str, IntExpr]) -> list[Constraint]:
    found: list[Constraint] = []
    for scope, capacity in intrinsic.capacities.items():
        total: IntExpr = const(0)
        for operand in intrinsic.operands:
            if operand.scope == scope:
                calls: IntExpr = const(1)
                for name in dict.fromkeys(axis for axis, _ in operand.layout):
                    calls = calls * held[name]
                total = total + calls * operand.bytes
        found.append(AtMost(total, capacity, f"{intrinsic.name}: bytes of {scope}"))
    return found
