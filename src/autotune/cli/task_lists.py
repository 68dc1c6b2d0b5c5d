"""Several tasks from one list: each is a run of its own, by the options of ``autotune tune``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve, frozen
from click.core import ParameterSource

from autotune.cli.app import INTERRUPTED, NOTHING_FOUND, OK
from autotune.cli.arguments import option
from autotune.cli.destinations import InputFile
from autotune.cli.options import TUNING, TUNING_PARTS, part_parameters, read_tune_options
from autotune.cli.output import Output, notify, notify_interrupted
from autotune.errors import (
    AutotuneError,
    InvalidValueError,
    UnknownNameError,
    UnsupportedTarget,
    UnsupportedWorkload,
)

if TYPE_CHECKING:
    from autotune.cli.watching import Watching
    from autotune.ir.workloads import Workload
    from autotune.models.training import ListedTask, TaskList
    from autotune.report import Table
    from autotune.tuning.options import TuneOptions
    from autotune.tuning.result import Result

__all__ = ["OPTIONS", "only_option", "tasks_option", "tune_listed"]

OPTIONS = (*TUNING, "backend", "observers")
"""Fields of ``TuneOptions`` that ``autotune tune`` takes."""
# One database and one decision to begin anew for the whole list.
_OF_THE_LIST = ("database", "fresh")
_EXCLUDED = ("workload", "shape", "dtype", "mlir_path", "function", "importer", "vendor")


def tasks_option() -> Any:
    """``--tasks LIST``."""
    text = "Tasks with names and shapes: a list by name, or a file of JSON or TOML."
    return option("--tasks LIST", text, InputFile())


def only_option() -> Any:
    """``--only TASK``."""
    return option("--only TASK", "This task only; may be repeated.")


@frozen
class _Planned:
    """A task that has been checked: what is tuned, and how."""

    task: ListedTask
    workload: Workload
    options: TuneOptions


@frozen
class _Done:
    """Outcome of a task: a result, or the reason why there is none."""

    task: ListedTask
    target: str
    result: Result | None
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object, with the result file of the task."""
        result = None if self.result is None else self.result.to_json()
        return {"task": self.task.name, "failure": self.failure, "result": result}


def tune_listed(name: str, only: Sequence[str], watching: Watching, output: Output) -> int:
    """Tune every task of a list in order, each within the whole budget; returns the exit status.

    A task is tuned by the options of the list, those of the task, and those of the command line,
    of which later ones count. Names and values are checked before the first one starts.

    Raises:
        InvalidValueError: the list cannot be read, or a task is not as it should be; names the
            task and the field.
        AutotuneError: as of :func:`autotune.tune`.
    """
    from autotune.models.training import TaskList
    from autotune.process.interrupts import TuningInterrupted

    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in _EXCLUDED and context.params[parameter.name] not in (None, (), False):
            raise InvalidValueError(
                f"--tasks and {parameter.opts[0]} exclude each other: the list says what is tuned"
            )
    listed = TaskList.read(name).only(only)
    planned = [
        _Planned(task, workload, _options(context, listed, task))
        for task, workload in zip(listed.tasks, listed.workloads(), strict=True)
    ]
    done: list[_Done] = []
    for place, plan in enumerate(planned, 1):
        if watching.mode != "quiet":
            notify(f"task {place} of {len(planned)}: {plan.task.name}")
        try:
            done.append(_tuned(plan, watching))
        except TuningInterrupted as interrupted:
            notify_interrupted(interrupted, plan.options.fresh)
            return INTERRUPTED
        except InvalidValueError as error:
            # Such as an option of a part, which is read when the part is made.
            raise InvalidValueError(f"{listed.place(plan.task)}: options: {error}") from error
    output.json({"tasks": [item.to_json() for item in done]})
    output.table(_table(name, done))
    return OK if all(item.result and item.result.best for item in done) else NOTHING_FOUND


def _tuned(plan: _Planned, watching: Watching) -> _Done:
    from autotune.tuning.api import run_tasks

    target = plan.options.target.name
    try:
        with watching.listeners() as listeners:
            (result,) = run_tasks([plan.workload], evolve(plan.options, listeners=listeners))
    except (UnsupportedTarget, UnsupportedWorkload) as error:
        return _Done(plan.task, target, None, str(error))
    failure = "" if result.best is not None else result.failure_text()
    return _Done(plan.task, target, result, failure)


def _table(name: str, done: Sequence[_Done]) -> Table:
    from autotune.report import Table, formats

    rows, notes = [], []
    for item in done:
        result = item.result
        latency = result.best.latency if result and result.best else None
        cells = [formats.seconds(latency)]
        cells.append(formats.rate(result.workload.flop, latency) if result else "-")
        cells.append(formats.ratio(result.speedup if result else None))
        cells.append(result.baseline_name if result and result.speedup else "-")
        rows.append((item.task.name, item.target, str(result.trials if result else 0), *cells))
        if item.failure:
            notes.append(f"{item.task.name}: {item.failure}")
    columns = ("task", "target", "trials>", "latency>", "rate>", "speedup>", "over")
    return Table(f"tasks of {name}", columns, tuple(rows), tuple(notes))


def _options(context: click.Context, listed: TaskList, task: ListedTask) -> TuneOptions:
    """Options by which a task is tuned.

    Raises:
        InvalidValueError: an option is unknown, or has no such value; names the task.
    """
    place = f"{listed.place(task)}: options"
    try:
        arguments = _arguments(context.command, task.options)
        own = context.command.make_context(context.info_name, arguments, help_option_names=[])
        values = dict(own.params)
        for name, value in context.params.items():
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                values[name] = value
        return read_tune_options(values, OPTIONS, TUNING_PARTS)
    except click.ClickException as error:
        raise InvalidValueError(f"{place}: {error.format_message()}") from error
    except AutotuneError as error:
        raise InvalidValueError(f"{place}: {error}") from error


def _arguments(command: click.Command, options: Mapping[str, Any]) -> list[str]:
    """Options in a file as the command line writes them.

    Raises:
        UnknownNameError: there is no such option.
        InvalidValueError: a value cannot be one of that option.
    """
    known = {
        flag.removeprefix("--"): option
        for option in command.params
        if _is_of_a_task(option)
        for flag in option.opts
    }
    arguments: list[str] = []
    for name, value in options.items():
        if name not in known:
            raise UnknownNameError("option", name, known)
        arguments += _argument(known[name], name, value)
    return arguments


def _is_of_a_task(option: click.Parameter) -> bool:
    """Return whether an option chooses a part, gives it options, or is another one of tuning."""
    name = option.name or ""
    return name not in _OF_THE_LIST and (name in OPTIONS or name in part_parameters(TUNING_PARTS))


def _argument(option: click.Parameter, name: str, value: object) -> list[str]:
    """Read one option: a list or table if it may be repeated, true or false if it is a switch."""
    flag, several = option.opts[0], getattr(option, "multiple", False)
    switch = getattr(option, "is_flag", False)
    if switch and isinstance(value, bool):
        return [flag] if value else list(option.secondary_opts[:1])
    if several and isinstance(value, Mapping):
        value = [f"{key}={_text(it)}" for key, it in value.items()]
    if several and isinstance(value, list):
        return [word for it in value for word in (flag, _text(it))]
    if switch or isinstance(value, (bool, list, Mapping)) or value is None:
        allowed = "true or false" if switch else "a text or a number"
        allowed += ", or a list or table of them" if several else ""
        raise InvalidValueError(f"{name} must be {allowed}, not {value!r}")
    return [flag, _text(value)]


def _text(value: object) -> str:
    """A value as the command line spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
