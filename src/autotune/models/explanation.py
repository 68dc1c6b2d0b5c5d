"""Explanation of a schedule: the gradient of its predicted latency, and legal moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.expressions.integer import evaluate
from autotune.models.cost import DifferentiableCostModel
from autotune.nest.relaxed import param_bounds
from autotune.sketches import (
    AtLeast,
    AtMost,
    Candidate,
    Categorical,
    Constraint,
    OneOf,
    ProductEquals,
    Sketch,
)
from autotune.spaces.feasible import build_feasible_set, residuals

__all__ = [
    "Explanation",
    "FeatureSlope",
    "Limit",
    "Move",
    "ParamSlope",
    "explain",
    "prime_factors",
]

# A step that is predicted to gain less than this is none that a limit would be named for.
_WORTH_NAMING = 1.01


@frozen
class ParamSlope:
    """A parameter and what it would do by itself.

    Attributes:
        name: The parameter.
        value: Its value.
        per_octave: Factor by which the predicted latency changes for each doubling, as far as its
            derivative here says; the other factors of its products give way in equal parts.
        alone: The same where they do not: as if the program did more.
    """

    name: str
    value: int
    per_octave: float
    alone: float


@frozen
class FeatureSlope:
    """A feature that the model reads, and what it would do by itself.

    Attributes:
        name: The feature.
        value: Its value, in the model's own unit.
        per_octave: Factor for each doubling of what the feature says, others being equal.
    """

    name: str
    value: float
    per_octave: float


@frozen
class Move:
    """Step to another configuration.

    Attributes:
        changes: Old and new value of each parameter that changes.
        gain: Predicted latency now over the one after the step; above 1 is faster.
        blocked_by: What forbids it: constraints by their text, or the values of a parameter;
            empty where it is legal.
    """

    changes: tuple[tuple[str, int, int], ...]
    gain: float
    blocked_by: tuple[str, ...] = ()


@frozen
class Limit:
    """A bound and how near the configuration is to it.

    Attributes:
        text: The constraint.
        source: What makes it one.
        value: What is bounded.
        limit: Its bound.
        is_upper: Whether the bound is from above.
        binds: Whether it forbids a step that is predicted to be faster.
    """

    text: str
    source: str
    value: int
    limit: int
    is_upper: bool
    binds: bool


@frozen
class Explanation:
    """Everything that is said of one configuration.

    Attributes:
        candidate: What is explained.
        params: Every parameter, the strongest slope first.
        features: What the model reads, the strongest slope first; empty where it does not say.
        moves: Legal single steps, best first.
        blocked: Steps that are predicted to be faster and are not legal, best first.
        limits: Bounds of the sketch, those that bind first.
    """

    candidate: Candidate
    params: tuple[ParamSlope, ...]
    features: tuple[FeatureSlope, ...]
    moves: tuple[Move, ...]
    blocked: tuple[Move, ...]
    limits: tuple[Limit, ...]


def explain(model: DifferentiableCostModel, candidate: Candidate) -> Explanation:
    """Explain one configuration by what a model predicts.

    A single step moves one prime factor from one level to another of the same product, takes the
    next value of a parameter that has a list of them, or another choice; where a total changes,
    one of its factors takes the change.

    Raises:
        InvalidValueError: the sketch cannot be relaxed, or its constraints cannot be solved.
    """
    sketch = candidate.sketch
    row = np.array([candidate.values], dtype=np.int64)
    at = row.astype(np.float64)
    _, gradient = model.relaxed(sketch, at)
    alone = gradient[0] * at[0] * np.log(2.0)
    params = tuple(
        ParamSlope(*each)
        for each in zip(
            sketch.param_names,
            candidate.values,
            np.exp(_traded(sketch, alone)).tolist(),
            np.exp(alone).tolist(),
            strict=True,
        )
    )
    names, values, slopes = model.feature_slopes(sketch, at)
    features = tuple(
        FeatureSlope(*each)
        for each in zip(names, values[0].tolist(), np.exp(slopes[0]).tolist(), strict=True)
    )
    legal, blocked = _moves(model, sketch, row)
    return Explanation(
        candidate,
        tuple(sorted(params, key=_strength)),
        tuple(sorted(features, key=_strength)),
        legal,
        blocked,
        _limits(sketch, candidate, blocked),
    )


def _traded(sketch: Sketch, alone: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slopes where the other factors of a product give way to a doubling in equal parts."""
    place = {name: index for index, name in enumerate(sketch.param_names)}
    result: NDArray[np.float64] = alone.copy()
    for product in sketch.constraints:
        if isinstance(product, ProductEquals) and len(product.factors) > 1:
            slopes = alone[[place[name] for name in product.factors]]
            for name, own in zip(product.factors, slopes.tolist(), strict=True):
                result[place[name]] -= (slopes.sum() - own) / (len(slopes) - 1)
    return result


def _strength(slope: ParamSlope | FeatureSlope) -> float:
    return -abs(float(np.log(slope.per_octave)))


def _moves(
    model: DifferentiableCostModel, sketch: Sketch, row: NDArray[np.int64]
) -> tuple[tuple[Move, ...], tuple[Move, ...]]:
    """Legal steps, and steps that would be faster but are not legal; both best first."""
    found = dict.fromkeys(_steps(sketch, row[0].tolist()))
    rows = np.array(list(found), dtype=np.int64).reshape(len(found), len(sketch.params))
    # The model cannot be asked outside of its bounds.
    bounds = np.array(list(param_bounds(sketch).values())).reshape(-1, 2)
    rows = rows[((rows >= bounds[:, 0]) & (rows <= bounds[:, 1])).all(axis=1)]
    if not len(rows):
        return (), ()
    now, _ = model.relaxed(sketch, row.astype(np.float64))
    then, _ = model.relaxed(sketch, rows.astype(np.float64))
    gains = np.exp(now[0] - then)
    is_legal = build_feasible_set(sketch).contains(rows)
    violated = residuals(sketch, rows) > 0
    # What breaks a product computes something else: no limit is in its way.
    is_product = np.array([isinstance(item, ProductEquals) for item in sketch.constraints])
    legal, blocked = [], []
    for index in np.argsort(-gains, kind="stable").tolist():
        changes = tuple(
            (name, int(old), int(new))
            for name, old, new in zip(sketch.param_names, row[0], rows[index], strict=True)
            if old != new
        )
        gain = float(gains[index])
        if is_legal[index]:
            legal.append(Move(changes, gain))
        elif gain > _WORTH_NAMING and not (violated[index] & is_product).any():
            blocked.append(Move(changes, gain, _reasons(sketch, rows[index], violated[index])))
    return tuple(legal), tuple(blocked)


def _reasons(
    sketch: Sketch, values: NDArray[np.int64], violated: NDArray[np.bool_]
) -> tuple[str, ...]:
    """Texts of what a configuration violates."""
    found = [
        constraint_text(constraint)
        for constraint, broken in zip(sketch.constraints, violated.tolist(), strict=True)
        if broken
    ]
    for param, value in zip(sketch.params, values.tolist(), strict=True):
        if param.values is not None and value not in param.values:
            found.append(f"{param.name} is one of {', '.join(map(str, param.values))}")
    return tuple(found)


def _steps(sketch: Sketch, row: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Configurations one step away, legal or not."""
    place = {name: index for index, name in enumerate(sketch.param_names)}
    products = [item for item in sketch.constraints if isinstance(item, ProductEquals)]
    for product in products:
        for giver in product.factors:
            for prime in prime_factors(row[place[giver]]):
                for taker in product.factors:
                    if taker != giver:
                        changed = list(row)
                        changed[place[giver]] //= prime
                        changed[place[taker]] *= prime
                        yield tuple(changed)
    factors = {name for product in products for name in product.factors}
    for param in sketch.params:
        at = place[param.name]
        if param.name in factors or param.values is None or row[at] not in param.values:
            continue
        position = param.values.index(row[at])
        near = param.values[max(0, position - 1) : position + 2]
        for value in param.values if isinstance(param, Categorical) else near:
            if value != row[at]:
                changed = list(row)
                changed[at] = value
                yield tuple(changed)
                yield from _with_total(products, place, changed, param.name, row[at])


def _with_total(
    products: Sequence[ProductEquals],
    place: dict[str, int],
    changed: Sequence[int],
    total: str,
    before: int,
) -> Iterator[tuple[int, ...]]:
    """The same with one factor of each product of a changed total taking the change."""
    for product in products:
        if product.total.op == "var" and product.total.args[0] == total:
            for factor in product.factors:
                grown = changed[place[factor]] * changed[place[total]]
                if before and grown % before == 0:
                    row = list(changed)
                    row[place[factor]] = grown // before
                    yield tuple(row)


def prime_factors(number: int) -> dict[int, int]:
    """Multiplicity of every prime of a positive number, ascending."""
    found: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found[divisor] = found.get(divisor, 0) + 1
            number //= divisor
        divisor += 1
    if number > 1:
        found[number] = found.get(number, 0) + 1
    return found


def constraint_text(constraint: Constraint) -> str:
    """A constraint in one line."""
    if isinstance(constraint, ProductEquals):
        return f"{'*'.join(constraint.factors)} = {constraint.total!r}"
    if isinstance(constraint, AtMost):
        return f"{constraint.expression!r} <= {constraint.limit}"
    if isinstance(constraint, AtLeast):
        return f"{constraint.expression!r} >= {constraint.limit}"
    return f"{constraint.expression!r} is one of {', '.join(map(str, constraint.values))}"


def _limits(sketch: Sketch, candidate: Candidate, blocked: Sequence[Move]) -> tuple[Limit, ...]:
    """Bounds with what is bounded; those that bind first, then the nearest."""
    binding = {text for move in blocked for text in move.blocked_by}
    found = []
    for constraint in sketch.constraints:
        if isinstance(constraint, (ProductEquals, OneOf)):
            continue
        text = constraint_text(constraint)
        value = int(evaluate(constraint.expression, candidate.config))
        is_upper = isinstance(constraint, AtMost)
        found.append(
            Limit(text, constraint.source, value, constraint.limit, is_upper, text in binding)
        )

    def distance(limit: Limit) -> tuple[bool, float]:
        one, other = max(limit.value, 1), max(limit.limit, 1)
        return not limit.binds, abs(float(np.log(one / other)))

    return tuple(sorted(found, key=distance))
