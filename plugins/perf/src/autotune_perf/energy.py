"""Energy counters of the processor (RAPL), through the kernel's power capping interface."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from autotune.measure.observers import Availability, Observer
from autotune.plugins import Context

__all__ = ["EnergyObserver"]

ROOT = Path("/sys/class/powercap")

# Which zones are summed for which reading. A package's counter includes its cores, not memory.
_ZONES = {
    "energy_joules_per_call": ("package", "dram"),
    "package_joules_per_call": ("package",),
    "dram_joules_per_call": ("dram",),
}


@frozen
class _Zone:
    """A counter; ``kind`` is ``package`` or ``dram``."""

    kind: str
    file: Path
    range_microjoules: int

    def read(self) -> int:
        return int(self.file.read_text())


class EnergyObserver(Observer):
    """Joules per call, of all packages of the machine and their memory.

    The counters are the machine's: what else runs meanwhile, and what the machine takes when
    idle, is included.

    Args:
        root: Where the kernel shows its zones.
    """

    name = "energy"
    # The counters are updated about every millisecond: a percent of this.
    run_seconds = 0.1

    def __init__(self, context: Context | None = None, root: Path = ROOT) -> None:
        self._root = root
        self._zones: list[_Zone] = []
        self._begin: list[int] = []
        self._end: list[int] = []

    def check(self) -> Availability:
        """See :meth:`Observer.check`."""
        zones, problem = _readable_zones(self._root)
        self._zones = zones
        # Energy is that of the packages and their memory; without packages it is nothing.
        reads = tuple(
            reading
            for reading, kinds in _ZONES.items()
            if any(zone.kind == kinds[0] for zone in zones)
        )
        absent = tuple(reading for reading in _ZONES if reading not in reads)
        if absent and not problem:
            problem = f"no energy counter of {absent[0].partition('_')[0]} under {self._root}"
        return Availability(reads, absent, problem if absent else "")

    def before_run(self) -> None:
        """Note the counters."""
        self._begin = self._read()

    def after_run(self) -> None:
        """Note the counters again."""
        self._end = self._read()

    def readings(self, calls: int) -> Mapping[str, float | None]:
        """See :meth:`Observer.readings`."""
        spent: dict[str, int] = {}
        for zone, begin, end in zip(self._zones, self._begin, self._end, strict=True):
            # A counter that reaches its range begins again at zero.
            difference = end - begin if end >= begin else end - begin + zone.range_microjoules
            spent[zone.kind] = spent.get(zone.kind, 0) + difference
        found: dict[str, float | None] = {}
        for reading, kinds in _ZONES.items():
            microjoules = sum(spent.get(kind, 0) for kind in kinds)
            # A counter that has not moved has not been updated yet: that is no measurement.
            found[reading] = microjoules * 1e-6 / calls if microjoules else None
        return found

    def _read(self) -> list[int]:
        return [zone.read() for zone in self._zones]


def _readable_zones(root: Path) -> tuple[list[_Zone], str]:
    """The counters that can be read, and why others cannot, or ""."""
    zones: list[_Zone] = []
    problem = ""
    # Machines with a second interface to the same counters show it under another prefix.
    for folder in sorted(root.glob("intel-rapl:*")):
        try:
            kind = (folder / "name").read_text().strip().partition("-")[0]
            if kind in ("package", "dram"):
                limit = int((folder / "max_energy_range_uj").read_text())
                zone = _Zone(kind, folder / "energy_uj", limit)
                zone.read()
                zones.append(zone)
        except PermissionError:
            problem = f"{folder / 'energy_uj'} may be read by root only"
        except (OSError, ValueError) as error:
            problem = f"{folder} cannot be read: {error}"
    if not zones and not problem:
        problem = f"no energy counters here (nothing under {root})"
    return zones, problem
