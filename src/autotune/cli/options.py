"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import functools
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs
import click

from autotune.cli.destinations import InputFile, OutputFile, checked_destinations
from autotune.errors import InvalidValueError, UnknownNameError
from autotune.store.current import current_database

if TYPE_CHECKING:
    from autotune.measure import MeasureProtocol
    from autotune.tuning.options import TuneOptions

__all__ = [
    "BEGAN",
    "TUNING",
    "TUNING_PARTS",
    "database_option",
    "existing_database_option",
    "json_option",
    "part_parameters",
    "progress_options",
    "protocol_option",
    "read_options",
    "read_protocol",
    "read_shape",
    "read_tune_options",
    "settings",
    "shape_option",
    "space_option",
    "tune_options",
    "watched",
]

PROTOCOL_HELP = (
    "How candidates are timed: standard, quick, or a setting such as deadlines.build=60, "
    "max_samples=100, memory_bytes=4e9 or cold=true; may be repeated."
)
_DEADLINES = "deadlines"


def protocol_option(text: str = PROTOCOL_HELP) -> Callable[[Command], Command]:
    """``--protocol NAME|K=V``, which the command takes as a tuple of texts."""
    return click.option(
        "--protocol", "protocol", metavar="NAME|K=V", multiple=True, default=(), help=text
    )


def settings() -> tuple[str, ...]:
    """Every setting that ``--protocol`` takes a value of, in the protocol's order."""
    import attrs

    from autotune.measure import PHASES, MeasureProtocol

    names = [it.name for it in attrs.fields(MeasureProtocol) if it.name != "version"]
    phases = [f"{_DEADLINES}.{phase}" for phase in PHASES]
    return tuple(it for name in names for it in (phases if name == _DEADLINES else [name]))


def read_protocol(
    texts: Sequence[str], *, usual: str = "standard", only: Sequence[str] | None = None
) -> MeasureProtocol:
    """The protocol that ``--protocol`` means.

    Args:
        texts: Names of protocols, of which there may be one, and settings ``name=value``.
        usual: The name of the protocol that the settings change, where none is given.
        only: The settings that the command has a use for; by default all.

    Raises:
        UnknownNameError: there is no such protocol or setting.
        InvalidValueError: a value is out of range, or something is given twice.
    """
    from autotune.measure import MeasureProtocol

    names = [text for text in texts if "=" not in text]
    if len(names) > 1 or (names and only is not None):
        allowed = "one named protocol" if only is None else f"settings: {', '.join(only)}"
        raise InvalidValueError(f"--protocol takes {allowed}, not {' and '.join(names)}")
    known = settings() if only is None else tuple(only)
    data = MeasureProtocol.named(names[0] if names else usual).to_json()
    given: set[str] = set()
    for text in texts:
        if text in names:
            continue
        name, _, value = text.partition("=")
        if name not in known:
            raise UnknownNameError("setting of --protocol", name, known)
        if name in given:
            raise InvalidValueError(f"--protocol names {name!r} twice")
        given.add(name)
        number = _number(value)
        if isinstance(number, float) and not math.isfinite(number):
            raise InvalidValueError(f"--protocol: {name} must be finite, not {value!r}")
        place, _, phase = name.partition(".")
        data[place] = {**data[place], phase: number} if phase else number
    return _made(data)


def _made(data: dict[str, Any]) -> MeasureProtocol:
    from autotune.measure import MeasureProtocol

    try:
        return MeasureProtocol.from_json(data)
    except InvalidValueError as error:
        reason = str(error).removeprefix("not a measure protocol: ")
        raise InvalidValueError(f"--protocol: {reason}") from error


def _number(text: str) -> Any:
    """A value as JSON has it, whole numbers such as 4e9 as integers; else the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return int(value) if isinstance(value, float) and value.is_integer() else value


Command = TypeVar("Command", bound=Callable[..., Any])
# How the command line writes the options of tuning; what they mean stands with them.
_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "target": {"type": InputFile()},
    "backend": {"metavar": "NAME,..."},
    "preset": {"metavar": "NAME"},
    "load_cost_model": {"metavar": "FILE|NAME", "type": InputFile()},
    "trials": {"type": int},
    "time": {"type": float, "metavar": "SECONDS"},
    "patience": {"type": int, "metavar": "TRIALS"},
    "seed": {"type": int},
    "threads": {"type": int},
    "database": {"metavar": "FILE", "type": InputFile(), "default": current_database},
    "fresh": {"is_flag": True},
    "warm_start": {"flag": "--warm-start/--no-warm-start", "default": None},
    "time_untuned": {"is_flag": True},
    "round_size": {"type": int},
    "first_round": {"type": int},
    "observers": {"flag": "--observe", "metavar": "NAME", "multiple": True},
    "lookahead": {"type": int},
    "protocol": {"metavar": "NAME|K=V", "multiple": True},
}
BEGAN = "autotune.began"
"""Key of the command's beginning, by the monotonic clock, among the context's ``meta``."""
TUNING = (
    "target",
    "preset",
    "load_cost_model",
    "trials",
    "time",
    "patience",
    "seed",
    "threads",
    "database",
    "fresh",
    "warm_start",
    "time_untuned",
    "round_size",
    "first_round",
    "lookahead",
    "protocol",
)
"""Fields of ``TuneOptions`` that every command takes which tunes."""
TUNING_PARTS = (
    "strategy",
    "cost_model",
    "pruning_model",
    "search_space",
    "task_scheduler",
    "measurer",
    "runner",
)
"""Kinds of parts that every command chooses which tunes."""
# Parts whose flag is not that of their kind, and what else there is to say of them.
_PART_FLAGS = {"search_space": "--space"}
_PART_TEXTS = {
    "strategy": "Search strategy.",
    "cost_model": "Learned cost model of the strategy.",
    "pruning_model": "Analytical model that drafts candidates before the cost model; or none.",
    "search_space": "Search space.",
    "task_scheduler": "Chooses the task of the next round, where there are several.",
    "measurer": "What builds and times candidates.",
    "runner": "Where candidates are built and timed: this machine, or others.",
}
# Flags for options of a part that every user of it gives: part, option, and how a value looks.
_NAMED_OPTIONS: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "runner": {
        "rpc_tracker": ("rpc", "tracker", "HOST:PORT"),
        "rpc_key": ("rpc", "key", "KEY"),
        "rpc_priority": ("rpc", "priority", "N"),
        "session_timeout": ("rpc", "session_timeout", "SECONDS"),
        "ray_address": ("ray", "address", "HOST:PORT"),
        "ray_num_workers": ("ray", "num_workers", "N"),
    },
}
_NAMED_TEXTS = {
    "rpc_tracker": "Runner rpc: address of TVM's RPC tracker.",
    "rpc_key": "Runner rpc: key that the servers have registered with.",
    "rpc_priority": "Runner rpc: priority among clients of the tracker; higher is served first.",
    "session_timeout": "Runner rpc: seconds after which a server ends a session by itself.",
    "ray_address": "Runner ray: head of the cluster; by default the one on this machine.",
    "ray_num_workers": "Runner ray: most machines that time; by default all.",
}
# A reference of Sphinx in a docstring; its text is kept.
_REFERENCE = re.compile(r":\w+:`~?([^`]*)`")
PROGRESS_MODES = ("auto", "live", "plain", "quiet")


def json_option(command: Command) -> Command:
    """``--json FILE``, and ``--force`` for it and every other file that the command writes."""

    @functools.wraps(command)
    def checked(*, force: bool, **values: Any) -> Any:
        chosen = checked_destinations(click.get_current_context(), force)
        return command(**{**values, **chosen})

    decorated: Any = click.option(
        "--force",
        is_flag=True,
        help="Also replace existing files of another kind.",
    )(checked)
    decorated = click.option(
        "--json",
        "json_path",
        metavar="FILE",
        type=OutputFile("report"),
        help="Also write the result as JSON; - for standard output.",
    )(decorated)
    return cast(Command, decorated)


def tune_options(
    *names: str,
    parts: Sequence[str] = (),
    usual: Mapping[str, str] = MappingProxyType({}),
    texts: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Command], Command]:
    """Options of tuning, which the command takes as one argument ``options``.

    Args:
        names: Fields of ``TuneOptions``.
        parts: Kinds of parts that can be chosen, and given options.
        usual: The command's own defaults of such parts, for its help.
        texts: Its own help of fields that it has other defaults of.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def filled(**values: Any) -> Any:
            click.get_current_context().meta[BEGAN] = time.monotonic()
            options, others = read_tune_options(values, names, parts)
            return command(options=options, **others)

        decorated: Any = filled
        for kind in reversed(parts):
            decorated = _part_flags(kind, usual.get(kind))(decorated)
        for name in reversed(names):
            decorated = _flag(name, texts.get(name))(decorated)
        return cast(Command, decorated)

    return decorate


def read_tune_options(
    values: Mapping[str, Any], names: Sequence[str], parts: Sequence[str]
) -> tuple[TuneOptions, dict[str, Any]]:
    """Options of tuning from the values of a command's parameters, and its other values.

    Args:
        values: By parameter.
        names: As of :func:`tune_options`.
        parts: Likewise.

    Raises:
        AutotuneError: a value is out of range, or there is no such part.
    """
    from autotune.tuning.options import TuneOptions

    others = dict(values)
    given = {name: others.pop(name) for name in names}
    given = {name: value for name, value in given.items() if _is_given(name, value)}
    if "protocol" in given:
        given["protocol"] = read_protocol(given["protocol"])
    chosen = {
        kind: _read_part(kind, texts=_given_options(kind, others), name=others.pop(kind))
        for kind in parts
    }
    if parts:
        given["parts"] = {kind: part for kind, part in chosen.items() if part is not None}
    options = TuneOptions(**given)
    _refuse_unasked(options, chosen)
    return options, others


def _flag(name: str, text: str | None = None) -> Callable[[Command], Command]:
    """The flag of a field of ``TuneOptions``, with its default and its meaning."""
    from autotune.plugins.options import meanings
    from autotune.tuning.options import TuneOptions

    settings = dict(_FLAGS[name])
    flag = settings.pop("flag", "--" + name.replace("_", "-"))
    default = attrs.fields_dict(TuneOptions)[name].default
    if isinstance(default, (int, str)) and "is_flag" not in settings:
        settings |= {"default": default, "show_default": True}
    if name == "protocol":
        text = PROTOCOL_HELP
    # `python -OO` has no docstrings.
    text = text or meanings(TuneOptions).get(name, "").replace("``", "")
    text = _REFERENCE.sub(r"\1", text)
    return click.option(flag, name, help=text, **settings)


def _is_given(name: str, value: object) -> bool:
    """Return whether a flag says something: False does where it switches off what may be on."""
    from autotune.tuning.options import TuneOptions

    if value is False:
        return attrs.fields_dict(TuneOptions)[name].default is not False
    return value is not None and value != ()


def _part_flags(kind: str, usual: str | None) -> Callable[[Command], Command]:
    """The flags that choose a part, where ``usual`` is the default, and give it options."""
    from autotune.tuning.options import KINDS

    flag = _part_flag(kind)

    def decorate(command: Command) -> Command:
        options = click.option(
            f"{flag}-option",
            f"{kind}_options",
            metavar="K=V",
            multiple=True,
            help=f"Option of the {kind.replace('_', ' ')}; may be repeated.",
        )
        default = usual or KINDS[kind]
        if kind == "cost_model":
            default += ", or the strategy's own choice"
        name = click.option(
            flag, kind, metavar="NAME", show_default=default, help=_PART_TEXTS[kind]
        )
        decorated = options(command)
        for parameter, (_, _, metavar) in reversed(list(_NAMED_OPTIONS.get(kind, {}).items())):
            named = "--" + parameter.replace("_", "-")
            text = _NAMED_TEXTS[parameter]
            decorated = click.option(named, parameter, metavar=metavar, help=text)(decorated)
        return name(decorated)

    return decorate


def _refuse_unasked(options: TuneOptions, parts: Mapping[str, object]) -> None:
    """Raise where a part is named that the strategy of the run never asks."""
    from autotune.tuning.options import NONE, unused_by

    strategy = options.chosen["strategy"].name
    for kind in unused_by(strategy):
        given = parts.get(kind)
        if isinstance(given, tuple) and given[0] != NONE:
            noun = kind.replace("_", " ")
            raise InvalidValueError(
                f"strategy {strategy!r} asks no {noun}: leave out {_part_flag(kind)} {given[0]}, "
                "or choose another strategy"
            )


def part_parameters(kinds: Sequence[str]) -> list[str]:
    """Names of the parameters that choose parts of these kinds and give them options."""
    return [
        name for kind in kinds for name in (kind, f"{kind}_options", *_NAMED_OPTIONS.get(kind, {}))
    ]


def _part_flag(kind: str) -> str:
    return _PART_FLAGS.get(kind, "--" + kind.replace("_", "-"))


def _given_options(kind: str, values: dict[str, Any]) -> list[str]:
    """Options of a part as texts ``name=value``, those of flags of their own included.

    Raises:
        InvalidValueError: a flag is given that belongs to another part than is chosen.
    """
    texts = list(values.pop(f"{kind}_options"))
    for parameter, (part, option, _) in _NAMED_OPTIONS.get(kind, {}).items():
        value = values.pop(parameter)
        if value is None:
            continue
        if values[kind] != part:
            raise InvalidValueError(
                f"--{parameter.replace('_', '-')} is an option of {_part_flag(kind)} {part}: "
                f"add {_part_flag(kind)} {part}, or leave it out"
            )
        texts.append(f"{option}={value}")
    return texts


def _read_part(kind: str, name: str | None, texts: Sequence[str]) -> object:
    """A user's choice of a part; None for none."""
    options = read_options(texts, f"{_part_flag(kind)}-option")
    if name is None:
        return options or None
    return (name, options)


def database_option(command: Command) -> Command:
    """``--database FILE`` of a command that makes the file where there is none."""
    return _flag("database")(command)


def existing_database_option(command: Command) -> Command:
    """``--database FILE`` of a command that only reads it."""
    text = "Path of the database; by default that of autotune.database, or autotune.db."
    return _flag("database", text)(command)


def progress_options(command: Command) -> Command:
    """``--progress MODE``, ``--quiet`` and ``--log FILE``."""
    options = (
        click.option(
            "--progress",
            "progress_mode",
            type=click.Choice(PROGRESS_MODES),
            help="How to show progress; by default live on a terminal and plain elsewhere.",
        ),
        click.option("--quiet", is_flag=True, help="Show only warnings; as --progress quiet."),
        click.option(
            "--log",
            "log_path",
            metavar="FILE",
            type=OutputFile("log"),
            help="Append every event as a line of JSON; - for standard output.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def watched(command: Command) -> Command:
    """Decorates a command itself: it takes what :func:`progress_options` say as ``watching``."""

    @functools.wraps(command)
    def watching(
        *, progress_mode: str | None, quiet: bool, log_path: str | None, **values: Any
    ) -> Any:
        from autotune.cli.watching import Watching

        return command(watching=Watching.read(progress_mode, quiet, log_path), **values)

    return cast(Command, watching)


def shape_option(command: Command) -> Command:
    """``--shape k=v,...``."""
    return click.option(
        "--shape",
        metavar="K=V,...",
        multiple=True,
        help="Shape of the workload, such as m=512,n=512,k=512.",
    )(command)


def space_option(command: Command) -> Command:
    """``--space NAME``, of commands that show a space and do not search it."""
    return click.option(
        "--space",
        metavar="NAME",
        help="The search space; sketch+RULE adds a sketch rule of a plugin.  [default: sketch]",
    )(command)


def read_shape(texts: Sequence[str]) -> dict[str, str]:
    """Read ``--shape``, which may be given in one piece or several."""
    from autotune.plugins.workload_names import parse_assignments

    return parse_assignments(",".join(texts), "--shape")


def read_options(texts: Sequence[str], option: str) -> dict[str, Any]:
    """Read ``name=value`` texts; values that are JSON numbers or booleans become such.

    Raises:
        InvalidValueError: a text is not of this form.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InvalidValueError(f"{option} {text!r} is not of the form name=value")
        if name in values:
            raise InvalidValueError(f"{option} names {name!r} twice")
        values[name] = _value(value)
    return values


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text
