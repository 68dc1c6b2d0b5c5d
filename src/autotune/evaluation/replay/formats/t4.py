"""The formats T4 (results, 1.0.0) and T1 (parameters and constraints, never evaluated)."""

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
    SECONDS,
    checked,
    checked_time,
    checked_unit,
    checked_value,
    required,
)
from autotune.evaluation.replay.recorded import Evaluation, RecordedSpace, make_space, shown
from autotune.spaces.parameters import Condition, Parameter, Value, parse_condition

__all__ = [
    "INVALIDITIES",
    "SCHEMA_VERSION",
    "Description",
    "check_described",
    "read_t1",
    "read_t4",
    "t1_text",
    "t4_text",
]

SCHEMA_VERSION = "1.0.0"
INVALIDITIES: Mapping[str, str] = {
    "correct": "ok",
    "timeout": "timeout",
    "compile": "build_error",
    "runtime": "crash",
    "correctness": "wrong_result",
    "constraints": "invalid",
}
"""Our status of each value of ``invalidity``."""

# The schema names the time of compiling one way, files the other.
_COMPILING = ("compilation", "compilation_time")
_UNIT = "milliseconds"


def read_t4(
    data: Mapping[str, Any],
    name: str,
    kernel: str,
    device: str,
    parameters: Sequence[Parameter] | None = None,
) -> RecordedSpace:
    """The space that a T4 file holds.

    Args:
        data: Its JSON object.
        name: What to call the space.
        kernel: Name of the kernel, which the file does not tell.
        device: Name of the device, likewise.
        parameters: The parameters, in order, with their values; None for those that the results
            have, their values sorted.

    Raises:
        InvalidValueError: it is no such file, or of another version of the schema.
        UnknownNameError: a name in it is not one that the format has.
    """
    version = required(data, "schema_version", name)
    if version != SCHEMA_VERSION:
        raise InvalidValueError(
            f"{name} is of version {version!r} of the T4 schema; only {SCHEMA_VERSION!r} is read"
        )
    metadata = checked(dict, data.get("metadata", {}), f"{name}: 'metadata'")
    unit = checked_unit(metadata.get("timeunit", _UNIT), f"{name}: 'timeunit'")
    results = checked(list, required(data, "results", name), f"{name}: 'results'")
    evaluations = [
        _evaluation(it, unit, f"{name}: result {number}") for number, it in enumerate(results)
    ]
    if parameters is None:
        parameters = _parameters(evaluations)
    return make_space(name, parameters, evaluations, kernel, device)


def _parameters(evaluations: Sequence[Evaluation]) -> tuple[Parameter, ...]:
    """Parameters of the configurations, values in order; texts and truth values as they come."""
    found: dict[str, dict[tuple[bool, Value], Value]] = {}
    for evaluation in evaluations:
        for name, value in evaluation.configuration.items():
            found.setdefault(name, {})[isinstance(value, bool), value] = value
    return tuple(
        Parameter(name, _ordered(list(values.values()))) for name, values in found.items()
    )


def _ordered(values: list[Value]) -> tuple[Value, ...]:
    numbers = [it for it in values if isinstance(it, (int, float)) and not isinstance(it, bool)]
    return tuple(sorted(numbers)) if len(numbers) == len(values) else tuple(values)


def _evaluation(data: Any, unit: float, where: str) -> Evaluation:
    data = checked(dict, data, where)
    configuration = {
        key: checked_value(value, f"{where}: {key!r}")
        for key, value in checked(dict, required(data, "configuration", where), where).items()
    }
    invalidity = checked(str, required(data, "invalidity", where), f"{where}: 'invalidity'")
    if invalidity not in INVALIDITIES:
        raise UnknownNameError(f"invalidity in {where}", invalidity, INVALIDITIES)
    times = checked(dict, required(data, "times", where), f"{where}: 'times'")
    samples = tuple(
        checked_time(it, f"{where}: 'runtimes'") * unit
        for it in checked(list, times.get("runtimes", []), f"{where}: 'runtimes'")
    )
    status = INVALIDITIES[invalidity]
    ok = status == "ok"
    return Evaluation(
        configuration,
        status,
        _objective(data, unit, where) if ok else None,
        samples if ok else (),
        _compiling(times, where) * unit,
        _time(times, "validation", where) * unit + sum(samples),
        _time(times, "framework", where) * unit,
    )


def _objective(data: Mapping[str, Any], unit: float, where: str) -> float:
    """The value that was minimised, in seconds."""
    objectives = checked(list, data.get("objectives", ["time"]), f"{where}: 'objectives'")
    if len(objectives) != 1:
        raise InvalidValueError(f"{where} has {len(objectives)} objectives; one can be replayed")
    for measurement in checked(list, required(data, "measurements", where), where):
        measurement = checked(dict, measurement, where)
        if measurement.get("name") == objectives[0]:
            named = measurement.get("unit", "")
            if not named and objectives[0] != "time":
                break
            value = checked_time(required(measurement, "value", where), f"{where}: 'value'")
            return value * (checked_unit(named, f"{where}: 'unit'") if named else unit)
    raise InvalidValueError(
        f"{where} has no time as its objective {objectives[0]!r}; only times can be replayed"
    )


def _compiling(times: Mapping[str, Any], where: str) -> float:
    found = {_time(times, key, where) for key in _COMPILING if key in times}
    if len(found) > 1:
        raise InvalidValueError(f"{where}: {' and '.join(_COMPILING)} contradict each other")
    return found.pop() if found else 0.0


def _time(times: Mapping[str, Any], key: str, where: str) -> float:
    return checked_time(times.get(key, 0.0), f"{where}: {key!r}")


def t4_text(space: RecordedSpace) -> str:
    """A T4 file of the space; its times are in milliseconds."""
    invalidities = {status: name for name, status in INVALIDITIES.items()}
    unit = SECONDS[_UNIT]
    results = []
    for it in space.evaluations:
        invalidity = invalidities.get(it.status, "correctness")
        validation = max(0.0, it.running - sum(it.samples))
        measured = (
            []
            if it.seconds is None
            else [{"name": "time", "value": it.seconds / unit, "unit": "ms"}]
        )
        results.append(
            {
                "configuration": dict(it.configuration),
                "times": {
                    "compilation_time": it.compiling / unit,
                    "framework": it.framework / unit,
                    "search_algorithm": 0.0,
                    "validation": validation / unit,
                    "runtimes": [sample / unit for sample in it.samples],
                },
                "invalidity": invalidity,
                "correctness": float(invalidity == "correct"),
                "measurements": measured,
                "objectives": ["time"],
            }
        )
    data = {
        "schema_version": SCHEMA_VERSION,
        "metadata": {"timeunit": _UNIT},
        "results": results,
    }
    return json.dumps(data, indent=1) + "\n"


TYPES: Mapping[str, tuple[type[Any], ...]] = {
    "int": (int,),
    "uint": (int,),
    "float": (int, float),
    "bool": (bool,),
    "string": (str,),
}
"""Classes of a parameter's values, by the name of their type."""


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
    space = checked(
        dict, required(data, "ConfigurationSpace", name), f"{name}: 'ConfigurationSpace'"
    )
    listed = checked(
        list, required(space, "TuningParameters", name), f"{name}: 'TuningParameters'"
    )
    if not listed:
        raise InvalidValueError(f"{name} has no parameters")
    parameters = tuple(_parameter(it, f"{name}: parameter {n}") for n, it in enumerate(listed))
    names = [parameter.name for parameter in parameters]
    for parameter in parameters:
        if names.count(parameter.name) > 1:
            raise InvalidValueError(f"{name}: two parameters are called {parameter.name!r}")
    conditions = checked(list, space.get("Conditions", []), f"{name}: 'Conditions'")
    constraints = [
        _condition(it, names, f"{name}: condition {n}") for n, it in enumerate(conditions)
    ]
    general = checked(dict, data.get("General", {}), f"{name}: 'General'")
    kernel = checked(str, general.get("BenchmarkName", name), f"{name}: 'BenchmarkName'")
    return Description(kernel, parameters, tuple(constraints))


def _parameter(data: Any, where: str) -> Parameter:
    data = checked(dict, data, where)
    kind = checked(str, required(data, "Type", where), f"{where}: 'Type'")
    if kind not in TYPES:
        raise UnknownNameError(f"type of {where}", kind, TYPES)
    text = checked(str, required(data, "Values", where), f"{where}: 'Values'")
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
    return Parameter(checked(str, required(data, "Name", where), where), values, default)


def _typed(value: Any, kind: str, where: str) -> Value:
    value = checked_value(value, where)
    wrong_bool = isinstance(value, bool) and kind != "bool"
    if wrong_bool or not isinstance(value, TYPES[kind]) or (kind == "uint" and value < 0):
        raise InvalidValueError(f"{where}: value {value!r} is no {kind}")
    return float(value) if kind == "float" else value


def _condition(data: Any, names: Sequence[str], where: str) -> Condition:
    expression = required(checked(dict, data, where), "Expression", where)
    return parse_condition(checked(str, expression, f"{where}: 'Expression'"), names)


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
