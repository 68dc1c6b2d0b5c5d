"""Conformance suite of plugins; see :mod:`autotune.testing.strategy_suite` for the use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import ModuleType

import attrs
import pytest

from autotune.plugins import PluginSpec
from autotune.plugins.options import meanings
from autotune.plugins.spec import API_VERSION

__all__ = ["PluginSuite"]


class PluginSuite:
    """The contract of what an entry point names."""

    @pytest.fixture
    def plugin(self) -> ModuleType:
        """The module that the entry point names."""
        raise NotImplementedError("give the fixture 'plugin'")

    @pytest.fixture
    def parts(self, plugin: ModuleType) -> Sequence[PluginSpec]:
        """The parts of it that are tried; those that need what is not installed are left out."""
        found: Sequence[PluginSpec] = plugin.autotune_parts()
        return found

    def test_it_is_written_for_this_interface(self, plugin: ModuleType) -> None:
        assert plugin.AUTOTUNE_API_VERSION == API_VERSION

    def test_every_part_resolves_to_what_has_its_name(self, parts: Sequence[PluginSpec]) -> None:
        assert [spec.problem() for spec in parts] == [None] * len(parts)
        for spec in parts:
            assert getattr(spec.resolve(), "name", spec.name) == spec.name

    def test_every_option_is_described(self, parts: Sequence[PluginSpec]) -> None:
        for cls in options_of(parts):
            own = [item.name for item in attrs.fields(cls) if not item.inherited]
            assert [name for name in meanings(cls) if name in own] == own, cls
            assert {*meanings(cls)} <= {item.name for item in attrs.fields(cls)}, cls


def options_of(parts: Sequence[PluginSpec]) -> Iterator[type[attrs.AttrsInstance]]:
    """Classes of options in the modules of parts and of what these inherit."""
    seen: set[type] = set()
    for spec in parts:
        factory = spec.resolve()
        bases = factory.__mro__ if isinstance(factory, type) else (factory,)
        for name in {base.__module__ for base in bases}:
            for found in vars(sys.modules[name]).values():
                if isinstance(found, type) and attrs.has(found) and found not in seen:
                    seen.add(found)
                    if any("choices" in item.metadata for item in attrs.fields(found)):
                        yield found
