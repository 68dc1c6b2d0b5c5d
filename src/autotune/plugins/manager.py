"""Finding, checking and looking up plugins: pluggy, and what it leaves to its host.

One broken plugin never breaks the host: it is quarantined, listed with its error by
`PluginManager.report`, and named in the error for an unknown part.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable, Container, Iterable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import pluggy
from attrs import frozen

from autotune.errors import PluginError, UnknownNameError, near_matches
from autotune.plugins.known_names import where_it_is
from autotune.plugins.spec import (
    API_CHANGES,
    API_VERSION,
    API_VERSION_ATTRIBUTE,
    ENTRY_POINT_GROUP,
    HOOK,
    KINDS,
    PROJECT,
    HookSpecs,
    PluginSpec,
)
from autotune.process.child import describe
from autotune.process.interrupts import InterruptGuard, is_of_user

if TYPE_CHECKING:
    # Imported where it is used: it takes as long as all of this package, and workers of backends
    # that are given by import strings do without.
    from importlib import metadata

__all__ = ["DISABLE_VARIABLE", "PluginManager", "PluginStatus", "manager"]

DISABLE_VARIABLE = "AUTOTUNE_DISABLE_PLUGINS"
"""Environment variable: what not to load, with commas between: names of entry points or of
distributions, or `*` for all. The core's own parts stay."""

_CORE_TABLES = {
    "intrinsic": "autotune.sketches.intrinsics:INTRINSICS",
    "step": "autotune.sketches.steps:CORE_STEP_NAMES",
    "target": "autotune.targets.resolution:CORE_NAMES",
}
"""Tables with the names of the core's own, of kinds that it does not register."""

_WHOLE = ("dtype", "intrinsic", "step", "target")
"""Kinds whose names mean something in programs and files, which other parts of a plugin write:
one that cannot have such a name is refused as a whole."""

_BUILTIN_NAME = "builtin"
_BUILTIN_MODULE = "autotune.plugins.builtin"
_CORE_DISTRIBUTION = "tensor-autotune"


@frozen
class PluginStatus:
    """Status of an installed part.

    Attributes:
        kind: A key of `KINDS`, or `"plugin"` where a whole plugin is meant.
        name: The part's name, or the entry point's.
        distribution: The installed distribution that it came from, or "" if from none.
        version: That distribution's version, or "".
        status: `"ok"`, `"quarantined"` or `"disabled"`.
        error: Why it is not ok; "" when it is.
    """

    kind: str
    name: str
    distribution: str
    version: str
    status: str
    error: str = ""


@frozen
class _Source:
    """Origin of a plugin."""

    name: str
    distribution: str = ""
    version: str = ""

    @property
    def registered(self) -> str:
        """The name for pluggy: that of an entry point is unique in its distribution only."""
        return f"{self.distribution}:{self.name}" if self.distribution else self.name

    def __str__(self) -> str:
        return f"{self.name!r} of {self.distribution}" if self.distribution else repr(self.name)

    def status(self, kind: str, name: str, status: str, error: str = "") -> PluginStatus:
        return PluginStatus(kind, name, self.distribution, self.version, status, error)


class PluginManager(pluggy.PluginManager):
    """Everything that plugins registered.

    It is pluggy's manager, with all that that has, such as `enable_tracing`. A plugin of a
    distribution has the name `"distribution:entry-point"` there.

    Args:
        disabled: Names of entry points or distributions not to load; `"*"` means all of them.
            Those in the environment variable `AUTOTUNE_DISABLE_PLUGINS` are added.
        entry_points: What to load instead of the installed entry points of the group `autotune`.
    """

    def __init__(
        self,
        *,
        disabled: Iterable[str] = (),
        entry_points: Iterable[metadata.EntryPoint] | None = None,
    ) -> None:
        super().__init__(PROJECT)
        self.add_hookspecs(HookSpecs)
        self._returned: list[object] = []
        self.hook.autotune_parts.call_historic(self._returned.append)
        self._parts: dict[str, dict[str, tuple[PluginSpec, _Source]]] = {
            kind: {} for kind in KINDS
        }
        self._failures: list[PluginStatus] = []
        # The core's own parts failing is a defect of the core, not something to carry on without.
        self._core = _Source(_BUILTIN_NAME, _CORE_DISTRIBUTION, _version_of(_CORE_DISTRIBUTION))
        self._admit(importlib.import_module(_BUILTIN_MODULE), self._core, _WHOLE)
        if entry_points is None:
            from importlib import metadata

            entry_points = metadata.entry_points(group=ENTRY_POINT_GROUP)
        self.load(entry_points, disabled)

    def register(self, plugin: object, name: str | None = None) -> str:
        """Registers a plugin object of this process, such as a module or an instance.

        Args:
            plugin: It has a function `autotune_parts`, or one marked as its implementation.
            name: What errors call it; that of a module or class where none is given.

        Returns:
            The name.

        Raises:
            PluginError: It is malformed, or one of its names is taken; nothing of it is kept.
        """
        source = _Source(name or self.get_canonical_name(plugin))
        self._admit(plugin, source, KINDS)
        return source.registered

    def unregister(self, plugin: object = None, name: str | None = None) -> Any:
        """Forgets a plugin and its parts, as pluggy does; returns it, or None if there is none."""
        name = name or self.get_name(plugin)
        forgotten = super().unregister(plugin, name)
        for parts in self._parts.values():
            for part in [part for part, (_, owner) in parts.items() if owner.registered == name]:
                del parts[part]
        return forgotten

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        """Take a function with the name of the hook for an implementation, beside pluggy's own."""
        marked = super().parse_hookimpl_opts(plugin, name)
        if marked is not None or name != HOOK:
            return marked
        found = inspect.getattr_static(plugin, name, None)
        if not isinstance(found, (FunctionType, MethodType, classmethod, staticmethod)):
            return None
        return {
            "wrapper": False,
            "hookwrapper": False,
            "optionalhook": False,
            "tryfirst": False,
            "trylast": False,
            "specname": None,
        }

    def kinds(self) -> tuple[str, ...]:
        """Returns the kinds of parts that plugins can register."""
        return tuple(KINDS)

    def names(self, kind: str) -> tuple[str, ...]:
        """Returns the names of one kind of part, sorted; imports none of them."""
        return tuple(sorted(self._of_kind(kind)))

    def get(self, kind: str, name: str) -> PluginSpec:
        """Returns the specification of a part.

        Raises:
            UnknownNameError: There is no such kind, or no such part of it; plugins that failed are
                named.
        """
        return self._find(kind, name)[0]

    def factory(self, kind: str, name: str) -> Callable[..., Any]:
        """Imports and returns what creates a part.

        Raises:
            UnknownNameError: There is no such kind or part.
            PluginError: The factory cannot be imported.
        """
        spec, source = self._find(kind, name)
        try:
            return spec.resolve()
        except PluginError as error:
            message = f"{_noun(kind)} {name!r} from plugin {source}: {error}"
            raise PluginError(message) from error

    def report(self) -> list[PluginStatus]:
        """Returns every part and every failure: parts by kind and name, then what is not ok."""
        working = [
            source.status(kind, name, "ok")
            for kind, parts in self._parts.items()
            for name, (_, source) in sorted(parts.items())
        ]
        return working + list(self._failures)

    def _of_kind(self, kind: str) -> dict[str, tuple[PluginSpec, _Source]]:
        if kind not in self._parts:
            raise UnknownNameError("kind of plugin", kind, self._parts)
        return self._parts[kind]

    def _find(self, kind: str, name: str) -> tuple[PluginSpec, _Source]:
        parts = self._of_kind(kind)
        if name not in parts:
            raise UnknownNameError(_noun(kind), name, parts, self.where_it_may_be(kind, name))
        return parts[name]

    def where_it_may_be(self, kind: str, name: str) -> str:
        """Returns sentences on where a part that is unknown may be found; `""` for none."""
        failed = {failure.distribution for failure in self._failures}
        found = (where_it_is(kind, name, failed), self._unavailable())
        return " ".join(filter(None, found))

    def _unavailable(self) -> str:
        failed = [
            f"{failure.name!r} is {failure.status} ({failure.error})"
            for failure in self._failures
            if failure.kind == "plugin"
        ]
        return "Not loaded: plugin " + "; plugin ".join(failed) + "." if failed else ""

    def load(
        self, entry_points: Iterable[metadata.EntryPoint], disabled: Iterable[str] = ()
    ) -> None:
        """Loads entry points one by one; one that fails is quarantined, and the others go on.

        Args:
            entry_points: Each names a plugin object.
            disabled: As of the constructor.
        """
        disabled = {*disabled, *_disabled_by_environment()}
        known = set()
        for entry_point in sorted(entry_points, key=lambda found: (found.name, found.value)):
            source = _source_of(entry_point)
            aliases = {"*", source.name, source.distribution}
            known |= aliases
            if aliases & disabled:
                status = source.status("plugin", source.name, "disabled", "disabled by the user")
                self._failures.append(status)
                continue
            with InterruptGuard():
                try:
                    self._admit(entry_point.load(), source, _WHOLE)
                except BaseException as error:  # a foreign module may raise anything
                    if is_of_user(error):
                        raise
                    reason = str(error) if isinstance(error, PluginError) else describe(error)
                    status = source.status("plugin", source.name, "quarantined", reason)
                    self._failures.append(status)
        for name in sorted(disabled - known - {"*", ""}):
            missing = "asked to be disabled, but not installed"
            self._failures.append(PluginStatus("plugin", name, "", "", "disabled", missing))

    def _admit(self, plugin: object, source: _Source, whole: Container[str]) -> None:
        """Registers all that a plugin offers, except names that are taken.

        Those are refused one by one, as the rest of the plugin has nothing to do with them; those
        of a kind in ``whole`` with all the rest.

        Raises:
            PluginError: It is malformed, or a name of such a kind is taken; nothing is kept.
        """
        _check_version(plugin, source)
        if self.is_registered(plugin):
            raise PluginError("it is registered already, under another name")
        if self.has_plugin(source.registered):
            raise PluginError(f"another plugin is registered as {source.registered!r} already")
        try:
            specs = self._collect(plugin, source)
            taken = self._taken(specs, source)
            for failure in taken:
                if failure.kind in whole:
                    raise PluginError(failure.error)
        except BaseException:
            self.unregister(name=source.registered)
            raise
        self._failures += taken
        for spec in specs:
            self._parts[spec.kind].setdefault(spec.name, (spec, source))

    def _collect(self, plugin: object, source: _Source) -> list[PluginSpec]:
        """Returns what a plugin offers once all of it is known to be well-formed."""
        self._returned.clear()
        self.trace("register", str(source))
        try:
            super().register(plugin, source.registered)
            self.check_pending()
        except pluggy.PluginValidationError as error:
            raise PluginError(" ".join(str(error).split())) from error
        if not self.get_hookcallers(plugin):
            similar = near_matches(HOOK, vars(plugin)) if hasattr(plugin, "__dict__") else []
            hint = f", only {similar[0]!r}" if similar else ""
            raise PluginError(f"it registers nothing: it has no function {HOOK!r}{hint}")
        # Of None, pluggy says nothing.
        return _checked([*self._returned] or [None])

    def _taken(self, specs: Iterable[PluginSpec], source: _Source) -> list[PluginStatus]:
        failures = []
        for spec in specs:
            first = self._owner(spec)
            if first is not None:
                error = (
                    f"plugin {source} registers {_noun(spec.kind)} {spec.name!r}, "
                    f"which plugin {first} registered first"
                )
                failures.append(source.status(spec.kind, spec.name, "quarantined", error))
        return failures

    def _owner(self, spec: PluginSpec) -> _Source | None:
        """Return the source that has the name already."""
        if spec.name in self._parts[spec.kind]:
            return self._parts[spec.kind][spec.name][1]
        module, _, table = _CORE_TABLES.get(spec.kind, "").partition(":")
        own = module and spec.name in getattr(importlib.import_module(module), table)
        return self._core if own else None


def _checked(returned: Iterable[object]) -> list[PluginSpec]:
    """The parts in what the implementations of a plugin returned."""
    specs: dict[tuple[str, str], PluginSpec] = {}
    for parts in returned:
        if not isinstance(parts, (list, tuple)):
            raise PluginError(f"{HOOK} returned {type(parts).__name__}, not a list of PluginSpec")
        for spec in parts:
            if not isinstance(spec, PluginSpec):
                raise PluginError(f"{HOOK} returned a {type(spec).__name__} among its PluginSpec")
            problem = spec.problem()
            if problem is None and (spec.kind, spec.name) in specs:
                problem = f"{_noun(spec.kind)} {spec.name!r} is there twice"
            if problem is not None:
                raise PluginError(f"{HOOK}: {problem}")
            specs[spec.kind, spec.name] = spec
    if not specs:
        raise PluginError(f"it registers nothing: {HOOK} returned an empty list")
    return list(specs.values())


def _check_version(plugin: object, source: _Source) -> None:
    version = getattr(plugin, API_VERSION_ATTRIBUTE, API_VERSION)
    if version != API_VERSION:
        since = [number for number in API_CHANGES if type(version) is int and version < number]
        changes = "".join(f"; since {number}, {API_CHANGES[number]}" for number in since)
        also = f", or change it and set {API_VERSION_ATTRIBUTE} = {API_VERSION}" if since else ""
        raise PluginError(
            f"written for plugin interface {version!r}, while this autotune has {API_VERSION}"
            f"{changes}: install a version of {source.distribution or source.name} made for it"
            f"{also}"
        )


def _noun(kind: str) -> str:
    return kind.replace("_", " ")


def _source_of(entry_point: metadata.EntryPoint) -> _Source:
    distribution = entry_point.dist
    if distribution is None:
        return _Source(entry_point.name)
    return _Source(entry_point.name, distribution.metadata["Name"], distribution.version)


def _version_of(distribution: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:  # run from a source tree
        return ""


def _disabled_by_environment() -> set[str]:
    names = os.environ.get(DISABLE_VARIABLE, "").split(",")
    return {name.strip() for name in names if name.strip()}


@functools.cache
def manager() -> PluginManager:
    """Returns the manager of everything installed, created on first use."""
    return PluginManager()
