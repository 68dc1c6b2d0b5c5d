"""Distance of configurations from satisfying the constraints of a sketch.

Every constraint becomes an expression of the parameters, its residual: 0 where it holds, else by
how much it is violated. Native code evaluates them for a whole matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.ir.expressions import IntExpr, const, maximum, minimum, var
from autotune.nest.tape import Tape, build_tape
from autotune.sketches import AtLeast, AtMost, Constraint, ProductEquals, Sketch

__all__ = ["is_feasible", "residual", "residual_tape", "residuals"]


def residual(constraint: Constraint) -> IntExpr:
    """By how much a constraint is violated; 0 where it holds.

    The excess over a limit or what lacks to it, the distance of a product from its total, or the
    distance to the nearest of the values allowed (of none at all: 1).
    """
    if isinstance(constraint, ProductEquals):
        product: IntExpr = const(1)
        for name in constraint.factors:
            product = product * var(name)
        return _distance(product, constraint.total)
    if isinstance(constraint, AtMost):
        return maximum(constraint.expression - constraint.limit, 0)
    if isinstance(constraint, AtLeast):
        return maximum(constraint.limit - constraint.expression, 0)
    if not constraint.values:
        return const(1)
    nearest, *others = (_distance(constraint.expression, const(v)) for v in constraint.values)
    for other in others:
        nearest = minimum(nearest, other)
    return nearest


def _distance(left: IntExpr, right: IntExpr) -> IntExpr:
    return maximum(left - right, right - left)


def residual_tape(names: tuple[str, ...], constraints: Sequence[Constraint]) -> Tape:
    """Residuals as a tape over the parameters ``names``; outputs are called "0", "1", ...

    Raises:
        InvalidValueError: a constraint uses another parameter.
    """
    outputs = {str(index): residual(item) for index, item in enumerate(constraints)}
    return build_tape(names, outputs)


def residuals(sketch: Sketch, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Residuals of ``sketch.constraints``, in their order; shape [n, constraints].

    Domains of single parameters are not looked at: :meth:`FeasibleSet.contains` does that too.

    Raises:
        InvalidValueError: the matrix has another number of columns or is not of int64, or a value
            passes 64 bits.
    """
    return residual_tape(sketch.param_names, sketch.constraints).evaluate(matrix)


def is_feasible(sketch: Sketch, matrix: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the configurations for which all constraints hold; shape [n].

    Raises:
        InvalidValueError: as :func:`residuals`.
    """
    return np.asarray(~residuals(sketch, matrix).any(axis=1))
