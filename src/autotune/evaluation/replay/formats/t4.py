"""The T4 format of tuning results, version 1.0.0, as files of the benchmark hub have it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.evaluation.replay.formats.fields import (
    SECONDS,
    checked_list,
    checked_object,
    checked_text,
    checked_time,
    checked_unit,
    checked_value,
    required,
)
from autotune.evaluation.replay.recorded import Evaluation, RecordedSpace, make_space
from autotune.spaces.parameters import Parameter, Value

__all__ = ["INVALIDITIES", "SCHEMA_VERSION", "read_t4", "t4_text"]

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
    metadata = checked_object(data.get("metadata", {}), f"{name}: 'metadata'")
    unit = checked_unit(metadata.get("timeunit", _UNIT), f"{name}: 'timeunit'")
    results = checked_list(required(data, "results", name), f"{name}: 'results'")
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
    data = checked_object(data, where)
    configuration = {
        key: checked_value(value, f"{where}: {key!r}")
        for key, value in checked_object(required(data, "configuration", where), where).items()
    }
    invalidity = checked_text(required(data, "invalidity", where), f"{where}: 'invalidity'")
    if invalidity not in INVALIDITIES:
        raise UnknownNameError(f"invalidity in {where}", invalidity, INVALIDITIES)
    times = checked_object(required(data, "times", where), f"{where}: 'times'")
    samples = tuple(
        checked_time(it, f"{where}: 'runtimes'") * unit
        for it in checked_list(times.get("runtimes", []), f"{where}: 'runtimes'")
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
    objectives = checked_list(data.get("objectives", ["time"]), f"{where}: 'objectives'")
    if len(objectives) != 1:
        raise InvalidValueError(f"{where} has {len(objectives)} objectives; one can be replayed")
    for measurement in checked_list(required(data, "measurements", where), where):
        measurement = checked_object(measurement, where)
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
