"""Tuning an external program: the Python entry point, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from autotune.errors import InvalidValueError
from autotune.external.ask_tell import DEFAULT_STRATEGY
from autotune.external.given import recorded_configuration
from autotune.external.program import ExternalProgram, is_function_name, parameters_of
from autotune.external.specs import program_of
from autotune.spaces.parameters import Parameter, Value
from autotune.tuning.api import run_tasks
from autotune.tuning.options import TuneOptions
from autotune.tuning.programs import Task
from autotune.tuning.result import Result

__all__ = [
    "ExternalResult",
    "external",
    "run_external",
    "tune_external",
    "usual_rounds",
]

_PARTS: Mapping[str, str] = {
    "search_space": "parameters",
    "measurer": "external",
    "strategy": DEFAULT_STRATEGY,
}
Measure = Callable[..., Any] | str | Sequence[str]


@frozen(eq=False)
class ExternalResult:
    """Result of tuning an external program.

    Attributes:
        program: The program.
        result: All that is known of the run; its ``best`` is a record.
    """

    program: ExternalProgram
    result: Result

    @property
    def config(self) -> dict[str, Value]:
        """Values of the best configuration by name: the default where none is a gain over it.

        Raises:
            NoValidCandidate: no configuration is valid; says what happened to them.
        """
        found = recorded_configuration(self.result.require_best())
        assert found is not None, "records of external programs have a configuration"
        return found

    @property
    def latency(self) -> float:
        """Seconds of the best configuration; of a rate, its reciprocal.

        Raises:
            NoValidCandidate: no configuration is valid.
        """
        return self.result.require_best().latency or 0.0

    @property
    def value(self) -> float:
        """The result of the best configuration in the program's own unit.

        Raises:
            NoValidCandidate: no configuration is valid.
        """
        return self.program.value(self.latency)

    @property
    def trials(self) -> int:
        """Configurations that were tried."""
        return self.result.trials

    @property
    def run_id(self) -> str:
        """The run, as stored in the database."""
        return self.result.run_id

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the result, with the values of the best configuration."""
        best = None
        if self.result.best is not None:
            best = {"values": self.config, "value": self.value, "unit": self.program.unit}
        return {**self.result.to_json(), "configuration": best}


def external(
    parameters: Mapping[str, object] | Sequence[Parameter],
    constraints: Sequence[str] = (),
    measure: Measure | None = None,
    *,
    name: str = "",
    default: Mapping[str, Value] | None = None,
    build: str | Sequence[str] | Mapping[str, Any] | None = None,
    read: Mapping[str, str] | None = None,
    unit: str = "s",
    validate: Mapping[str, Any] | None = None,
    repeats: int = 3,
    warmup: int = 0,
    timeout: float = 60.0,
    environment: Mapping[str, str] | None = None,
    files: Sequence[str] = (),
    directory: str | Path = ".",
    **options: Any,
) -> ExternalResult:
    """Tune any program: find the values of parameters with which it is fastest.

    Everything measured is recorded. A call that was made before is answered from the records; one
    that was interrupted, or made with a smaller budget, is continued.

    Args:
        parameters: By name: a list of values, a ``range``, or a dictionary with ``values``,
            ``range`` (``from``, ``to``, ``step``) or ``powers_of_two`` (``from``, ``to``), and
            ``default``.
        constraints: Expressions over parameters that have to hold, such as
            ``"tile % unroll == 0"``. They are parsed, and never evaluated as code.
        measure: A function that is called with the values as keyword arguments in a forked
            process and returns seconds, or seconds and outputs; ``module:function`` for one that
            is imported in a process of its own; or a command line with ``{placeholders}``.
        name: What to call the program.
        default: Values where nobody tunes, in place of those in ``parameters``. What is found is
            never slower than these.
        build: Command line of the build, or a dictionary with ``command`` and ``timeout``.
        read: Where the result of a command is: ``from`` ``wall`` (the default), ``stdout`` with
            a ``pattern``, or ``json`` with a ``field``.
        unit: Of the result: ``s``, ``ms``, ``us`` or ``ns``; or a rate that is to become large,
            such as ``1/s``.
        validate: How outputs are compared with those of the default: ``method`` (``allclose`` or
            ``bitexact``), ``rtol``, ``atol``, ``dtype``, ``reference``.
        repeats: Timed runs of a configuration, of which the median counts.
        warmup: Runs before those.
        timeout: Seconds that a run, or a call, may take.
        environment: Variables of builds and runs.
        files: Files whose contents are part of the program.
        directory: Where commands are run.
        options: Fields of :class:`~autotune.tuning.options.TuneOptions`, such as ``trials``.

    Raises:
        InvalidValueError: something cannot be, such as an empty space.
        UnknownNameError: a placeholder, a key or an option does not exist.
        WorkerStartFailed: the default configuration fails.
        AutotuneError: as :func:`autotune.tune`.
    """
    if measure is None:
        raise InvalidValueError(
            "measure is missing: a function, 'module:function' or a command line"
        )
    how = _run_of(measure, timeout=timeout, repeats=repeats, warmup=warmup)
    spec: dict[str, Any] = {
        "name": name or (how["function"].partition(":")[2] if "function" in how else "external"),
        "parameters": _with_defaults(parameters_of(parameters), default or {}),
        "constraints": list(constraints),
        "run": how,
        "build": build if build is None or isinstance(build, Mapping) else {"command": build},
        "read": read,
        "validate": validate,
        "unit": unit,
        "environment": dict(environment or {}),
        "files": list(files),
    }
    spec = {key: part for key, part in spec.items() if part is not None}
    program = program_of(spec, Path(directory).resolve())
    function = measure if callable(measure) else None
    return tune_external(evolve(program, function=function), **options)


def _run_of(measure: Measure, **limits: float) -> dict[str, Any]:
    """Way of running a configuration, as a spec says it."""
    if callable(measure):
        return {**limits, "function": _function_name(measure)}
    named = isinstance(measure, str) and is_function_name(measure)
    return {**limits, "function" if named else "command": measure}


def tune_external(program: ExternalProgram, **options: Any) -> ExternalResult:
    """Tune an external program, such as :func:`~autotune.external.read_spec` reads.

    Args:
        program: The program.
        options: Fields of :class:`~autotune.tuning.options.TuneOptions`.

    Raises:
        AutotuneError: as of :func:`external`.
    """
    parts = _on_parts(options.pop("parts", {}))
    return run_external(program, TuneOptions(**{**usual_rounds(program), **parts, **options}))


def usual_rounds(program: ExternalProgram) -> dict[str, int]:
    """Fields of ``TuneOptions`` where none are given: each round knows all that was measured.

    Measurements take long beside what a strategy does, and only builds are done side by side.
    """
    return {"round_size": 1 if program.build is None else 4, "lookahead": 0}


def run_external(program: ExternalProgram, options: TuneOptions) -> ExternalResult:
    """Tune as :func:`tune_external`, from checked options, whose parts are completed."""
    options = evolve(options, **_on_parts(options.parts))
    (result,) = run_tasks([Task(program, name=program.name)], options)
    return ExternalResult(program, result)


def _on_parts(parts: Mapping[str, object]) -> dict[str, Any]:
    """Backend and parts of a run, those that are not given as for all external programs."""
    return {"backend": "external", "parts": {**_PARTS, **parts}}


def _with_defaults(
    parameters: Sequence[Parameter], default: Mapping[str, Value]
) -> list[Parameter]:
    known = {parameter.name for parameter in parameters}
    for name in default:
        if name not in known:
            raise InvalidValueError(
                f"there is a default of {name!r}, which is no parameter: {', '.join(known)}"
            )
    return [
        evolve(it, default=default[it.name]) if it.name in default else it for it in parameters
    ]


def _function_name(function: Callable[..., Any]) -> str:
    """``module:function``, for people and for the identity of what is measured."""
    found = getattr(function, "__qualname__", type(function).__qualname__)
    name = "".join(char if char.isidentifier() else "_" for char in found)
    return f"{getattr(function, '__module__', None) or 'function'}:{name}"
