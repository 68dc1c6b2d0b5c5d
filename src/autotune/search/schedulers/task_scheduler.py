"""The interface of a task scheduler: which task gets the next round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from autotune.plugins import Context


@frozen
class TaskInfo:
    """A task as a scheduler sees it before the first measurement.

    Attributes:
        weight: How often the task occurs in the network.
        flop: Arithmetic operations of one execution.
        group: Tasks with equal groups are expected to reach similar flop/s.
        contest: Tasks with equal contests are one program on several backends, of which only the
            fastest counts; "" for a task that competes with none.
        program: What a person calls the program.
        structure: Tasks with equal structures differ in shape only, so that a schedule of one may
            do for another; "" for a task that is like none.
    """

    weight: float
    flop: float
    group: str = ""
    contest: str = ""
    program: str = ""
    structure: str = ""


class TaskScheduler(ABC):
    """Chooses tasks for rounds. Constructed as ``TaskScheduler(context)``."""

    name: str

    def __init__(self, context: Context) -> None:
        self.tasks: tuple[TaskInfo, ...] = tuple(context.tasks)

    @abstractmethod
    def next_task(self, outstanding: Sequence[int] = ()) -> int | None:
        """Index of the task to serve next; None when every task is exhausted.

        Args:
            outstanding: Tasks of the rounds in flight, the latest last.
        """

    def source(self, task: int) -> int | None:
        """The task whose best candidates a task begins with; None for none, which is usual.

        It is asked when a task is about to have its first round.
        """
        return None

    def round_size(self, task: int, usual: int) -> int:
        """Number of candidates in a round of a task, of ``usual`` ones; at least 1."""
        return usual

    @abstractmethod
    def tell(self, task: int, best_latency: float | None, trials: int) -> None:
        """A round of ``task`` ended: best latency so far in seconds (None: none yet), and the
        number of trials the round consumed (0 means that the task is exhausted)."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """A JSON object for :meth:`load_state`."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
