from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from rule_sketches import LIMITS

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.workloads import Stage, elementwise
from autotune.plugins import PluginSpec
from autotune.plugins.manager import manager
from autotune.plugins.parts import check_part, create_part
from autotune.sketches import Parallel
from autotune.spaces import SearchSpace, SpaceContext
from autotune.spaces.rules import SketchDraft, SketchRule
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace


class OuterLoopRule(SketchRule):
    """Runs the outermost loop of every output in parallel and does nothing else."""

    name = "outer-loop"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if stage.name not in draft.workload.outputs:
            return None
        step = Parallel(stage.name, (f"{stage.axes[0].name}.0",))
        return [draft.extended(settled=[stage.name], label=self.name, steps=[step])]


class OuterLoopPlugin:
    def autotune_parts(self) -> list[PluginSpec]:
        return [PluginSpec("sketch_rule", "outer-loop", OuterLoopRule, "One parallel loop")]


@pytest.fixture
def with_plugin() -> Iterator[None]:
    manager.cache_clear()
    manager().register(OuterLoopPlugin(), "outer-loop-plugin")
    yield
    manager.cache_clear()


def space_named(name: str, options: Mapping[str, Any] | None = None) -> SearchSpace:
    workload, target = elementwise(m=8, n=32), preset("haswell")
    context = SpaceContext(workload=workload, target=target, limits=LIMITS, options=options or {})
    space: SearchSpace = create_part("search_space", name, context)
    return space


@pytest.mark.usefixtures("with_plugin")
def test_rules_that_a_space_is_named_with_are_asked_before_the_built_in_ones() -> None:
    space = space_named("sketch+outer-loop")
    assert [sketch.name for sketch in space.sketches()] == ["outer-loop"]
    assert space.version != space_named("sketch").version


@pytest.mark.usefixtures("with_plugin")
def test_an_installed_rule_changes_nothing_where_it_is_not_named() -> None:
    space = space_named("sketch")
    assert [sketch.name for sketch in space.sketches()] == ["plain"]


def test_rules_are_looked_up_by_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown sketch rule 'outer-lop'"):
        check_part("search_space", "sketch+outer-lop")
    with pytest.raises(InvalidValueError, match="has no option 'rule'.*Did you mean 'rules'"):
        space_named("sketch", {"rule": ["outer-loop"]})


@pytest.mark.usefixtures("with_plugin")
def test_a_space_that_takes_no_rules_says_so() -> None:
    bare = [PluginSpec("search_space", "bare", ToySpace, "A space without rules")]
    manager().register(SimpleNamespace(autotune_parts=lambda: bare), "bare")
    with pytest.raises(InvalidValueError, match="'bare' takes no sketch rules"):
        check_part("search_space", "bare+outer-loop")
