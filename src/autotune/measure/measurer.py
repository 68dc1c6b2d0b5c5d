"""The interface that turns candidates into outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.measure.timing_session import OnComparison
from autotune.measure.trial import Leader, Span
from autotune.measure.workers import SharedWorkers, WorkerSetup
from autotune.plugins import Context
from autotune.sketches import Candidate
from autotune.store.records import Outcome

OnLeaderTimed = Callable[[float], None]
OnKnown = Callable[[Candidate, Outcome], None]
OnOutcome = Callable[[int, Outcome], None]
Recall = Callable[[str], Outcome | None]
_Self = TypeVar("_Self", bound="Measurer")


def _never() -> bool:
    return False


def _nothing(_digest: str) -> None:
    return None


class LoadedProgram(ABC):
    """A program that is built and checked, ready to be timed in turns with those of others."""

    @property
    @abstractmethod
    def failure(self) -> Outcome | None:
        """Its outcome, once it cannot be timed any more."""

    @abstractmethod
    def turn(self, placement: int) -> float | None:
        """Seconds per call in one turn; None when it cannot be timed.

        Args:
            placement: Number of the turn: memory changes from turn to turn, alike for all.
        """


@frozen(eq=False)
class Collecting:
    """Needs of :meth:`Measurer.collect`: the leader and the callbacks.

    Attributes:
        on_outcome: Called as soon as an outcome is known, in the order of the candidates, with
            its position. What it raises leaves the measurer usable. After an interrupt, or where
            the time was over, it is called with whatever else is known, in which case positions
            may be left out, and one may come a second time.
        on_comparison: Called after candidates were timed in turns with the best one.
        on_leader_timed: Called with the latency of the leader, in seconds of this session, where
            it had to be timed first.
        leader: The best candidate known.
        recall: The outcome of a program by its digest, where it is known already.
        enough: Whether to stop before the next candidate; those that are left get no outcome.
    """

    on_outcome: OnOutcome | None = None
    on_comparison: OnComparison | None = None
    on_leader_timed: OnLeaderTimed | None = None
    leader: Leader | None = None
    recall: Recall = _nothing
    enough: Callable[[], bool] = _never


@frozen(eq=False, kw_only=True)
class MeasurerContext(Context):
    """The context of a measurer of one task.

    Attributes:
        setup: The backend, the target, the threads, the protocol and the observers.
        workload: What is computed.
        program: Text of the program that the backend has imported, or None.
        workers: Those that measurers of a run may share, or None.
        seed: Of inputs and of the order of turns, alike in all processes.
    """

    setup: WorkerSetup
    workload: Workload
    program: str | None = None
    workers: SharedWorkers | None = None
    seed: int = 0


class Measurer(ABC):
    """Builds, checks and times the candidates of one task.

    Candidates are submitted and, later, collected: in between they are built. A context manager:
    entering starts it, leaving closes it.
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
    def submit(self, candidates: Sequence[Candidate]) -> None:
        """Begin to build candidates as soon as that disturbs nothing, and return at once."""

    @abstractmethod
    def collect(self, collecting: Collecting) -> list[Outcome]:
        """Outcomes of what was submitted first, in order; never raises for a bad candidate.

        A program that occurs twice is measured once. Fewer outcomes than candidates come back
        when there was enough.

        Raises:
            TimeIsOver: the time of the run was over in the middle of something.
        """

    @property
    def lanes(self) -> int:
        """Number of candidates timed at the same time: machines, which may come and go."""
        return 1

    def collect_known(self, collecting: Collecting, count: int, on_known: OnKnown) -> int:
        """Measure what was submitted until so many outcomes are known, in whatever order.

        What else has begun goes on, and is collected by the next call. It is a batch of its own
        kind: what was begun in this way is not collected by :meth:`collect`.

        Args:
            collecting: As of :meth:`collect`; its ``on_outcome`` is not called.
            count: How many; fewer where fewer are left, or there was enough.
            on_known: Called with each as soon as it is known. After an interrupt one may come
                a second time.

        Returns:
            How many it was called with, which may be a few more.

        Raises:
            InvalidValueError: this measurer times one candidate at a time.
            TimeIsOver: the time of the run was over in the middle of something.
        """
        raise InvalidValueError(
            f"{type(self).__name__} times one candidate at a time, in the order of submission"
        )

    @abstractmethod
    def measure_baselines(
        self, programs: Sequence[Candidate | None], best: float | None = None
    ) -> list[Outcome]:
        """Outcomes of the programs that a user has without tuning, in order.

        Those that are near each other take turns; one that is much slower is timed briefly. Each
        has the deadlines of a candidate.

        Args:
            programs: The backend's default schedule, where it has one, and None, which is the
                untuned program.
            best: Latency in seconds of the best candidate, where there is one. A program is cut
                off then once its call has taken so much longer that it cannot win; its outcome
                is a ``timeout`` that says what it ``exceeds``.
        """

    @abstractmethod
    def rematch(self, candidates: Sequence[Candidate | None]) -> list[Outcome]:
        """Build programs again and time them in turns, on other inputs than before.

        Samples at the same position were taken in the same turn. A baseline (None stands for the
        untuned program) comes last and has only as many samples as tell that it is slower.
        """

    @abstractmethod
    def hold(self, candidate: Candidate | None) -> LoadedProgram:
        """Build a program again and check it on other inputs, to be timed beside those of others.

        None stands for the untuned program.

        A caller with several measurers times their held programs in turns. It is held until the
        measurer is asked for anything else, or closed.
        """

    @property
    def shares_workers(self) -> bool:
        """True if it has no processes of its own, so that keeping it costs little."""
        return False

    def take_warnings(self) -> list[str]:
        """Return what a person should know, such as a failed observer; each message only once."""
        return []

    @property
    @abstractmethod
    def seconds(self) -> Mapping[str, float]:
        """Wall seconds so far, by ``start`` (waiting for workers), ``build`` and ``run``."""

    def take_build_spans(self) -> list[Span]:
        """Return when something was being built since the last call, waited for or not."""
        return []

    @abstractmethod
    def close(self) -> None:
        """End every process and remove every file. Calling it again does nothing."""

    def measure(
        self,
        candidates: Sequence[Candidate],
        on_outcome: OnOutcome | None = None,
        *,
        leader: Leader | None = None,
    ) -> list[Outcome]:
        """Submit and collect; see there."""
        self.submit(candidates)
        return self.collect(Collecting(on_outcome, leader=leader))

    def __enter__(self: _Self) -> _Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
