"""When a task gets no more trials, and what is said of one in which everything fails."""

from __future__ import annotations

from attrs import frozen

from autotune.store.trial_log import TrialLog
from autotune.tuning.run_plan import GIVE_UP_AFTER

__all__ = ["GiveUpRule", "is_hopeless", "uniform_failure"]

_WARN_AFTER = 8


@frozen
class GiveUpRule:
    """When further trials of a task are not worth their time.

    Attributes:
        patience: How many trials without a gain a task may have; None for any number.
    """

    patience: int | None

    def is_settled(self, log: TrialLog) -> bool:
        """Tell if a task has had as many trials without a gain as the user has patience for."""
        return self.patience is not None and log.trials_without_gain >= self.patience

    def gives_up(self, log: TrialLog) -> bool:
        """Tell if a task gets no more trials: all have failed, or none was a gain for long."""
        return is_hopeless(log) or self.is_settled(log)


def is_hopeless(log: TrialLog) -> bool:
    """Return whether so much has failed that the rest would too."""
    return log.best is None and len(log) >= GIVE_UP_AFTER


def uniform_failure(log: TrialLog, before: int) -> str | None:
    """A warning once the first candidates of a task have all failed in one way.

    Args:
        log: Trials of the task.
        before: How many it had when this was asked last: a warning is given once.
    """
    statuses = {entry.status for entry in log.entries[:_WARN_AFTER]}
    if log.best is not None or len(statuses) != 1 or not before < _WARN_AFTER <= len(log):
        return None
    (status,) = statuses
    message = log.failures[status] or "no message"
    return f"the first {_WARN_AFTER} candidates all ended in {status}: {message}"
