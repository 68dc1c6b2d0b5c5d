"""From tiles to vector operations, and from those to vectors of the hardware's width."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.backends import InvalidSchedule
from autotune.sketches import partial_name
from autotune_mlir.schedule.copies import vectorize_copy, vectorize_padding
from autotune_mlir.schedule.loops import clipped_sizes, copy_name
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script

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
    _separate_last_rounds(script, plan)
    for own in plan.stages.values():
        _unroll(script, own, own.unrolled if own.is_scan else own.pieces)
    script.clean(script.function(), *_SLICES)


def lower_to_vectors(script: Script, plan: Plan) -> None:
    """Write the second half of a schedule, in which every tile becomes vectors.

    Reductions become contractions before anything is simplified: of a tile that is one iteration
    deep nothing would be left to recognise. Results then move out of the loops that reduce, into
    registers.
    """
    function = script.function()
    for own in plan.own:
        if _scans_in_pieces(own) or (own.window_axes and own.has_vectors):
            _vectorize_pieces(script, own)
    clipped = clipped_sizes(plan)
    for own in plan.stages.values():
        _vectorize_stage(script, plan, own, clipped.get(own.name))
        if own.is_scan and own.name not in clipped:
            continue
        if own.vector is not None and own.stage.reduce_axes:
            script.vectorize(script.match("init", own.name))
        for packed in own.packed:
            source = plan.stages.get(packed.operand)
            computed = source is not None and source.inlined
            if packed.operand in own.padded_operands or not computed:
                vectorize_copy(script, plan, own, packed)
        for whole in own.whole:
            vectorize_copy(script, plan, own, whole)
    script.patterns(function, _CONTRACTIONS)
    script.clean(function, "tensor.fold_tensor_subset_ops_into_vector_transfers")
    _hoist_results(script)
    for own in plan.stages.values():
        before = own.pieces
        reduced = [it for it in own.unrolled if own.is_reduction(it) and it not in before]
        _unroll(script, own, reduced)
    script.patterns(function, _OUTER_PRODUCTS)
    # What was hoisted is a slice of a slice, which would become a buffer of its own.
    script.clean(function, *_SUBSETS)


def _vectorize_stage(
    script: Script, plan: Plan, own: StagePlan, clipped: list[int] | None
) -> None:
    """Turn what computes a stage into vectors, masked where it follows a ``clipped`` result."""
    name, consumers = own.name, plan.consumers
    if clipped is not None:
        script.vectorize(script.match("stage", name), f" vector_sizes {clipped}")
    elif own.padding is not None:
        # One that is computed as a whole has no loops, and becomes a fill and a copy.
        if not (own.inlined and plan.is_extracted(name)):
            vectorize_padding(script, plan, own)
    elif own.partial_of is not None or own.is_split:
        _vectorize_partial_results(script, plan, own)
    elif own.stage.combiner is None and name not in consumers:
        _vectorize_pointwise(script, plan, own)
    elif not own.is_scan and (own.vector or name in consumers) and not own.window_axes:
        script.vectorize(script.match("stage", name))


def _scans_in_pieces(own: StagePlan) -> bool:
    """Tell if what a scan continues is carried in registers, by loops around single elements.

    MLIR makes no valid vectors of single elements that are extracted under a condition.
    """
    extracted = own.vector is None and any(map(own.extracts, own.stage.reads))
    return own.is_scan and bool(own.tiled_loops) and not extracted


def _unroll(script: Script, own: StagePlan, loops: Iterable[str]) -> None:
    """Unroll some of the loops of a stage, the inner ones first."""
    for loop in reversed(list(loops)):
        extent = own.extent(loop)
        if extent > 1:
            made = script.match("unroll", f"{own.name}.{loop}")
            script.add(f"transform.loop.unroll {made} {{ factor = {extent} }} : !transform.any_op")


def _vectorize_pieces(script: Script, own: StagePlan) -> None:
    """Vectorise what a stage with windows was taken apart into.

    Dimensions of one iteration, and windows with them, vanish from the pieces, and with them the
    attributes by which they are found: they are what is in the loop around them.
    """
    text = "transform.get_parent_op {} {{deduplicate}}"
    (around,) = script.apply(text, [script.match("stage", own.name)])
    with script.each(around) as one:
        script.patterns(one, ["linalg.fold_unit_extent_dims_via_slices"])
        script.vectorize(script.match_kind("linalg.generic", one))
    _hoist_results(script)


def _hoist_results(script: Script) -> None:
    """Carry what loops read and write at the same place from iteration to iteration."""
    loops = script.match_kind("scf.for")
    script.add(f"transform.loop.hoist_loop_invariant_subsets {loops} : !transform.any_op")


def _vectorize_pointwise(script: Script, plan: Plan, own: StagePlan) -> None:
    """Vectorise a pointwise stage with copies of what is inlined into it, or an inlined one."""
    if sizes := _masked_sizes(plan, own):
        script.vectorize(script.match("stage", own.name), f" vector_sizes {sizes}")
    elif own.vector is not None:
        script.vectorize(script.match("stage", own.name))
        _vectorize_copies(script, plan, own.name)
    elif own.inlined and _is_in_tile(plan, own.name) and not _is_part_of_padding(plan, own):
        script.vectorize(script.match("stage", own.name))


def _is_part_of_padding(plan: Plan, own: StagePlan) -> bool:
    """Tell if tiles of a stage that extracts elements are as large as padding leaves of them.

    MLIR makes no vectors of extracted elements of sizes that only the running program knows.
    """
    padded = any(user.padding is not None for user in plan.readers(own.name))
    return padded and any(map(own.extracts, own.stage.reads))


def _is_in_tile(plan: Plan, name: str) -> bool:
    """Tell if an inlined stage is computed inside a tile of a reduction, and not as a copy."""
    return any(
        user.name in plan.consumers
        or (user.stage.combiner is not None and not user.is_split)
        or (user.inlined and _is_in_tile(plan, user.name))
        for user in plan.readers(name)
    )


def _vectorize_partial_results(script: Script, plan: Plan, own: StagePlan) -> None:
    """Vectorise what computes partial results that are lanes, or what reduces them.

    The stage with the partial results reads as the stage does that was split.
    """
    if own.partial_lanes is not None:
        script.vectorize(script.match("stage", own.name))
        script.vectorize(script.match("init", own.name))
    elif own.vector is None or own.partial_of is None:
        return
    elif plan.stages[own.partial_of].reads_boxes:
        script.vectorize(script.match("stage", own.name))
        _vectorize_copies(script, plan, own.partial_of)


def _vectorize_copies(script: Script, plan: Plan, name: str) -> None:
    for inlined in plan.inlined_behind(name):
        if plan.stages[inlined].padding is None:
            script.vectorize(script.match("stage", copy_name(inlined, name)))


def _separate_last_rounds(script: Script, plan: Plan) -> None:
    """Take the incomplete round out of its loop, so that both parts have constant extents.

    They become vectors as they are, without masks: whole ones in the loop, and shorter ones after
    it.
    """
    for own in plan.stages.values():
        if own.is_uneven:
            partial = partial_name(own.name)
            for loop in plan.stages[partial].unrolled:
                name = f"{partial}.{loop}"
                script.annotate(script.peel(script.match("peel", name)), "unroll", name)
        elif own.vector is not None and own.is_separable:
            axis = own.axis_of(own.vector)
            script.peel(script.match("loop", f"{own.name}.{axis}.0"))


def _masked_sizes(plan: Plan, own: StagePlan) -> list[int] | None:
    """Extents of a vector whose last lanes are masked in some iterations; None where none are.

    Such are those of incomplete rounds that do not leave their loop: where it runs on all cores,
    or is inside of another over the same axis.

    Raises:
        InvalidSchedule: another stage would be computed in these lanes.
    """
    if own.vector is None or own.axis_of(own.vector) not in own.covered or own.is_separable:
        return None
    if plan.inlined_behind(own.name):
        raise InvalidSchedule(
            f"backend 'mlir' cannot inline stages into {own.name!r}, of which loop "
            f"{own.vector!r} has incomplete vectors in several places"
        )
    axis = own.axis_of(own.vector)
    return [
        own.extent(own.vector) if other.name == axis else 1 for other in own.stage.spatial_axes
    ]
