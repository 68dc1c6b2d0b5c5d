"""The parts that decide in a run: how they are named, and which are taken where none is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from autotune.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from autotune.plugins import PluginSpec

__all__ = ["KINDS", "NONE", "Choice", "chosen_parts", "spec_of", "unused_by"]

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
        name: Its name, or ``none``.
        options: Its options.
    """

    name: str
    options: Mapping[str, Any] = field(factory=dict, hash=False)

    @property
    def is_none(self) -> bool:
        """True if there is no such part."""
        return self.name == NONE


@frozen
class _Given:
    """A user's choice of a part: a name, options, or both."""

    name: str | None
    options: Mapping[str, Any]


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


def _read(given: object) -> dict[str, _Given]:
    if not isinstance(given, Mapping):
        raise InvalidValueError(
            f"parts are given by kind, as in {{'strategy': 'random'}}, not as {given!r}"
        )
    for kind in given:
        if kind not in KINDS:
            raise UnknownNameError("kind of part", str(kind), KINDS)
    return {kind: _read_part(kind, value) for kind, value in given.items()}


def _read_part(kind: str, value: object) -> _Given:
    noun = kind.replace("_", " ")
    if isinstance(value, Choice):
        return _Given(value.name, value.options)
    if isinstance(value, Mapping):
        return _Given(None, value)
    name, options = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, {})
    if kind == "pruning_model" and name is None:
        name = NONE
    if not isinstance(name, str) or not isinstance(options, Mapping):
        raise InvalidValueError(f"{noun} must be a name, or a name with options, not {value!r}")
    return _Given(name, options)


def _choice(
    kind: str, default: str, given: Mapping[str, _Given], usual: Mapping[str, _Given]
) -> Choice:
    """The given choice, completed by the preset's and then by the default."""
    from autotune.plugins.parts import check_part, current_options

    empty = _Given(None, {})
    mine, other = given.get(kind, empty), usual.get(kind, empty)
    fallback = other.name or default
    name = fallback if mine.name is None else mine.name
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
    """Why a part cannot work with candidates of a space; "" where it can."""
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


def _refuse_options(kind: str, strategy: str, given: _Given | None) -> Choice:
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
    if given is not None and given.name not in (None, NONE):
        check_part(kind, str(given.name))
    return Choice(NONE)
