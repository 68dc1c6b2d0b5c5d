"""Identity of a machine that times programs: equal machines may share a race and records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from attrs import asdict, frozen

from autotune.errors import InvalidValueError

__all__ = ["SPEED_TOLERANCE", "Fingerprint", "same_speed"]

SPEED_TOLERANCE = 0.1
"""Machines whose reference seconds differ by a larger share are not equal."""

_DIGITS = 12


@frozen
class Fingerprint:
    """Facts that the latency of a program depends on, besides the program.

    Attributes:
        device: Model of the CPU or GPU, with the features that code is made for.
        cores: Processors that a program may use.
        driver: GPU driver or kernel release; "" where it does not matter.
        compiler: Versions of backend and compiler that make what runs there.
        protocol: Identity of the measuring protocol.
        reference_seconds: What the pinned reference program took when the machine joined.
            Compared with a tolerance, so that a throttled machine is told from an equal one, and
            no part of :attr:`digest`. 0 where nothing was timed, as with simulated times: such
            machines equal each other.
        clocks: Clock rates that were seen, for people.
    """

    device: str
    cores: int
    driver: str
    compiler: str
    protocol: str
    reference_seconds: float = 0.0
    clocks: str = ""

    def __attrs_post_init__(self) -> None:
        if self.cores < 1 or not 0 <= self.reference_seconds < float("inf"):
            raise InvalidValueError(
                "a fingerprint has at least 1 core and finite reference seconds of at least 0, "
                f"not {self.cores} and {self.reference_seconds!r}"
            )

    @property
    def digest(self) -> str:
        """Names everything but the speed: hexadecimal digits."""
        parts = asdict(self)
        del parts["reference_seconds"], parts["clocks"]
        text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]

    def equals(self, other: Fingerprint) -> bool:
        """Tell if both may time programs of one race: alike in everything, and equally fast."""
        # As of the digest, which takes longer: machines are compared whenever one is asked for.
        return self._parts == other._parts and same_speed(
            self.reference_seconds, other.reference_seconds
        )

    @property
    def _parts(self) -> tuple[str, int, str, str, str]:
        return self.device, self.cores, self.driver, self.compiler, self.protocol

    def differences(self, other: Fingerprint) -> Sequence[str]:
        """Describe the differences for people: ``device 'a', not 'b'``."""
        mine, theirs = asdict(self), asdict(other)
        found = [
            f"{name} {mine[name]!r}, not {theirs[name]!r}"
            for name in ("device", "cores", "driver", "compiler", "protocol")
            if mine[name] != theirs[name]
        ]
        if not same_speed(self.reference_seconds, other.reference_seconds):
            found.append(
                f"the reference program takes {self.reference_seconds:.3g} s, "
                f"not {other.reference_seconds:.3g} s"
            )
        return found


def same_speed(one: float, other: float, tolerance: float = SPEED_TOLERANCE) -> bool:
    """Return whether two reference times, in seconds, are those of equally fast machines.

    Args:
        one: Of one machine; 0 where none was taken.
        other: Of the other.
        tolerance: Largest share by which the slower may exceed the faster.
    """
    low, high = sorted((one, other))
    return high <= low * (1 + tolerance)
