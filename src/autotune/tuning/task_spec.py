"""Parts that a task is tuned with, and those that the tasks of a run share."""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen

from autotune.ir.workloads import Workload
from autotune.measure import Measurer
from autotune.models.cost import CostModel
from autotune.process.interrupts import InterruptGuard
from autotune.process.stopwatch import Clock, Stopwatch
from autotune.search.strategies import Strategy
from autotune.sketches import UNTUNED
from autotune.spaces import SearchSpace
from autotune.store.database import Database
from autotune.store.records import MeasureKey, Record
from autotune.targets import Target
from autotune.tuning.events import EventListener

__all__ = ["RunContext", "TaskSpec"]

MakeMeasurer = Callable[[], Measurer]


@frozen(eq=False)
class TaskSpec:
    """A task as the tuner is given it.

    Attributes:
        name: What a person calls it; unique among the tasks of a run.
        workload: What to tune.
        target: What to tune for.
        space: Its candidates.
        strategy: Proposes them.
        cost_model: What the strategy may consult; tasks may share it.
        key: What measurements depend on.
        make_measurer: Makes the measurer, not started.
        program: The imported program's text, when one was imported.
        default_schedule: What the backend's default schedule is called; "" where it has none.
        least_untuned: Seconds that one call of the untuned program takes at least; 0.0 where
            that is not known.
        weight: How often it occurs.
        contest: What a person calls the program that tasks of several backends compete for, the
            same for all of them; "" where nothing competes.
        cuts_off: Whether a baseline is cut off once it cannot win.
    """

    name: str
    workload: Workload
    target: Target
    space: SearchSpace
    strategy: Strategy
    cost_model: CostModel
    key: MeasureKey
    make_measurer: MakeMeasurer
    program: str | None = None
    default_schedule: str = ""
    least_untuned: float = 0.0
    cuts_off: bool = True
    weight: float = 1.0
    contest: str = ""

    @property
    def baseline_names(self) -> tuple[str, ...]:
        """Names of the programs without tuning: the default schedule, and the untuned program."""
        return (*filter(None, [self.default_schedule]), UNTUNED)


@frozen(eq=False)
class RunContext:
    """State that the tasks of a run share.

    Attributes:
        run_id: The run.
        database: Where outcomes are recorded.
        space: Name and version of the search space.
        fresh: Whether records of other runs are ignored.
        watch: Time of the run.
        guard: Delays interrupts while something is written.
        emit: Receives every event.
        now: Unix time in seconds.
        own: Records of this run.
        ready: Backends whose shared workers have been ready once.
    """

    run_id: str
    database: Database
    space: str
    fresh: bool
    watch: Stopwatch
    guard: InterruptGuard
    emit: EventListener
    now: Clock
    own: dict[tuple[MeasureKey, str], Record] = field(factory=dict)
    ready: set[str] = field(factory=set)
