"""Parts of a search over parameters: its space, its strategy and its cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.errors import InvalidValueError
from autotune.models.cost import CostModel
from autotune.plugins import Context
from autotune.plugins.manager import manager
from autotune.plugins.parts import check_part, create_part
from autotune.search.strategies import Strategy
from autotune.spaces.parameters import (
    Parameter,
    ParameterSpace,
    Value,
    encode_config,
    parameter_space,
    recorded_space,
)

__all__ = ["as_parameters", "make_parts", "make_space"]

_NO_MODEL = "random"


def as_parameters(
    parameters: Mapping[str, Sequence[Value]] | Sequence[Parameter],
) -> tuple[Parameter, ...]:
    """Parameters, given as such or as values by name.

    Raises:
        InvalidValueError: they are neither, or one of them is wrong.
    """
    if isinstance(parameters, Mapping):
        for name, values in parameters.items():
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise InvalidValueError(
                    f"parameter {name!r} has values {values!r}; give a list of them"
                )
        return tuple(Parameter(name, tuple(values)) for name, values in parameters.items())
    for parameter in parameters:
        if not isinstance(parameter, Parameter):
            raise InvalidValueError(
                f"parameters are a mapping of names to values, or Parameters, not {parameter!r}"
            )
    return tuple(parameters)


def make_space(
    program: str,
    parameters: Sequence[Parameter],
    constraints: Sequence[str],
    configs: Sequence[Mapping[str, Value]] | None,
) -> ParameterSpace:
    """The configurations that satisfy constraints, or those that are given.

    Raises:
        InvalidValueError: both are given, or none is left; as of :func:`parameter_space`.
        UnknownNameError: a constraint is about another parameter.
    """
    if configs is None:
        return parameter_space(program, parameters, constraints)
    if constraints:
        raise InvalidValueError("give constraints, or the configurations that there are, not both")
    rows = [encode_config(parameters, config) for config in configs]
    return recorded_space(program, parameters, np.array(rows, dtype=np.int64))


def make_parts(
    space: ParameterSpace, name: str, options: Mapping[str, Any], seed: int
) -> tuple[CostModel, Strategy]:
    """A strategy, and the cost model that it asks.

    Args:
        space: The space.
        name: Of the strategy.
        options: Its options.
        seed: Of everything that is random.

    Raises:
        InvalidValueError: either needs a loop nest.
        UnknownNameError: there is no such strategy.
    """
    check_part("strategy", name)
    spec = None if ":" in name else manager().get("strategy", name)
    model = _NO_MODEL if spec is None or not spec.default_cost_model else spec.default_cost_model
    needy = [it for it in (spec, manager().get("cost_model", model)) if it and it.reads_nest]
    if needy:
        known = [manager().get("strategy", it) for it in manager().names("strategy")]
        can = ", ".join(it.name for it in known if not it.reads_nest)
        raise InvalidValueError(
            f"{needy[0].kind.replace('_', ' ')} {needy[0].name!r} reads the symbolic loop nest, "
            f"and parameters alone have none; strategies can be: {can}"
        )
    cost_model: CostModel = create_part("cost_model", model, Context(seed=seed))
    context = Context(
        space=space, rng=np.random.default_rng(seed), cost_model=cost_model, options=options
    )
    strategy: Strategy = create_part("strategy", name, context)
    return cost_model, strategy
