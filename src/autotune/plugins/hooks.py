"""The hook of plugins, as pluggy has it, and the marker of functions that implement it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from autotune.plugins.spec import PluginSpec

__all__ = ["PROJECT", "HookSpecs", "hookimpl"]

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
