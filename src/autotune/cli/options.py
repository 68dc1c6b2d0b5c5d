"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import click

from autotune.cli.arguments import Given, Values, given, option
from autotune.cli.destinations import InputFile, OutputFile
from autotune.errors import InvalidValueError, UnknownNameError
from autotune.store.current import current_database

if TYPE_CHECKING:
    from autotune.cli.watching import Watching
    from autotune.measure import MeasureProtocol
    from autotune.tuning.options import TuneOptions

__all__ = [
    "SHAPE_HELP",
    "TUNING",
    "TUNING_PARTS",
    "database_option",
    "part_parameters",
    "protocol_option",
    "read_database",
    "read_options",
    "read_protocol",
    "read_shape",
    "read_tune_options",
    "read_value",
    "settings",
    "space_option",
    "tuning",
    "watching_option",
]

SHAPE_HELP = "Shape of the workload, such as m=512,n=512,k=512."
PROTOCOL_HELP = (
    "How candidates are timed: standard, quick, or a setting such as deadlines.build=60, "
    "max_samples=100, memory_bytes=4e9 or cold=true; may be repeated."
)
_DEADLINES = "deadlines"


def protocol_option(text: str = PROTOCOL_HELP) -> Any:
    """``--protocol NAME|K=V``, texts that :func:`read_protocol` reads."""
    return option("--protocol NAME|K=V", text)


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
TUNING = tuple(name for name in _FLAGS if name not in ("backend", "observers"))
"""Fields of ``TuneOptions`` that every command takes which tunes."""
# Flags of parts, and what there is to say of them.
_PARTS: Mapping[str, tuple[str, str]] = {
    "strategy": ("--strategy", "Search strategy."),
    "cost_model": ("--cost-model", "Learned cost model of the strategy."),
    "pruning_model": (
        "--pruning-model",
        "Analytical model that drafts candidates before the cost model; or none.",
    ),
    "search_space": ("--space", "Search space."),
    "task_scheduler": (
        "--task-scheduler",
        "Chooses the task of the next round, where there are several.",
    ),
    "measurer": ("--measurer", "What builds and times candidates."),
    "runner": ("--runner", "Where candidates are built and timed: this machine, or others."),
}
TUNING_PARTS = tuple(_PARTS)
"""Kinds of parts that every command chooses which tunes."""
# Flags for options of a part that every user of it gives, by the name of their parameter: part,
# option, how a value looks, and what it is.
_NAMED_OPTIONS: Mapping[str, Mapping[str, tuple[str, str, str, str]]] = {
    "runner": {
        "rpc_tracker": ("rpc", "tracker", "HOST:PORT", "address of TVM's RPC tracker."),
        "rpc_key": ("rpc", "key", "KEY", "key that the servers have registered with."),
        "rpc_priority": (
            *("rpc", "priority", "N"),
            "priority among clients of the tracker; higher is served first.",
        ),
        "session_timeout": (
            *("rpc", "session_timeout", "SECONDS"),
            "seconds after which a server ends a session by itself.",
        ),
        "ray_address": (
            *("ray", "address", "HOST:PORT"),
            "head of the cluster; by default the one on this machine.",
        ),
        "ray_num_workers": (
            *("ray", "num_workers", "N"),
            "most machines that time; by default all.",
        ),
    },
}
# A reference of Sphinx in a docstring; its text is kept.
_REFERENCE = re.compile(r":\w+:`~?([^`]*)`")
PROGRESS_MODES = ("auto", "live", "plain", "quiet")


def tuning(
    *names: str,
    parts: Sequence[str] = (),
    usual: Mapping[str, str] = MappingProxyType({}),
    texts: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """An attribute with options of tuning, ``TuneOptions``.

    Args:
        names: Fields of ``TuneOptions``.
        parts: Kinds of parts that can be chosen, and given options.
        usual: The command's own defaults of such parts, for its help.
        texts: Its own help of fields that it has other defaults of.
    """

    def make() -> Given:
        params = [_flag(name, texts.get(name)) for name in names]
        params += [it for kind in parts for it in _part_flags(kind, usual.get(kind))]
        return Given(params, lambda values: read_tune_options(values, names, parts))

    return given(make)


def read_tune_options(values: Values, names: Sequence[str], parts: Sequence[str]) -> TuneOptions:
    """Options of tuning from the values of a command's parameters.

    Args:
        values: By parameter.
        names: As of :func:`tuning`.
        parts: Likewise.

    Raises:
        AutotuneError: a value is out of range, or there is no such part.
    """
    from autotune.tuning.options import TuneOptions

    found = {name: values[name] for name in names if _is_given(name, values[name])}
    if "protocol" in found:
        found["protocol"] = read_protocol(found["protocol"])
    chosen = {kind: _read_part(kind, values) for kind in parts}
    if parts:
        found["parts"] = {kind: part for kind, part in chosen.items() if part is not None}
    options = TuneOptions(**found)
    _refuse_unasked(options, chosen)
    return options


def _flag(name: str, text: str | None = None) -> click.Option:
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
    return click.Option([flag, name], help=text, **settings)


def _is_given(name: str, value: object) -> bool:
    """Return whether a flag says something: False does where it switches off what may be on."""
    from autotune.tuning.options import TuneOptions

    if value is False:
        return attrs.fields_dict(TuneOptions)[name].default is not False
    return value is not None and value != ()


def _part_flags(kind: str, usual: str | None) -> Iterator[click.Option]:
    """The flags that choose a part, where ``usual`` is the default, and give it options."""
    from autotune.tuning.options import KINDS

    default = usual or KINDS[kind]
    if kind == "cost_model":
        default += ", or the strategy's own choice"
    flag, text = _PARTS[kind]
    yield click.Option([flag, kind], metavar="NAME", show_default=default, help=text)
    for name, (part, _, metavar, text) in _NAMED_OPTIONS.get(kind, {}).items():
        named, whole = "--" + name.replace("_", "-"), f"{kind.capitalize()} {part}: {text}"
        yield click.Option([named, name], metavar=metavar, help=whole)
    text = f"Option of the {kind.replace('_', ' ')}; may be repeated."
    names = [f"{flag}-option", f"{kind}_options"]
    yield click.Option(names, metavar="K=V", multiple=True, help=text)


def _refuse_unasked(options: TuneOptions, parts: Mapping[str, object]) -> None:
    """Raise where a part is named that the strategy of the run never asks."""
    from autotune.tuning.options import NONE, unused_by

    strategy = options.chosen["strategy"].name
    for kind in unused_by(strategy):
        given = parts.get(kind)
        if isinstance(given, tuple) and given[0] != NONE:
            noun = kind.replace("_", " ")
            raise InvalidValueError(
                f"strategy {strategy!r} asks no {noun}: leave out {_PARTS[kind][0]} {given[0]}, "
                "or choose another strategy"
            )


def part_parameters(kinds: Sequence[str]) -> list[str]:
    """Names of the parameters that choose parts of these kinds and give them options."""
    return [
        name for kind in kinds for name in (kind, f"{kind}_options", *_NAMED_OPTIONS.get(kind, {}))
    ]


def _given_options(kind: str, values: Values) -> list[str]:
    """Options of a part as texts ``name=value``, those of flags of their own included.

    Raises:
        InvalidValueError: a flag is given that belongs to another part than is chosen.
    """
    flag, texts = _PARTS[kind][0], list(values[f"{kind}_options"])
    for parameter, (part, name, _, _) in _NAMED_OPTIONS.get(kind, {}).items():
        value = values[parameter]
        if value is None:
            continue
        if values[kind] != part:
            raise InvalidValueError(
                f"--{parameter.replace('_', '-')} is an option of {flag} {part}: add {flag} "
                f"{part}, or leave it out"
            )
        texts.append(f"{name}={value}")
    return texts


def _read_part(kind: str, values: Values) -> object:
    """A user's choice of a part; None for none."""
    options = read_options(_given_options(kind, values), f"{_PARTS[kind][0]}-option")
    name = values[kind]
    if name is None:
        return options or None
    return (name, options)


def database_option() -> Any:
    """The path of ``--database FILE``, of a command that makes the file where there is none."""
    return _database(None)


def read_database() -> Any:
    """The path of ``--database FILE``, of a command that only reads it."""
    return _database("Path of the database; by default that of autotune.database, or autotune.db.")


def _database(text: str | None) -> Any:
    return given(lambda: Given([_flag("database", text)], lambda values: values["database"]))


def watching_option() -> Any:
    """An attribute ``Watching``: ``--progress MODE``, ``--quiet`` and ``--log FILE``."""
    mode = click.Choice(PROGRESS_MODES)
    text = "How to show progress; by default live on a terminal and plain elsewhere."
    log = "Append every event as a line of JSON; - for standard output."
    params = [
        click.Option(["--progress", "progress_mode"], type=mode, help=text),
        click.Option(["--quiet"], is_flag=True, help="Show only warnings; as --progress quiet."),
        click.Option(["--log", "log_path"], metavar="FILE", type=OutputFile("log"), help=log),
    ]

    def read(values: Values) -> Watching:
        from autotune.cli.watching import Watching

        return Watching.read(values["progress_mode"], values["quiet"], values["log_path"])

    return given(lambda: Given(params, read))


def space_option() -> Any:
    """``--space NAME``, of commands that show a space and do not search it."""
    text = "The search space; sketch+RULE adds a sketch rule of a plugin.  [default: sketch]"
    return option("--space NAME", text)


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
        values[name] = read_value(value)
    return values


def read_value(text: str) -> Any:
    """A value that is a JSON number or boolean, else the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text
