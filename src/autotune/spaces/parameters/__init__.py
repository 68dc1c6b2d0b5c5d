"""Spaces of parameters alone, for programs that only their own tools understand."""

from __future__ import annotations

from autotune.spaces.parameters.parameter import (
    Condition,
    Parameter,
    Value,
    column_scale,
    encode_config,
    parse_condition,
)
from autotune.spaces.parameters.parameter_space import (
    ParameterSpace,
    parameter_space,
    recorded_space,
)

__all__ = [
    "Condition",
    "Parameter",
    "ParameterSpace",
    "Value",
    "column_scale",
    "encode_config",
    "parameter_space",
    "parse_condition",
    "recorded_space",
]
