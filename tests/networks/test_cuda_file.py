"""Files of networks for CUDA devices: what was written is read, all else is one error."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.backends import CudaProgram, DeviceBuffer, KernelLaunch
from autotune.errors import InvalidValueError
from autotune.networks import NetworkTensor
from autotune.networks.cuda_file import cuda_network, open_cuda_network
from autotune.networks.cuda_network import DeviceCheck, DeviceProgram, NamedCall, plan_of_calls
from autotune.networks.graph import Requirement
from autotune.networks.plan.plan import Call, Copy, Place, Plan, Repeat
from autotune.targets import preset

LAUNCH = KernelLaunch("f_kernel", (2, 1, 1), (32, 1, 1), 0, ("A", "B", "S"))
PROGRAM = CudaProgram(b"\x7fELF code", (LAUNCH,), (DeviceBuffer("S", 64, True),))
WEIGHT = np.arange(4, dtype=np.float32)
IMAGE = NetworkTensor("image", (2,), "float32")
OUTPUT = NetworkTensor("output", (2, 2), "float32")
SEEN = NetworkTensor("check0", (2,), "int64")
CHECK = DeviceCheck(1, Requirement(0, (-3, 0), (2, 4)), "take")
CALLS = plan_of_calls(
    {"f": DeviceProgram(PROGRAM, ("A", "B"))},
    [NamedCall("f", ("w", "v")), NamedCall("f", ("x", "u"))],
    {"x": 8, "v": 16, "u": 16},
    {"w": WEIGHT},
    [(IMAGE, "x")],
    [(OUTPUT, "v"), (SEEN, "w")],
)
STEPS = tuple(Call("0", it.arguments) if isinstance(it, Call) else it for it in CALLS.steps)
PLAN = Plan(
    {"0": DeviceProgram(PROGRAM, ("A", "B"))},
    {"0": "f"},
    (*STEPS, Repeat(3, (Call("0", (Place("input"), Place("arena", 0, 512, (-256,)))),))),
    CALLS.constants,
    (),
    1024,
    CALLS.inputs,
    CALLS.outputs,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "network.cuda"
    cuda_network(PLAN, preset("h100"), [CHECK]).save(path)
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


def test_files_of_the_first_version_are_read(tmp_path: Path) -> None:
    """Calls on values by their names, without places."""
    path = tmp_path / "network.cuda"
    data = {
        "schema": "autotune.cuda_network",
        "version": 1,
        "target": preset("h100").to_json(),
        "programs": {"f": PROGRAM.to_json()},
        "calls": [
            {"task": "f", "arguments": {"A": "w", "B": "v"}},
            {"task": "f", "arguments": {"B": "u", "A": "x"}},
        ],
        "sizes": {"x": 8, "v": 16, "u": 16},
        "constants": {"w": 16},
        "inputs": [{"name": "image", "shape": [2], "dtype": "float32", "value": "x"}],
        "outputs": [
            {"name": "output", "shape": [2, 2], "dtype": "float32", "value": "v"},
            {"name": "check0", "shape": [2], "dtype": "int64", "value": "w"},
        ],
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("network.json", json.dumps(data))
        archive.writestr("constants/w", WEIGHT.tobytes())
    plan = open_cuda_network(path).plan
    assert (plan.programs, plan.steps) == (CALLS.programs, CALLS.steps)
    assert (plan.inputs, plan.outputs) == (CALLS.inputs, CALLS.outputs)
    assert isinstance(plan.steps[-1], Copy)
    data["sizes"]["v"] = 8  # type: ignore[index]
    assert "tensor 'output' is larger than its value" in refusal(changed(path, replaced(data)))


def replaced(new: Any) -> Any:
    def change(data: Any) -> None:
        data.update(new)

    return change


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
        (lambda data: data.update(version=3), "of version 3, and not 'autotune.cuda_network'"),
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
