"""The outcome of one candidate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen
from attrs.validators import in_

from autotune.errors import InvalidValueError
from autotune.ir.converter import JsonForm, json_forms, object_form
from autotune.store.statuses import OUTCOME_STATUSES, RETRIABLE_STATUSES

if TYPE_CHECKING:
    from cattrs import Converter

WRITTEN_WHEN_SET = ("reference", "imported", "beaten_by", "exceeds")
"""Left out of JSON forms where they do not apply, as for most outcomes."""


@frozen
class Outcome(JsonForm):
    """The result of building, checking and timing one candidate; never an exception.

    Attributes:
        status: ``ok``; ``invalid`` (the backend refused the schedule), ``build_error``,
            ``crash`` (the worker died), ``timeout`` (a phase passed its deadline),
            ``wrong_result`` (it ran and computed other numbers than the reference) or
            ``implausible`` (it claimed a latency that cannot be true).
        latency: Seconds per call as timed; None unless ``ok``. It is the median of the samples
            divided by ``drift``, so that outcomes of one session compare although the machine's
            speed changes. No other record has a part in it.
        samples: Seconds per call of every timed sample, in order, as the clock showed them.
        timings: Seconds spent, by phase: build, load, verify, run.
        message: What went wrong, for people.
        cached: Whether it was taken from records instead of being measured now; not stored.
        drift: How much slower the machine was than when the best candidate so far was first timed
            in this session: what that candidate took beside this one, over its latency.
        reference: What the best candidate so far took beside this one, in seconds as the clock
            showed them; None where there was none, or an earlier version timed it.
        lowered: Digest of the lowered program; "" where the backend names none.
        binary: Digest of the machine code; "" where the backend names none.
        duplicate_of: Digest of the candidate with the same program, whose measurement this is;
            "" for one that was measured itself.
        readings: What observers read while it ran, by name; None for what cannot be read here.
        imported: Whether it came from a file: it was not timed here, and its latency is a claim.
            That is so in one database, which remembers it; the JSON form is without it.
        beaten_by: Digest of the candidate that was faster in turns at the end of a run, although
            its latency is higher; "" where there is none.
        exceeds: Seconds that a call takes at least, of a ``timeout`` that was cut off after them
            because a candidate was far faster; None for every other outcome.
    """

    status: str = field(validator=in_(OUTCOME_STATUSES))
    latency: float | None = None
    samples: tuple[float, ...] = ()
    timings: Mapping[str, float] = field(factory=dict)
    message: str = ""
    cached: bool = False
    drift: float = 1.0
    lowered: str = ""
    binary: str = ""
    duplicate_of: str = ""
    readings: Mapping[str, float | None] = field(factory=dict)
    reference: float | None = None
    imported: bool = False
    beaten_by: str = ""
    exceeds: float | None = None

    def __attrs_post_init__(self) -> None:
        if (self.status == "ok") != (self.latency is not None):
            raise InvalidValueError(
                f"an outcome has a latency exactly when it is ok: {self.status}, {self.latency}"
            )

    @property
    def ok(self) -> bool:
        """True if the candidate built, was right, and has a latency."""
        return self.status == "ok"

    @property
    def retriable(self) -> bool:
        """True if a later run may try again: the machine may have been at fault."""
        return self.status in RETRIABLE_STATUSES

    def as_cached(self) -> Outcome:
        """The same outcome, flagged as taken from records."""
        return evolve(self, cached=True)


@json_forms
def _forms(converter: Converter) -> None:
    first = ("latency", "samples", "timings", "message")
    write, _ = object_form(
        converter, Outcome, required=first, left_out=("cached", "imported"), ignores_others=True
    )

    def write_what_is_set(outcome: Outcome) -> dict[str, Any]:
        data = write(outcome)
        return {key: it for key, it in data.items() if it or key not in WRITTEN_WHEN_SET}

    converter.register_unstructure_hook(Outcome, write_what_is_set)
