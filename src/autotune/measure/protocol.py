"""How candidates are checked and timed, as data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import attrs
from attrs import evolve, field, frozen

from autotune.errors import InvalidValueError

PROTOCOL_VERSION = "warm-1"

PHASES = ("start", "task", "build", "load", "verify", "run", "observe")

# Deadlines do not change what is measured, only what is given up on, and that is retried.
_NOT_IN_IDENTITY = ("version", "deadlines", "baseline_patience", "memory_bytes")


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
class MeasureProtocol:
    """Deadlines, and how many timed samples a candidate gets.

    Data is warm: every sample runs on the arrays that the one before it used.

    Attributes:
        deadlines: Seconds that each phase may take, by the names in ``PHASES``; those left out
            keep their default. A phase that takes longer is a ``timeout``.
        min_sample_seconds: A sample repeats the call until it lasts about this long.
        min_samples: Fewest samples, unless they would take longer than ``limit_seconds``.
        max_samples: Most samples.
        target_half_width: Sampling ends when the confidence interval of the median is no wider
            than this share of the median to either side.
        budget_seconds: Seconds of timed calls after which sampling ends.
        limit_seconds: Seconds of timed calls after which sampling ends with a single sample.
        drop_factor: Sampling ends when the fastest sample is slower than the incumbent by more
            than this factor; by more than twice this factor, and with the budget spent, also
            below ``min_samples``.
        baseline_patience: The untuned program's deadlines are longer by this factor.
        memory_bytes: Memory that a worker may allocate; None allows most of the machine's.
        version: Version of the procedure itself.
    """

    deadlines: Mapping[str, float] = field(factory=dict, converter=_deadlines, hash=False)
    min_sample_seconds: float = field(default=1e-3, validator=_positive)
    min_samples: int = field(default=3, validator=_positive)
    max_samples: int = field(default=50, validator=_positive)
    target_half_width: float = field(default=0.02, validator=_positive)
    budget_seconds: float = field(default=0.1, validator=_positive)
    limit_seconds: float = field(default=1.0, validator=_positive)
    drop_factor: float = field(default=1.5, validator=_positive)
    baseline_patience: float = field(default=6.0, validator=_positive)
    memory_bytes: int | None = None
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

    @property
    def identity(self) -> str:
        """Names what decides the numbers: ``warm-1``, with a digest unless all is default.

        Outcomes measured under different identities are not comparable; this goes into the
        measure key of every record.
        """
        settings = self.to_json()
        default = MeasureProtocol().to_json()
        for name in _NOT_IN_IDENTITY:
            del settings[name], default[name]
        if settings == default:
            return self.version
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.version}+{digest}"

    def for_baseline(self) -> MeasureProtocol:
        """The same protocol with the untuned program's longer deadlines."""
        return evolve(
            self,
            deadlines={
                phase: seconds * self.baseline_patience
                for phase, seconds in self.deadlines.items()
            },
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads back."""
        data = attrs.asdict(self)
        data["deadlines"] = dict(self.deadlines)
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> MeasureProtocol:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is not a protocol.
        """
        try:
            return MeasureProtocol(**data)
        except TypeError as error:
            raise InvalidValueError(f"not a measuring protocol: {error}") from error
