"""Steps that plugins bring."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import frozen

from autotune.errors import InvalidValueError, PluginError

__all__ = ["STEP_CLASSES", "OpenStep"]

STEP_CLASSES: dict[str, type[Any]] = {}
"""The steps of the core, and those of plugins that were imported so far, by name."""


@frozen
class OpenStep(ABC):
    """A step that is not one of the core's: a frozen attrs class, registered as kind ``step``.

    It says what it does in one of three ways. One that stands for other steps returns them from
    :meth:`expanded`. One that does something new has an effect on the nest (:meth:`derive`): from
    the nest follow features, and the programs of every backend that prints nests. One that is a
    whole schedule of a compiler's own is ``opaque``, and has a :meth:`replay` on its ``backends``.

    Attributes:
        name: What plugins, records and limits call it: lower-case letters, digits and ``_``.
        opaque: Whether it is a whole schedule that describes no loops: the only step of its
            sketch, which then has no symbolic nest.
        backends: Of an opaque step, names of the backends that :meth:`replay` knows.
        stage: The stage that it is about.

    Raises:
        PluginError: the class has the name of another step, or says in two ways what it does.
    """

    name: ClassVar[str]
    backends: ClassVar[frozenset[str]] = frozenset()
    opaque: ClassVar[bool] = False
    stage: str

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        known = STEP_CLASSES.get(cls.name)
        # attrs makes a class twice.
        if known is not None and (known.__module__, known.__qualname__) != (
            cls.__module__,
            cls.__qualname__,
        ):
            raise PluginError(f"step {cls.name!r} is both {known!r} and {cls!r}")
        if not cls.opaque and (cls.backends or cls.replay is not OpenStep.replay):
            raise PluginError(
                f"step {cls.name!r} of {cls.__module__} has a replay or names backends, as steps "
                "had before plugin interface 3; its effect on the nest (derive) is enough now, "
                "and only opaque steps have those"
            )
        STEP_CLASSES[cls.name] = cls

    def expanded(self) -> tuple[Any, ...]:
        """The steps that it stands for; itself where it does something new."""
        return (self,)

    def derive(self, schedules: Mapping[str, Any]) -> None:
        """Its effect on the symbolic nest.

        Args:
            schedules: The :class:`autotune.nest.stage_schedule.StageSchedule` of every stage, as
                the steps before have left it, to be changed.
        """
        raise InvalidValueError(f"step {self.name!r} has no effect on the nest")

    def replay(self, backend: str, state: Any, config: Mapping[str, int]) -> None:
        """Schedule a program in a compiler; for opaque steps.

        Args:
            backend: One of ``backends``.
            state: What that backend schedules; see ``docs/plugins.md``.
            config: Values of the sketch's parameters.
        """
        raise InvalidValueError(f"backend {backend!r} cannot replay step {self.name!r}")
