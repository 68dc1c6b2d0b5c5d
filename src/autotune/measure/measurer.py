"""The interface of what turns candidates into outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from autotune.records import Outcome
from autotune.sketches import Candidate

OnOutcome = Callable[[int, Outcome], None]
_Self = TypeVar("_Self", bound="Measurer")


class Measurer(ABC):
    """Builds, checks and times the candidates of one task.

    A context manager: entering starts it, leaving closes it.
    """

    @abstractmethod
    def start(self) -> None:
        """Begin to get ready, and return at once. Calling it again does nothing."""

    @abstractmethod
    def wait_ready(self) -> None:
        """Wait until candidates can be measured.

        Raises:
            WorkerStartFailed: nothing can be measured here; says why.
        """

    @abstractmethod
    def measure(
        self,
        candidates: Sequence[Candidate],
        on_outcome: OnOutcome | None = None,
        *,
        incumbent: float | None = None,
    ) -> list[Outcome]:
        """Outcomes of ``candidates``, in their order; never raises for a bad candidate.

        A candidate that occurs twice is measured once. What ``on_outcome`` raises leaves the
        measurer usable.

        Args:
            candidates: What to measure.
            on_outcome: Called as soon as an outcome is known, in the order of ``candidates``,
                with its position.
            incumbent: Best latency known, in seconds: clearly slower candidates get fewer
                samples.
        """

    @abstractmethod
    def measure_baseline(self) -> Outcome:
        """The outcome of the untuned program."""

    def take_warnings(self) -> list[str]:
        """What a person should know, such as that an observer has failed; each only once."""
        return []

    @property
    @abstractmethod
    def seconds(self) -> Mapping[str, float]:
        """Wall seconds so far, by ``start`` (waiting for workers), ``build`` and ``run``."""

    @abstractmethod
    def close(self) -> None:
        """End every process and remove every file. Calling it again does nothing."""

    def __enter__(self: _Self) -> _Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
