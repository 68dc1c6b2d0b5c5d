"""Detection of this machine's CPU from Linux's files.

Every file may be missing, as in containers; then the processor's typical values stand in.
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from attrs import frozen

from autotune.errors import UnsupportedTarget
from autotune.targets import processors
from autotune.targets.target import Cache, Target

__all__ = [
    "CPU_FOLDER",
    "check_is_cuda",
    "check_is_x86_64",
    "check_runs_here",
    "detect_cpu",
    "parse_cpu_list",
    "physical_cores",
]

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


_X86_FEATURES = ("sse2", "sse4.1", "sse4.2", "avx", "avx2", "fma", "avx512f")

# The oldest architecture that CUDA toolkits still compile for.
_OLDEST_CUDA = 75

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def detect_cpu(
    root: Path = Path("/"),
    *,
    affinity: Collection[int] | None = None,
    system: str | None = None,
    machine: str | None = None,
) -> Target:
    """Describes the CPU, as far as this process may use it.

    Cores are physical ones: those that the process is allowed to run on, limited by the quota of
    its control group.

    Args:
        root: Folder that holds `proc` and `sys`.
        affinity: Logical CPUs that the process may use; asked from the system unless given.
        system: Operating system, as `platform.system()` has it.
        machine: Architecture, as `platform.machine()` has it.

    Raises:
        UnsupportedTarget: This is not Linux on x86-64.
    """
    system, machine = system or platform.system(), machine or platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        raise UnsupportedTarget(
            f"cannot detect the CPU of {system} on {machine}: only Linux on x86-64 is supported; "
            "describe the target with a preset or a JSON file"
        )
    cpus = sorted(os.sched_getaffinity(0) if affinity is None else affinity)
    info = _read_cpu_info(root / "proc/cpuinfo")
    processor = processors.identify(info.vendor, info.family, info.model, info.features)
    cores = max(1, len(physical_cores(cpus, root)))
    quota = _quota(root)
    if quota is not None:
        cores = max(1, min(cores, math.floor(quota)))
    clock = _clock(root, cpus) or info.clock or processor.clock
    return Target(
        kind="cpu",
        name=f"{processor.name}-{cores}core",
        cores=cores,
        vector_bytes=processors.vector_bytes_of(info.features),
        features=info.features,
        processor=processor.name,
        caches=_caches(root, cpus) or processor.cache_levels(),
        memory_bandwidth=processors.estimate_bandwidth(cores),
        peak_flops=processors.estimate_flops(info.features, processor.fma_units, cores, clock),
        vector_registers=processors.vector_registers_of(info.features),
        fma_units=processor.fma_units,
    )


def check_is_x86_64(target: Target, backend: str) -> None:
    """Refuses a GPU, and a CPU of another architecture.

    Args:
        target: The CPU that programs are made for.
        backend: Name of what would compile them, for the message.

    Raises:
        UnsupportedTarget: It is no CPU, or neither its processor nor any feature is of x86-64.
    """
    if target.kind != "cpu":
        raise UnsupportedTarget(
            f"backend {backend!r} compiles for CPUs; target {target.name!r} is of kind "
            f"{target.kind!r}"
        )
    known = target.processor.startswith("x86-64")
    if not known and not set(target.features) & set(_X86_FEATURES):
        raise UnsupportedTarget(
            f"backend {backend!r} compiles for x86-64 only; target {target.name!r} has processor "
            f"{target.processor!r} and no x86-64 feature (such as {', '.join(_X86_FEATURES[:2])})"
        )


def check_is_cuda(target: Target, backend: str) -> None:
    """Refuses what is no GPU that CUDA toolkits compile for.

    Args:
        target: The device that programs are made for.
        backend: Name of what would compile them, for the message.

    Raises:
        UnsupportedTarget: It is of another kind, or older than toolkits compile for.
    """
    if target.kind != "cuda":
        raise UnsupportedTarget(
            f"backend {backend!r} compiles for CUDA devices; target {target.name!r} is of kind "
            f"{target.kind!r}"
        )
    number = re.fullmatch(r"sm_(\d+)[af]?", target.processor)
    if number is None:
        raise UnsupportedTarget(
            f"target {target.name!r} has processor {target.processor!r}; a CUDA target's is its "
            "architecture, such as 'sm_80'"
        )
    if int(number.group(1)) < _OLDEST_CUDA:
        raise UnsupportedTarget(
            f"backend {backend!r} compiles for sm_{_OLDEST_CUDA} and later, as CUDA toolkits do; "
            f"target {target.name!r} is {target.processor}"
        )


def check_runs_here(target: Target, backend: str) -> None:
    """Refuses a CPU with instructions that this machine lacks: programs for it end there.

    Args:
        target: The CPU that programs are made for.
        backend: Name of what would run them, for the message.

    Raises:
        UnsupportedTarget: Names what is lacking.
    """
    lacking = processors.missing_features(target.features, detect_cpu().features)
    if lacking:
        raise UnsupportedTarget(
            f"backend {backend!r} runs programs on this machine, which lacks {', '.join(lacking)} "
            f"of target {target.name!r}"
        )


@frozen
class _CpuInfo:
    vendor: str
    family: int | None
    model: int | None
    features: tuple[str, ...]
    clock: float | None


def _read_cpu_info(path: Path) -> _CpuInfo:
    entries: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, colon, value = line.partition(":")
                if not colon and entries:  # the end of the first CPU: the others are alike
                    break
                entries[key.strip()] = value.strip()
    except OSError:
        entries = {}
    flags = entries.get("flags", "sse2").split()
    features = {
        processors.FEATURE_OF_FLAG[flag] for flag in flags if flag in processors.FEATURE_OF_FLAG
    }
    megahertz = _number(entries.get("cpu MHz"))
    return _CpuInfo(
        vendor=entries.get("vendor_id", ""),
        family=_integer(entries.get("cpu family")),
        model=_integer(entries.get("model")),
        features=tuple(sorted(features)),
        clock=megahertz * 1e6 if megahertz else None,
    )


def _caches(root: Path, cpus: list[int]) -> tuple[Cache, ...]:
    if not cpus:
        return ()
    first = root / CPU_FOLDER / f"cpu{cpus[0]}"
    siblings = parse_cpu_list(_read(first / "topology/thread_siblings_list")) or {cpus[0]}
    found: dict[int, Cache] = {}
    for folder in sorted((first / "cache").glob("index*")):
        level = _integer(_read(folder / "level"))
        size = _size(_read(folder / "size"))
        if _read(folder / "type") not in ("Data", "Unified") or not level or not size:
            continue
        shared = not parse_cpu_list(_read(folder / "shared_cpu_list")) <= siblings
        line = _integer(_read(folder / "coherency_line_size")) or 64
        found[level] = Cache(level, size, shared, line)
    return tuple(found[level] for level in sorted(found)) if 1 in found else ()


def _clock(root: Path, cpus: list[int]) -> float | None:
    if not cpus:
        return None
    path = root / CPU_FOLDER / f"cpu{cpus[0]}" / "cpufreq/base_frequency"
    kilohertz = _number(_read(path))
    return kilohertz * 1e3 if kilohertz else None


def _quota(root: Path) -> float | None:
    """Returns how many CPUs' time the control group allows, or None for no limit."""
    limits = []
    groups = _read(root / "proc/self/cgroup") or ""
    for line in groups.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            limits += _limits_up(root / "sys/fs/cgroup", path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for mount in (controllers, "cpu"):
                limits += _limits_up(root / "sys/fs/cgroup" / mount, path, _quota_v1)
    return min(limits, default=None)


def _limits_up(mount: Path, path: str, read: Callable[[Path], float | None]) -> list[float]:
    """Reads the limit of a group and of all above it; in a container the path may lie outside."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    folders = [mount.joinpath(*parts[:count]) for count in range(len(parts) + 1)]
    return [limit for limit in map(read, folders) if limit is not None]


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = (_read(folder / "cpu.max") or "max").partition(" ")
    return _ratio(_number(quota), _number(period))


def _quota_v1(folder: Path) -> float | None:
    return _ratio(
        _number(_read(folder / "cpu.cfs_quota_us")), _number(_read(folder / "cpu.cfs_period_us"))
    )


def _ratio(quota: float | None, period: float | None) -> float | None:
    return quota / period if quota and period and quota > 0 and period > 0 else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _size(text: str | None) -> int | None:
    match = re.fullmatch(r"(\d+)([KMG]?)", text or "")
    return int(match[1]) * _UNITS[match[2]] if match else None
