"""Memory of the machine, and the number of processes that it is enough for.

A container's limit is a control group's, and groups are nested: each one above the process's own
may have a limit, too. Both versions of control groups are read, where they are mounted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

__all__ = [
    "affordable_workers",
    "available_memory",
    "default_memory_limit",
    "may_build",
    "resident_bytes",
]

_SHARE = 0.8
_KIBIBYTE = 1024
_ROOT = Path("/")


@frozen
class _Names:
    """Files of one version of control groups."""

    limit: str
    usage: str
    reclaimable: str  # the line of memory.stat with the cache that is given up when needed


_VERSION_1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Names("memory.max", "memory.current", "inactive_file")


def default_memory_limit(root: Path = _ROOT) -> int:
    """Bytes that a worker may allocate by default: most of what the machine or container has.

    Args:
        root: Where ``proc`` and the mounted control groups are looked for.
    """
    limits = [_read_limit(folder / names.limit) for folder, names in _control_groups(root)]
    total = _memory_info(root)["MemTotal"]
    return int(min([total, *(limit for limit in limits if limit is not None)]) * _SHARE)


def available_memory(root: Path = _ROOT) -> int:
    """Bytes that can be allocated now without swapping or being killed for it.

    Args:
        root: Where ``proc`` and the mounted control groups are looked for.
    """
    available = _memory_info(root)["MemAvailable"]
    for folder, names in _control_groups(root):
        limit = _read_limit(folder / names.limit)
        if limit is not None:
            available = min(available, limit - _used(folder, names))
    return max(0, available)


def resident_bytes(pid: int, root: Path = _ROOT) -> int:
    """Bytes of memory that a process occupies, shared pages included; 0 if it is gone."""
    try:
        pages = int((root / "proc" / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def affordable_workers(wanted: int, bytes_each: int, available: int | None = None) -> int:
    """Number of workers, of ``wanted`` ones, that memory is enough for; at least one.

    Args:
        wanted: How many there would be if memory did not matter.
        bytes_each: What each of them will occupy.
        available: Bytes that can be allocated; by default what can be now.
    """
    if available is None:
        available = available_memory()
    affordable = available // bytes_each if bytes_each else wanted
    return max(1, min(wanted, affordable))


def may_build(available: int, largest_seen: int, running: int) -> bool:
    """Return whether memory is enough for one more build at once.

    The builds that run may have begun a moment ago and not have allocated anything yet: each is
    expected to need as much again as the largest so far. One build is always allowed.

    Args:
        available: Bytes that can be allocated now.
        largest_seen: The most bytes that a worker has been seen to occupy while it built; 0 if
            none has built yet.
        running: Builds that run now.
    """
    return running == 0 or available >= (running + 1) * largest_seen


def _memory_info(root: Path) -> dict[str, int]:
    """``/proc/meminfo``, in bytes."""
    lines = (root / "proc" / "meminfo").read_text().splitlines()
    fields = [line.split() for line in lines]
    return {field[0].rstrip(":"): int(field[1]) * _KIBIBYTE for field in fields if len(field) == 3}


def _control_groups(root: Path) -> Iterator[tuple[Path, _Names]]:
    """Folders of the groups that this process is in, from its own up to the mounted one."""
    paths = _group_paths(root)
    for names, mounted_group, mount in _mounts(root):
        path = paths.get(names)
        if path is None:
            continue
        # Where only a part of the hierarchy is mounted, as in a container, paths begin above it.
        below = os.path.relpath(path, mounted_group)
        folder = mount if below.startswith("..") else mount / below
        for group in (folder, *folder.parents):
            yield group, names
            if group == mount:
                break


def _group_paths(root: Path) -> dict[_Names, str]:
    """Return this process's group in each hierarchy that may limit memory."""
    found = {}
    for line in _lines(root / "proc" / "self" / "cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            found[_VERSION_2] = path
        elif "memory" in controllers.split(","):
            found[_VERSION_1] = path
    return found


def _mounts(root: Path) -> Iterator[tuple[_Names, str, Path]]:
    """Mounted hierarchies that may limit memory: the group at their top, and where it is."""
    for line in _lines(root / "proc" / "self" / "mountinfo"):
        # "id parent device top mount-point options ... - type source options"
        first, _, second = line.partition(" - ")
        top, mount = first.split()[3:5]
        kind, _source, options = second.split(maxsplit=2)
        if kind == "cgroup2":
            yield _VERSION_2, top, root / mount.lstrip("/")
        elif kind == "cgroup" and "memory" in options.split(","):
            yield _VERSION_1, top, root / mount.lstrip("/")


def _used(folder: Path, names: _Names) -> int:
    """Bytes that a group uses, without the cache of files that is given up when needed."""
    used = _read_limit(folder / names.usage) or 0
    for line in _lines(folder / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == names.reclaimable:
            return max(0, used - int(value))
    return used


def _read_limit(path: Path) -> int | None:
    """The number in a file; None if there is no such file, or if it says ``max``."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _lines(path: Path) -> list[str]:
    """Lines of a file; none if there is no such file."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
