"""Servers that are alike."""

from __future__ import annotations

import pytest
from attrs import evolve
from autotune_tvm.rpc.machine import RemoteMachine, described_machine

X86 = """host: {host}
kernel: 6.1.0
architecture: x86_64
cores: 8
ffi: 0.1.14
boot: {boot}
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R)  Xeon(R) Gold
stepping\t: 7
cpu MHz\t\t: {clock}
flags\t\t: fpu avx2 fma avx512f
processor\t: 1
model name\t: another
cpu MHz\t\t: 3000.0
"""

ARM = """host: pi
kernel: 6.6.0
architecture: aarch64
cores: 4
boot: b
processor\t: 0
Features\t: fp asimd asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd0b
"""


def machine(host: str = "a", boot: str = "1", clock: str = "2400.0") -> RemoteMachine:
    text = X86.format(host=host, boot=boot, clock=clock)
    return described_machine(text, f"{host}:9090", 1e-3, "llvm 22")


def test_what_is_read_of_x86() -> None:
    found = machine()
    assert found.device.startswith("Intel(R) Xeon(R) Gold GenuineIntel/6/85/7 avx2 fma avx512f ")
    assert (found.cores, found.kernel, found.architecture) == (8, "6.1.0", "x86_64")
    assert found.runtime == "ffi 0.1.14, llvm 22"
    assert found.clocks == "2400.0 3000.0"
    assert RemoteMachine.from_json(found.to_json()) == found


def test_what_is_read_of_arm() -> None:
    found = described_machine(ARM, "pi:9090", 1e-3)
    assert found.device.startswith("0x41/8/0x1/0xd0b asimd asimddp ")
    assert (found.cores, found.architecture, found.runtime) == (4, "aarch64", "")


def test_hosts_of_one_kind_are_alike_and_share_no_lease() -> None:
    one, other = machine("a", "1", "2400.0"), machine("b", "2", "800.0")
    assert one.differences(other) == []
    assert one.lease_group != other.lease_group
    assert machine("a", "1").lease_group == one.lease_group


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", "another"),
        ("cores", 4),
        ("kernel", "5.0"),
        ("architecture", "aarch64"),
        ("runtime", "ffi 0.2.0"),
    ],
)
def test_what_differs_is_named(name: str, value: object) -> None:
    one = machine()
    (said,) = evolve(one, **{name: value}).differences(one)
    assert said.startswith(f"{name} {value!r}, not ")


@pytest.mark.parametrize("text", ["", "nonsense", "cores: x\ncores: 3", ":\n::", "cores: -1"])
def test_little_is_known_of_a_machine_that_says_little(text: str) -> None:
    found = described_machine(text, "x:1", 1e-3)
    assert (found.cores, found.device, found.lease_group) == (1, "unknown", "x:1")
