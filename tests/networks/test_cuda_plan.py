"""Where the values of a network lie on a device: never in one another's way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.backends import CudaProgram, DeviceBuffer
from autotune.errors import InvalidValueError
from autotune.networks import NetworkTensor
from autotune.networks.cuda_plan import (
    DeviceCallPlan,
    DevicePlan,
    calls_by_task,
    place_device_values,
)


def plan_of(
    sizes: dict[str, int],
    calls: list[tuple[str, ...]],
    inputs: list[str],
    outputs: list[str],
) -> DevicePlan:
    """Calls by the values that they take, the last of which they compute."""

    def tensors(names: list[str]) -> list[NetworkTensor]:
        return [NetworkTensor(name, (sizes.get(name, 2),), "uint8") for name in names]

    buffers = DeviceBuffer("S", 300, True), DeviceBuffer("T", 10, True)
    return DevicePlan(
        {"f": CudaProgram(b"", (), buffers), "g": CudaProgram(b"", ())},
        [DeviceCallPlan("f", dict(zip("ABCD", values, strict=False))) for values in calls],
        sizes,
        {"w": np.zeros(2, np.uint8)},
        tensors(inputs),
        inputs,
        tensors(outputs),
        outputs,
    )


@st.composite
def plans(draw: st.DrawFn) -> DevicePlan:
    """Random networks: every call reads values that are there, and computes a new one."""
    sizes = {"x": draw(st.integers(1, 2000)), "y": draw(st.integers(1, 2000))}
    known, calls = ["x", "y", "w"], []
    for number in range(draw(st.integers(0, 12))):
        read = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        sizes[f"v{number}"] = draw(st.integers(1, 3000))
        calls.append((*read, f"v{number}"))
        known.append(f"v{number}")
    outputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    return plan_of(sizes, calls, ["x", "y"], outputs)


@settings(max_examples=200, deadline=None)
@given(plans())
def test_a_network_computes_the_same_in_shared_memory(plan: DevicePlan) -> None:
    placed, whole = place_device_values(plan)
    memory = np.zeros(whole, np.int64)
    own: dict[str, int] = {"w": -7}

    def write(name: str, value: int) -> None:
        own[name] = value
        if name in placed:
            assert placed[name] % 256 == 0
            memory[placed[name] : placed[name] + plan.sizes[name]] = value

    def read(name: str) -> int:
        if name in placed:
            part = memory[placed[name] : placed[name] + plan.sizes[name]]
            assert (part == own[name]).all(), name
        return own[name]

    for number, name in enumerate(plan.input_values):
        write(name, number + 1)
    # Twice: inputs are put in place once and timed again and again.
    for _ in range(2):
        for number, call in enumerate(plan.calls):
            *operands, result = call.arguments.values()
            write(result, 31 * number + sum(map(read, operands)))
        for name in plan.output_values:
            read(name)


def test_a_chain_takes_the_memory_of_two_values() -> None:
    sizes = {"x": 1000, **{f"v{n}": 1000 for n in range(20)}}
    calls = [(f"v{n - 1}" if n else "x", f"v{n}") for n in range(20)]
    _, whole = place_device_values(plan_of(sizes, calls, ["x"], ["v19"]))
    assert whole <= 4 * 1024


def test_scratch_memory_is_that_of_the_largest_program() -> None:
    plan = plan_of({"x": 8, "v": 8}, [("x", "v")], ["x"], ["v"])
    assert plan.scratch_bytes == 512 + 256
    assert plan.scratch("f", 1024) == {"S": 1024, "T": 1024 + 512}
    assert [(task, len(calls)) for task, calls in calls_by_task(plan)] == [("f", 1)]
    with pytest.raises(InvalidValueError, match="uses the value 'z', which nothing is"):
        plan_of({"x": 8, "v": 8}, [("z", "v")], ["x"], ["v"])
