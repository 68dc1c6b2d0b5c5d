"""Configurations of one workload in the search space of another one of the same structure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.converter import to_json
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import without_numbers
from autotune.sketches import (
    Candidate,
    Ordinal,
    PipelineFetches,
    ProductEquals,
    SharedLayout,
    Sketch,
    Step,
)
from autotune.sketches.naming import renamed_steps
from autotune.spaces.search_space import SearchSpace

__all__ = ["corresponding_sketch", "moved_candidate"]


def corresponding_sketch(sketch: Sketch, sketches: Sequence[Sketch]) -> Sketch | None:
    """The one of some sketches that does the same as a sketch of a workload of another shape.

    Their steps differ in names and numbers only, and their parameters correspond one to one. Of
    several such sketches the one of the same name is taken, then the first. None where there is
    none.
    """
    outline = _outline(sketch)
    found = [other for other in sketches if _outline(other) == outline]
    return next((other for other in found if other.name == sketch.name), next(iter(found), None))


def moved_candidate(candidate: Candidate, space: SearchSpace) -> Candidate | None:
    """A candidate of another workload as one of this space; itself where it is one.

    The outermost factor of every tiled axis grows and shrinks with the axis, so that inner tiles,
    which caches and registers decide, keep their sizes; then the nearest feasible configuration is
    taken (``FeasibleSet.nearest``). A sketch from before rows of shared memory could be padded, or
    before fetches could be pipelined, moves to the one that is the same without these.

    Returns:
        The candidate; None where no sketch of the space corresponds, or the space cannot say what
        is feasible.
    """
    sketches = {sketch.name: sketch for sketch in space.sketches()}
    plain = corresponding_sketch(candidate.sketch, list(sketches.values()))
    for params_of in (_pipeline_params, _pad_or_pipeline_params):
        if plain is None:
            older = [_without(other, params_of) for other in sketches.values()]
            plain = corresponding_sketch(candidate.sketch, older)
    if plain is None:
        return None
    sketch = sketches[plain.name]
    try:
        feasible = space.feasible_set(sketch)
    except InvalidValueError:
        return None
    scaled = dict(zip(plain.param_names, _scaled(candidate, plain), strict=True))
    row = np.array([[scaled.get(name, 0) for name in sketch.param_names]], dtype=np.int64)
    return Candidate(sketch, tuple(feasible.nearest(row)[0].tolist()))


def _pipeline_params(step: Step) -> frozenset[str] | None:
    """The parameters of a step that pipelines; None for any other."""
    return step.depth.variables if isinstance(step, PipelineFetches) else None


def _pad_or_pipeline_params(step: Step) -> frozenset[str] | None:
    """The parameters of a step that pads rows of shared memory or pipelines; None for others."""
    if isinstance(step, SharedLayout) and list(step.dims) == sorted(step.dims):
        return step.pad.variables
    return _pipeline_params(step)


def _without(sketch: Sketch, params_of: Callable[[Step], frozenset[str] | None]) -> Sketch:
    """A sketch without some steps and their parameters; of its constraints those on products."""
    gone = frozenset[str]().union(*(params_of(step) or () for step in sketch.steps))
    return evolve(
        sketch,
        params=tuple(param for param in sketch.params if param.name not in gone),
        constraints=tuple(it for it in sketch.constraints if isinstance(it, ProductEquals)),
        steps=tuple(step for step in sketch.steps if params_of(step) is None),
    )


def _outline(sketch: Sketch) -> tuple[object, ...]:
    """Common form of corresponding sketches: steps without names and numbers, and columns."""
    params = {name: f"p{number}" for number, name in enumerate(sketch.param_names)}
    steps = renamed_steps(sketch.steps, sketch.workload.names, params)
    kinds = tuple(type(param).__name__ for param in sketch.params)
    return without_numbers(json.dumps(to_json(steps))), kinds, tuple(_products(sketch))


def _products(sketch: Sketch) -> dict[tuple[int, ...], ProductEquals]:
    """Its constraints on products, by the columns of their factors, the outermost first."""
    place = {name: number for number, name in enumerate(sketch.param_names)}
    found = (it for it in sketch.constraints if isinstance(it, ProductEquals))
    return {tuple(place[name] for name in it.factors): it for it in found}


def _scaled(candidate: Candidate, sketch: Sketch) -> list[int]:
    """The values of a candidate, with what an axis decides in proportion to the axis."""
    values = list(candidate.values)
    theirs, ours = _products(candidate.sketch), _products(sketch)
    totals = frozenset().union(*(it.total.variables for it in ours.values()))
    for number, (old, new) in enumerate(zip(candidate.sketch.params, sketch.params, strict=True)):
        # The choices of a padded extent begin with the extent.
        if isinstance(old, Ordinal) and isinstance(new, Ordinal) and new.name in totals:
            values[number] = _proportional(values[number], new.values[0], old.values[0])
    config = dict(zip(sketch.param_names, values, strict=True))
    for columns, product in ours.items():
        before = int(evaluate(theirs[columns].total, candidate.config))
        after = int(evaluate(product.total, config))
        outermost = columns[0]
        values[outermost] = _proportional(values[outermost], after, before)
    return values


def _proportional(value: int, after: int, before: int) -> int:
    return max(1, round(value * after / before)) if before > 0 else value
