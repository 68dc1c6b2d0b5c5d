"""Groups of parameters that only take joint values: the factors of a product, or one alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.sketches import Factor, Param, ProductEquals, Sketch
from autotune.sketches.candidates import Matrix

FACTORIZATION_LIMIT = 4_000_000
"""Most joint values of one group that are kept in memory."""


@frozen(eq=False)
class ParamGroup:
    """Some parameters and their joint values, before any constraint but their product.

    Attributes:
        names: The parameters.
        columns: Their positions in a configuration.
        rows: Joint values, shape [m, len(columns)].
    """

    names: tuple[str, ...]
    columns: tuple[int, ...]
    rows: Matrix


def ordered_factorizations(total: int, domains: Sequence[tuple[int, ...] | None]) -> Matrix:
    """Every tuple of factors with the given product, lexicographic; shape [m, len(domains)].

    A domain lists the values a factor may have; None allows any divisor.

    Raises:
        InvalidValueError: ``total`` is not in [1, 2**50], there are no factors or more than 64,
            or more than ``FACTORIZATION_LIMIT`` tuples.
    """
    from autotune import _native

    positive = [
        None if domain is None else sorted({value for value in domain if value >= 1})
        for domain in domains
    ]
    try:
        return _native.ordered_factorizations(total, positive, FACTORIZATION_LIMIT)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"cannot list the factorizations of {total}: {error}") from error


def parameter_groups(sketch: Sketch) -> list[ParamGroup]:
    """The groups of a sketch: one for every product, then one for every parameter left.

    Raises:
        InvalidValueError: a parameter belongs to two products or a factor to none, or a product
            is neither constant nor the value of one parameter that lists its values.
    """
    position = {name: index for index, name in enumerate(sketch.param_names)}
    groups: list[ParamGroup] = []
    grouped: set[str] = set()
    for constraint in sketch.constraints:
        if not isinstance(constraint, ProductEquals):
            continue
        names = (*sorted(constraint.total.variables), *constraint.factors)
        again = grouped & set(names) | {name for name in names if names.count(name) > 1}
        if again:
            raise InvalidValueError(
                f"sketch {sketch.name!r}: parameters {sorted(again)} belong to two products"
            )
        grouped |= set(names)
        rows = _product_rows(sketch, constraint)
        groups.append(ParamGroup(names, tuple(position[name] for name in names), rows))
    for param in sketch.params:
        if param.name in grouped:
            continue
        if param.values is None:
            raise InvalidValueError(
                f"sketch {sketch.name!r}: factor {param.name!r} belongs to no product"
            )
        values = np.array(sorted(set(param.values)), dtype=np.int64).reshape(-1, 1)
        groups.append(ParamGroup((param.name,), (position[param.name],), values))
    return groups


def _product_rows(sketch: Sketch, constraint: ProductEquals) -> Matrix:
    by_name = {param.name: param for param in sketch.params}
    domains = [_domain(by_name[name]) for name in constraint.factors]
    total = constraint.total
    if total.value is not None:
        return ordered_factorizations(total.value, domains)
    extents = by_name[total.args[0]].values if total.op == "var" else None
    if extents is None:
        raise InvalidValueError(
            f"sketch {sketch.name!r}: the product of {', '.join(constraint.factors)} is "
            f"{total!r}; it has to be a constant or a parameter that lists its values"
        )
    parts = [np.empty((0, len(domains) + 1), dtype=np.int64)]
    for extent in sorted(set(extents)):
        if extent >= 1:
            rows = ordered_factorizations(extent, domains)
            parts.append(np.column_stack([np.full(len(rows), extent), rows]))
    return np.concatenate(parts)


def _domain(param: Param) -> tuple[int, ...] | None:
    return param.values if isinstance(param, Factor) else (param.values or ())
