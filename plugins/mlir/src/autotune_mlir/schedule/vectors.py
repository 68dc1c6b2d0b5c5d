"""From tiles to vector operations, and from those to vectors of the hardware's width."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Stage
from autotune.sketches import partial_name
from autotune_mlir.schedule.copies import (
    has_vectors,
    is_padded,
    pieces,
    vectorize_copy,
    vectorize_padded,
    vectorize_whole,
    window_axes,
)
from autotune_mlir.schedule.levels import (
    copy_name,
    extracts,
    inlined_behind,
    is_extracted,
    is_padding,
    reads_boxes,
    vectorize_padding,
)
from autotune_mlir.schedule.loops import clipped_sizes, is_scan, is_split, is_uneven, scan_loops
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["lower_to_vectors", "make_pieces"]

_SLICES = ("tensor.merge_consecutive_insert_extract_slice", "linalg.tiling_canonicalization")
_SUBSETS = (
    "tensor.merge_consecutive_insert_extract_slice",
    "tensor.fold_tensor_subset_ops_into_vector_transfers",
)
_CONTRACTIONS = (
    "vector.lower_masked_transfers",
    "vector.reduction_to_contract",
    "vector.transfer_permutation_patterns",
)
_OUTER_PRODUCTS = (
    'vector.lower_contraction lowering_strategy = "outerproduct"',
    "vector.lower_outerproduct",
)


def make_pieces(script: Script, plan: Plan) -> None:
    """Unroll loops around what is to become vectors."""
    separate_last_rounds(script, plan)
    for stage in plan.stages.values():
        _unroll(script, stage, stage.unrolled if is_scan(stage) else pieces(stage))
    script.clean(script.match_kind("func.func"), *_SLICES)


def lower_to_vectors(script: Script, plan: Plan) -> None:
    """Write the second half of a schedule, in which every tile becomes vectors.

    Reductions become contractions before anything is simplified: of a tile that is one iteration
    deep nothing would be left to recognise. Results then move out of the loops that reduce, into
    registers.
    """
    function = script.match_kind("func.func")
    for reduction in plan.workload.stages:
        own = plan.stages[reduction.name]
        if _scans_in_pieces(plan, own) or (_is_in_pieces(own) and has_vectors(own)):
            _vectorize_pieces(script, own)
    consumers = {stage.consumer for stage in plan.stages.values()}
    clipped = clipped_sizes(plan)
    for name, stage in plan.stages.items():
        if name in clipped:
            sizes = f" vector_sizes {clipped[name]}"
            script.vectorize(script.match(tag("stage", name)), sizes)
        elif is_padding(stage.stage, plan.workload):
            # One that is computed as a whole has no loops, and becomes a fill and a copy.
            if not (stage.inlined and is_extracted(plan, name)):
                vectorize_padding(script, plan, stage)
        elif stage.partial_of is not None or is_split(stage):
            _vectorize_partial_results(script, plan, stage)
        elif stage.stage.combiner is None and name not in consumers:
            _vectorize_pointwise(script, plan, stage)
        elif is_scan(stage):
            continue
        elif (stage.vector or name in consumers) and not _is_in_pieces(stage):
            script.vectorize(script.match(tag("stage", name)))
        if stage.vector is not None and stage.stage.reduce_axes:
            script.vectorize(script.match(tag("init", name)))
        for packed in stage.packed:
            source = plan.stages.get(packed.operand)
            if is_padded(stage, packed.operand):
                vectorize_padded(script, plan.workload, stage, packed)
            elif source is None or not source.inlined:
                vectorize_copy(script, stage, packed)
        for whole in stage.whole:
            vectorize_whole(script, stage, whole)
    script.patterns(function, _CONTRACTIONS)
    script.clean(function, "tensor.fold_tensor_subset_ops_into_vector_transfers")
    _hoist_results(script)
    for stage in plan.stages.values():
        _unroll(script, stage, _unrolled_behind(stage))
    script.patterns(function, _OUTER_PRODUCTS)
    # What was hoisted is a slice of a slice, which would become a buffer of its own.
    script.clean(function, *_SUBSETS)


def _is_in_pieces(own: StagePlan) -> bool:
    """Return whether dimensions of one iteration have to vanish before there are vectors."""
    return bool(window_axes(own.stage))


def _scans_in_pieces(plan: Plan, own: StagePlan) -> bool:
    """Tell if what a scan continues is carried in registers, by loops around single elements.

    MLIR makes no valid vectors of single elements that are extracted under a condition.
    """
    single = own.vector is None
    extracted = any(extracts(own.stage, name, plan.workload) for name in own.stage.reads)
    return is_scan(own) and bool(scan_loops(own)) and not (single and extracted)


def _unroll(script: Script, own: StagePlan, loops: Iterable[str]) -> None:
    """Unroll some of the loops of a stage, the inner ones first."""
    for loop in reversed(list(loops)):
        extent = own.extent(loop)
        if extent > 1:
            made = script.match(tag("unroll", f"{own.stage.name}.{loop}"))
            script.add(f"transform.loop.unroll {made} {{ factor = {extent} }} : !transform.any_op")


def _unrolled_behind(own: StagePlan) -> list[str]:
    """Loops that reduce, and are unrolled around vectors."""
    before = pieces(own)
    return [it for it in own.unrolled if own.is_reduction(it) and it not in before]


def _vectorize_pieces(script: Script, own: StagePlan) -> None:
    """Vectorise what a stage with windows was taken apart into.

    Dimensions of one iteration, and windows with them, vanish from the pieces, and with them the
    attributes by which they are found: they are what is in the loop around them.
    """
    text = "transform.get_parent_op {} {{deduplicate}}"
    (around,) = script.apply(text, [script.match(tag("stage", own.stage.name))])
    with script.each(around) as one:
        script.patterns(one, ["linalg.fold_unit_extent_dims_via_slices"])
        script.vectorize(script.match_kind("linalg.generic", one))
    _hoist_results(script)


def _hoist_results(script: Script) -> None:
    """Carry what loops read and write at the same place from iteration to iteration."""
    loops = script.match_kind("scf.for")
    script.add(f"transform.loop.hoist_loop_invariant_subsets {loops} : !transform.any_op")


def _vectorize_pointwise(script: Script, plan: Plan, own: StagePlan) -> None:
    """A pointwise stage with the copies of what is inlined into it, or one that is inlined."""
    name = own.stage.name
    if sizes := masked_sizes(plan, own):
        script.vectorize(script.match(tag("stage", name)), f" vector_sizes {sizes}")
    elif own.vector is not None:
        script.vectorize(script.match(tag("stage", name)))
        _vectorize_copies(script, plan, name)
    elif own.inlined and _is_in_tile(plan, name) and not _is_part_of_padding(plan, own.stage):
        script.vectorize(script.match(tag("stage", name)))


def _is_part_of_padding(plan: Plan, stage: Stage) -> bool:
    """Tell if tiles of a stage that extracts elements are as large as padding leaves of them.

    MLIR makes no vectors of extracted elements of sizes that only the running program knows.
    """
    workload = plan.workload
    padded = any(is_padding(user, workload) for user in workload.consumers(stage.name))
    return padded and any(extracts(stage, tensor, workload) for tensor in stage.reads)


def _is_in_tile(plan: Plan, name: str) -> bool:
    """Tell if an inlined stage is computed inside a tile of a reduction, and not as a copy."""
    consumers = {stage.consumer for stage in plan.stages.values()}
    return any(
        user.name in consumers
        or (user.combiner is not None and not is_split(plan.stages[user.name]))
        or (plan.stages[user.name].inlined and _is_in_tile(plan, user.name))
        for user in plan.workload.consumers(name)
    )


def _vectorize_partial_results(script: Script, plan: Plan, own: StagePlan) -> None:
    """Vectorize what computes partial results that are lanes, or what reduces them.

    The stage with the partial results reads as the stage does that was split.
    """
    if own.partial_lanes is not None:
        script.vectorize(script.match(tag("stage", own.stage.name)))
        script.vectorize(script.match(tag("init", own.stage.name)))
    elif own.vector is None or own.partial_of is None:
        return
    elif reads_boxes(plan.workload.stage(own.partial_of), plan.workload):
        script.vectorize(script.match(tag("stage", own.stage.name)))
        _vectorize_copies(script, plan, own.partial_of)


def _vectorize_copies(script: Script, plan: Plan, name: str) -> None:
    for inlined in inlined_behind(plan, name):
        if not is_padding(plan.stages[inlined].stage, plan.workload):
            script.vectorize(script.match(tag("stage", copy_name(inlined, name))))


def separate_last_rounds(script: Script, plan: Plan) -> None:
    """Take the incomplete round out of its loop, so that both parts have constant extents.

    They become vectors as they are, without masks: whole ones in the loop, and shorter ones after
    it.
    """
    for own in plan.stages.values():
        if is_uneven(own):
            partial = plan.stages[partial_name(own.stage.name)]
            for loop in partial.unrolled:
                name = f"{partial.stage.name}.{loop}"
                script.annotate(script.peel(script.match(tag("peel", name))), "unroll", name)
        elif own.vector is not None and _is_separable(own):
            axis = own.axis_of(own.vector)
            script.peel(script.match(tag("loop", f"{own.stage.name}.{axis}.0")))


def masked_sizes(plan: Plan, own: StagePlan) -> list[int] | None:
    """Extents of a vector whose last lanes are masked in some iterations; None where none are.

    Such are those of incomplete rounds that do not leave their loop: where it runs on all cores,
    or is inside of another over the same axis.

    Raises:
        InvalidSchedule: another stage would be computed in these lanes.
    """
    if own.vector is None or own.axis_of(own.vector) not in own.covered or _is_separable(own):
        return None
    if inlined_behind(plan, own.stage.name):
        raise InvalidSchedule(
            f"backend 'mlir' cannot inline stages into {own.stage.name!r}, of which loop "
            f"{own.vector!r} has incomplete vectors in several places"
        )
    axis = own.axis_of(own.vector)
    return [
        own.extent(own.vector) if other.name == axis else 1 for other in own.stage.spatial_axes
    ]


def _is_separable(own: StagePlan) -> bool:
    """Return whether the only loop over the vectors of a covered axis runs on one core."""
    if own.vector is None or own.axis_of(own.vector) not in own.covered:
        return False
    axis = own.axis_of(own.vector)
    return len(own.factors[axis]) == 2 and f"{axis}.0" not in own.parallel
