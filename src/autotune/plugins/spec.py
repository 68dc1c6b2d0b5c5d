"""The declaration of a plugin's parts.

A plugin of pluggy: a module (or any object) with a function `autotune_parts` that returns a list
of `PluginSpec`. A distribution announces its plugin module with an entry point of the group
`autotune`:

    # pyproject.toml
    [project.entry-points.autotune]
    example = "autotune_example.plugin"

    # autotune_example/plugin.py
    from autotune import hookimpl
    from autotune.plugins import PluginSpec

    AUTOTUNE_API_VERSION = 4

    @hookimpl
    def autotune_parts() -> list[PluginSpec]:
        factory = "autotune_example.strategy:Example"
        return [PluginSpec("strategy", "example", factory, "One line on it")]

Importing a plugin module must be cheap: heavy imports belong in the modules that the factories
name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pluggy
from attrs import field, frozen

from autotune.errors import PluginError, UnknownNameError, attribute_of

__all__ = [
    "API_CHANGES",
    "API_VERSION",
    "API_VERSION_ATTRIBUTE",
    "Context",
    "ENTRY_POINT_GROUP",
    "HOOK",
    "HookSpecs",
    "KINDS",
    "PROJECT",
    "PluginSpec",
    "Preset",
    "hookimpl",
]

API_VERSION = 4
"""Version of the plugin interface. It grows when an existing plugin would have to change."""

API_CHANGES: Mapping[int, str] = MappingProxyType(
    {
        2: "a plugin has one function, `autotune_parts`, and parts are made from a `Context`",
        3: "a step has `replay` and `backends` only where it is `opaque`, else `derive` or "
        "`expanded` alone, and a backend declares in its limits that it `runs_nests`, or reads "
        "the core's steps",
        4: "each kind of part is made from a context of its own, such as `StrategyContext`, and "
        "that of a measurer has a `setup`",
    }
)
"""Changes of each version, for plugins that were written for the one before."""

API_VERSION_ATTRIBUTE = "AUTOTUNE_API_VERSION"
"""Module attribute by which a plugin says which version it was written for."""

ENTRY_POINT_GROUP = "autotune"

HOOK = "autotune_parts"
"""Name of the function that returns what a plugin brings."""

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "backend": "autotune.backends.Backend",
        "search_space": "autotune.spaces.SearchSpace",
        "sketch_rule": "autotune.spaces.rules.SketchRule",
        "pruning_model": "autotune.models.pruning.PruningModel",
        "cost_model": "autotune.models.cost.CostModel",
        "task_scheduler": "autotune.search.schedulers.TaskScheduler",
        "strategy": "autotune.search.strategies.Strategy",
        "workload": "autotune.ir.workloads.Workload",
        "observer": "autotune.measure.observers.Observer",
        "trained_model": "pathlib.Path",
        "measurer": "autotune.measure.Measurer",
        "runner": "autotune.measure.engines.MeasureEngine",
        "database": "autotune.store.database.Database",
        "importer": "autotune.plugins.importer.Importer",
        "target": "autotune.targets.Target",
        "dtype": "autotune.ir.element_types.ElementType",
        "step": "autotune.sketches.OpenStep",
        "intrinsic": "autotune.sketches.intrinsics.Intrinsic",
        "preset": "autotune.plugins.spec.Preset",
        "frontend": "autotune.networks.Frontend",
        "network": "autotune.networks.Source",
    }
)
"""Every kind of part, and what its factories return."""


def _freeze(options: Mapping[str, str]) -> Mapping[str, str]:
    # Anything else is kept as it is, for `problem` to describe.
    return MappingProxyType(dict(options)) if isinstance(options, Mapping) else options


@frozen
class PluginSpec:
    """Named part that a plugin offers.

    Attributes:
        kind: A key of `KINDS`.
        name: What a user calls it by: lower-case letters, digits, `-` and `_`.
        factory: What creates it from the context of its kind: a callable, or an import string
            `"module:attribute"` that is resolved when the part is first asked for. That of a
            workload is called with the shape instead, as keyword arguments.
        description: One line for `autotune plugins`.
        options: Name and one-line description of each option that a user may set.
        default_cost_model: Of a strategy: the cost model of its runs where a user names none;
            empty for the default of all strategies. Of a search space: the one that knows its
            candidates, whatever the strategy.
        unused: Of a strategy: kinds of models that it never asks, which are then not started and
            no part of what identifies its runs.
        reads_nest: Of a strategy or a model: whether it needs the symbolic loop nests of sketches.
        has_nest: Of a search space: whether its sketches have symbolic loop nests. In one without,
            a run has no pruning model by default, and parts that need nests are refused.
        spaces: Of a model: the search spaces whose candidates it can score; empty for all.
        compiles: Of a backend: whether it makes programs of workloads. One that takes programs
            of its own kind alone is used where it is named, or given one.
        backend: Of a search space or a runner: the one backend that it works with, which is then
            used where none is named; empty for any.
        trained: Of a strategy or a cost model: whether it is meant for a model that was trained
            beforehand. A run of it that loads none says so.
        renamed: Earlier names of options by their present ones. They are still read, and runs are
            identified by them, so that those begun under the earlier name are continued.
    """

    kind: str
    name: str
    factory: Callable[..., Any] | str
    description: str
    options: Mapping[str, str] = field(factory=dict, converter=_freeze, hash=False)
    default_cost_model: str = ""
    unused: tuple[str, ...] = ()
    reads_nest: bool = False
    has_nest: bool = True
    spaces: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(factory=dict, converter=_freeze, hash=False)
    compiles: bool = True
    backend: str = ""
    trained: bool = False

    def problem(self) -> str | None:
        """Returns what is wrong with this specification, or None."""
        if self.kind not in KINDS:
            return str(UnknownNameError("kind of plugin", str(self.kind), KINDS))
        if not isinstance(self.name, str) or not _is_plain_name(self.name):
            return f"name {self.name!r} is not made of lower-case letters, digits, '-' and '_'"
        if not isinstance(self.description, str) or not self.description.strip():
            return f"{self.name!r} has no description"
        if isinstance(self.factory, str):
            module, colon, attribute = self.factory.partition(":")
            if not (colon and _is_dotted(module) and _is_dotted(attribute)):
                return f"factory {self.factory!r} of {self.name!r} is not 'module:attribute'"
        elif not callable(self.factory):
            return f"factory of {self.name!r} is neither callable nor an import string"
        if not isinstance(self.options, Mapping) or not all(
            isinstance(key, str) and isinstance(text, str) for key, text in self.options.items()
        ):
            return f"options of {self.name!r} do not map names to descriptions"
        if not isinstance(self.default_cost_model, str):
            return f"the default cost model of {self.name!r} is not a name"
        if not set(self.unused) <= {"cost_model", "pruning_model"}:
            return f"{self.name!r} can leave models unused, not {self.unused!r}"
        if not isinstance(self.reads_nest, bool) or not isinstance(self.has_nest, bool):
            return f"whether {self.name!r} reads or has loop nests is true or false"
        if not isinstance(self.compiles, bool):
            return f"whether {self.name!r} compiles is true or false"
        if not isinstance(self.backend, str):
            return f"the backend of {self.name!r} is not a name"
        if not isinstance(self.trained, bool):
            return f"whether {self.name!r} is meant for a trained model is true or false"
        if not isinstance(self.spaces, tuple) or not all(
            isinstance(name, str) and _is_plain_name(name) for name in self.spaces
        ):
            return f"the search spaces of {self.name!r} are not a tuple of names"
        if not isinstance(self.renamed, Mapping) or not set(self.renamed) <= set(self.options):
            return f"what {self.name!r} has renamed are not all options of it"
        return None

    def resolve(self) -> Callable[..., Any]:
        """Imports and returns the factory.

        Raises:
            PluginError: The module cannot be imported, or has no such callable.
        """
        if not isinstance(self.factory, str):
            return self.factory
        module_name, _, attribute = self.factory.partition(":")
        try:
            found = attribute_of(importlib.import_module(module_name), attribute)
        except PluginError:
            raise  # the module says itself what is missing
        except Exception as error:  # whatever a foreign module raises while it is imported
            raise PluginError(
                f"factory {self.factory!r} of {self.name!r} cannot be imported: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not callable(found):
            raise PluginError(f"factory {self.factory!r} of {self.name!r} is not callable")
        factory: Callable[..., Any] = found
        return factory


def _is_plain_name(name: str) -> bool:
    plain = name.replace("-", "").replace("_", "")
    return plain.isascii() and plain.isalnum() and plain == plain.lower()


def _is_dotted(path: str) -> bool:
    return all(part.isidentifier() for part in path.split("."))


@frozen(eq=False)
class Preset:
    """Meaning of a name such as ``pruner-published``. What a user gives besides counts.

    Attributes:
        name: The name.
        source: What was published, and where.
        parts: By kind: a name, or a name with options, as ``autotune.tune`` takes them.
        round_size: Candidates that are proposed before the models learn from them.
        differences: What still differs from what was published, one clause each.
        load_cost_model: What the cost model knows at the beginning; None for nothing.
        lookahead: Rounds that are proposed before the outcomes of the last are known.
    """

    name: str
    source: str
    parts: Mapping[str, object]
    round_size: int
    differences: tuple[str, ...]
    load_cost_model: str | None = None
    lookahead: int = 0

    @property
    def caveats(self) -> tuple[str, ...]:
        """The differences as warnings of a run, one line each."""
        return tuple(f"{self.name} is not as published: {text}" for text in self.differences)


@frozen(eq=False)
class Context:
    """The context of parts that need nothing but options, and the base of all others.

    Time, randomness and the machine come from a context and from nowhere else. A kind of part
    that needs any has a context of its own, beside its interface; ``docs/plugins.md`` has a table.

    Attributes:
        options: The user's options of the part, strings already converted to numbers where they
            came from a command line; a part refuses those that it does not know.
    """

    options: Mapping[str, Any] = field(factory=dict, kw_only=True)


PROJECT = "autotune"
"""Name of the project, by which pluggy tells our marks from those of others."""

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks the function of a plugin that returns its parts. A function of a module or a method that
is called ``autotune_parts`` needs no mark."""

_hookspec = pluggy.HookspecMarker(PROJECT)


class HookSpecs:
    """Hooks that plugins may implement."""

    @_hookspec(historic=True)
    def autotune_parts(self) -> list[PluginSpec]:  # type: ignore[empty-body]
        """Returns what a plugin brings; called once, when the plugin is registered."""
