from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotune.ir.workloads import Stage, elementwise
from autotune.plugins.hooks import PluginSpec, hookimpl
from autotune.plugins.manager import manager
from autotune.sketches import STEP_TYPES, Parallel
from autotune.spaces import ScheduleLimits
from autotune.spaces.plugged_rules import sketch_space_with_plugged_rules
from autotune.spaces.rules import SketchDraft, SketchRule
from autotune.targets import preset

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1 << 16, 512, "test")


class OuterLoopRule(SketchRule):
    """Runs the outermost loop of every output in parallel and does nothing else."""

    name = "outer-loop"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if stage.name not in draft.workload.outputs:
            return None
        step = Parallel(stage.name, (f"{stage.axes[0].name}.0",))
        return [draft.extended(settled=[stage.name], label=self.name, steps=[step])]


class OuterLoopPlugin:
    @hookimpl
    def autotune_sketch_rules(self) -> list[PluginSpec]:
        return [PluginSpec("outer-loop", OuterLoopRule, "One parallel loop")]


@pytest.fixture
def with_plugin() -> Iterator[None]:
    manager.cache_clear()
    manager().register(OuterLoopPlugin(), "outer-loop-plugin")
    yield
    manager.cache_clear()


@pytest.mark.usefixtures("with_plugin")
def test_rules_of_plugins_are_asked_before_the_built_in_ones() -> None:
    space = sketch_space_with_plugged_rules(elementwise(m=8, n=32), preset("haswell"), LIMITS)
    assert [sketch.name for sketch in space.sketches()] == ["outer-loop"]
    assert space.version == "3+outer-loop"


def test_without_plugins_only_the_built_in_rules_are_asked() -> None:
    space = sketch_space_with_plugged_rules(elementwise(m=8, n=32), preset("haswell"), LIMITS)
    assert [sketch.name for sketch in space.sketches()] == ["plain"]
    assert space.version == "3"
