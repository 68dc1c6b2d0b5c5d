"""The T1 format of tuning problems: parameters and constraints, parsed and never evaluated."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.evaluation.replay.formats.fields import (
    checked_list,
    checked_object,
    checked_text,
    checked_value,
    required,
)
from autotune.evaluation.replay.recorded import RecordedSpace, shown
from autotune.spaces.parameters import Condition, Parameter, Value, parse_condition

__all__ = ["Description", "check_described", "read_t1", "t1_text"]

TYPES: Mapping[str, tuple[type[Any], ...]] = {
    "int": (int,),
    "uint": (int,),
    "float": (int, float),
    "bool": (bool,),
    "string": (str,),
}
"""What the values of a parameter are, by the name of their type."""


@frozen
class Description:
    """Parameters of a kernel and the constraints that tie them.

    Attributes:
        name: Of the kernel.
        parameters: The parameters, in order.
        constraints: Over them.
    """

    name: str
    parameters: tuple[Parameter, ...]
    constraints: tuple[Condition, ...] = ()


def read_t1(data: Mapping[str, Any], name: str) -> Description:
    """Read a T1 file; what it says of building and running is passed over.

    Args:
        data: Its JSON object.
        name: What to call it.

    Raises:
        InvalidValueError: it is no such file, or a constraint has what cannot be parsed, such as
            the call of a function.
        UnknownNameError: a type, or a parameter in a constraint, is none that there is.
    """
    space = checked_object(
        required(data, "ConfigurationSpace", name), f"{name}: 'ConfigurationSpace'"
    )
    listed = checked_list(required(space, "TuningParameters", name), f"{name}: 'TuningParameters'")
    if not listed:
        raise InvalidValueError(f"{name} has no parameters")
    parameters = tuple(_parameter(it, f"{name}: parameter {n}") for n, it in enumerate(listed))
    names = [parameter.name for parameter in parameters]
    for parameter in parameters:
        if names.count(parameter.name) > 1:
            raise InvalidValueError(f"{name}: two parameters are called {parameter.name!r}")
    conditions = checked_list(space.get("Conditions", []), f"{name}: 'Conditions'")
    constraints = [
        _condition(it, names, f"{name}: condition {n}") for n, it in enumerate(conditions)
    ]
    general = checked_object(data.get("General", {}), f"{name}: 'General'")
    kernel = checked_text(general.get("BenchmarkName", name), f"{name}: 'BenchmarkName'")
    return Description(kernel, parameters, tuple(constraints))


def _parameter(data: Any, where: str) -> Parameter:
    data = checked_object(data, where)
    kind = checked_text(required(data, "Type", where), f"{where}: 'Type'")
    if kind not in TYPES:
        raise UnknownNameError(f"type of {where}", kind, TYPES)
    text = checked_text(required(data, "Values", where), f"{where}: 'Values'")
    try:
        listed = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        listed = None
    if not isinstance(listed, (list, tuple)):
        raise InvalidValueError(
            f"{where}: its values are not a list of numbers, texts or truth values: {text[:80]!r}"
        )
    values = tuple(_typed(it, kind, where) for it in listed)
    default = data.get("Default")
    if default is not None and default not in values:
        # Some files have defaults of another size of the problem.
        default = None
    return Parameter(checked_text(required(data, "Name", where), where), values, default)


def _typed(value: Any, kind: str, where: str) -> Value:
    value = checked_value(value, where)
    wrong_bool = isinstance(value, bool) and kind != "bool"
    if wrong_bool or not isinstance(value, TYPES[kind]) or (kind == "uint" and value < 0):
        raise InvalidValueError(f"{where}: value {value!r} is no {kind}")
    return float(value) if kind == "float" else value


def _condition(data: Any, names: Sequence[str], where: str) -> Condition:
    expression = required(checked_object(data, where), "Expression", where)
    return parse_condition(checked_text(expression, f"{where}: 'Expression'"), names)


def check_described(space: RecordedSpace, description: Description) -> None:
    """Raise where a recorded configuration breaks a constraint.

    Configurations that were recorded as ``invalid`` may break them.

    Raises:
        InvalidValueError: names the first such configuration, and the constraint.
    """
    values = {
        parameter.name: _as_array(parameter.values)[positions]
        for parameter, positions in zip(space.parameters, space.positions.T, strict=True)
    }
    allowed = np.array([it.status == "invalid" for it in space.evaluations])
    for constraint in description.constraints:
        broken = ~(constraint.holds(values) | allowed)
        if broken.any():
            first = space.evaluations[int(np.argmax(broken))].configuration
            raise InvalidValueError(
                f"{space.name}: configuration {shown(first)} breaks the constraint "
                f"{constraint.text!r} of {description.name}"
            )


def _as_array(values: Sequence[Value]) -> NDArray[Any]:
    """Values as constraints see them: of several types they stay what they are."""
    kinds = set(map(type, values))
    if kinds <= {int, float} or len(kinds) == 1:
        return np.array(values)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def t1_text(description: Description) -> str:
    """A T1 file with the parameters and constraints.

    What the format requires to be said of building a kernel is left empty: nothing is known of it.
    """
    parameters = []
    for it in description.parameters:
        default = {} if it.default is None else {"Default": it.default}
        parameters.append(
            {"Name": it.name, "Type": _type(it), "Values": repr(list(it.values)), **default}
        )
    data = {
        "General": {"BenchmarkName": description.name, "OutputFormat": "JSON"},
        "ConfigurationSpace": {
            "TuningParameters": parameters,
            "Conditions": [
                {"Expression": it.text, "Parameters": list(it.names)}
                for it in description.constraints
            ],
        },
        "KernelSpecification": {
            "Language": "CUDA",
            "KernelName": description.name,
            "KernelFile": "",
            "GlobalSize": {"X": ""},
            "LocalSize": {"X": ""},
        },
    }
    return json.dumps(data, indent=1) + "\n"


def _type(parameter: Parameter) -> str:
    kinds = set(map(type, parameter.values))
    for name, allowed in (("bool", {bool}), ("int", {int}), ("float", {int, float})):
        if kinds <= allowed:
            return name
    if kinds == {str}:
        return "string"
    raise InvalidValueError(
        f"parameter {parameter.name!r} has values of several types, which T1 has no type for"
    )
