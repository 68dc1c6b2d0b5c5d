"""Files of networks for CUDA devices: what was written is read, all else is one error."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.backends import CudaProgram, DeviceBuffer, KernelLaunch
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks import NetworkTensor
from autotune.runtime.calling import DeviceCheck
from autotune.runtime.loaded import (
    DeviceProgram,
    device_steps,
    scratch_addresses,
    scratch_bytes,
)
from autotune.runtime.network import CudaNetwork, open_cuda_network
from autotune.runtime.plan import (
    Call,
    Constant,
    Copy,
    HostCall,
    HostOperator,
    Place,
    Plan,
    Repeat,
    Requirement,
)
from autotune.targets import preset

LAUNCH = KernelLaunch("f_kernel", (2, 1, 1), (32, 1, 1), 0, ("A", "B", "S"))
PROGRAM = CudaProgram(b"\x7fELF code", (LAUNCH,), (DeviceBuffer("S", 64, True),))
WEIGHT = np.arange(4, dtype=np.float32)
IMAGE = NetworkTensor("image", (2,), "float32")
OUTPUT = NetworkTensor("output", (2, 2), "float32")
SEEN = NetworkTensor("check0", (2,), "int64")
CHECK = DeviceCheck(1, Requirement(0, (-3, 0), (2, 4)), "take")
ARENA = Place("arena", 0, 256), Place("arena", 0, 512, (-256,))
PLAN = Plan(
    {"0": DeviceProgram(PROGRAM, ("A", "B"))},
    {"0": "f"},
    (
        Call("0", (Place("constant"), Place("output"))),
        Call("0", (Place("input"), ARENA[0])),
        Copy(Place("constant"), Place("output", 1), 16),
        Repeat(3, (Call("0", (Place("input"), ARENA[1])),)),
    ),
    (Constant(WEIGHT, WEIGHT.nbytes),),
    (),
    1024,
    (IMAGE,),
    (OUTPUT, SEEN),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "network.cuda"
    CudaNetwork(PLAN, preset("h100"), [CHECK]).save(path)
    return path


def test_what_was_written_is_read(path: Path) -> None:
    network = open_cuda_network(path)
    plan = network.plan
    assert (plan.programs, plan.tasks, plan.steps) == (PLAN.programs, PLAN.tasks, PLAN.steps)
    assert (plan.inputs, plan.outputs) == (PLAN.inputs, PLAN.outputs)
    assert plan.arena_bytes == 1024
    assert (network.checks, network.outputs) == ((CHECK,), (OUTPUT,))
    array = plan.constants[0].array
    assert array is not None
    np.testing.assert_array_equal(array.view(np.float32), WEIGHT)


def refusal(path: Path) -> str:
    with pytest.raises(InvalidValueError) as refused:
        open_cuda_network(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def changed(path: Path, change: Any) -> Path:
    """The file with another description."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(contents["network.json"])
    change(data)
    contents["network.json"] = json.dumps(data).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data.update(version=1), "of version 1, and not 'autotune.cuda_network'"),
        (lambda data: data.update(schema="other"), "it is 'other' of version 2"),
        (lambda data: data.pop("steps"), "steps"),
        (lambda data: data.update(arena_bytes=-1), "-1 is no size"),
        (lambda data: data.update(arena_bytes=300), "offset=512, strides=()) is outside"),
        (lambda data: data["steps"][0].update(program=1), "calls '1', which is no program"),
        (lambda data: data["steps"][0]["arguments"][0].__setitem__(1, 9), "which nothing is"),
        (lambda data: data["steps"][0]["arguments"][0].__setitem__(0, "v"), "no kind of memory"),
        (lambda data: data["steps"][0]["arguments"].pop(), "1 arrays to a program of 2"),
        (lambda data: data["constants"].__setitem__(0, 3), "constant '0' has 16 bytes, and not 3"),
        (lambda data: data["inputs"][0].update(dtype="nonsense"), "nonsense"),
        (lambda data: data["checks"][0].update(output=2), "output 2 of 2 is checked"),
        (
            lambda data: data["programs"][0]["program"].update(cubin="%"),
            "no program of CUDA kernels",
        ),
        (lambda data: data.update(target=preset("zen4").to_json()), "for a target of kind 'cpu'"),
    ],
)
def test_other_files_are_refused_in_one_line(path: Path, change: Any, why: str) -> None:
    assert why in refusal(changed(path, change))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nonsense", None])
def test_files_that_are_no_archive_are_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "network.cuda"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidValueError, match="no network for a CUDA device that can be read"):
        open_cuda_network(path)


def test_scratch_memory_is_that_of_the_largest_program() -> None:
    buffers = DeviceBuffer("S", 300, True), DeviceBuffer("T", 10, True)
    small, large = (CudaProgram(b"", (), buffers[:count]) for count in (1, 2))
    programs = {"f": DeviceProgram(small, ()), "g": DeviceProgram(large, ())}
    plan = Plan(programs, {}, (), (), (), 0, (), ())
    assert scratch_bytes(plan) == 512 + 256
    assert scratch_addresses(large, 1024) == {"S": 1024, "T": 1024 + 512}


def test_what_no_device_does_is_refused_by_name() -> None:
    def plan_of(*steps: Any) -> Plan[DeviceProgram]:
        program = DeviceProgram(CudaProgram(b"", ()), ("A",))
        return Plan({"f": program}, {"f": "f"}, steps, (), (), 512, (), ())

    call = Call("f", (Place("arena", 0, 0, (2,)),))
    steps = device_steps(plan_of(Repeat(3, (call, Repeat(2, (call,))))))
    offsets = [place.offset for step in steps for place in getattr(step, "arguments", ())]
    assert offsets == [0, 0, 0, 2, 2, 2, 4, 4, 4]
    with pytest.raises(UnsupportedWorkload, match=r"more than 100,000 calls of programs"):
        device_steps(plan_of(Repeat(100_001, (call,))))
    with pytest.raises(UnsupportedWorkload, match="'sort' of 'first' runs on the host, and not"):
        device_steps(plan_of(HostCall(HostOperator("sort"), (), (), "first")))
