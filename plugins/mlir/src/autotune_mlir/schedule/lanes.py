"""Reads of stages' operands: decides what can move into loops and be vectorized."""

from __future__ import annotations

from autotune.ir.expressions import AffineForm, Load, affine_form
from autotune.ir.workloads import Stage, Workload

__all__ = ["extracts", "reads_boxes", "reads_part"]


def extracts(stage: Stage, tensor: str, workload: Workload) -> bool:
    """Tell if a stage reads a tensor element by element: there is no part of it that it needs."""
    return any(gather.tensor == tensor for gather in stage.gathers) or any(
        _is_extracted(stage, load, workload) for load in stage.loads if load.tensor == tensor
    )


def reads_boxes(stage: Stage, workload: Workload) -> bool:
    """Return whether the operands of a stage can be read by vectors.

    The part that a tile reads of each of them is then a box; other reads are element by element.
    """
    return all(
        _is_extracted(stage, load, workload) or _is_box(stage, forms)
        for load, forms in ((load, _forms(load)) for load in stage.loads)
        if forms is not None
    )


def reads_part(stage: Stage, tensor: str, workload: Workload) -> bool:
    """Return whether a stage reads a part of a tensor, of which nothing else is needed for it."""
    shape = workload.tensors[tensor].shape
    for load in stage.loads:
        forms = _forms(load) if load.tensor == tensor else None
        for form, extent in zip(forms or (), shape, strict=forms is not None):
            if form.bounds(stage.extents) != (0, extent - 1):
                return True
    return False


def _is_extracted(stage: Stage, load: Load, workload: Workload) -> bool:
    forms = _forms(load)
    if forms is None:
        return True
    for form, extent in zip(forms, workload.tensors[load.tensor].shape, strict=True):
        low, high = form.bounds(stage.extents)
        if low < 0 or high >= extent or min(form.coefficients.values(), default=1) < 0:
            return True
    # MLIR makes no vectors of an operand with more dimensions than there are axes.
    is_part = _is_box(stage, forms) and len(forms) <= len(stage.axes)
    return not stage.reduce_axes and not is_part


def _is_box(stage: Stage, forms: list[AffineForm]) -> bool:
    """Return whether every index is one axis or none, and no axis is the index twice."""
    return all(list(form.coefficients.values()) in ([], [1]) for form in forms) and all(
        sum(axis.name in form.coefficients for form in forms) <= 1 for axis in stage.axes
    )


def _forms(load: Load) -> list[AffineForm] | None:
    """The indices of a load; None where one is not affine."""
    forms = [affine_form(index) for index in load.indices]
    known = [form for form in forms if form is not None]
    return known if len(known) == len(forms) else None
