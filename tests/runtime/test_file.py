"""Files of networks for CUDA devices: what was written is read, all else is one error."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.backends import CudaProgram, DeviceBuffer, KernelLaunch
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks import NetworkTensor
from autotune.runtime.calling import DeviceCheck
from autotune.runtime.file import NamedCall, plan_of_calls
from autotune.runtime.loaded import (
    DeviceProgram,
    device_steps,
    scratch_addresses,
    scratch_bytes,
)
from autotune.runtime.network import CudaNetwork, open_cuda_network
from autotune.runtime.plan import (
    Call,
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


BUFFERS = DeviceBuffer("S", 300, True), DeviceBuffer("T", 10, True)


def plan_with(
    sizes: dict[str, int],
    calls: list[tuple[str, ...]],
    inputs: list[str],
    outputs: list[str],
) -> Plan[DeviceProgram]:
    """Calls by the values that they take, the last of which they compute."""

    def tensors(names: list[str]) -> list[tuple[NetworkTensor, str]]:
        return [(NetworkTensor(name, (sizes.get(name, 2),), "uint8"), name) for name in names]

    programs = {
        "f": DeviceProgram(CudaProgram(b"", (), BUFFERS), ("A",)),
        "g": DeviceProgram(CudaProgram(b"", ()), ()),
    }
    return plan_of_calls(
        programs,
        [NamedCall("f", values) for values in calls],
        sizes,
        {"w": np.zeros(2, np.uint8)},
        tensors(inputs),
        tensors(outputs),
    )


Drawn = tuple[dict[str, int], list[tuple[str, ...]], list[str]]


@st.composite
def networks(draw: st.DrawFn) -> Drawn:
    """Random networks: every call reads values that are there, and computes a new one."""
    sizes = {"x": draw(st.integers(1, 2000)), "y": draw(st.integers(1, 2000))}
    known, calls = ["x", "y", "w"], []
    for number in range(draw(st.integers(0, 12))):
        read = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        sizes[f"v{number}"] = draw(st.integers(1, 3000))
        calls.append((*read, f"v{number}"))
        known.append(f"v{number}")
    return sizes, calls, draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))


@settings(max_examples=200, deadline=None)
@given(networks())
def test_a_network_computes_the_same_in_shared_memory(drawn: Drawn) -> None:
    sizes, calls, outputs = drawn
    plan = plan_with(sizes, calls, ["x", "y"], outputs)
    memory: dict[tuple[str, int], Any] = {("arena", 0): np.zeros(plan.arena_bytes, np.int64)}
    for kind, tensors in (("input", plan.inputs), ("output", plan.outputs)):
        for number, tensor in enumerate(tensors):
            memory[kind, number] = np.zeros(tensor.shape, np.int64)
    memory["constant", 0] = np.full(2, -7)
    own = {"x": 1, "y": 2, "w": -7}

    def part(place: Place, size: int) -> Any:
        assert place.offset % 256 == 0
        return memory[place.kind, place.number][place.offset :][:size]

    memory["input", 0][:], memory["input", 1][:] = 1, 2
    # Twice: inputs are put in place once and timed again and again.
    for _ in range(2):
        for number, (call, names) in enumerate(zip(plan.steps, calls, strict=False)):
            assert isinstance(call, Call)
            for name, place in zip(names[:-1], call.arguments, strict=False):
                assert (part(place, sizes.get(name, 2)) == own[name]).all(), name
            own[names[-1]] = 31 * number + sum(own[name] for name in names[:-1])
            part(call.arguments[-1], sizes[names[-1]])[:] = own[names[-1]]
        for copy in plan.steps[len(calls) :]:
            assert not isinstance(copy, (Call, HostCall, Repeat))
            part(copy.target, copy.bytes)[:] = part(copy.source, copy.bytes)
        for number, name in enumerate(outputs):
            assert (memory["output", number] == own[name]).all(), name


def test_a_chain_takes_the_memory_of_two_values() -> None:
    sizes = {"x": 1000, **{f"v{n}": 1000 for n in range(20)}}
    calls = [(f"v{n - 1}" if n else "x", f"v{n}") for n in range(20)]
    assert plan_with(sizes, calls, ["x"], ["v19"]).arena_bytes <= 4 * 1024


def test_scratch_memory_is_that_of_the_largest_program() -> None:
    plan = plan_with({"x": 8, "v": 8}, [("x", "v")], ["x"], ["v"])
    assert scratch_bytes(plan) == 512 + 256
    assert scratch_addresses(plan.programs["f"].program, 1024) == {"S": 1024, "T": 1024 + 512}
    assert plan.task_names == ("f",)
    with pytest.raises(InvalidValueError, match="uses the value 'z', which nothing is"):
        plan_with({"x": 8, "v": 8}, [("z", "v")], ["x"], ["v"])


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
