"""Protocols of checking and timing candidates, as data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
from attrs import field, frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.converter import JsonForm

PROTOCOL_VERSION = "3"

PHASES = ("start", "task", "build", "load", "verify", "run", "observe")
"""Phases of a candidate, in a worker that was started; each phase has a deadline."""

# Deadlines do not change what is measured, only what is given up on, and that is retried.
_NOT_IN_IDENTITY = (
    "version",
    "cold",
    "deadlines",
    "memory_bytes",
    "hopeless_factor",
    "hopeless_seconds",
)


def _default_deadlines() -> dict[str, float]:
    return {
        "start": 120.0,
        "task": 60.0,
        "build": 30.0,
        "load": 20.0,
        "verify": 20.0,
        "run": 20.0,
        "observe": 20.0,
    }


def _deadlines(given: Mapping[str, float]) -> dict[str, float]:
    return {**_default_deadlines(), **given}


def _positive(_instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not value > 0:
        raise InvalidValueError(f"{attribute.name} must be positive, not {value!r}")


@frozen
class MeasureProtocol(JsonForm):
    """Deadlines, how many timed samples a candidate gets, and how the best are compared.

    Attributes:
        cold: Whether caches are emptied before every timed call. Otherwise data is warm: every
            call runs on the arrays that the one before it used.
        deadlines: Seconds that each phase may take, by the names in ``PHASES``; those left out
            keep their default. A phase that takes longer is a ``timeout``.
        min_sample_seconds: A sample repeats the call until it lasts about this long.
        min_samples: Samples of a candidate before it is compared with the best one, samples of
            both in that comparison, and fewest samples where there is nothing to compare with,
            unless they would take longer than ``limit_seconds``.
        max_samples: Most samples where there is nothing to compare with.
        target_half_width: Where there is nothing to compare with, sampling ends when the
            confidence interval of the median is no wider than this share of the median to either
            side.
        budget_seconds: Seconds of timed calls after which sampling ends.
        limit_seconds: Seconds of timed calls after which sampling ends with a single sample.
        drop_factor: A candidate whose first sample is slower than the best one's latency by more
            than twice this factor gets no other; one whose fastest sample is, is not timed
            beside the best one.
        most_contenders: How many candidates of a batch are timed in turns with the best one.
        samples_per_turn: Samples of each program in a turn, of which the median counts; a single
            one of a program whose call takes 20 ms or more.
        min_rounds: Fewest turns before one of them is dropped.
        max_rounds: Most turns.
        resolution: Turns end when the ratio to the best is known to this share to either side.
        placements: Places in memory between which the turns alternate.
        pin: Whether threads are kept on their CPUs while they are timed.
        hopeless_factor: Checking a candidate may take this many times the best latency.
        hopeless_seconds: Fewest seconds that it may take, however fast the best one is.
        memory_bytes: Memory that a worker may allocate; None allows most of the machine's.
        version: Version of the procedure itself.
    """

    cold: bool = False
    deadlines: Mapping[str, float] = field(factory=dict, converter=_deadlines, hash=False)
    min_sample_seconds: float = field(default=1e-3, validator=_positive)
    min_samples: int = field(default=3, validator=_positive)
    max_samples: int = field(default=50, validator=_positive)
    target_half_width: float = field(default=0.02, validator=_positive)
    budget_seconds: float = field(default=0.1, validator=_positive)
    limit_seconds: float = field(default=1.0, validator=_positive)
    drop_factor: float = field(default=2.0, validator=_positive)
    most_contenders: int = field(default=4, validator=_positive)
    samples_per_turn: int = field(default=2, validator=_positive)
    min_rounds: int = field(default=6, validator=_positive)
    max_rounds: int = field(default=12, validator=_positive)
    resolution: float = field(default=0.01, validator=_positive)
    placements: int = field(default=3, validator=_positive)
    pin: bool = True
    hopeless_factor: float = field(default=100.0, validator=_positive)
    hopeless_seconds: float = field(default=3.0, validator=_positive)
    memory_bytes: int | None = field(default=None, validator=attrs.validators.optional(_positive))
    version: str = PROTOCOL_VERSION

    def __attrs_post_init__(self) -> None:
        unknown = sorted(set(self.deadlines) - set(PHASES))
        if unknown:
            raise InvalidValueError(
                f"no phase is called {unknown[0]!r}; phases: {', '.join(PHASES)}"
            )
        for phase, seconds in self.deadlines.items():
            if not seconds > 0:
                raise InvalidValueError(f"the deadline of {phase} must be positive: {seconds!r}")
        if self.max_samples < self.min_samples:
            raise InvalidValueError(
                f"max_samples ({self.max_samples}) is below min_samples ({self.min_samples})"
            )
        if self.max_rounds < self.min_rounds:
            raise InvalidValueError(
                f"max_rounds ({self.max_rounds}) is below min_rounds ({self.min_rounds})"
            )

    @property
    def identity(self) -> str:
        """Names what decides the numbers: ``warm-3``, with a digest unless all is default.

        Outcomes measured under different identities are not comparable; this goes into the
        measure key of every record.
        """
        name = f"{'cold' if self.cold else 'warm'}-{self.version}"
        settings = self.to_json()
        default = MeasureProtocol().to_json()
        for ignored in _NOT_IN_IDENTITY:
            del settings[ignored], default[ignored]
        if settings == default:
            return name
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
        return f"{name}+{digest}"

    def deadlines_beside(self, latency: float | None) -> dict[str, float]:
        """Deadlines of a candidate that is of no use unless it beats ``latency`` (in seconds).

        Checking it runs it once, and may not take longer than many times the best latency.
        """
        deadlines = dict(self.deadlines)
        if latency is not None:
            enough = max(self.hopeless_seconds, self.hopeless_factor * latency)
            deadlines["verify"] = min(deadlines["verify"], enough)
        return deadlines

    @staticmethod
    def named(name: str) -> MeasureProtocol:
        """Return a protocol of :data:`PROTOCOLS`.

        Raises:
            UnknownNameError: there is no such protocol.
        """
        if name not in PROTOCOLS:
            raise UnknownNameError("measuring protocol", name, PROTOCOLS)
        return PROTOCOLS[name]


PROTOCOLS: Mapping[str, MeasureProtocol] = MappingProxyType(
    {
        "standard": MeasureProtocol(),
        "quick": MeasureProtocol(
            min_samples=2,
            max_samples=8,
            target_half_width=0.05,
            budget_seconds=0.03,
            limit_seconds=0.3,
            most_contenders=2,
            samples_per_turn=1,
            # Fewer turns would not tell by how much a new best one is faster.
            min_rounds=6,
            max_rounds=6,
            resolution=0.03,
        ),
    }
)
"""Protocols by name. ``quick`` is for training data, of which there has to be much: it times less
often, so that latencies are known to several percent instead of one."""
