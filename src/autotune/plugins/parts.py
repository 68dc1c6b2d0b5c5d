"""Creating a part by name, by import string, or taking it as it is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve

from autotune.errors import InvalidValueError, PluginError, UnknownNameError
from autotune.plugins.calling import Calling
from autotune.plugins.manager import manager
from autotune.plugins.spec import KINDS, Context, PluginSpec

__all__ = [
    "check_part",
    "check_recorded",
    "create_part",
    "current_options",
    "factory_of",
    "import_string",
    "interface_of",
    "recorded_options",
    "recorded_part",
    "registered_part",
]


def check_part(kind: str, name: object) -> str:
    """Check that a part exists, importing nothing; returns its name.

    Args:
        kind: Kind of part, such as ``"strategy"``.
        name: A registered name, or ``"module:attribute"`` for a part that no plugin registers.
            Names of sketch rules may follow that of a search space: ``"sketch+my-rule"``.

    Raises:
        UnknownNameError: no plugin registers it.
        InvalidValueError: it is not a name, or a search space takes no rules.
    """
    if not isinstance(name, str):
        raise InvalidValueError(f"{kind.replace('_', ' ')} must be a name, not {name!r}")
    _base_and_rules(kind, name)
    return name


def create_part(kind: str, name: str, context: Context | None = None) -> Any:
    """Create a part; see :func:`check_part` for ``name``.

    Raises:
        UnknownNameError: no plugin registers it.
        PluginError: it cannot be imported, fails while it is made, or is no such part.
    """
    context = context or Context()
    _, rules = _base_and_rules(kind, name)
    options = current_options(kind, name, context.options)
    context = evolve(context, options={**options, "rules": rules} if rules else options)
    factory = factory_of(kind, name)
    noun = f"{kind.replace('_', ' ')} {name!r}"
    with Calling(noun, "on construction"):
        made = factory(context)
    interface = interface_of(kind)
    if not isinstance(made, interface):
        raise PluginError(f"{noun} made a {type(made).__name__}, not a {interface.__name__}")
    return made


def factory_of(kind: str, name: str) -> Callable[..., Any]:
    """The factory of a part; see :func:`check_part` for ``name``.

    Raises:
        UnknownNameError: no plugin registers it.
        PluginError: it cannot be imported.
    """
    if ":" in name:
        return PluginSpec(kind, "imported", name, "by import string").resolve()
    return manager().factory(kind, _base_and_rules(kind, name)[0])


def import_string(kind: str, name: str) -> str:
    """A name by which another process makes a part without looking for plugins.

    Args:
        kind: Kind of part.
        name: As of :func:`check_part`.

    Returns:
        The part's import string; ``name`` itself where its factory cannot be imported.

    Raises:
        UnknownNameError: no plugin registers it.
    """
    if ":" in name:
        return name
    factory = manager().get(kind, name).factory
    if isinstance(factory, str):
        return factory
    module, path = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "<")
    return name if module in (None, "__main__") or "<" in path else f"{module}:{path}"


def check_recorded(kind: str, name: str, given: str | None = None) -> None:
    """Check that a part which a file names may be created, importing nothing.

    Args:
        kind: Kind of part.
        name: What the file names.
        given: The name by which this process knows the part, such as a user's own import string;
            None where only the file names it, which then must be a registered name.

    Raises:
        UnknownNameError: no installed plugin registers it.
        InvalidValueError: ``given`` is another one.
    """
    noun = kind.replace("_", " ")
    known = manager().names(kind)
    if given is None and name not in known:
        extra = manager().where_it_may_be(kind, name) or (
            "Records name parts of installed plugins only: install its plugin, or name the "
            f"{noun} yourself ({noun}=..., --{noun})."
        )
        raise UnknownNameError(noun, name, known, extra)
    if given not in (None, name):
        raise InvalidValueError(f"the record is of {noun} {name!r}, not of {given!r}")


def recorded_part(kind: str, name: str, given: str | None = None) -> Any:
    """Create a part that a file names; nothing that only a file names is imported.

    Raises:
        PluginError: as of :func:`create_part`.
        AutotuneError: as of :func:`check_recorded`, whose arguments these are.
    """
    check_recorded(kind, name, given)
    return create_part(kind, name)


def registered_part(kind: str, name: str) -> Any:
    """Create a part by its registered name alone: an import string is none.

    Raises:
        UnknownNameError: no plugin registers it.
        PluginError: as of :func:`create_part`.
    """
    manager().get(kind, name)
    return create_part(kind, name)


def current_options(kind: str, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a part, those under an earlier name under their present one.

    Raises:
        UnknownNameError: no plugin registers the part.
        InvalidValueError: an option is given under both names.
    """
    present = {earlier: now for now, earlier in _renamed(kind, name).items()}
    for option in options:
        if option in present and present[option] in options:
            raise InvalidValueError(
                f"{kind.replace('_', ' ')} {name!r}: {option!r} is the earlier name of "
                f"{present[option]!r}; give one of them"
            )
    return {present.get(option, option): value for option, value in options.items()}


def recorded_options(kind: str, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a part under the names by which runs are identified."""
    renamed = _renamed(kind, name)
    return {renamed.get(option, option): value for option, value in options.items()}


def _renamed(kind: str, name: str) -> Mapping[str, str]:
    """Earlier names of a part's options by their present ones."""
    return {} if ":" in name else manager().get(kind, _base_and_rules(kind, name)[0]).renamed


def _base_and_rules(kind: str, name: str) -> tuple[str, list[str]]:
    """Base name, and the names of the sketch rules that it is named with."""
    if ":" in name:
        return name, []
    base, *rules = name.split("+") if kind == "search_space" else [name]
    spec = manager().get(kind, base)
    for rule in rules:
        manager().get("sketch_rule", rule)
    if rules and "rules" not in spec.options:
        raise InvalidValueError(f"search space {base!r} takes no sketch rules, got {name!r}")
    return base, rules


def interface_of(kind: str) -> type[Any]:
    """Return the interface of a kind of parts; it is in a later room than this one."""
    module, _, attribute = KINDS[kind].rpartition(".")
    interface: type[Any] = getattr(importlib.import_module(module), attribute)
    return interface
