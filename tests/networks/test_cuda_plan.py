"""Plans of calls on values by name: values share memory, and are never in one another's way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.backends import CudaProgram, DeviceBuffer
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks import NetworkTensor
from autotune.networks.cuda_network import (
    DeviceProgram,
    NamedCall,
    device_steps,
    plan_of_calls,
    scratch_addresses,
    scratch_bytes,
)
from autotune.networks.graph import HostOperator
from autotune.networks.plan.plan import Call, HostCall, Place, Plan, Repeat

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
