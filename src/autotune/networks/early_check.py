"""Check of an imported network before its budget is spent: the untuned one is run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from attrs import evolve, frozen

from autotune.networks.frontend import NetworkProgram
from autotune.networks.import_limit import ImportLimit
from autotune.networks.loading import UniqueTask
from autotune.networks.running import (
    NAIVE_FLOP_PER_SECOND,
    TIMING_SECONDS,
    build_network,
    check_network,
    saving_seconds,
)
from autotune.process.stopwatch import Clock
from autotune.tuning.events import WarningRaised
from autotune.tuning.options import TuneOptions
from autotune.tuning.run_plan import Reserve

__all__ = ["EarlyCheck"]

_MOST_FLOP = 4e9
"""Networks of more are not run before they are tuned: without a schedule that takes too long."""
_MOST_SHARE = 0.02
"""Nor are those of which the check takes a larger part of the time, which it is there to save."""
_SECONDS_PER_PROGRAM = 0.15
"""How long a program without a record takes to be drafted, printed and compiled."""
_SECONDS_PER_TRIAL = 1.0
"""About what the first candidate of a program takes, and to build and time it again at the end."""
_BUILT_BYTES_PER_SECOND = 1e8
"""Weights are copied, and packed for the schedules that take them so, at this rate."""
_TUNED_FLOP_PER_SECOND = 2e10
"""To compare the outputs of a tuned network, it and its model are called, at so much at least."""


@frozen(kw_only=True, eq=False)
class EarlyCheck:
    """Compares the untuned network with its model, and says what time its building will take.

    Attributes:
        network: What was imported.
        tasks: Its tasks.
        options: How it is tuned.
        limit: Of the import, which this is a part of.
        clock: Monotonic seconds.
        compares: Whether outputs are compared at all.
        builds: Whether the caller builds, checks and times the network within the same time.
        saves: The file that it also writes the network to then; None for none.
    """

    network: NetworkProgram
    tasks: Sequence[UniqueTask]
    options: TuneOptions
    limit: ImportLimit
    clock: Clock
    compares: bool
    builds: bool
    saves: Path | None

    def run(self) -> Reserve:
        """Check a network that is fast enough without schedules; the time to keep for later.

        Raises:
            WrongOutputs: it computes something else than its model.
            AutotuneError: it cannot be built, or the time is over.
        """
        if self.saves is not None:
            self.network.check_saving(self.saves, self.options.machine)
        programs = len(self.network.tasks)
        calls = self.flop / _TUNED_FLOP_PER_SECOND if self.compares else 0.0
        reserve = Reserve(TIMING_SECONDS + calls, programs)
        if self.compares and self.is_affordable:
            built, checked = self._compare()
            reserve = Reserve(TIMING_SECONDS + checked, programs, built / max(1, programs))
        copying = self.network.weight_bytes / _BUILT_BYTES_PER_SECOND
        copying += saving_seconds(self.network.weight_bytes) if self.saves else 0.0
        reserve = evolve(reserve, seconds=reserve.seconds + copying) if self.builds else Reserve()
        self._warn_of_time(reserve)
        return reserve

    @property
    def flop(self) -> float:
        """Of one inference."""
        return sum(task.total_flop for task in self.tasks)

    @property
    def is_affordable(self) -> bool:
        """True if building and calling it takes little, and little of the time that there is."""
        expected = self.flop / NAIVE_FLOP_PER_SECOND + _SECONDS_PER_PROGRAM * len(self.tasks)
        return self.flop <= _MOST_FLOP and expected <= _MOST_SHARE * self._seconds

    @property
    def _seconds(self) -> float:
        """The limit of the call; infinite for none."""
        limits = [self.options.time, self.options.session_time]
        return min((it for it in limits if it is not None), default=math.inf)

    def _compare(self) -> tuple[float, float]:
        """Seconds that building the untuned network took, and running it beside the model."""
        machine, began = self.options.machine, self.clock()
        with self.limit.during("it was built without schedules"):
            compiled = build_network(self.network, {}, machine, machine.cores)
            built = self.clock()
            self.limit.doing = "it was compared with the model"
            check_network(self.network, compiled)
        return built - began, self.clock() - built

    def _warn_of_time(self, reserve: Reserve) -> None:
        """Say where the call may not take long enough for a trial of each program."""
        limit, taken = self._seconds, self.limit.spent() + reserve.least
        programs = sum(task.is_tunable for task in self.tasks)
        trials = programs if self.options.trials is None else min(self.options.trials, programs)
        needed = taken + trials * _SECONDS_PER_TRIAL
        if needed < limit:
            return
        then = f", and to build, check and time it about {reserve.least:.0f} s"
        left = "nothing is" if taken >= limit else f"{limit - taken:.0f} s are"
        message = (
            f"to import and check it took {self.limit.spent():.0f} s"
            f"{then if reserve.least else ''}: {left} left of {limit:g} s to tune it; a trial of "
            f"each of its {programs} programs needs about {math.ceil(needed)} s (--time)"
        )
        for listener in self.options.listeners:
            listener(WarningRaised(self.network.name, message))
