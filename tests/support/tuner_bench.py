"""Tuners of parts that need no compiler, which can be stopped at any step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray
from toy_parts import TOY_TREES, InProcessMeasurer, toy_trees, valid_outcome

from autotune.models import ModelContext
from autotune.models.cost import CostModel, RandomCostModel
from autotune.process.interrupts import TuningInterrupted, is_of_user
from autotune.search.schedulers import SchedulerContext, TaskInfo
from autotune.search.schedulers.round_robin import RoundRobin
from autotune.search.strategies import EvolutionaryStrategy, Strategy, StrategyContext
from autotune.sketches import Candidate, CandidateBatch
from autotune.store.database import Database
from autotune.store.records import MeasureKey, Outcome
from autotune.store.sqlite.sqlite_database import SQLiteDatabase
from autotune.targets import Target, preset
from autotune.testing.toy_space import ToySpace
from autotune.tuning.events import Event, TrialFinished
from autotune.tuning.options import TuneOptions
from autotune.tuning.programs import TaskRun
from autotune.tuning.resolve import RunPlan
from autotune.tuning.result import Result
from autotune.tuning.tuner import Tuner

TARGET: Target = preset("haswell")
OutcomeOf = Callable[[Candidate], Outcome]


def nothing() -> None:
    """Does nothing."""


class Killed(BaseException):
    """Stands for the end of the process: nothing may be saved because of it."""


def with_plan(tuner: Tuner, **changes: Any) -> Tuner:
    """The same tuner of another plan."""
    return attrs.evolve(tuner, plan=attrs.evolve(tuner.plan, **changes))


@contextlib.contextmanager
def passing_killed() -> Iterator[None]:
    """Around a tuner: what raises it is no mistake of the part that is being called."""

    def passes(error: BaseException) -> bool:
        return isinstance(error, Killed) or is_of_user(error)

    with mock.patch("autotune.plugins.calling.is_of_user", passes):
        yield


class SteppingModel(CostModel):
    """A cost model with steps around what it does."""

    def __init__(self, inner: CostModel, step: Callable[[], None]) -> None:
        self._inner = inner
        self._step = step

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """The inner model's."""
        self._step()
        return self._inner.predict(batch)

    def update(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """A step before and after."""
        self._step()
        self._inner.update(outcomes)
        self._step()

    def state(self) -> dict[str, Any]:
        """The inner model's."""
        return self._inner.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """The inner model's."""
        self._inner.load_state(state)


class SteppingDatabase(SQLiteDatabase):
    """A database in memory with a step before and after everything that it writes."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.step: Callable[[], None] = nothing

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.step()
        with super()._transaction():
            yield
        self.step()


@attrs.define
class Bench:
    """Makes tuners that differ in as little as a test needs, and keeps what they did."""

    database: Database
    space: ToySpace = attrs.field(factory=ToySpace)
    strategy: type[Strategy] = EvolutionaryStrategy
    round_size: int = 8
    tasks: int = 1
    seed: int = 3
    protocol: str = "warm-1"
    lookahead: int = 1
    lanes: int = 1
    patience: int | None = None
    trees: bool = False
    outcome: OutcomeOf | None = None
    again: OutcomeOf = valid_outcome
    step: Callable[[], None] = nothing
    time: float = 0.0
    events: list[Event] = attrs.field(factory=list)
    measurers: list[InProcessMeasurer] = attrs.field(factory=list)
    measured: list[str] = attrs.field(factory=list)

    def tuner(
        self,
        trials: int | None,
        *,
        seconds: float | None = None,
        fresh: bool = False,
        stop_after: int | None = None,
        stop_by: type[BaseException] = KeyboardInterrupt,
    ) -> Tuner:
        """A tuner of new parts; with ``stop_after`` it is stopped after so many new trials."""
        made = toy_trees if self.trees else RandomCostModel
        model = SteppingModel(
            made(ModelContext(target=TARGET, seed=self.seed, threads=1)), self.step
        )
        sizes = (4, 16, 2, 32)
        spaces = [self.space, *map(ToySpace, sizes)][: self.tasks]
        key = MeasureKey(TARGET.fingerprint, "toy", "1", "none", 1, self.protocol)
        tasks = [
            TaskRun(
                title=f"toy {index}",
                workload=space.workload,
                target=TARGET,
                space=space,
                key=key,
                position=index,
            )
            for index, space in enumerate(spaces)
        ]
        left = [stop_after]

        def listen(event: Event) -> None:
            self.events.append(event)
            self.step()
            if isinstance(event, TrialFinished) and left[0] is not None:
                left[0] -= 1
                if left[0] <= 0:
                    raise stop_by

        options = TuneOptions(
            target=TARGET,
            threads=1,
            parts={
                "strategy": self.strategy.name,
                "cost_model": TOY_TREES if self.trees else "random",
                "pruning_model": None,
                "task_scheduler": "round-robin",
            },
            seed=self.seed,
            round_size=self.round_size,
            lookahead=self.lookahead,
            patience=self.patience,
            trials=trials,
            time=seconds,
            fresh=fresh,
            listeners=(listen,),
        )
        infos = [TaskInfo(1.0, float(task.workload.flop)) for task in tasks]
        plan = RunPlan(
            options=options,
            tasks=tasks,
            strategies=[self._strategy(space, model, at) for at, space in enumerate(spaces)],
            cost_models=[model] * self.tasks,
            scheduler=RoundRobin(SchedulerContext(tasks=infos, seed=self.seed, options={})),
            make_measurer=self._make_measurer,
        )
        return Tuner(plan=plan, database=self.database, clock=lambda: self.time, now=lambda: 1e9)

    def _strategy(self, space: ToySpace, model: CostModel, index: int) -> Strategy:
        rng = np.random.default_rng([self.seed, index])
        # What is tested is the run: a search among few costs little.
        options = {"population": 64} if self.strategy is EvolutionaryStrategy else {}
        context = StrategyContext(space, rng, model, options=options)
        return self.strategy(context)  # type: ignore[call-arg]

    def _make_measurer(self, task: TaskRun) -> InProcessMeasurer:
        def outcome(candidate: Candidate) -> Outcome:
            self.measured.append(candidate.digest)
            return (self.outcome or valid_outcome)(candidate)

        measurer = InProcessMeasurer(task.workload, outcome, self._tick, self.again, self.lanes)
        self.measurers.append(measurer)
        return measurer

    def _tick(self) -> None:
        self.time += 1.0
        self.step()

    def run(self, trials: int | None, **options: object) -> Result:
        """Tune one task."""
        (result,) = self.tuner(trials, **options).run()  # type: ignore[arg-type]
        return result

    def stop(self, trials: int, after: int, stop_by: type[BaseException]) -> None:
        """Tune until it is stopped."""
        with pytest.raises((TuningInterrupted, Killed)), passing_killed():
            self.tuner(trials, stop_after=after, stop_by=stop_by).run()

    def seen(self, kind: type[Event]) -> list[Event]:
        """Events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]
