"""Kernel Tuner's cache files: JSON with one entry for each configuration, in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.evaluation.replay.formats.fields import (
    SECONDS,
    checked,
    checked_time,
    checked_value,
    parse_json,
    required,
)
from autotune.evaluation.replay.recorded import Evaluation, RecordedSpace, make_space
from autotune.spaces.parameters import Parameter

__all__ = ["FAILURES", "cache_text", "parse_cache", "read_cache"]

FAILURES: Mapping[str, str] = {
    "CompilationFailedConfig": "build_error",
    "RuntimeFailedConfig": "crash",
    "InvalidConfig": "invalid",
}
"""Our status of each error that Kernel Tuner puts in place of a time."""

MILLISECOND = SECONDS["ms"]
# What earlier versions put in place of the time of a configuration that failed.
_FAILED_TIME = 1e20
_TIMES = ("compile_time", "verification_time", "benchmark_time")
_HEADER = ("tune_params_keys", "tune_params", "cache")
_UNKNOWN_ENDINGS = ("}\n}", "}}", "}")


def parse_cache(text: str) -> dict[str, Any]:
    """The JSON object of a cache file, which may lack its last braces, or end in a comma.

    Raises:
        InvalidValueError: it is cut off elsewhere, or no JSON object.
    """
    try:
        return checked(dict, parse_json(text), "the file")
    except ValueError as error:
        first = error
    open_ended = text.rstrip().removesuffix(",")
    for ending in _UNKNOWN_ENDINGS:
        try:
            return checked(dict, parse_json(open_ended + ending), "the file")
        except ValueError:
            continue
    raise InvalidValueError(f"it is no JSON, or cut off within a configuration: {first}")


def read_cache(data: Mapping[str, Any], name: str, device: str) -> RecordedSpace:
    """The space that a cache file holds.

    Args:
        data: Its JSON object.
        name: What to call the space.
        device: What to call the device where the file does not say.

    Raises:
        InvalidValueError: it is no such file; names the configuration and what is wrong.
        UnknownNameError: a configuration has a parameter that is not among those of the file.
    """
    keys, values = (
        checked(list, required(data, "tune_params_keys", name), f"{name}: 'tune_params_keys'"),
        checked(dict, required(data, "tune_params", name), f"{name}: 'tune_params'"),
    )
    _check_objective(data, name)
    parameters = []
    for key in keys:
        where = f"{name}: parameter {key!r}"
        if not isinstance(key, str) or key not in values:
            raise InvalidValueError(f"{where} has no values in 'tune_params'")
        found = checked(list, values[key], where)
        parameters.append(Parameter(key, tuple(checked_value(it, where) for it in found)))
    entries = checked(dict, required(data, "cache", name), f"{name}: 'cache'")
    names = tuple(parameter.name for parameter in parameters)
    if unknown := set(values) - set(names):
        raise UnknownNameError(f"parameter of {name}", min(unknown), names)
    evaluations = [_evaluation(entry, names, f"{name}: {key}") for key, entry in entries.items()]
    without = sum("compile_time" not in entry for entry in entries.values())
    notes = (f"{without} configurations have no compile time",) if without else ()
    return make_space(
        name,
        parameters,
        evaluations,
        checked(str, data.get("kernel_name", ""), f"{name}: 'kernel_name'"),
        checked(str, data.get("device_name", ""), f"{name}: 'device_name'") or device,
        json.dumps(data["problem_size"]) if data.get("problem_size") else "",
        notes,
    )


def _check_objective(data: Mapping[str, Any], name: str) -> None:
    objective = data.get("objective", "time")
    if objective not in ("time", ["time"]):
        raise InvalidValueError(
            f"{name} has the objective {objective!r}; only times can be replayed, as 'time'"
        )


def _evaluation(entry: Any, names: tuple[str, ...], where: str) -> Evaluation:
    entry = checked(dict, entry, where)
    # Other fields are metrics of the user's own.
    configuration = {
        key: checked_value(entry[key], f"{where}: {key!r}") for key in names if key in entry
    }
    milliseconds = {
        key: checked_time(entry[key], f"{where}: {key!r}") if key in entry else 0.0
        for key in (*_TIMES, "framework_time")
    }
    samples = tuple(
        checked_time(it, f"{where}: 'times'")
        for it in checked(list, entry.get("times", []), where)
    )
    status, time = _ending(entry, where)
    running = milliseconds["verification_time"] + (
        milliseconds["benchmark_time"] if "benchmark_time" in entry else sum(samples)
    )
    return Evaluation(
        configuration,
        status,
        None if time is None else time * MILLISECOND,
        tuple(it * MILLISECOND for it in samples) if time is not None else (),
        milliseconds["compile_time"] * MILLISECOND,
        running * MILLISECOND,
        milliseconds["framework_time"] * MILLISECOND,
    )


def _ending(entry: Mapping[str, Any], where: str) -> tuple[str, float | None]:
    """The status, and the time in milliseconds."""
    time = entry.get("__error__", required(entry, "time", where) if "time" in entry else None)
    if isinstance(time, str):
        if time not in FAILURES:
            raise UnknownNameError(f"error in {where}", time, FAILURES)
        return FAILURES[time], None
    if time is None:
        raise InvalidValueError(f"{where} lacks 'time'")
    found = checked_time(time, f"{where}: 'time'")
    return ("crash", None) if found >= _FAILED_TIME else ("ok", found)


def cache_text(space: RecordedSpace) -> str:
    """A cache file of the space, as Kernel Tuner reads it.

    Statuses that Kernel Tuner has no name for are failures at run time there.
    """
    errors = {status: error for error, status in FAILURES.items()}
    entries = {}
    for it in space.evaluations:
        key = ",".join(str(it.configuration[name.name]) for name in space.parameters)
        ok = it.seconds is not None
        entries[key] = {
            **it.configuration,
            "time": (
                it.seconds / MILLISECOND
                if it.seconds is not None
                else errors.get(it.status, "RuntimeFailedConfig")
            ),
            **({"times": [sample / MILLISECOND for sample in it.samples]} if ok else {}),
            "compile_time": it.compiling / MILLISECOND,
            "verification_time": 0.0,
            "benchmark_time": it.running / MILLISECOND,
            "strategy_time": 0.0,
            "framework_time": it.framework / MILLISECOND,
        }
    header = {
        "device_name": space.device,
        "kernel_name": space.kernel,
        "problem_size": json.loads(space.problem) if space.problem else "",
        "tune_params_keys": [parameter.name for parameter in space.parameters],
        "tune_params": {it.name: list(it.values) for it in space.parameters},
        "objective": "time",
    }
    lines = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items()]
    # Kernel Tuner tells a file that was closed by its last three characters.
    opening = json.dumps(header)[:-1]
    return opening + ', "cache": {\n' + ",\n".join(lines) + "}\n}\n"
