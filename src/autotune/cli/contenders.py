"""Contenders of `autotune compare`, as its command line names them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.evaluation.compare import Budget, ComparedWorkload, Contender

__all__ = ["common_arguments", "compared_workload", "read_contender", "read_contenders"]

_MLIR = ".mlir"
_DTYPE = "dtype"
# What a contender may choose; everything else is the same for all.
_PARTS = ("strategy", "cost_model", "pruning_model", "search_space", "task_scheduler")
_CHOICES = (
    *_PARTS,
    *(f"{kind}_options" for kind in _PARTS),
    *("preset", "load_cost_model", "patience", "round_size", "first_round", "lookahead"),
)
# Options of the comparison that every run is given.
_COMMON = (
    *("target", "threads", "backend", "round_size", "search_space", "search_space_options"),
    *("measurer", "measurer_options", "protocol"),
)


def compared_workload(
    text: str, shape: Sequence[str], dtype: str | None, importer: str | None
) -> ComparedWorkload:
    """A workload as `autotune compare` is given it.

    Args:
        text: ``gemm``, ``gemm:m=512,n=512,k=512``, ``file.mlir``, ``file.mlir:function``, or what
            the importer reads.
        shape: ``--shape``, for a name without one.
        dtype: ``--dtype``, for a name without one.
        importer: ``--importer``.

    Raises:
        AutotuneError: there is no such workload, or the file cannot be read.
    """
    from autotune.cli.programs import asked_program, imported_workload, read_workload
    from autotune.evaluation.compare import ComparedWorkload

    if importer is not None:
        found = imported_workload(importer, text, shape, dtype, None)
        return ComparedWorkload(text, found.digest, (text, "--importer", importer))
    path, dot, function = text.partition(_MLIR)
    if dot and (not function or function.startswith(":")):
        path, function = path + dot, function.removeprefix(":")
        program = asked_program(None, shape, dtype, path, function or None)
        assert program is not None  # a path is given
        named = ("--function", function) if function else ()
        label = os.path.basename(path) + (f":{function}" if function else "")
        return ComparedWorkload(label, read_workload(program).digest, ("--mlir", path, *named))
    return _named_workload(text, shape, dtype)


def _named_workload(text: str, shape: Sequence[str], dtype: str | None) -> ComparedWorkload:
    from autotune.cli.options import read_shape
    from autotune.evaluation.compare import ComparedWorkload
    from autotune.plugins.workload_names import make_workload, task_name

    name, colon, own = text.partition(":")
    if colon and (shape or not own):
        reason = "--shape is for a WORKLOAD without a shape" if shape else "its shape is missing"
        raise InvalidValueError(f"{text!r}: {reason}")
    parameters = read_shape([own] if colon else shape)
    dtype = parameters.pop(_DTYPE, dtype)
    workload = make_workload(name, parameters, dtype)
    arguments = [name, "--shape", ",".join(f"{key}={value}" for key, value in parameters.items())]
    arguments += [] if dtype is None else ["--dtype", dtype]
    return ComparedWorkload(task_name(workload), workload.digest, tuple(arguments))


def common_arguments(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Arguments that every run gets from the comparison's own options."""
    from autotune.cli.tune import command as tune

    flags = {option.name: option.opts[0] for option in tune.params}
    arguments: list[str] = []
    for name in _COMMON:
        value = values[name]
        given = value if isinstance(value, tuple) else () if value is None else (value,)
        for item in given:
            arguments += [flags[name], str(item)]
    return tuple(arguments)


def read_contenders(
    strategies: Sequence[str], presets: Sequence[str], texts: Sequence[str], baseline: str | None
) -> list[Contender]:
    """The contenders in order: the baseline, strategies, presets, and what is given freely.

    Args:
        strategies: Names of strategies, which contenders are called by.
        presets: Names of presets, likewise.
        texts: ``NAME=OPTIONS``.
        baseline: A strategy that takes part unless it is named; None for none.

    Raises:
        InvalidValueError: there is none but the baseline, or a text is not of this form.
    """
    from autotune.evaluation.compare import Contender

    named = [("--strategy", name) for name in strategies] + [("--preset", it) for it in presets]
    contenders = [Contender(name, (flag, name)) for flag, name in named]
    for text in texts:
        name, equals, rest = text.partition("=")
        if not (name.strip() and equals and rest.strip()) or name.startswith("-"):
            raise InvalidValueError(
                f"--contender {text!r} is not of the form NAME=OPTIONS, such as "
                "'mine=--strategy package.module:Strategy'"
            )
        contenders.append(Contender(name.strip(), _split(name.strip(), rest)))
    if not contenders:
        raise InvalidValueError(
            "there is nothing to compare: name --strategies, --presets or a --contender"
        )
    if baseline is not None and baseline not in strategies:
        contenders.insert(0, Contender(baseline, ("--strategy", baseline)))
    return contenders


def _split(name: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidValueError(f"contender {name!r}: {str(error).lower()}") from error


def read_contender(contender: Contender, common: Sequence[str], budget: Budget) -> None:
    """Check a contender, by all that `autotune tune` would check before it starts.

    Args:
        contender: The contender.
        common: What all contenders are given.
        budget: Of each run.

    Raises:
        InvalidValueError: an option is unknown or not for a contender to choose, or the budget is
            too small for one round.
        AutotuneError: an option is out of range, or there is no such part.
    """
    from autotune.cli.options import TUNING, TUNING_PARTS, read_tune_options

    own = _parsed(contender, contender.arguments)
    if own.params["workload"] is not None:
        raise InvalidValueError(
            f"contender {contender.name!r}: {own.params['workload']!r} is no option; for a "
            f"strategy, write '{contender.name}=--strategy {own.params['workload']}'"
        )
    for option in own.command.params:
        given = own.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name not in _CHOICES:
            raise InvalidValueError(
                f"contender {contender.name!r}: {option.opts[0]} is no choice of a contender: "
                "the comparison sets it, for all alike"
            )
    whole = _parsed(contender, (*common, *contender.arguments))
    options, _ = read_tune_options(whole.params, (*TUNING, "backend", "observers"), TUNING_PARTS)
    if budget.trials is not None and budget.trials < options.round_size:
        raise InvalidValueError(
            f"--trials {budget.trials} is less than one round of {contender.name!r}: give at "
            f"least {options.round_size}, or a smaller --round-size"
        )


def _parsed(contender: Contender, arguments: Sequence[str]) -> click.Context:
    from autotune.cli.tune import command as tune

    try:
        return tune.make_context("autotune tune", list(arguments), help_option_names=[])
    except click.ClickException as error:
        raise InvalidValueError(
            f"contender {contender.name!r}: {error.format_message()}"
        ) from error
