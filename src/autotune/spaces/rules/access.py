"""Questions that rules ask about how stages read tensors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    AffineForm,
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    const,
    operation_counts,
)
from autotune.ir.expressions.scalar import reads, walk
from autotune.ir.workloads import Stage, Workload
from autotune.spaces.rules.draft import SketchDraft

EXPENSIVE_OPERATIONS = (
    *("exp", "log", "sin", "cos", "tanh", "sigmoid", "erf"),
    *("pow", "sqrt", "rsqrt", "div", "mod"),
)


def is_pointwise(stage: Stage) -> bool:
    """Return whether the stage computes every output element on its own."""
    return stage.combiner is None


def is_scan(stage: Stage) -> bool:
    """Return whether each output element continues one computed before it."""
    return stage.scan_axis is not None


def is_expensive(stage: Stage) -> bool:
    """Return whether recomputing the stage's body for every use would cost more than a buffer."""
    return any(op in EXPENSIVE_OPERATIONS for op in operation_counts(stage.body))


def operand_places(stage: Stage, tensor: str) -> list[tuple[AffineForm, ...]]:
    """The different indices by which ``stage`` reads ``tensor``, affine or not.

    Raises:
        UnsupportedWorkload: they depend on data.
    """
    if any(gather.tensor == tensor for gather in stage.gathers):
        raise UnsupportedWorkload(
            f"stage {stage.name!r} reads {tensor!r} at indices that depend on data; "
            "tiling needs those that are computed from axes"
        )
    maps: list[tuple[AffineForm, ...]] = []
    for load in stage.loads:
        if load.tensor == tensor and (forms := stage.forms(load)) not in maps:
            maps.append(forms)
    return maps


def gathering_tensors(stage: Stage) -> frozenset[str]:
    """Tensors that ``stage`` reads at indices that depend on data, and that data."""
    tables = {gather.tensor for gather in stage.gathers}
    indices = [index for gather in stage.gathers for index in gather.indices]
    return frozenset(tables | {read.tensor for index in indices for read in reads(index)})


def operand_forms(stage: Stage, tensor: str) -> tuple[AffineForm, ...]:
    """The one form of indices by which ``stage`` reads ``tensor``, affine or not.

    Raises:
        UnsupportedWorkload: they depend on data, or it reads the tensor at several places.
    """
    places = operand_places(stage, tensor)
    if len(places) != 1:
        raise UnsupportedWorkload(
            f"stage {stage.name!r} reads {tensor!r} at {len(places)} different places; "
            "tiling with packed operands needs one"
        )
    return places[0]


def product_factors(stage: Stage, dtype: str) -> tuple[Load, ...]:
    """The two loads of a product of elements that are or become ``dtype``; none of others."""
    body = stage.body
    if not isinstance(body, Binary) or body.op != "mul":
        return ()
    loads = []
    for side in (body.left, body.right):
        if isinstance(side, Cast) and side.dtype == dtype:
            side = side.operand
        if not isinstance(side, Load):
            return ()
        loads.append(side)
    return tuple(loads)


def depends_on(forms: tuple[AffineForm, ...], axis: str) -> bool:
    """Return whether the access moves along ``axis``."""
    return any(axis in form.axes for form in forms)


def is_affine(forms: tuple[AffineForm, ...]) -> bool:
    """Tell if no index has a quotient or a remainder: what is read can then be copied by parts."""
    return not any(form.terms for form in forms)


def dimension_of(forms: tuple[AffineForm, ...], axis: str) -> int | None:
    """The dimension whose index is exactly ``axis``, when it is the only one that uses it."""
    uses = [dim for dim, form in enumerate(forms) if axis in form.axes]
    if len(uses) != 1:
        return None
    form = forms[uses[0]]
    return uses[0] if form.coefficients == {axis: 1} and form.constant == 0 else None


def index_of_value(value: ScalarExpr) -> IntExpr | None:
    """A number as an expression over axes; None where it is something else."""
    if isinstance(value, Cast):
        return index_of_value(value.operand)
    if isinstance(value, Constant):
        return const(value.value) if isinstance(value.value, int) else None
    return value.index if isinstance(value, IndexValue) else None


def is_gathered(workload: Workload, tensor: str) -> bool:
    """Return whether a stage reads ``tensor`` at indices that are computed.

    Such a tensor is computed whole before it: nothing says which part is needed when.
    """
    return any(gather.tensor == tensor for stage in workload.stages for gather in stage.gathers)


def is_plain(forms: Iterable[AffineForm], *, divided: bool = False) -> bool:
    """Tell if every index is an axis itself, or where ``divided`` a quotient or a remainder."""
    return all(
        list(form.coefficients.values()) == [1]
        and form.constant == 0
        and (not form.terms or (divided and "any" not in {it.op for it in form.terms.values()}))
        for form in forms
    )


def producer_stage(workload: Workload, tensor: str) -> Stage | None:
    """The stage that computes ``tensor``; None for an input."""
    for stage in workload.stages:
        if stage.name == tensor:
            return stage
    return None


def own_producer(workload: Workload, tensor: str) -> Stage | None:
    """The pointwise stage that computes a tensor for one reader alone; None where none does."""
    producer = producer_stage(workload, tensor)
    alone = tensor not in workload.outputs and len(workload.consumers(tensor)) == 1
    return producer if producer is not None and is_pointwise(producer) and alone else None


def is_selected(workload: Workload, tensor: str) -> bool:
    """Tell if a tensor is computed with a condition, such as padding: a copy evaluates it."""
    producer = producer_stage(workload, tensor)
    return producer is not None and any(isinstance(it, Select) for it in walk(producer.body))


def largest_divisor(extent: int, limit: int) -> int:
    """The largest divisor of ``extent`` that is at most ``limit``."""
    return max(divisor for divisor in range(1, min(extent, limit) + 1) if extent % divisor == 0)


def round_up(value: int, multiple: int) -> int:
    """``value`` rounded up to a multiple of ``multiple``."""
    return math.ceil(value / multiple) * multiple


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


def reads_at_own_point(user: Stage, producer: Stage) -> bool:
    """Return whether ``user`` reads ``producer`` exactly at the point it writes."""
    rows = rows_in_step(user, producer)
    return rows == len(user.spatial_axes) == len(producer.spatial_axes)


def is_without_reuse(stage: Stage) -> bool:
    """Return whether every operand moves along every spatial axis: tiling would gain nothing."""
    return all(
        depends_on(stage.forms(read), axis.name)
        for read in stage.accesses
        for axis in stage.spatial_axes
        if axis.extent > 1
    )
