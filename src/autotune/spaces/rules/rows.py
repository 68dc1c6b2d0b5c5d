"""Stages that read each other row by row."""

from __future__ import annotations

import math
from collections import Counter

from autotune.ir.workloads import Stage
from autotune.spaces.rules.access import depends_on, dimension_of, is_pointwise, is_scan
from autotune.spaces.rules.draft import SketchDraft


def rows_behind(draft: SketchDraft, stage: Stage) -> tuple[list[Stage], int] | None:
    """The stages behind a pointwise one over reductions along its rows, and its row axes.

    Computed before, and not among them, are reductions that gain by tiling, what is not indexed
    by rows (a weight of every column that is converted), and what only such stages need.

    Returns:
        None unless there is a reduction, and every one of these stages is indexed by the same
        leading axes, of which the number is returned.
    """
    if not is_pointwise(stage):
        return None
    behind, rows = _producers(draft, stage)
    if all(map(is_pointwise, behind)) or len(stage.spatial_axes) <= rows:
        return None
    return behind, rows


def numbers_behind(draft: SketchDraft, stage: Stage) -> tuple[list[Stage], int] | None:
    """The stages behind one number for each row, where several reductions read the row.

    As :func:`rows_behind`, of which the largest element's place, the logarithm of a sum of
    exponentials and a variance have no innermost axis. Reductions that read nothing twice, that
    do not read along the rows, or that have fewer rows than there are cores, are better off with
    loops of their own.
    """
    if not is_pointwise(stage):
        return None
    behind, rows = _producers(draft, stage)
    reductions = [producer for producer in behind if not is_pointwise(producer)]
    read = Counter(name for it in reductions for name in {load.tensor for load in it.loads})
    points = math.prod(axis.extent for axis in stage.axes)
    again = any(count > 1 for count in read.values())
    whole = rows == len(stage.axes) > 0 and points >= draft.target.cores
    along = all(map(_reads_along_rows, reductions))
    return (behind, rows) if whole and again and along else None


def _reads_along_rows(reduction: Stage) -> bool:
    """Return whether neighbours along the last reduced axis are neighbours in memory."""
    axis = reduction.reduce_axes[-1].name
    moving = [forms for it in reduction.accesses if depends_on(forms := reduction.forms(it), axis)]
    return all(dimension_of(forms, axis) == len(forms) - 1 for forms in moving)


def _producers(draft: SketchDraft, stage: Stage) -> tuple[list[Stage], int]:
    """Unsettled stages that only ``stage`` and each other need, row by row, and the row axes.

    The stages are in topological order.
    """
    workload = draft.workload
    within = {stage.name}
    found: list[Stage] = []
    shared = len(stage.spatial_axes)
    for candidate in reversed(workload.stages):
        users = workload.consumers(candidate.name)
        if candidate.name in draft.settled or candidate.name in workload.outputs or not users:
            continue
        if not {user.name for user in users} <= within:
            continue
        rows = min(rows_in_step(user, candidate) for user in users)
        in_step = rows and not is_scan(candidate)
        if in_step and (is_pointwise(candidate) or is_without_reuse(candidate)):
            within.add(candidate.name)
            found.insert(0, candidate)
            shared = min(shared, rows)
    return found, shared


def rows_in_step(user: Stage, producer: Stage) -> int:
    """Number of leading spatial axes along which ``user`` reads at the point that it computes."""
    if producer.name in {gather.tensor for gather in user.gathers}:
        return 0
    rows = min(len(user.spatial_axes), len(producer.spatial_axes))
    pairs = list(zip(user.spatial_axes, producer.spatial_axes, strict=False))
    for load in user.loads:
        if load.tensor != producer.name:
            continue
        forms = user.forms(load)
        if any(form.terms for form in forms):
            return 0
        for position, (own, other) in enumerate(pairs[:rows]):
            form = forms[position]
            in_step = form.coefficients == {own.name: 1} and form.constant == 0
            if not in_step or own.extent != other.extent:
                rows = position
                break
    return rows


def is_without_reuse(stage: Stage) -> bool:
    """Return whether every operand moves along every spatial axis: tiling would gain nothing."""
    return all(
        depends_on(stage.forms(read), axis.name)
        for read in stage.accesses
        for axis in stage.spatial_axes
        if axis.extent > 1
    )
