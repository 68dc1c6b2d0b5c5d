"""The energy observer on trees of files like those that the kernel shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from autotune_perf.energy import EnergyObserver

RANGE = 262_143_328_850
ALL = ("energy_joules_per_call", "package_joules_per_call", "dram_joules_per_call")


class Tree:
    """A folder like ``/sys/class/powercap``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def zone(self, folder: str, name: str, energy: int) -> None:
        """Make or set a counter, in microjoules."""
        path = self.root / folder
        path.mkdir(exist_ok=True)
        (path / "name").write_text(f"{name}\n")
        (path / "max_energy_range_uj").write_text(f"{RANGE}\n")
        (path / "energy_uj").write_text(f"{energy}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two packages, one with cores and memory; and a second interface to the first package."""
    tree = Tree(tmp_path)
    (tmp_path / "intel-rapl").mkdir()  # the control type itself, without a counter
    tree.zone("intel-rapl:0", "package-0", 1_000_000)
    tree.zone("intel-rapl:0:0", "core", 400_000)
    tree.zone("intel-rapl:0:1", "dram", 50_000)
    tree.zone("intel-rapl:1", "package-1", 7_000_000)
    tree.zone("intel-rapl-mmio:0", "package-0", 1_000_000)
    return tree


def test_joules_per_call_of_packages_and_memory(tree: Tree) -> None:
    observer = EnergyObserver(root=tree.root)
    found = observer.check()
    assert (found.reads, found.absent, found.reason) == (ALL, (), "")
    observer.before_run()
    tree.zone("intel-rapl:0", "package-0", 3_000_000)
    tree.zone("intel-rapl:0:0", "core", 900_000)
    tree.zone("intel-rapl:0:1", "dram", 550_000)
    tree.zone("intel-rapl:1", "package-1", 8_000_000)
    tree.zone("intel-rapl-mmio:0", "package-0", 3_000_000)
    observer.after_run()
    assert observer.readings(10) == pytest.approx(
        {
            "energy_joules_per_call": 0.35,
            "package_joules_per_call": 0.3,
            "dram_joules_per_call": 0.05,
        }
    )


def test_a_counter_that_begins_again(tree: Tree) -> None:
    tree.zone("intel-rapl:0", "package-0", RANGE - 1_000_000)
    observer = EnergyObserver(root=tree.root)
    observer.check()
    observer.before_run()
    tree.zone("intel-rapl:0", "package-0", 2_000_000)
    observer.after_run()
    assert observer.readings(1)["package_joules_per_call"] == pytest.approx(3.0)


def test_a_counter_that_has_not_moved_is_no_zero(tree: Tree) -> None:
    observer = EnergyObserver(root=tree.root)
    observer.check()
    for _ in range(2):
        observer.before_run()
        observer.after_run()
        assert observer.readings(1) == dict.fromkeys(ALL)


def test_memory_without_a_counter_is_absent(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.zone("intel-rapl:0", "package-0", 0)
    observer = EnergyObserver(root=tmp_path)
    found = observer.check()
    assert found.reads == ALL[:2] and found.absent == ALL[2:]
    assert found.reason == f"no energy counter of dram under {tmp_path}"
    observer.before_run()
    tree.zone("intel-rapl:0", "package-0", 500_000)
    observer.after_run()
    assert observer.readings(1) == {
        "energy_joules_per_call": 0.5,
        "package_joules_per_call": 0.5,
        "dram_joules_per_call": None,
    }


def test_a_machine_without_counters(tmp_path: Path) -> None:
    found = EnergyObserver(root=tmp_path / "nothing").check()
    assert found.reads == () and found.absent == ALL
    assert found.reason == f"no energy counters here (nothing under {tmp_path / 'nothing'})"


@pytest.mark.parametrize("damage", ["max_energy_range_uj", "energy_uj", "name"])
def test_a_zone_that_cannot_be_read_is_said_to_be_so(tmp_path: Path, damage: str) -> None:
    Tree(tmp_path).zone("intel-rapl:0", "package-0", 0)
    (tmp_path / "intel-rapl:0" / damage).unlink()
    found = EnergyObserver(root=tmp_path).check()
    assert found.reads == () and f"{tmp_path / 'intel-rapl:0'} cannot be read" in found.reason


@pytest.mark.needs("no root")
def test_counters_that_only_root_may_read(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in tree.root.glob("*/energy_uj"):
        file.chmod(0)
    found = EnergyObserver(root=tree.root).check()
    assert found.reads == () and "may be read by root only" in found.reason
