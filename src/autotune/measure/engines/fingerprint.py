"""Identity of a machine that times programs: equal machines may share a race and records.

A pinned reference program tells how fast it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from attrs import asdict, frozen

from autotune.errors import InvalidValueError
from autotune.targets import repeat_times

__all__ = [
    "SPEED_TOLERANCE",
    "Fingerprint",
    "host_fingerprint",
    "reference_seconds",
    "same_speed",
]

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


# Multiplications that wait for one another, about a third of a millisecond: the clock of a core
# decides, and nothing that another version of a compiler could change. Of many repetitions the
# fastest counts, which other programs on the machine hardly change: they are noise, which races
# stand, and no property of the machine. A lowered clock slows down every repetition.
_WORK, _REPEATS = 1_000_000, 60
# What code is made for: machines that differ here run other programs.
_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "fma", "asimd", "sve")


def reference_seconds() -> float:
    """Seconds of the reference program on this machine, as it is now."""
    return min(repeat_times(_REPEATS, _WORK))


def host_fingerprint(
    cores: int, compiler: str, protocol: str, seconds: float, root: Path = Path("/")
) -> Fingerprint:
    """The fingerprint of this machine for programs that run on its CPU.

    Args:
        cores: Threads that programs use.
        compiler: Versions of backend and compiler.
        protocol: Identity of the measuring protocol.
        seconds: What the reference program takes; 0 where times are simulated.
        root: Folder that holds ``proc``.
    """
    facts = _cpu_facts(root)
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    features = [name for name in _FEATURES if name in flags]
    model = facts.get("model name", "") or platform.machine()
    clock = facts.get("cpu MHz", "")
    return Fingerprint(
        device=" ".join([model, *features]),
        cores=cores,
        driver=os.uname().release,
        compiler=compiler,
        protocol=protocol,
        reference_seconds=seconds,
        clocks=f"{clock} MHz" if clock else "",
    )


def _cpu_facts(root: Path) -> dict[str, str]:
    """Facts of the kernel about the first processor."""
    try:
        text = (root / "proc/cpuinfo").read_text()
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
