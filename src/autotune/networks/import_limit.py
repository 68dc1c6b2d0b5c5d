"""The import of a network as a part of a time limit: it does not outlast the whole call."""

from __future__ import annotations

import math
from collections.abc import Callable

from attrs import define, field

from autotune.errors import AutotuneError, InvalidValueError
from autotune.process.deadline import Deadline
from autotune.tuning.options import TuneOptions

__all__ = ["ImportLimit"]


@define(eq=False)
class ImportLimit:
    """The time in which a model has to be read, imported and checked.

    Attributes:
        name: What a person calls the model.
        seconds: The limit of the whole call; infinite for none.
        spent: Seconds since the call began.
        give_up: As of :class:`Deadline`.
        doing: What is being done, for the error: ``"it was read"``.
    """

    name: str
    seconds: float = math.inf
    spent: Callable[[], float] = field(default=float)
    give_up: Callable[[AutotuneError], object] | None = None
    doing: str = ""

    @classmethod
    def of(
        cls,
        options: TuneOptions,
        name: str,
        spent: Callable[[], float],
        give_up: Callable[[AutotuneError], object] | None = None,
    ) -> ImportLimit:
        """That of a call with these options."""
        limits = [it for it in (options.time, options.session_time) if it is not None]
        return cls(name, min(limits, default=math.inf), spent, give_up)

    def during(self, doing: str) -> Deadline:
        """A context in which a part of the import is given up when the time is over.

        Args:
            doing: What is done first; ``doing`` may be changed inside.
        """
        self.doing = doing
        return Deadline(self.seconds - self.spent(), self._error, self.give_up)

    def _error(self) -> AutotuneError:
        return InvalidValueError(
            f"{self.name}: no time was left to tune: {self.seconds:g} s were over while "
            f"{self.doing}; give it more time (--time)"
        )
