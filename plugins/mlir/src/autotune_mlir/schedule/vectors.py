"""From tiles to operations on vectors, and from those to what processors have."""

from __future__ import annotations

from autotune_mlir.schedule.plan import Plan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["lower_to_vectors"]

_SLICES = ("tensor.merge_consecutive_insert_extract_slice", "linalg.tiling_canonicalization")
_CONTRACTIONS = ("vector.reduction_to_contract", "vector.transfer_permutation_patterns")
_OUTER_PRODUCTS = (
    'vector.lower_contraction lowering_strategy = "outerproduct"',
    "vector.lower_outerproduct",
)


def lower_to_vectors(script: Script, plan: Plan) -> None:
    """Write the second half of a schedule.

    Loops that are to be unrolled are; then every tile becomes vectors. Reductions become
    contractions before anything is simplified: of a tile that is one iteration deep nothing would
    be left to recognise. Results then move out of the loops that reduce, into registers.
    """
    function = script.match_kind("func.func")
    for name, stage in plan.stages.items():
        for loop in stage.unrolled:
            if stage.is_reduction(loop) and stage.extent(loop) > 1:
                made = script.match(f"{tag('unroll', f'{name}.{loop}')}")
                script.add(
                    f"transform.loop.unroll {made} {{ factor = {stage.extent(loop)} }} : "
                    "!transform.any_op"
                )
    script.clean(function, *_SLICES)
    for name, stage in plan.stages.items():
        if stage.vector is not None or stage.inlined:
            script.vectorize(script.match(tag("stage", name)))
        if stage.vector is not None and stage.stage.reduce_axes:
            script.vectorize(script.match(tag("init", name)))
        for packed in stage.packed:
            script.vectorize(script.match(tag("pack", f"{name}.{packed.operand}")))
    script.patterns(function, _CONTRACTIONS)
    script.clean(function, "tensor.fold_tensor_subset_ops_into_vector_transfers")
    loops = script.match_kind("scf.for")
    script.add(f"transform.loop.hoist_loop_invariant_subsets {loops} : !transform.any_op")
    script.patterns(function, _OUTER_PRODUCTS)
    script.clean(function)
