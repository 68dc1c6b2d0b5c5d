from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.process.memory import (
    affordable_workers,
    available_memory,
    default_memory_limit,
    may_build,
    resident_bytes,
)

GIB = 1 << 30
SIZES = st.integers(0, 1 << 44)


def make_root(
    root: Path,
    groups: dict[str, str],
    cgroup: str,
    mountinfo: str,
    total: int = 64,
    free: int = 32,
) -> Path:
    """A file system with what is read; ``groups`` are files below ``sys/fs/cgroup``."""
    for name, text in {
        "proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\nMemFree: 1 kB\n"
        f"MemAvailable: {32 * GIB // 1024} kB\nHugePages_Total: 0\n",
        "proc/self/cgroup": cgroup,
        "proc/self/mountinfo": mountinfo,
        **{f"sys/fs/cgroup/{name}": text for name, text in groups.items()},
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


VERSION_2 = "30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
VERSION_1 = "35 31 0:32 TOP /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    root = make_root(tmp_path, {}, "", "")
    assert available_memory(root) == 32 * GIB
    assert default_memory_limit(root) == int(64 * GIB * 0.8)


def test_version_2_the_tightest_of_nested_groups_counts(tmp_path: Path) -> None:
    root = make_root(
        tmp_path,
        {
            "user/memory.max": f"{16 * GIB}\n",
            "user/memory.current": f"{12 * GIB}\n",
            "user/memory.stat": f"anon 1\ninactive_file {2 * GIB}\nactive_file {GIB}\n",
            "user/job/memory.max": "max\n",
            "user/job/memory.current": f"{GIB}\n",
        },
        "0::/user/job\n",
        VERSION_2,
    )
    # The cache of inactive files can be had.
    assert available_memory(root) == 6 * GIB
    assert default_memory_limit(root) == int(16 * GIB * 0.8)


def test_version_1_beside_version_2_without_the_controller(tmp_path: Path) -> None:
    root = make_root(
        tmp_path,
        {
            "memory/box/memory.limit_in_bytes": f"{4 * GIB}",
            "memory/box/memory.usage_in_bytes": f"{3 * GIB}",
            "memory/memory.limit_in_bytes": f"{0x7FFFFFFFFFFFF000}",
            "unified/cgroup.procs": "",
        },
        "4:memory:/box\n1:cpu:/other\n0::/\n",
        VERSION_1.replace("TOP", "/")
        + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    )
    assert available_memory(root) == GIB
    assert default_memory_limit(root) == int(4 * GIB * 0.8)


@pytest.mark.parametrize("path", ["/docker/123", "/docker/123/inner", "/elsewhere"])
def test_a_container_that_sees_a_part_of_the_hierarchy(tmp_path: Path, path: str) -> None:
    root = make_root(
        tmp_path,
        {
            "memory/memory.limit_in_bytes": f"{2 * GIB}",
            "memory/memory.usage_in_bytes": f"{GIB}",
        },
        f"4:memory:{path}\n",
        VERSION_1.replace("TOP", "/docker/123"),
    )
    assert available_memory(root) == GIB


def test_more_used_than_allowed_is_nothing_left(tmp_path: Path) -> None:
    groups = {"memory.max": f"{GIB}", "memory.current": f"{2 * GIB}"}
    assert available_memory(make_root(tmp_path, groups, "0::/\n", VERSION_2)) == 0


def test_this_machine() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_memory() <= total
    assert 0 < default_memory_limit() <= total


def test_what_a_process_occupies() -> None:
    code = "data = bytearray(64 << 20); print(flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        assert 64 << 20 <= resident_bytes(process.pid) < 256 << 20
        process.stdin.write(b"\n")
        process.stdin.close()
        process.wait()
        assert resident_bytes(process.pid) == 0


@given(st.integers(1, 1000), SIZES, SIZES)
def test_affordable_workers(wanted: int, bytes_each: int, available: int) -> None:
    count = affordable_workers(wanted, bytes_each, available)
    assert 1 <= count <= wanted
    assert count == 1 or count * bytes_each <= available
    assert count == wanted or (count + 1) * bytes_each > available


def test_affordable_workers_asks_the_machine() -> None:
    assert affordable_workers(7, 1) == 7
    assert affordable_workers(7, 1 << 60) == 1


@given(SIZES, SIZES, st.integers(0, 64), SIZES)
def test_may_build(available: int, largest: int, running: int, more: int) -> None:
    if may_build(available, largest, running):
        # With more memory, smaller builds or fewer of them, it may too.
        assert may_build(available + more, largest, running)
        assert may_build(available, max(0, largest - more), running)
        assert may_build(available, largest, max(0, running - 1))
        assert running == 0 or available >= largest
    assert may_build(available, largest, 0)
    assert may_build(available, 0, running)
