"""External programs and their command lines: tuned by data, without knowing how they compute.

A spec, and the text by which a record knows a program, are their JSON forms.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from attrs import field, frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.converter import json_forms, to_json
from autotune.sketches import CandidateBatch
from autotune.spaces.parameters import (
    Parameter,
    ParameterSpace,
    Value,
    parameter_space,
    parse_condition,
)

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = [
    "BUILD_PLACEHOLDERS",
    "RUN_PLACEHOLDERS",
    "UNITS",
    "Build",
    "CommandTemplate",
    "ExternalProgram",
    "Read",
    "Run",
    "Validation",
    "broken_constraint",
    "is_function_name",
    "parameter_of",
    "parameters_of",
    "table",
    "value_text",
]

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def _command_words(given: object) -> tuple[str, ...]:
    """Words of a command: a list of them, or one text that is split as a shell would, without one.

    Raises:
        InvalidValueError: it is neither, has no words, or a brace is left open.
    """
    if isinstance(given, str):
        try:
            given = shlex.split(given)
        except ValueError as error:
            raise InvalidValueError(f"command {given!r} cannot be split: {error}") from None
    if not isinstance(given, (list, tuple)) or not all(isinstance(word, str) for word in given):
        raise InvalidValueError(f"a command is a text or a list of texts, not {given!r}")
    if not given or not given[0]:
        raise InvalidValueError("a command is empty")
    for word in given:
        if "\0" in word:
            raise InvalidValueError(f"a command has a null character in {word!r}")
        for match in _TOKEN.finditer(word):
            if match[0] in ("{", "}"):
                raise InvalidValueError(
                    f"a command has a single {match[0]!r} in {word!r}: placeholders are "
                    "{name}, and braces are written {{ and }}"
                )
    return tuple(given)


@frozen
class CommandTemplate:
    """A command line whose words may hold ``{name}``; ``{{`` and ``}}`` are braces.

    Attributes:
        words: The words, as they were written; or a text, which is split as a shell would.

    Raises:
        InvalidValueError: there are no words, or a brace is left open.
    """

    words: tuple[str, ...] = field(converter=_command_words)

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names in the order of their first use."""
        found = [match[1] for word in self.words for match in _TOKEN.finditer(word)]
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def filled(self, values: Mapping[str, Value]) -> list[str]:
        """The words with values in place of names.

        A word that is made of placeholders alone and comes out empty is left out, so that a
        parameter can be a flag or nothing.

        Args:
            values: One for each placeholder at least.
        """
        texts = [_fill(word, values) for word in self.words]
        return [
            text
            for word, text in zip(self.words, texts, strict=True)
            if text or not _TOKEN.search(word)
        ]


def value_text(value: Value) -> str:
    """Write a value as it stands in a command: truth values as 1 and 0."""
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else repr(value)


def _fill(word: str, values: Mapping[str, Value]) -> str:
    def text(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else value_text(values[match[1]])

    return _TOKEN.sub(text, word)


UNITS: Mapping[str, float] = MappingProxyType({"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9})
"""Seconds in each unit of time; ``1/`` before one makes it a unit of rates."""
_RATES = tuple(f"1/{unit}" for unit in UNITS)
SOURCES = ("wall", "stdout", "json", "function")
METHODS = ("allclose", "bitexact")
BUILD_PLACEHOLDERS = ("workdir", "threads")
"""Names that a build command may use beside parameters."""
RUN_PLACEHOLDERS = ("workdir", "threads", "output")
_DTYPES = re.compile(r"(float(16|32|64)|u?int(8|16|32|64)|complex(64|128)|bool)")
_LARGEST_HASHED = 256 << 20
_MOST_STEPS = 1 << 12
_FROM = ("from", "to", "step")


def is_function_name(text: str) -> bool:
    """Return whether a text is ``module:function``."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(it.isidentifier() for it in (*module.split("."), *name.split(".")))


def _seconds(owner: str, seconds: float) -> None:
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not number or not 0 < seconds < math.inf:
        raise InvalidValueError(f"{owner} must be a positive number of seconds, not {seconds!r}")


def _whole(owner: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10_000:
        raise InvalidValueError(
            f"{owner} must be a whole number from {least} to 10000, not {value!r}"
        )


@frozen
class Build:
    """Way of building a candidate.

    Attributes:
        command: The command line; ``{workdir}`` is a folder of the candidate's own.
        timeout: Seconds that it may take.

    Raises:
        InvalidValueError: the timeout is not positive.
    """

    command: CommandTemplate
    timeout: float = 60.0

    def __attrs_post_init__(self) -> None:
        _seconds("build.timeout", self.timeout)


@frozen
class Run:
    """Way of running a candidate: a command line or a Python function.

    Attributes:
        command: The command line, or None.
        function: ``module:function``, called with the configuration as keyword arguments in a
            process of its own, or "".
        timeout: Seconds that one run, or one call, may take.
        repeats: Timed runs of a candidate, of which the median counts.
        warmup: Runs before those, whose results are not used.

    Raises:
        InvalidValueError: both or none is given, or a number is out of range.
    """

    command: CommandTemplate | None = None
    function: str = ""
    timeout: float = 60.0
    repeats: int = 3
    warmup: int = 0

    def __attrs_post_init__(self) -> None:
        if (self.command is None) == (not self.function):
            raise InvalidValueError("run has a command or a function, one of the two")
        if self.function and not is_function_name(self.function):
            raise InvalidValueError(f"run.function is module:function, not {self.function!r}")
        _seconds("run.timeout", self.timeout)
        _whole("run.repeats", self.repeats, 1)
        _whole("run.warmup", self.warmup, 0)


@frozen
class Read:
    """Place in which the result of a run is found.

    Attributes:
        source: ``wall``: the wall seconds of the run; ``stdout``: a number that the pattern finds
            in what the command prints; ``json``: a field of the JSON object that it prints;
            ``function``: what the function returns.
        pattern: A regular expression with one group.
        field: The field; dots lead into inner objects.

    Raises:
        UnknownNameError: there is no such source.
        InvalidValueError: what the source needs is missing, or is no such expression.
    """

    source: str = "wall"
    pattern: str = ""
    field: str = ""

    def __attrs_post_init__(self) -> None:
        if self.source not in SOURCES:
            raise UnknownNameError("value of read.from", str(self.source), SOURCES)
        for name, source in (("pattern", "stdout"), ("field", "json")):
            if bool(getattr(self, name)) != (self.source == source):
                verb = "needs" if self.source == source else "takes no"
                raise InvalidValueError(f"read.from = {self.source!r} {verb} read.{name}")
        if self.pattern:
            try:
                groups = re.compile(self.pattern).groups
            except re.error as error:
                raise InvalidValueError(
                    f"read.pattern {self.pattern!r} is no regular expression: {error}"
                ) from None
            if groups != 1:
                raise InvalidValueError(
                    f"read.pattern {self.pattern!r} has {groups} groups; it needs one, around the "
                    "number"
                )


@frozen
class Validation:
    """Comparison of a candidate's outputs with those of the default configuration.

    Attributes:
        method: ``allclose``: each element within ``atol + rtol * |reference|``, as in numpy;
            ``bitexact``: the same bytes.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        dtype: Element type of an output file that is no ``.npy``.
        reference: A file with what is right, in place of the default's outputs; "" for none.

    Raises:
        UnknownNameError: there is no such method.
        InvalidValueError: a tolerance is negative, or the type none of numpy's.
    """

    method: str = "allclose"
    rtol: float = 1e-5
    atol: float = 1e-8
    dtype: str = ""
    reference: str = ""

    def __attrs_post_init__(self) -> None:
        if self.method not in METHODS:
            raise UnknownNameError("value of validate.method", str(self.method), METHODS)
        for name in ("rtol", "atol"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidValueError(f"validate.{name} must be 0 or more")
        if self.dtype and not _DTYPES.fullmatch(self.dtype):
            raise InvalidValueError(
                f"validate.dtype {self.dtype!r} is none of numpy's, such as float32 or int64"
            )


@frozen(eq=False, kw_only=True)
class ExternalProgram:
    """A program that only its own tools understand, and what it may be tuned by.

    Attributes:
        name: What a person calls it.
        parameters: What can be chosen.
        constraints: Expressions over parameters that all have to hold; see
            :func:`autotune.spaces.parameters.parse_condition`.
        build: How a candidate is built; None where there is nothing to build.
        run: How a candidate is run.
        read: Where the result of a run is found.
        unit: Of the result: a unit of time, or ``1/`` and a unit of time for a rate, which is to
            become large. What is recorded is always seconds: of a rate, its reciprocal.
        validation: How outputs are checked; None where they are not.
        environment: Variables of builds and runs, beside those that are there.
        files: Further files whose contents are part of what is tuned.
        directory: Where commands are run.
        function: In place of ``run.function``: a function of this process.

    Raises:
        InvalidValueError: parts contradict each other, or a constraint cannot be read.
        UnknownNameError: a unit or a placeholder does not exist.
    """

    name: str
    parameters: tuple[Parameter, ...] = field(converter=tuple[Parameter, ...])
    constraints: tuple[str, ...] = field(default=(), converter=tuple[str, ...])
    build: Build | None = None
    run: Run
    read: Read = field(factory=Read)
    unit: str = "s"
    validation: Validation | None = None
    environment: Mapping[str, str] = field(factory=dict)
    files: tuple[str, ...] = field(default=(), converter=tuple[str, ...])
    directory: Path = field(factory=Path.cwd, converter=Path)
    function: Callable[..., Any] | None = None

    def __attrs_post_init__(self) -> None:
        _check(self)

    @property
    def default(self) -> dict[str, Value] | None:
        """The configuration where nobody tunes; None where a parameter has no default."""
        found = {it.name: it.default for it in self.parameters}
        known = {name: value for name, value in found.items() if value is not None}
        return known if len(known) == len(found) else None

    @property
    def is_called(self) -> bool:
        """True if it is a Python function, and no command."""
        return self.run.command is None

    @property
    def is_rate(self) -> bool:
        """True if its result is to become large."""
        return self.unit not in UNITS

    @property
    def unused_parameters(self) -> tuple[str, ...]:
        """Parameters that no command has a placeholder for; none where a function is called."""
        commands = [self.build.command] if self.build is not None else []
        if self.run.command is None:
            return ()
        used = {name for it in (*commands, self.run.command) for name in it.placeholders}
        return tuple(it.name for it in self.parameters if it.name not in used)

    def seconds(self, number: float) -> float:
        """Seconds that a result counts as: itself, or the reciprocal of a rate per second."""
        scale = UNITS[self.unit.removeprefix("1/")]
        return scale / number if self.is_rate else number * scale

    def value(self, seconds: float) -> float:
        """The result that counts as so many seconds; the reverse of :meth:`seconds`."""
        scale = UNITS[self.unit.removeprefix("1/")]
        return scale / seconds if self.is_rate else seconds / scale

    @property
    def text(self) -> str:
        """All of it as JSON, which :func:`autotune.external.specs.program_of_text` reads back."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    def to_json(self) -> dict[str, Any]:
        """All of it but where it is, as the JSON object of a spec."""
        return dict(to_json(self))

    @property
    def identity(self) -> str:
        """Identity of a program, by which equal programs share records: as JSON.

        How it is built, run, read and checked, the contents of the files that commands name, and
        the default configuration. Not how many values parameters have, nor how long it may take.
        """
        spec = self.to_json()
        for left_out in ("name", "parameters", "constraints"):
            spec.pop(left_out, None)
        for part in ("build", "run"):
            for left_out in ("timeout", "repeats", "warmup"):
                spec.get(part, {}).pop(left_out, None)
        spec["default"] = self.default
        spec["contents"] = self._contents()
        return json.dumps(spec, separators=(",", ":"), sort_keys=True)

    def space(self) -> ParameterSpace:
        """Its configurations.

        Raises:
            InvalidValueError: no configuration satisfies the constraints, or the default does not.
        """
        space = parameter_space(self.identity, self.parameters, self.constraints, name=self.name)
        default = self.default
        if (
            default is not None
            and not space.contains(CandidateBatch.of([space.encode(default)])).all()
        ):
            broken = broken_constraint(self.constraints, default)
            raise InvalidValueError(
                f"the default configuration of {self.name!r} is not feasible: it breaks "
                f"{'its constraints' if broken is None else repr(broken)}"
            )
        return space

    def _contents(self) -> dict[str, str]:
        """Digest of each file in its directory that it is made of, by name."""
        commands = [self.build.command] if self.build is not None else []
        commands += [self.run.command] if self.run.command is not None else []
        names = {word for command in commands for word in command.words} | set(self.files)
        if self.function is None and self.run.function:
            names.add(self.run.function.partition(":")[0].replace(".", "/") + ".py")
        if self.validation is not None and self.validation.reference:
            names.add(self.validation.reference)
        found = {}
        for name in sorted(names):
            path = self.directory / name
            if path.is_file() and path.stat().st_size <= _LARGEST_HASHED:
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        if self.function is not None:
            found[""] = hashlib.sha256(_source(self.function).encode()).hexdigest()[:16]
        return found


def broken_constraint(constraints: Sequence[str], config: Mapping[str, Value]) -> str | None:
    """The first constraint that does not hold for a configuration."""
    columns = {name: np.array([value]) for name, value in config.items()}
    conditions = (parse_condition(text, columns) for text in constraints)
    return next((it.text for it in conditions if not it.holds(columns).all()), None)


def _source(function: Callable[..., Any]) -> str:
    """Text of a function: its source, or its code where that is not at hand."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return "" if code is None else repr((code.co_code, code.co_names))


def _check(program: ExternalProgram) -> None:
    if not isinstance(program.name, str) or not program.name.strip():
        raise InvalidValueError(f"a program is called {program.name!r}; it needs a name")
    if program.unit not in (*UNITS, *_RATES):
        raise UnknownNameError("unit", str(program.unit), (*UNITS, *_RATES))
    if program.read.source == "wall" and program.unit != "s":
        raise InvalidValueError("read.from = 'wall' is in seconds: leave out the unit")
    if program.is_called and program.read.source not in ("wall", "function"):
        raise InvalidValueError(
            f"run.function returns its result: read.from is function or wall, not "
            f"{program.read.source!r}"
        )
    if not program.is_called and program.read.source == "function":
        raise InvalidValueError("read.from = 'function' needs run.function")
    _check_names(program)
    for path in program.files:
        if not (program.directory / path).is_file():
            raise InvalidValueError(f"there is no file {path!r} in {program.directory}")
    _check_validation(program)


def _check_names(program: ExternalProgram) -> None:
    names = [parameter.name for parameter in program.parameters]
    for part, more in (("build", BUILD_PLACEHOLDERS), ("run", RUN_PLACEHOLDERS)):
        command = getattr(getattr(program, part), "command", None)
        for name in command.placeholders if command is not None else ():
            if name not in (*names, *more):
                raise UnknownNameError(f"placeholder in {part}.command:", name, (*names, *more))
    reserved = {*BUILD_PLACEHOLDERS, *RUN_PLACEHOLDERS}
    for parameter in program.parameters:
        if parameter.name in reserved and not program.is_called:
            raise InvalidValueError(
                f"a parameter is called {parameter.name!r}, which commands use otherwise"
            )
    for name, value in program.environment.items():
        texts = isinstance(name, str) and isinstance(value, str)
        if not texts or not name or "=" in name or "\0" in name + value:
            raise InvalidValueError(f"environment variable {name!r} cannot be {value!r}")


def _check_validation(program: ExternalProgram) -> None:
    validation, command = program.validation, program.run.command
    if validation is None:
        return
    if command is not None and "output" not in command.placeholders:
        raise InvalidValueError(
            "validate needs the file that a run writes: put {output} into run.command"
        )
    if command is None and program.read.source != "function":
        raise InvalidValueError("validate needs what the function returns: read.from = 'function'")
    if not validation.reference and program.default is None:
        missing = [it.name for it in program.parameters if it.default is None]
        raise InvalidValueError(
            "validate compares with the default configuration, and there is no default of "
            f"{', '.join(missing)}: give them defaults, or validate.reference a file"
        )
    if validation.reference and not (program.directory / validation.reference).is_file():
        raise InvalidValueError(
            f"validate.reference: there is no file {validation.reference!r} in {program.directory}"
        )


_ALWAYS = ("constraints", "timeout", "repeats", "warmup", "rtol", "atol")
"""Keys that are written also where they are empty."""


@json_forms
def _forms(converter: Converter) -> None:
    from cattrs.gen import override

    converter.register_unstructure_hook(CommandTemplate, lambda command: list(command.words))
    converter.register_structure_hook(CommandTemplate, _read_command)
    _form(converter, Build, "build")
    _form(converter, Run, "run")
    given = override(rename="from", struct_hook=lambda name, _: name)
    _form(converter, Read, "read", source=given)
    _form(converter, Validation, "validate")
    _form(
        converter,
        ExternalProgram,
        "a spec",
        parameters=override(
            struct_hook=lambda given, _: parameters_of(given), unstruct_hook=_written
        ),
        validation=override(rename="validate"),
        environment=override(struct_hook=lambda given, _: table("environment", given)),
        directory=override(struct_hook=lambda given, _: given, unstruct_hook=lambda _: ""),
        function=override(omit=True),
    )


def _form(converter: Converter, kind: type[Any], owner: str, **overrides: Any) -> None:
    """Let a class be the object of its fields that are not empty; unknown keys are named."""
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    write = make_dict_unstructure_fn(kind, converter, **overrides)
    build = make_dict_structure_fn(kind, converter, **overrides)
    how = {it.name: overrides.get(it.name, override()) for it in attrs.fields(kind)}
    keys = {
        how[it.name].rename or it.name: it for it in attrs.fields(kind) if not how[it.name].omit
    }

    def read(given: Any, _: Any) -> Any:
        values = table(owner, given, tuple(keys))
        for key, it in values.items():
            # Written as it would be by whoever gave a fraction.
            if keys[key].type is float and type(it) is int:
                values[key] = float(it)
        return build(values, kind)

    def written(value: Any) -> dict[str, Any]:
        return {key: it for key, it in write(value).items() if it or key in _ALWAYS}

    converter.register_unstructure_hook(kind, written)
    converter.register_structure_hook(kind, read)


def _read_command(given: Any, _: Any) -> CommandTemplate:
    try:
        return CommandTemplate(given)
    except InvalidValueError as error:
        # Of another type, so that its place is said, too.
        raise ValueError(str(error)) from None


def _written(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The parameters of a spec."""
    found: dict[str, Any] = {}
    for it in parameters:
        default = {} if it.default is None else {"default": it.default}
        found[it.name] = {"values": list(it.values), **default}
    return found


def table(owner: str, given: object, keys: Sequence[str] | None = None) -> dict[str, Any]:
    """An object, with known keys only.

    Raises:
        InvalidValueError: it is none.
        UnknownNameError: it has another key; names what is near.
    """
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidValueError(f"{owner}: a table with keys is needed, not {given!r:.80}")
    for key in given:
        if keys is not None and key not in keys:
            raise UnknownNameError(f"key of {owner}", key, keys)
    return dict(given)


def parameters_of(given: object) -> tuple[Parameter, ...]:
    """Parameters by name, each as :func:`parameter_of` takes it; or a list of them as it is.

    Raises:
        InvalidValueError: there is none, or one is given in no such way.
        UnknownNameError: one has a key that there is none of.
    """
    if isinstance(given, (list, tuple)) and all(isinstance(it, Parameter) for it in given):
        found = tuple(given)
    else:
        found = tuple(parameter_of(*it) for it in table("parameters", given).items())
    if not found:
        raise InvalidValueError("there are no parameters to tune")
    return found


def parameter_of(name: str, given: object) -> Parameter:
    """Read a parameter.

    Args:
        name: Its name.
        given: A sequence of values, such as a list, or an object with ``values``, ``range`` or
            ``powers_of_two`` and perhaps a ``default``.

    Raises:
        InvalidValueError: it is nothing of that.
        UnknownNameError: the object has another key.
    """
    owner = f"parameter {name!r}"
    if isinstance(given, Sequence) and not isinstance(given, str):
        return Parameter(name, tuple(given))
    found = table(owner, given, ("values", "range", "powers_of_two", "default"))
    kinds = [key for key in ("values", "range", "powers_of_two") if key in found]
    if len(kinds) != 1:
        raise InvalidValueError(
            f"{owner} has {' and '.join(kinds) or 'no values'}; it needs one of values, range and "
            "powers_of_two"
        )
    if kinds == ["values"]:
        values = found["values"]
        if not isinstance(values, (list, tuple)):
            raise InvalidValueError(f"{owner}: values: a list is needed, not {values!r:.80}")
    elif kinds == ["range"]:
        values = _steps(owner, *_bounds(f"{owner}: range", found["range"], _FROM))
    else:
        low, high, _ = _bounds(f"{owner}: powers_of_two", found["powers_of_two"], _FROM[:2])
        values = _powers(owner, low, high)
    return Parameter(name, values, found.get("default"))


def _steps(owner: str, low: float, high: float, step: float) -> tuple[float, ...]:
    """Numbers from ``low`` to ``high``, both included."""
    if step <= 0 or high < low:
        raise InvalidValueError(
            f"{owner}: a range goes up from a number to one that is no smaller, by a positive "
            f"step; not from {low} to {high} by {step}"
        )
    count = math.floor((high - low) / step + 1e-9) + 1
    if count > _MOST_STEPS:
        raise InvalidValueError(f"{owner} has {count} values; there can be {_MOST_STEPS}")
    return tuple(low + number * step for number in range(count))


def _powers(owner: str, low: float, high: float) -> tuple[int, ...]:
    whole = [it for it in (low, high) if isinstance(it, int) and it > 0]
    if len(whole) != 2 or any(it & (it - 1) for it in whole) or whole[0] > whole[1]:
        raise InvalidValueError(
            f"{owner}: powers_of_two go from one power of two to another, not from {low} to {high}"
        )
    return tuple(1 << at for at in range(whole[0].bit_length() - 1, whole[1].bit_length()))


def _bounds(owner: str, given: object, keys: Sequence[str]) -> tuple[float, float, float]:
    found = table(owner, given, keys)
    for key in ("from", "to"):
        if key not in found:
            raise InvalidValueError(f"{owner} needs {key!r}")
    for key, value in found.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise InvalidValueError(f"{owner}.{key} is a number, not {value!r}")
    return found["from"], found["to"], found.get("step", 1)
