"""Screening candidates on several equal machines at the same time.

Each machine has a lane: a session of its own, with a copy of the best candidate beside which
candidates are screened. Races are held on one machine only, by the session of the first lane,
which takes over what the others could not tell from the best. A lane waits for its replies on a
thread of its own; all that the threads ask goes through the host's thread, which alone talks to
machines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue

from attrs import define, field

from autotune.measure.dispatcher import Dispatcher
from autotune.measure.job_pool import JobPool
from autotune.measure.jobs import Place, Reply
from autotune.measure.timing_session import TimingSession
from autotune.measure.trial import Trial
from autotune.process.channel import Message

__all__ = ["LaneDispatcher", "Lanes"]

# How long the host's thread waits for replies before it looks for what lanes ask.
_PUMP_SECONDS = 0.002


@define(eq=False)
class _Asked:
    """A job that a lane waits for."""

    message: Message
    deadlines: Mapping[str, float]
    place: Place
    answered: threading.Event = field(factory=threading.Event)
    reply: Reply | None = None

    def answer(self, reply: Reply) -> None:
        self.reply = reply
        self.answered.set()


@define(eq=False)
class LaneDispatcher:
    """What a session needs of a dispatcher, on the thread of a lane.

    Attributes:
        dispatcher: That of the host's thread.
        asked: What lanes have asked and nobody has taken yet.
        stopped: Whether every job is answered with ``again``.
    """

    dispatcher: Dispatcher
    asked: SimpleQueue[_Asked] = field(factory=SimpleQueue)
    stopped: bool = False
    _open: set[_Asked] = field(factory=set)

    @property
    def pool(self) -> JobPool:
        """Those that do the jobs."""
        return self.dispatcher.pool

    def ask(self, message: Message, deadlines: Mapping[str, float], place: Place) -> Reply:
        """As :meth:`Dispatcher.ask`, while the host's thread is in :meth:`serve`."""
        asked = _Asked(message, deadlines, place)
        self.asked.put(asked)
        asked.answered.wait()
        return asked.reply or Reply(0, "again", place)

    def settle_down(self) -> None:
        """Nothing to wait for: what ends on one machine disturbs no other."""

    def serve(self) -> None:
        """Hand on what lanes have asked, and deliver replies; on the host's thread."""
        while not self.asked.empty():
            asked = self.asked.get()
            if self.stopped:
                asked.answer(Reply(0, "again", asked.place))
                continue
            self._open.add(asked)
            self.dispatcher.post(
                asked.message, asked.deadlines, self._answering(asked), asked.place
            )
        if not self.stopped:
            self.dispatcher.pump(_PUMP_SECONDS)

    def stop(self) -> None:
        """Answer everything with ``again``, from now on."""
        self.stopped = True
        for asked in list(self._open):
            asked.answer(Reply(0, "again", asked.place))
        self._open.clear()

    def _answering(self, asked: _Asked) -> Callable[[Reply], None]:
        def answer(reply: Reply) -> None:
            self._open.discard(asked)
            asked.answer(reply)

        return answer


class Lanes:
    """The lanes of one task.

    Args:
        dispatcher: Of the task.
        first: The session that holds races.
        new_session: Starts another session whose jobs a dispatcher carries.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        first: TimingSession,
        new_session: Callable[[LaneDispatcher], TimingSession],
    ) -> None:
        self._dispatcher = dispatcher
        self._first = first
        self._new_session = new_session
        self._sessions: dict[int, TimingSession] = {}

    def screen(
        self,
        groups: Mapping[int, Sequence[Trial]],
        while_waiting: Callable[[], None],
        enough: Callable[[], bool],
    ) -> None:
        """Screen candidates, those of each position on the machine there, all at the same time.

        Args:
            groups: Candidates by the position of the machine that holds them; the best one is
                held by that of the first lane.
            while_waiting: Called again and again meanwhile, on the calling thread.
            enough: Whether to begin no other candidate.
        """
        carrier = LaneDispatcher(self._dispatcher)
        stopping = threading.Event()
        errors: list[BaseException] = []

        def lane(index: int, trials: Sequence[Trial]) -> None:
            try:
                self._screen_one(self._session(index, carrier), trials, stopping)
            except BaseException as error:  # raised again by the host's thread
                errors.append(error)

        threads = [
            threading.Thread(target=lane, args=(index, trials), name=f"lane {index}", daemon=True)
            for index, trials in groups.items()
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                carrier.serve()
                while_waiting()
                if enough() or errors:
                    stopping.set()
        finally:
            # After an interrupt, too: no thread is left behind.
            stopping.set()
            if any(thread.is_alive() for thread in threads):
                carrier.stop()
            while any(thread.is_alive() for thread in threads):
                carrier.serve()
                threads[0].join(_PUMP_SECONDS)
        if errors:
            raise errors[0]
        self._gather()

    def _session(self, index: int, carrier: LaneDispatcher) -> TimingSession:
        """The session of a lane, whose jobs are carried by this carrier."""
        session = self._sessions.get(index)
        if session is None:
            session = self._sessions[index] = self._new_session(carrier)
        session.carried_by(carrier)
        return session

    def _screen_one(
        self, session: TimingSession, trials: Sequence[Trial], stopping: threading.Event
    ) -> None:
        if not session.follow(self._first, trials[0].place):
            return
        for trial in trials:
            if stopping.is_set():
                return
            session.screen(trial)

    def _gather(self) -> None:
        """Have what may be the best one checked on the machine that holds races."""
        for session in self._sessions.values():
            for trial in session.take_contenders():
                if trial.outcome is None and trial.place is not None:
                    trial.place = self._dispatcher.pool.on_first(trial.place)
                    self._first.adopt(trial)
