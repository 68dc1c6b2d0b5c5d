"""The resident memory of the process that runs the program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.measure.observers import Availability, Observer
from autotune.plugins import Context

__all__ = ["MemoryObserver"]

STATUS = Path("/proc/self/status")


class MemoryObserver(Observer):
    """Reads how much memory is resident, and by how much the observed calls made it grow."""

    name = "example-memory"

    def __init__(self, context: Context) -> None:
        self._before = self._after = 0

    def check(self) -> Availability:
        """Say whether the kernel's account of the process is there."""
        names = ("resident_bytes", "resident_growth_bytes")
        if STATUS.exists():
            return Availability(names)
        return Availability((), names, f"there is no {STATUS}")

    def before_run(self) -> None:
        """Note the resident memory."""
        self._before = _resident_bytes()

    def after_run(self) -> None:
        """Note the resident memory again."""
        self._after = _resident_bytes()

    def readings(self, calls: int) -> Mapping[str, float | None]:
        """Bytes after the calls, and how many more than before."""
        return {
            "resident_bytes": self._after,
            "resident_growth_bytes": self._after - self._before,
        }


def _resident_bytes() -> int:
    (line,) = (text for text in STATUS.read_text().splitlines() if text.startswith("VmRSS:"))
    return 1024 * int(line.split()[1])
