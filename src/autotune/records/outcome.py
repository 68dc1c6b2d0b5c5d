"""What became of one candidate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen
from attrs.validators import in_

from autotune.errors import InvalidValueError

OUTCOME_STATUSES = ("ok", "invalid", "build_error", "crash", "timeout", "wrong_result")


@frozen
class Outcome:
    """The result of building, checking and timing one candidate; never an exception.

    Attributes:
        status: ``ok``; ``invalid`` (the backend refused the schedule), ``build_error``,
            ``crash`` (the worker died), ``timeout`` (a phase passed its deadline) or
            ``wrong_result`` (it ran and computed other numbers than the reference).
        latency: Median seconds per call; None unless ``ok``.
        samples: Seconds per call of every timed sample, in order.
        timings: Seconds spent, by phase: build, load, verify, run.
        message: What went wrong, for people.
        cached: Whether it was taken from records instead of being measured now.
    """

    status: str = field(validator=in_(OUTCOME_STATUSES))
    latency: float | None = None
    samples: tuple[float, ...] = ()
    timings: Mapping[str, float] = field(factory=dict)
    message: str = ""
    cached: bool = False

    def __attrs_post_init__(self) -> None:
        if (self.status == "ok") != (self.latency is not None):
            raise InvalidValueError(
                f"an outcome has a latency exactly when it is ok: {self.status}, {self.latency}"
            )

    @property
    def ok(self) -> bool:
        """Whether the candidate built, was right, and has a latency."""
        return self.status == "ok"

    @property
    def retriable(self) -> bool:
        """Whether a later run may try again: the machine may have been at fault."""
        return self.status in ("crash", "timeout")

    def as_cached(self) -> Outcome:
        """The same outcome, flagged as taken from records."""
        return evolve(self, cached=True)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads back (``cached`` is not stored)."""
        return {
            "status": self.status,
            "latency": self.latency,
            "samples": list(self.samples),
            "timings": dict(self.timings),
            "message": self.message,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Outcome:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is not an outcome.
        """
        try:
            return Outcome(
                data["status"],
                data["latency"],
                tuple(data["samples"]),
                dict(data["timings"]),
                data["message"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidValueError(f"not an outcome: {error!r}") from error
