"""The interface of a sketch rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from autotune.ir.workloads import Stage
from autotune.plugins import Context
from autotune.spaces.rules.draft import SketchDraft


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
