"""The directions that a stage reads its operands in: forwards, backwards, or both at once."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.ir.expressions import AffineForm
from autotune.ir.workloads import Stage

__all__ = ["runs_one_way", "running_directions"]


def running_directions(stage: Stage, *, results: bool = False) -> dict[str, int]:
    """Directions of a stage's axes in which its indices grow, or fall, along all of their axes.

    What is reduced over may be taken in any order, so that those axes may run backwards: in a
    convolution that reads ``X[w - k]`` and ``W[k]``, the first index grows along both of its axes
    where ``k`` falls.

    Args:
        stage: What reads.
        results: Whether axes of the result may run backwards, too, which leaves the result
            reversed. The innermost one, whose neighbours are lanes of vectors, does not.

    Returns:
        For each axis 1, or -1 where it is to run backwards. Some indices may still grow along one
        axis and fall along another.
    """
    fixed = stage.spatial_axes[-1:] if results else stage.spatial_axes
    scanned = [axis for axis in stage.axes if axis.kind == "scan"]
    found = {axis.name: 1 for axis in (*fixed, *scanned)}
    read = [form for load in stage.loads for form in stage.forms(load) if not form.terms]
    forms = [form for form in read if len(form.axes) > 1]
    spatial = {axis.name for axis in stage.spatial_axes}
    while forms:
        form = next((it for it in forms if it.axes & set(found)), forms[0])
        forms.remove(form)
        known = [found[axis] * _sign(form, axis) for axis in form.coefficients if axis in found]
        kept = [_sign(form, axis) for axis in form.coefficients if axis in spatial]
        way = (*known, *kept, 1)[0]
        for axis in form.coefficients:
            found.setdefault(axis, way * _sign(form, axis))
    return {axis.name: found.get(axis.name, 1) for axis in stage.axes}


def runs_one_way(form: AffineForm, directions: Mapping[str, int]) -> bool:
    """Return whether an index grows along all of its axes, or falls along all of them.

    Args:
        form: The index; affine.
        directions: Of the axes, as :func:`running_directions` has them.
    """
    return len({directions[axis] * _sign(form, axis) for axis in form.coefficients}) < 2


def _sign(form: AffineForm, axis: str) -> int:
    return -1 if form.coefficients[axis] < 0 else 1
