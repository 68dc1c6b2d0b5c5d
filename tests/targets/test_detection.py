from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UnsupportedTarget
from autotune.targets import Cache, Target
from autotune.targets.detection import detect_cpu
from autotune.targets.processors import FEATURE_OF_FLAG, PROCESSORS, identify, missing_features

FLAG_OF_FEATURE = {feature: flag for flag, feature in FEATURE_OF_FLAG.items()}


class Machine:
    """A folder that looks like the root of a Linux machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def cpu_info(self, name: str, *, vendor: str = "GenuineIntel", model: int = 0) -> None:
        features = next(found.features for found in PROCESSORS if found.name == name)
        flags = " ".join(["fpu", *(FLAG_OF_FEATURE[feature] for feature in features)])
        block = (
            f"vendor_id\t: {vendor}\ncpu family\t: 6\nmodel\t\t: {model}\n"
            f"cpu MHz\t\t: 2000.000\nflags\t\t: {flags}\n\n"
        )
        self.write("proc/cpuinfo", block * 4)

    def topology(self, siblings: list[str]) -> None:
        for cpu, text in enumerate(siblings):
            folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
            self.write(f"{folder}/thread_siblings_list", text + "\n")

    def cache(self, index: int, level: int, kind: str, size: str, shared: str) -> None:
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        for name, text in (("level", str(level)), ("type", kind), ("size", size)):
            self.write(f"{folder}/{name}", text + "\n")
        self.write(f"{folder}/shared_cpu_list", shared + "\n")

    def detect(self, cpus: int = 4) -> Target:
        return detect_cpu(self.root, affinity=range(cpus), system="Linux", machine="x86_64")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_this_machine() -> None:
    target = detect_cpu()
    assert target.kind == "cpu" and target.cores >= 1 and "sse2" in target.features
    assert target.caches and target.caches[0].level == 1
    assert target.peak_flops["float32"] > 1e9
    assert Target.from_json(target.to_json()) == target


def test_detection_reads_few_files_and_starts_no_process(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    open_path = Path.open

    def counted(self: Path, *arguments: Any, **options: Any) -> Any:
        read.append(self)
        return open_path(self, *arguments, **options)

    def refused(*arguments: Any, **options: Any) -> None:
        raise AssertionError("detection starts a process")

    machine.cpu_info("cascadelake", model=85)
    machine.topology([str(cpu) for cpu in range(256)])
    monkeypatch.setattr(Path, "open", counted)
    monkeypatch.setattr(subprocess, "Popen", refused)
    assert machine.detect(256).cores == 256
    assert len([path for path in read if path.name == "cpuinfo"]) == 1
    # One for each CPU, which tells its core, and some for the whole.
    assert 256 <= len(read) <= 256 + 20


def test_an_ordinary_machine(machine: Machine) -> None:
    machine.cpu_info("cascadelake", model=85)
    machine.topology(["0,2", "1,3", "0,2", "1,3"])
    machine.cache(0, 1, "Data", "32K", "0,2")
    machine.cache(1, 1, "Instruction", "32K", "0,2")
    machine.cache(2, 2, "Unified", "1024K", "0,2")
    machine.cache(3, 3, "Unified", "33M", "0-3")
    target = machine.detect()
    assert (target.name, target.processor, target.cores) == ("cascadelake-2core", "cascadelake", 2)
    assert target.caches == (
        Cache(1, 32 << 10, False),
        Cache(2, 1 << 20, False),
        Cache(3, 33 << 20, True),
    )
    assert (target.vector_bytes, target.vector_registers, target.fma_units) == (64, 32, 2)
    assert target.peak_flops["float32"] == 2 * 2e9 * 2 * 16 * 2


def test_only_the_cpus_that_may_be_used_count(machine: Machine) -> None:
    machine.cpu_info("haswell", model=63)
    machine.topology(["0", "1", "2", "3"])
    assert machine.detect(4).cores == 4
    assert machine.detect(1).cores == 1
    assert machine.detect(0).cores == 1


def test_a_container_that_shows_nothing(machine: Machine) -> None:
    target = machine.detect()
    assert (target.processor, target.cores, target.features) == ("x86-64", 4, ("sse2",))
    assert [cache.level for cache in target.caches] == [1, 2, 3]


def test_garbage_is_ignored(machine: Machine) -> None:
    machine.write("proc/cpuinfo", "model : x\ncpu MHz : nan\nflags : avx512f\nno colon here\n\n")
    machine.write("proc/self/cgroup", "garbage\n0::/\n1:cpu\n")
    machine.write("sys/fs/cgroup/cpu.max", "lots of time\n")
    machine.cache(0, 1, "Data", "many", "0-x")
    assert machine.detect().processor == "x86-64"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 4),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/x\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "290000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
    ],
)
def test_quota_of_the_control_group(machine: Machine, files: dict[str, str], cores: int) -> None:
    machine.cpu_info("haswell", model=63)
    for path, text in files.items():
        machine.write(path, text)
    assert machine.detect().cores == cores


def test_masked_features_never_give_a_name_that_implies_them(machine: Machine) -> None:
    machine.cpu_info("haswell", model=143)
    assert machine.detect().processor == "haswell"


def test_features_outrank_an_old_model_number(machine: Machine) -> None:
    machine.cpu_info("sapphirerapids", model=167)
    assert machine.detect().processor == "sapphirerapids"


@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda processor: processor.name)
def test_every_processor_is_recognised(processor: object) -> None:
    found = next(item for item in PROCESSORS if item is processor)
    family, model = found.models[0] if found.models else (None, None)
    assert identify(found.vendor, family, model, found.features) is found


def test_features_that_compilers_do_not_use_by_themselves_may_be_missing() -> None:
    """Linux hides rdseed of Zen 5."""
    zen5 = next(found for found in PROCESSORS if found.name == "znver5")
    features = set(zen5.features)
    assert identify(zen5.vendor, 26, 2, features - {"rdseed"}) is zen5
    assert identify(zen5.vendor, 26, 2, features - {"avx512vnni"}).name == "znver3"
    assert missing_features(features, features - {"rdseed", "avx512vnni"}) == ["avx512vnni"]


def test_an_unknown_vendor_gets_a_generic_name() -> None:
    zen3 = next(found for found in PROCESSORS if found.name == "znver3")
    assert identify("HygonGenuine", 24, 1, zen3.features).name == "x86-64-v3"


@pytest.mark.parametrize(("system", "arch"), [("Darwin", "x86_64"), ("Linux", "aarch64")])
def test_other_platforms_are_refused(system: str, arch: str) -> None:
    with pytest.raises(UnsupportedTarget, match="only Linux on x86-64 is supported"):
        detect_cpu(system=system, machine=arch)
