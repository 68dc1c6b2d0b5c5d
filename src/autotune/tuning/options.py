"""The options of a run: the one place where an option of tuning is declared.

The Python functions take its fields as keyword arguments, the command line has a flag for each,
its decisions identify a run, and the documentation's table is made from it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import attrs
from attrs import field, frozen

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedTarget
from autotune.store.current import current_database

if TYPE_CHECKING:
    from autotune.measure import MeasureProtocol
    from autotune.models.cost import ModelFile
    from autotune.plugins.spec import PluginSpec, Preset
    from autotune.search.schedulers.task_scheduler import Objective
    from autotune.targets import Target
    from autotune.tuning.events import Event, EventListener

__all__ = [
    "DEFAULT_TRIALS",
    "KINDS",
    "NONE",
    "Choice",
    "TuneOptions",
    "checked_target",
    "chosen_parts",
    "described_target",
    "spec_of",
    "unused_by",
    "usable_cpus",
]

NONE = "none"
"""In place of a part's name: there is none."""

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "strategy": "evolutionary",
        "cost_model": "gbdt",
        "pruning_model": "psa",
        "search_space": "sketch",
        "task_scheduler": "gradient",
        "measurer": "local",
        "runner": "local",
    }
)
"""Every kind of part that a run chooses, and the part that it chooses where none is named; for
cost models, a search space or a strategy may choose otherwise."""


@frozen
class Choice:
    """A part that was chosen.

    Attributes:
        name: Its name, or ``none``; "" where a user gives options alone.
        options: Its options.
    """

    name: str
    options: Mapping[str, Any] = field(factory=dict, hash=False)

    @property
    def is_none(self) -> bool:
        """True if there is no such part."""
        return self.name == NONE


def chosen_parts(
    given: Mapping[str, object], preset: Mapping[str, object]
) -> Mapping[str, Choice]:
    """The part of every kind.

    Args:
        given: By kind: a name, options, a name with options, or None for no such part.
        preset: The same, where nothing is given. Options count if the part is the same.

    Raises:
        UnknownNameError: there is no such kind or part.
        InvalidValueError: something else is given, or options of a part that is not asked.
    """
    wanted = _read(given)
    usual = _read(preset)
    strategy = _choice("strategy", KINDS["strategy"], wanted, usual)
    space = _choice("search_space", KINDS["search_space"], wanted, usual)
    unused = unused_by(strategy.name)
    found = {}
    for kind in KINDS:
        if kind in unused:
            found[kind] = _refuse_options(kind, strategy.name, wanted.get(kind))
        else:
            default = _default(kind, strategy.name, space.name)
            found[kind] = _choice(kind, default, wanted, usual)
    _check_space(found)
    if "target" in found["pruning_model"].options:
        raise InvalidValueError("the target of the pruning model is that of the run, no option")
    return found


def _read(given: object) -> dict[str, Choice]:
    if not isinstance(given, Mapping):
        raise InvalidValueError(
            f"parts are given by kind, as in {{'strategy': 'random'}}, not as {given!r}"
        )
    for kind in given:
        if kind not in KINDS:
            raise UnknownNameError("kind of part", str(kind), KINDS)
    return {kind: _read_part(kind, value) for kind, value in given.items()}


def _read_part(kind: str, value: object) -> Choice:
    from autotune.plugins.parts import check_part

    noun = kind.replace("_", " ")
    if isinstance(value, Choice):
        return value
    if isinstance(value, Mapping):
        return Choice("", value)
    name, options = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, {})
    if kind == "pruning_model" and name is None:
        name = NONE
    if not isinstance(name, str) or not isinstance(options, Mapping):
        raise InvalidValueError(f"{noun} must be a name, or a name with options, not {value!r}")
    if not name:
        check_part(kind, name)
    return Choice(name, options)


def _choice(
    kind: str, default: str, given: Mapping[str, Choice], usual: Mapping[str, Choice]
) -> Choice:
    """The given choice, completed by the preset's and then by the default."""
    from autotune.plugins.parts import check_part, current_options

    empty = Choice("")
    mine, other = given.get(kind, empty), usual.get(kind, empty)
    fallback = other.name or default
    name = mine.name or fallback
    usual_options = other.options if name == fallback else {}
    if kind == "pruning_model" and name == NONE:
        if options := {**usual_options, **mine.options}:
            raise InvalidValueError(f"there is no pruning model to take the options {options}")
        return Choice(NONE)
    check_part(kind, name)
    given_options = (current_options(kind, name, given) for given in (usual_options, mine.options))
    return Choice(name, {key: value for each in given_options for key, value in each.items()})


def _default(kind: str, strategy: str, space: str) -> str:
    """The default of a kind, which for models the space or the strategy may choose."""
    own, asking = spec_of("search_space", space), spec_of("strategy", strategy)
    if kind == "cost_model":
        for spec in (own, asking):
            if spec is not None and spec.default_cost_model:
                return spec.default_cost_model
    if kind == "pruning_model" and own is not None and not own.has_nest:
        return NONE
    return KINDS[kind]


def spec_of(kind: str, name: str) -> PluginSpec | None:
    """Registered spec of a part; None for one that is named by import string."""
    from autotune.plugins.manager import manager

    # A search space may be named with sketch rules.
    return None if ":" in name else manager().get(kind, name.partition("+")[0])


def _check_space(found: Mapping[str, Choice]) -> None:
    """Refuse parts that cannot work with candidates of the search space."""
    from autotune.plugins.manager import manager

    space = found["search_space"].name
    own = spec_of("search_space", space)
    if own is None:
        return
    for kind in ("strategy", "cost_model", "pruning_model"):
        choice = found[kind]
        part = None if choice.is_none else spec_of(kind, choice.name)
        reason = None if part is None else _mismatch(part, own)
        if reason:
            known = [manager().get(kind, name) for name in manager().names(kind)]
            can = ", ".join([it.name for it in known if not _mismatch(it, own)] or [NONE])
            noun = kind.replace("_", " ")
            raise InvalidValueError(f"{noun} {choice.name!r} {reason}; there can be: {can}")


def _mismatch(part: PluginSpec, space: PluginSpec) -> str:
    """Say why a part cannot work with candidates of a space; "" where it can."""
    if part.reads_nest and not space.has_nest:
        return f"reads the symbolic loop nest, and candidates of space {space.name!r} have none"
    if part.spaces and space.name not in part.spaces:
        spaces = " or ".join(map(repr, part.spaces))
        return f"scores candidates of space {spaces}, and that of the run is {space.name!r}"
    return ""


def unused_by(strategy: str) -> tuple[str, ...]:
    """Kinds of parts that a strategy never asks; one without a plugin may ask all."""
    from autotune.plugins.manager import manager

    known = strategy in manager().names("strategy")
    return manager().get("strategy", strategy).unused if known else ()


def _refuse_options(kind: str, strategy: str, given: Choice | None) -> Choice:
    """No part, as the strategy does not ask one: it decides nothing, and options of it are wrong.

    Naming one is no mistake here, so that scripts can compare strategies by changing one word; a
    command line that names one is refused.
    """
    from autotune.plugins.parts import check_part

    noun = kind.replace("_", " ")
    if given is not None and given.options:
        raise InvalidValueError(
            f"strategy {strategy!r} asks no {noun}: leave out its options "
            f"{dict(given.options)}, or choose another strategy"
        )
    if given is not None and given.name not in ("", NONE):
        check_part(kind, given.name)
    return Choice(NONE)


# The command line reads the names and texts of options only, and imports nothing else for them.


DEFAULT_TRIALS = 64
DEFAULT_ROUND_SIZE = 16
DEFAULT_FIRST_ROUND = 1
# What a column of a database holds.
_MOST = 2**63 - 1
_MOST_IN_ROUND = 1 << 20


def _whole(low: int, high: int = _MOST) -> Callable[[object, Any, Any], None]:
    """Checks that a value is None where that is the default, or a whole number within bounds."""

    def check(_options: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is None and attribute.default is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            most = isinstance(value, int) and value > high
            bounds = (
                f"of at least {low}"
                if high >= _MOST_IN_ROUND and not most
                else f"from {low} to {high}"
            )
            raise InvalidValueError(
                f"{attribute.name} must be a whole number {bounds}, not {value!r}"
            )

    return check


def _seconds(_options: object, attribute: attrs.Attribute[Any], value: object) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (number and 0 < value < math.inf):  # type: ignore[operator]
        raise InvalidValueError(
            f"{attribute.name} must be a positive number of seconds, not {value!r}"
        )


def _not_with_fresh(options: TuneOptions, _attribute: object, value: bool | None) -> None:
    if value and options.fresh:
        raise InvalidValueError(
            "warm_start (--warm-start) begins with what is recorded, and fresh (--fresh) ignores "
            "it: leave out one of them"
        )


def _function(_options: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not callable(value):
        raise InvalidValueError(f"{attribute.name} must be a function, not {value!r}")


def _target(given: Target | str | os.PathLike[str]) -> Target:
    from autotune.backends.native.exports import is_triple
    from autotune.plugins.manager import manager
    from autotune.plugins.parts import create_part
    from autotune.targets import resolve

    named = () if given == "cpu" else manager().names("target")
    if isinstance(given, str) and given in named:
        target: Target = create_part("target", given)
        return target
    if isinstance(given, str) and " " not in given and is_triple(given):
        return _of_triple(given)
    return resolve(given, named)


def _of_triple(text: str) -> Target:
    from autotune.backends.native.exports import machine_of, machine_of_triple

    machine = machine_of_triple(text)
    made_for = machine_of(machine.target).triple
    if machine.triple != made_for:
        raise UnsupportedTarget(
            f"networks are made for {made_for}, and not for {machine.triple}; kernels are "
            "exported for both (autotune export)"
        )
    return machine.target


def _backends(given: str | Sequence[str] | None) -> tuple[str, ...]:
    if given is None or given == ():
        return ()
    from autotune.plugins.parts import check_part

    names: list[object] = [given]
    if isinstance(given, str):
        names = [name.strip() for name in given.split(",")]
    elif isinstance(given, (list, tuple)):
        names = list(given)
    checked = [check_part("backend", name) for name in names]
    if not checked:
        raise InvalidValueError("there is no backend to tune with")
    for name in checked:
        if checked.count(name) > 1:
            raise InvalidValueError(f"backend {name!r} is named twice")
    return tuple(checked)


def _observers(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise InvalidValueError(f"observers must be a list of names, such as [{names!r}]")
    from autotune.plugins.parts import check_part

    return tuple(dict.fromkeys(check_part("observer", name) for name in names))


def _path(given: str | os.PathLike[str]) -> str:
    return os.fspath(given)


def _listeners(given: Sequence[EventListener]) -> tuple[EventListener, ...]:
    return tuple(given)


def _model_file(given: str | os.PathLike[str] | ModelFile | None) -> ModelFile | None:
    from autotune.models.cost import ModelFile, trained_model

    return given if given is None or isinstance(given, ModelFile) else trained_model(given)


def _protocol(given: MeasureProtocol | None) -> MeasureProtocol:
    from autotune.measure import MeasureProtocol

    return given or MeasureProtocol()


def _preset(given: str | Preset | None) -> Preset | None:
    from autotune.plugins.parts import create_part

    if not isinstance(given, str):
        return given
    found: Preset = create_part("preset", given)
    return found


@frozen(kw_only=True, eq=False)
class TuneOptions:
    """Options of tuning. Every value is checked on construction, before anything is written.

    Attributes:
        target: The machine to tune for: ``cpu`` for this one, ``cuda`` or ``cuda:1`` for a GPU in
            it, a preset by name, or a JSON file.
        threads: Threads that the program runs on; by default one per core of the target.
        backend: What builds and runs candidates; by default what imports the program or has tuned
            it before, else ``native`` on x86-64 CPUs, and ``tvm`` elsewhere. Several, such as
            ``native,tvm``, compete within one budget.
        preset: A published tuner by name: its parts, their options and the size of a round at
            once. Options given as well take precedence.
        parts: The parts that decide, by kind: a name, options, a name with options, or None for no
            pruning model, as in ``{"strategy": ("random", {})}``. A part that no plugin registers
            is named by import string, ``module:Class``.
        load_cost_model: Pretrained cost model: a file of ``autotune train fit``, or the name of a
            trained model that a plugin brings.
        trials: Budget in candidates, including those answered from records; by default 64 for
            each program, and with ``time`` as many as that allows.
        time: Budget in wall seconds, which bounds the whole call. All of it is used, unless
            ``trials`` are used up before, the space is exhausted, or no program has gained within
            ``patience``.
        session_time: Wall seconds after which this call stops, not counting earlier sessions of
            the run that it resumes.
        patience: Trials without a faster candidate after which a program gets no more; by default
            none is left before the budget is used up.
        objective: Of several programs, a function to be minimised: of a dictionary with
            the latency of each in seconds, by name. By default the sum of weight x latency. A run
            is known by the function's name and module.
        seed: Seed of all randomness.
        round_size: Candidates proposed between updates of the models; by default 16,
            or as in the preset.
        first_round: Candidates in the first round of each of several programs, whose next rounds
            have as many as all before them, up to ``round_size``; by default 1, or the size of a
            round of the preset. Where backends compete, all rounds are whole.
        lookahead: Rounds proposed and built while the last one is measured; by default 1, or as
            in the preset.
        database: Path of the database, which is created if missing; by default that of
            :func:`autotune.database`, or ``autotune.db``.
        fresh: Ignore records and earlier runs.
        warm_start: Begin a new run with what is recorded of equal and similar programs: the best
            schedules are proposed first, and the cost model learns from their outcomes. By
            default on, unless ``fresh`` is given, which it contradicts.
        observers: Also record the readings of this observer, such as ``perf``; there may be
            several. They do not affect the timings.
        protocol: The measuring protocol; by default the standard one.
        time_untuned: Time the untuned program however slow it is; by default one that takes some
            tenths of a second for certain is run only if no candidate is faster for certain.
        listeners: Functions called with every event.
    """

    target: Target = field(default=cast(Any, "cpu"), converter=_target)
    threads: int | None = field(default=None, metadata={"low": 1})
    backend: tuple[str, ...] = field(default=(), converter=_backends)
    preset: Preset | None = field(default=None, converter=_preset)
    parts: Mapping[str, object] = field(factory=dict)
    load_cost_model: ModelFile | None = field(converter=_model_file)
    trials: int | None = field(default=None, validator=_whole(1), metadata={"low": 1})
    time: float | None = field(default=None, validator=_seconds)
    session_time: float | None = field(default=None, validator=_seconds)
    patience: int | None = field(default=None, validator=_whole(1), metadata={"low": 1})
    objective: Objective | None = field(default=None, validator=_function)
    seed: int = field(default=0, validator=_whole(0), metadata={"low": 0})
    round_size: int = field(
        validator=_whole(1, _MOST_IN_ROUND), metadata={"low": 1, "high": _MOST_IN_ROUND}
    )
    first_round: int = field(
        validator=_whole(1, _MOST_IN_ROUND), metadata={"low": 1, "high": _MOST_IN_ROUND}
    )
    lookahead: int = field(validator=_whole(0, 1), metadata={"low": 0, "high": 1})
    database: str = field(factory=current_database, converter=_path)
    fresh: bool = field(default=False, converter=bool)
    warm_start: bool | None = field(
        default=None, converter=attrs.converters.optional(bool), validator=_not_with_fresh
    )
    observers: tuple[str, ...] = field(default=(), converter=_observers)
    protocol: MeasureProtocol = field(default=None, converter=_protocol)
    time_untuned: bool = field(default=False, converter=bool)
    listeners: tuple[EventListener, ...] = field(default=(), converter=_listeners)
    chosen: Mapping[str, Choice] = field(init=False, repr=False)
    machine: Target = field(init=False, repr=False)

    @load_cost_model.default
    def _usual_file(self) -> str | None:
        return None if self.preset is None else self.preset.load_cost_model

    @round_size.default
    def _usual_round(self) -> int:
        return (self.preset and self.preset.round_size) or DEFAULT_ROUND_SIZE

    @first_round.default
    def _usual_first_round(self) -> int:
        return DEFAULT_FIRST_ROUND if self.preset is None else self.round_size

    @lookahead.default
    def _usual_lookahead(self) -> int:
        return 1 if self.preset is None else self.preset.lookahead

    @chosen.default
    def _choose(self) -> Mapping[str, Choice]:
        chosen = chosen_parts(self.parts, self.preset.parts if self.preset else {})
        if self.load_cost_model is not None and chosen["cost_model"].is_none:
            raise InvalidValueError(
                f"strategy {chosen['strategy'].name!r} asks no cost model: leave out "
                "load_cost_model (--load-cost-model), or choose another strategy"
            )
        measurer, runner = chosen["measurer"], chosen["runner"]
        if measurer.name != KINDS["measurer"] and runner != Choice(KINDS["runner"]):
            raise InvalidValueError(
                f"measurer {measurer.name!r} has no machines of its own to run on: leave out "
                f"runner {runner.name!r} (--runner), or take measurer {KINDS['measurer']!r}"
            )
        return chosen

    @machine.default
    def _describe(self) -> Target:
        if self.runs_here:
            return _check_cores(checked_target(self.target, self.threads))
        return described_target(self.target, self.threads)

    @property
    def runs_here(self) -> bool:
        """True if programs run on this machine, and not on those of a runner."""
        return self.chosen["runner"].name == KINDS["runner"]

    @property
    def uses_engine(self) -> bool:
        """True if builds and timings are jobs of an engine, and not of workers of their own."""
        runner = self.chosen["runner"]
        plain: tuple[Mapping[str, Any], ...] = ({}, {"builders": 0})
        return not self.runs_here or dict(runner.options) not in plain

    @property
    def measuring(self) -> str:
        """Source of outcomes: the protocol, and a measurer that is not the usual one."""
        measurer = self.chosen["measurer"]
        if measurer == Choice(KINDS["measurer"]):
            return self.protocol.identity
        given = [f"{name}={value}" for name, value in sorted(measurer.options.items())]
        return "+".join([self.protocol.identity, measurer.name, *given])

    def tell(self, event: Event) -> None:
        """Call every listener with an event."""
        for listener in self.listeners:
            listener(event)

    def decisions(self, tasks: int) -> dict[str, Any]:
        """The options that decide which candidates a run of so many tasks proposes.

        Target, backend, threads and protocol decide too; they are part of every measure key.
        What the strategy never asks is left out, and so is a scheduler with nothing to schedule.
        """
        from autotune.plugins.parts import recorded_options

        chosen = {kind: choice for kind, choice in self.chosen.items() if not choice.is_none}
        options = {
            kind: recorded_options(kind, choice.name, choice.options)
            for kind, choice in chosen.items()
        }
        found: dict[str, Any] = {
            "strategy_options": options["strategy"],
            "round_size": self.round_size,
            "lookahead": self.lookahead,
        }
        unused = unused_by(chosen["strategy"].name)
        for kind in ("cost_model", "pruning_model"):
            if kind not in unused:
                choice = chosen.get(kind)
                found[kind] = choice and choice.name
                if options.get(kind):
                    found[f"{kind}_options"] = options[kind]
        if self.load_cost_model is not None:
            found["cost_model_file"] = self.load_cost_model.digest
        if self.warm_start is False:
            found["warm_start"] = False
        if self.patience is not None:
            found["patience"] = self.patience
        if tasks > 1 and self.objective is not None:
            from autotune.search.schedulers.task_scheduler import objective_name

            found["objective"] = objective_name(self.objective)
        if tasks > 1 and self.first_round < self.round_size:
            found["first_round"] = self.first_round
        if tasks > 1:
            found["scheduler"] = chosen["task_scheduler"].name
            found["scheduler_options"] = options["task_scheduler"]
        if options["search_space"]:
            found["search_space_options"] = options["search_space"]
        return found


def described_target(target: Target | str | os.PathLike[str], threads: int | None) -> Target:
    """The target with as many cores as threads are used, on whatever machine.

    Args:
        target: As of :func:`checked_target`, which is for threads of this process.
        threads: As of :func:`checked_target`.

    Raises:
        InvalidValueError: ``threads`` is no number of cores.
        UnknownNameError: there is no such target.
    """
    described = _target(target)
    if threads is None:
        return described
    return described if threads == described.cores else described.with_cores(threads)


def checked_target(target: Target | str | os.PathLike[str], threads: int | None) -> Target:
    """The target with as many cores as threads are to be used.

    Args:
        target: What ``autotune.targets.resolve`` takes.
        threads: Threads to run on; None for one per core of the target.

    Raises:
        InvalidValueError: ``threads`` is not a positive number of CPUs that this process has.
        UnknownNameError: there is no such target.
    """
    described = _target(target)
    if threads is None:
        return described
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise InvalidValueError(f"threads must be a whole number of at least 1, not {threads!r}")
    if threads > usable_cpus():
        raise InvalidValueError(
            f"threads must be at most {usable_cpus()}, the CPUs that this process may use, "
            f"not {threads}"
        )
    return described if threads == described.cores else described.with_cores(threads)


def _check_cores(target: Target) -> Target:
    """Refuse to time programs on more threads than there are CPUs."""
    if target.kind == "cpu" and target.cores > usable_cpus():
        raise InvalidValueError(
            f"target {target.name!r} has {target.cores} cores, and this process may use "
            f"{usable_cpus()} CPUs: say how many threads are to be used of them (--threads)"
        )
    return target


def usable_cpus() -> int:
    """Logical CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))
