"""Which logical CPUs share a physical core."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["CPU_FOLDER", "parse_cpu_list", "physical_cores"]

CPU_FOLDER = Path("sys/devices/system/cpu")


def physical_cores(cpus: Iterable[int], root: Path = Path("/")) -> list[tuple[int, ...]]:
    """Groups logical CPUs by physical core: the hardware threads of one share its units.

    A CPU that the system does not describe, as in some containers, counts as a core of its own.

    Args:
        cpus: Logical CPUs.
        root: Folder that holds `sys`.

    Returns:
        The given CPUs of each core, ascending; cores by their first one.
    """
    groups: dict[str, list[int]] = {}
    for cpu in sorted(set(cpus)):
        path = root / CPU_FOLDER / f"cpu{cpu}" / "topology/thread_siblings_list"
        try:
            siblings = path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            siblings = ""
        groups.setdefault(siblings or f"cpu{cpu}", []).append(cpu)
    return [tuple(group) for group in groups.values()]


def parse_cpu_list(text: str | None) -> set[int]:
    """Reads a list such as `0-3,8`; what is no number is left out."""
    cpus: set[int] = set()
    for part in (text or "").split(","):
        first, dash, last = part.strip().partition("-")
        second = last if dash else first
        if _is_number(first) and _is_number(second):
            cpus.update(range(int(first), int(second) + 1))
    return cpus


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
