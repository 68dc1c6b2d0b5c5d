"""Specs: external programs as TOML or JSON, through one strict schema.

Read into data only: no word of a spec is evaluated, and its commands are run by nothing here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.external.program import (
    BUILD_PLACEHOLDERS,
    RUN_PLACEHOLDERS,
    Build,
    CommandTemplate,
    ExternalProgram,
    Read,
    Run,
    Validation,
    command_template,
)
from autotune.ir.text_files import document
from autotune.spaces.parameters import Parameter

__all__ = [
    "parameter_of",
    "parameters_of",
    "parameters_of_text",
    "program_of",
    "program_of_text",
    "read_spec",
]

_Value = TypeVar("_Value", str, int)
_MOST_BYTES = 1 << 22
_MOST_VALUES = 1 << 12
"""Of one parameter in records."""
_KEYS = (
    "name",
    "parameters",
    "constraints",
    "build",
    "run",
    "read",
    "unit",
    "validate",
    "environment",
    "files",
    "directory",
)
_FROM = ("from", "to", "step")


def read_spec(path: str | Path) -> ExternalProgram:
    """The program that a spec describes; a file that ends in ``.json`` is JSON, others are TOML.

    Raises:
        InvalidValueError: the file cannot be read, is neither, or says something that cannot be.
        UnknownNameError: it has a key, a placeholder or a word that there is none of.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InvalidValueError(f"spec {str(path)!r} has more than {_MOST_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(f"cannot read spec {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidValueError(f"spec {str(path)!r} is no text in UTF-8") from None
    data = document(text, f"spec {str(path)!r}", is_json=path.suffix == ".json")
    return program_of(data, path.resolve().parent, path.stem)


def program_of_text(text: str, directory: str | Path) -> ExternalProgram:
    """The program of :attr:`ExternalProgram.text`.

    Raises:
        AutotuneError: as of :func:`program_of`.
    """
    return program_of(_loaded(text), directory)


def parameters_of_text(text: str) -> tuple[Parameter, ...]:
    """The parameters of :attr:`ExternalProgram.text`, such as a record holds.

    Raises:
        InvalidValueError: it is no such text.
        UnknownNameError: it has a key that there is none of.
    """
    data = _table("the program of a record", _loaded(text))
    return parameters_of(data.get("parameters"))


def program_of(data: object, directory: str | Path, name: str = "external") -> ExternalProgram:
    """The program that the object of a spec describes.

    Args:
        data: The object.
        directory: What a relative ``directory`` of it is relative to.
        name: What the program is called if the spec does not say.

    Raises:
        InvalidValueError: something is of the wrong type, out of range, or contradicts another.
        UnknownNameError: a key, a placeholder or a word does not exist; names what is near.
    """
    spec = _table("a spec", data, _KEYS)
    for key in ("parameters", "run"):
        if key not in spec:
            given = ", ".join(spec) or "nothing"
            raise InvalidValueError(f"the spec of {name!r} needs {key!r}; it has {given}")
    parameters = parameters_of(spec["parameters"])
    names = [parameter.name for parameter in parameters]
    run = _run(spec["run"], names)
    usual = "wall" if run.command is not None else "function"
    return ExternalProgram(
        name=_get(spec, "name", str, name),
        parameters=parameters,
        constraints=_texts("constraints", spec.get("constraints", [])),
        build=_build(spec["build"], names) if "build" in spec else None,
        run=run,
        read=_read(spec.get("read", {}), usual),
        unit=_get(spec, "unit", str, "s"),
        validation=_validation(spec["validate"]) if "validate" in spec else None,
        environment=_environment(spec.get("environment", {})),
        files=_texts("files", spec.get("files", [])),
        directory=_directory(Path(directory), _get(spec, "directory", str, ".")),
    )


def parameters_of(given: object) -> tuple[Parameter, ...]:
    """Parameters by name, each as :func:`parameter_of` takes it; or a list of them as it is.

    Raises:
        InvalidValueError: there is none, or one is given in no such way.
        UnknownNameError: one has a key that there is none of.
    """
    if isinstance(given, (list, tuple)) and all(isinstance(it, Parameter) for it in given):
        found = tuple(given)
    else:
        table = _table("parameters", given)
        found = tuple(parameter_of(name, it) for name, it in table.items())
    if not found:
        raise InvalidValueError("there are no parameters to tune")
    return found


def parameter_of(name: str, given: object) -> Parameter:
    """Read a parameter.

    Args:
        name: Its name.
        given: A list of values, a range of Python, or an object with ``values``, ``range`` or
            ``powers_of_two`` and perhaps a ``default``.

    Raises:
        InvalidValueError: it is nothing of that.
        UnknownNameError: the object has another key.
    """
    owner = f"parameter {name!r}"
    if isinstance(given, (list, tuple, range)):
        return Parameter(name, _few(owner, given))
    table = _table(owner, given, ("values", "range", "powers_of_two", "default"))
    kinds = [key for key in ("values", "range", "powers_of_two") if key in table]
    if len(kinds) != 1:
        raise InvalidValueError(
            f"{owner} has {' and '.join(kinds) or 'no values'}; it needs one of values, range and "
            "powers_of_two"
        )
    if kinds == ["values"]:
        values = _few(owner, _list(f"{owner}: values", table["values"]))
    elif kinds == ["range"]:
        bounds = _bounds(f"{owner}: range", table["range"], _FROM)
        values = _steps(owner, *bounds)
    else:
        low, high, _ = _bounds(f"{owner}: powers_of_two", table["powers_of_two"], _FROM[:2])
        values = _powers(owner, low, high)
    return Parameter(name, values, table.get("default"))


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"not the text of an external program: {error}") from None


def _build(given: object, names: Sequence[str]) -> Build:
    table = _table("build", given, ("command", "timeout"))
    if "command" not in table:
        raise InvalidValueError("build needs 'command'")
    command = command_template("build.command", table["command"], (*names, *BUILD_PLACEHOLDERS))
    return Build(command, _number("build.timeout", table.get("timeout", 60.0)))


def _run(given: object, names: Sequence[str]) -> Run:
    table = _table("run", given, ("command", "function", "timeout", "repeats", "warmup"))
    command: CommandTemplate | None = None
    if "command" in table:
        command = command_template("run.command", table["command"], (*names, *RUN_PLACEHOLDERS))
    return Run(
        command,
        _get(table, "function", str, "", "run."),
        _number("run.timeout", table.get("timeout", 60.0)),
        _get(table, "repeats", int, 3, "run."),
        _get(table, "warmup", int, 0, "run."),
    )


def _read(given: object, usual: str) -> Read:
    table = _table("read", given, ("from", "pattern", "field"))
    pattern, where = (_get(table, key, str, "", "read.") for key in ("pattern", "field"))
    usual = "stdout" if pattern else "json" if where else usual
    return Read(_get(table, "from", str, usual, "read."), pattern, where)


def _validation(given: object) -> Validation:
    table = _table("validate", given, ("method", "rtol", "atol", "dtype", "reference"))
    return Validation(
        _get(table, "method", str, "allclose", "validate."),
        _number("validate.rtol", table.get("rtol", 1e-5)),
        _number("validate.atol", table.get("atol", 1e-8)),
        _get(table, "dtype", str, "", "validate."),
        _get(table, "reference", str, "", "validate."),
    )


def _environment(given: object) -> dict[str, str]:
    table = _table("environment", given)
    for name, value in table.items():
        if not isinstance(value, str):
            raise InvalidValueError(f"environment.{name} is a text, not {value!r}")
    return table


def _directory(base: Path, given: str) -> Path:
    directory = (base / given).resolve()
    if not directory.is_dir():
        raise InvalidValueError(f"directory {given!r}: there is no folder {str(directory)!r}")
    return directory


def _few(owner: str, values: Sequence[Any]) -> tuple[Any, ...]:
    if len(values) > _MOST_VALUES:
        raise InvalidValueError(f"{owner} has {len(values)} values; there can be {_MOST_VALUES}")
    return tuple(values)


def _steps(owner: str, low: float, high: float, step: float) -> tuple[float, ...]:
    """Numbers from ``low`` to ``high``, both included."""
    if step <= 0 or high < low:
        raise InvalidValueError(
            f"{owner}: a range goes up from a number to one that is no smaller, by a positive "
            f"step; not from {low} to {high} by {step}"
        )
    count = math.floor((high - low) / step + 1e-9) + 1
    return tuple(low + number * step for number in _few(owner, range(count)))


def _powers(owner: str, low: float, high: float) -> tuple[int, ...]:
    whole = [it for it in (low, high) if isinstance(it, int) and it > 0]
    if len(whole) != 2 or any(it & (it - 1) for it in whole) or whole[0] > whole[1]:
        raise InvalidValueError(
            f"{owner}: powers_of_two go from one power of two to another, not from {low} to {high}"
        )
    return tuple(1 << at for at in range(whole[0].bit_length() - 1, whole[1].bit_length()))


def _bounds(owner: str, given: object, keys: Sequence[str]) -> tuple[float, float, float]:
    table = _table(owner, given, keys)
    for key in ("from", "to"):
        if key not in table:
            raise InvalidValueError(f"{owner} needs {key!r}")
    for key, value in table.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise InvalidValueError(f"{owner}.{key} is a number, not {value!r}")
    return table["from"], table["to"], table.get("step", 1)


def _table(owner: str, given: object, keys: Sequence[str] | None = None) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidValueError(f"{owner}: a table with keys is needed, not {given!r:.80}")
    for key in given:
        if keys is not None and key not in keys:
            raise UnknownNameError(f"key of {owner}", key, keys)
    return dict(given)


def _list(owner: str, given: object) -> Sequence[Any]:
    if not isinstance(given, (list, tuple)):
        raise InvalidValueError(f"{owner}: a list is needed, not {given!r:.80}")
    return given


def _texts(owner: str, given: object) -> tuple[str, ...]:
    values = _list(owner, given)
    for value in values:
        if not isinstance(value, str):
            raise InvalidValueError(f"{owner}: a list of texts is needed, and {value!r} is none")
    return tuple(values)


def _number(owner: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise InvalidValueError(f"{owner} is a number, not {given!r}")
    return float(given)


def _get(
    table: Mapping[str, Any], key: str, kind: type[_Value], usual: _Value, owner: str = ""
) -> _Value:
    value = table.get(key, usual)
    if type(value) is not kind:
        wanted = "a text" if kind is str else "a whole number"
        raise InvalidValueError(f"{owner}{key} is {wanted}, not {value!r}")
    return value
