"""The programs that a user has without tuning, as candidates like any other."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from autotune.ir.workloads import Workload
from autotune.sketches.candidates import Candidate
from autotune.sketches.sketch import Sketch
from autotune.sketches.steps import OpenStep

__all__ = [
    "DEFAULT_CONFIGURATION",
    "UNTUNED",
    "DefaultSchedule",
    "baseline_candidate",
    "baseline_label",
    "is_baseline",
    "is_default",
]

UNTUNED = "naive loop nest"
"""Name of the untuned program: the one that was imported, without a schedule."""


DEFAULT_CONFIGURATION = "default configuration"
"""Name under which the untuned program is shown where it is external."""


def baseline_label(workload: Workload, name: str) -> str:
    """Label of a baseline: an external program has no loop nest."""
    return DEFAULT_CONFIGURATION if workload.external and name == UNTUNED else name


@frozen
class DefaultSchedule(OpenStep):
    """The schedule that the backend itself gives a program without one.

    The only step of its sketch. It describes no loops, so that it has no symbolic nest; a
    backend that has a default schedule (``Backend.default_schedule``) knows what it means.
    """

    name: ClassVar[str] = "default_schedule"
    opaque: ClassVar[bool] = True


def baseline_candidate(workload: Workload, name: str) -> Candidate:
    """A program of ``workload`` that a user has without tuning.

    Args:
        workload: What it computes.
        name: :data:`UNTUNED` for the program without any step; otherwise what the backend's
            default schedule is called.
    """
    steps = () if name == UNTUNED else (DefaultSchedule(workload.stages[-1].name),)
    return Candidate(Sketch(name, workload, (), (), steps), ())


def is_baseline(candidate: Candidate | None) -> bool:
    """Return whether this is a baseline: the untuned program (None), or the default schedule."""
    return candidate is None or is_default(candidate)


def is_default(candidate: Candidate | None) -> bool:
    """Tell if the candidate is the backend's default schedule (None is the untuned program)."""
    steps = () if candidate is None else candidate.sketch.steps
    return any(isinstance(step, DefaultSchedule) for step in steps)
