"""Stopwatch: wall seconds by activity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

__all__ = ["ACTIVITIES", "Clock", "Stopwatch"]

ACTIVITIES = ("startup", "search", "model", "build", "run", "confirm", "other")
"""Waiting for workers; proposing candidates; training the cost model; building, also while
something else is done; running (checks and timing); building and timing winners again; everything
else."""

Clock = Callable[[], float]


class Stopwatch:
    """Splits the wall time since its creation into activities.

    One activity is timed at a time; what no activity claims is ``other``, so that the parts sum
    to the total.

    Args:
        clock: Monotonic seconds.
        before: Seconds of earlier sessions of the same run, by activity.
        began: When the session began, if that was before now; the time since is ``startup``.
    """

    def __init__(
        self,
        clock: Clock,
        before: Mapping[str, float] | None = None,
        began: float | None = None,
    ) -> None:
        self._clock = clock
        self._start = clock() if began is None else began
        self._before = {name: float((before or {}).get(name, 0.0)) for name in ACTIVITIES}
        self._claimed = dict.fromkeys(ACTIVITIES, 0.0)
        self._spans: list[tuple[float, float, str]] = []
        self.claim("startup", self.session)

    @property
    def session(self) -> float:
        """Seconds since the stopwatch was made."""
        return self._clock() - self._start

    @property
    def earlier(self) -> float:
        """Seconds of the earlier sessions without their start-up, which every session has."""
        return sum(self._before.values()) - self._before["startup"]

    @property
    def elapsed(self) -> float:
        """Seconds of the run: this session and the earlier ones."""
        return sum(self._before.values()) + self.session

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by activity, earlier sessions included; the values sum to ``elapsed``."""
        now = dict(self._claimed)
        now["other"] = max(0.0, self.session - sum(self._claimed.values()))
        return {name: self._before[name] + now[name] for name in ACTIVITIES}

    def session_seconds(self, activity: str) -> float:
        """Seconds of an activity in this session."""
        return self._claimed[activity]

    def claim(self, activity: str, seconds: float, *, beside_builds: bool = False) -> None:
        """Count ``seconds`` that have just passed as ``activity``.

        Args:
            activity: What they were spent on.
            seconds: How many.
            beside_builds: Whether something may have been built meanwhile: then
                :meth:`credit_builds` counts that as building.
        """
        self._claimed[activity] += max(0.0, seconds)
        if beside_builds:
            now = self._clock()
            self._spans.append((now - max(0.0, seconds), now, activity))

    @contextmanager
    def timing(self, activity: str) -> Iterator[None]:
        """Count the body's wall time as ``activity``, also when it raises."""
        start = self._clock()
        try:
            yield
        finally:
            end = self._clock()
            self._spans.append((start, end, activity))
            self.claim(activity, end - start)

    def credit_builds(self, spans: Iterable[tuple[float, float]]) -> None:
        """Count as building what was timed as something else while builds went on.

        Args:
            spans: Beginning and end of builds since the last call, by the stopwatch's clock.
        """
        merged = _merged(spans)
        for start, end, activity in self._spans:
            shared = sum(max(0.0, min(end, late) - max(start, soon)) for soon, late in merged)
            self._claimed[activity] -= shared
            self._claimed["build"] += shared
        self._spans.clear()


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time without overlaps."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
