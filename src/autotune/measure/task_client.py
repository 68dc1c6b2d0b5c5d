"""Requests of a task to the workers that it shares with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
from attrs import define, field, frozen

from autotune.ir.workloads import Workload
from autotune.measure.building import Building
from autotune.measure.dispatcher import Dispatcher
from autotune.measure.jobs import Place
from autotune.measure.lanes import Lanes
from autotune.measure.timing_session import Carrier, TimingSession
from autotune.measure.trial import Trial
from autotune.measure.validation import ReferenceFiles, reserve_reference
from autotune.measure.workers import MeasureWorkers
from autotune.process.ending import ending_with

__all__ = ["TaskClient", "TaskInputs"]


@frozen
class TaskInputs:
    """A task as it is described to workers.

    Attributes:
        workload: What candidates compute.
        program: The imported program's text form, if there is one.
        seed: Seed of the random inputs, and of the order of turns.
    """

    workload: Workload
    program: str | None
    seed: int


@define(eq=False)
class TaskClient:
    """Client of the workers for one task.

    Attributes:
        workers: The workers.
        task: Its description.
        dispatcher: Gives them the jobs of the task.
        building: Has them build.
        new_session: Starts another session of timing with them.
        timing: The session of the search.
        lanes: Time candidates on several machines at once, where there are several.
        close: Frees what workers and host keep for the task.
        inputs: What the workers run programs on: ``search``, ``rematch``, or "" for nothing yet.
    """

    workers: MeasureWorkers
    task: TaskInputs
    dispatcher: Dispatcher
    building: Building
    new_session: Callable[[], TimingSession]
    timing: TimingSession
    lanes: Lanes
    close: Callable[[], object]
    _files: ExitStack
    inputs: str = field(default="", init=False)
    _reference: ReferenceFiles | None = field(default=None, init=False)

    @staticmethod
    def of(workers: MeasureWorkers, task: TaskInputs) -> TaskClient:
        """A task that workers which have been started know nothing of yet."""
        setup = workers.setup
        dispatcher, rng = workers.admit(), np.random.default_rng(task.seed)
        plausibility = workers.plausibility(task.workload)

        def new_session(carrier: Carrier = dispatcher) -> TimingSession:
            return TimingSession(carrier, setup.protocol, rng, plausibility=plausibility)

        def new_lane(carrier: Carrier, number: int) -> TimingSession:
            # Lanes take their turns at the same time: each has a generator of its own.
            own = np.random.default_rng([task.seed, number])
            return TimingSession(carrier, setup.protocol, own, plausibility=plausibility)

        timing = new_session()
        files = ExitStack()
        client = TaskClient(
            workers,
            task,
            dispatcher,
            Building(dispatcher, setup.protocol),
            new_session,
            timing,
            Lanes(dispatcher, timing, new_lane),
            lambda: None,
            files,
        )
        client.close = ending_with(client, dispatcher.release, files.close)
        return client

    def give_inputs(self, kind: str) -> None:
        """Tell the workers what to run programs on, if they run them on something else.

        They forget then what they hold of this task, and can build; before something runs,
        :meth:`fill_inputs` has to be called.

        Args:
            kind: ``search``, or ``rematch`` for other inputs.
        """
        if self.inputs == kind:
            return
        task, setup = self.task, self.workers.setup
        seed = task.seed + (kind == "rematch")
        files = reserve_reference(task.workload, seed)
        # To the end: a worker may still be about to read those before these.
        self._files.callback(files.close)
        message = {
            "op": "task",
            "task": self.dispatcher.task,
            "workload": task.workload.to_json(),
            "program": task.program,
            "target": setup.target.to_json(),
            "threads": setup.threads,
            "cpus": list(self.workers.cpus),
            "protocol": setup.protocol.to_json(),
            "seed": seed,
            "quick": kind == "search",
            "observers": list(setup.observers),
            **self.workers.publish(files),
        }
        self.dispatcher.pool.tell(self.dispatcher.task, message, replace=True)
        self.inputs, self._reference = kind, files

    def fill_inputs(self) -> None:
        """Have the inputs, and what is right. Again, it does nothing.

        Raises:
            WorkerStartFailed: there is no memory for them.
        """
        if self._reference is not None:
            self._reference.fill()

    def holds(self, trial: Trial) -> bool:
        """Return whether a living worker has the program of a trial."""
        return trial.place is not None and self.dispatcher.pool.holds(trial.place)

    def remember(self, trials: Sequence[Trial]) -> None:
        """Tell the workers which programs need not be compiled again."""
        known = [
            trial.lowered
            for trial in trials
            if trial.lowered and trial.outcome is not None and not trial.outcome.retriable
        ]
        if known:
            task = self.dispatcher.task
            self.dispatcher.pool.tell(task, {"op": "known", "task": task, "programs": known})

    def forget(self, trials: Sequence[Trial]) -> None:
        """Let workers free the programs of trials that are over.

        In one message each: a worker is only given a few at a time, and builds are to follow.
        """
        seconds = self.workers.setup.protocol.deadlines["load"]
        numbers: dict[Place, list[int]] = {}
        for trial in trials:
            if trial.place is not None and self.holds(trial) and trial is not self.timing.leader:
                numbers.setdefault(trial.place, []).append(trial.number)
                trial.place = None
        for place, those in numbers.items():
            message = {"op": "forget", "numbers": those}
            self.dispatcher.post(message, {"load": seconds}, _ignore, place)


def _ignore(_reply: object) -> None:
    """Ignore a reply."""
