"""Sketch rules: their interface, and running them over a workload."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import Stage, Workload
from autotune.plugins import Context
from autotune.sketches import Sketch, names_used
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.rules.draft import SketchDraft
from autotune.targets import Target


@frozen
class Generated:
    """The sketches that rules generated for a workload.

    Attributes:
        sketches: Those that the backend can replay.
        left_out: Why the others are not among them, by name.
    """

    sketches: tuple[Sketch, ...]
    left_out: Mapping[str, str]


def generate_sketches(
    workload: Workload, target: Target, limits: ScheduleLimits, rules: Sequence[SketchRule]
) -> Generated:
    """Every sketch that the rules make, without those whose steps the backend cannot replay.

    Raises:
        UnsupportedWorkload: no rule applies to a stage, or no sketch can be replayed.
    """
    replayable: list[Sketch] = []
    left_out: dict[str, str] = {}
    for sketch, missing in _generated(workload, target, limits, rules):
        if missing:
            left_out[sketch.name] = f"needs {', '.join(missing)}"
        else:
            replayable.append(sketch)
    if not replayable:
        reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
        raise UnsupportedWorkload(
            f"workload {workload.name!r}: none of its {len(left_out)} sketches can be replayed "
            f"by {limits.source}: {reasons}"
        )
    return Generated(tuple(replayable), left_out)


def replayable_sketches(
    workload: Workload, target: Target, limits: ScheduleLimits, rules: Sequence[SketchRule]
) -> Iterator[Sketch]:
    """The sketches of :func:`generate_sketches` in order, each made when it is asked for.

    Raises:
        UnsupportedWorkload: no rule applies to a stage.
    """
    for sketch, missing in _generated(workload, target, limits, rules):
        if not missing:
            yield sketch


def _generated(
    workload: Workload, target: Target, limits: ScheduleLimits, rules: Sequence[SketchRule]
) -> Iterator[tuple[Sketch, tuple[str, ...]]]:
    """Every sketch that the rules make, and what it needs that the backend lacks."""
    first = SketchDraft(workload, _used(target, limits), limits)
    for draft in _settled(first, workload.stages[::-1], rules):
        sketch = draft.finished()
        yield sketch, limits.missing(names_used(sketch))


def _settled(
    draft: SketchDraft, stages: Sequence[Stage], rules: Sequence[SketchRule]
) -> Iterator[SketchDraft]:
    """The drafts that a draft becomes with all of these stages settled."""
    if not stages:
        yield draft
        return
    stage, *others = stages
    found = [draft] if stage.name in draft.settled else _settle(draft, stage, rules)
    for each in found:
        yield from _settled(each, others, rules)


def _used(target: Target, limits: ScheduleLimits) -> Target:
    """The part of the target that the sketches can use: one core where nothing is parallel."""
    parallel = target.kind != "cpu" or not limits.missing(["parallel"])
    return target if parallel else target.with_cores(1)


def _settle(
    draft: SketchDraft, stage: Stage, rules: Sequence[SketchRule]
) -> Iterable[SketchDraft]:
    for rule in rules:
        result = rule.apply(draft, stage)
        if result is not None:
            return result
    raise UnsupportedWorkload(
        f"no sketch rule applies to stage {stage.name!r}; rules: "
        + ", ".join(rule.name for rule in rules)
    )


class SketchRule(ABC):
    """Decides what happens to one stage of a draft.

    Stages are visited from the outputs to the inputs. For each unsettled stage the rules are
    asked in order, and the first that applies decides: it returns the drafts that replace the
    given one, all of them with the stage settled.
    """

    name: str

    def __init__(self, context: Context | None = None) -> None:  # noqa: B027
        """A rule is made like every other part, and needs nothing."""

    @abstractmethod
    def apply(self, draft: SketchDraft, stage: Stage) -> Iterable[SketchDraft] | None:
        """Drafts with ``stage`` settled, or None when the rule does not apply to it.

        They may be made one by one: who needs the first one alone asks for no other.
        """
