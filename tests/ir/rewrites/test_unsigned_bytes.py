"""Bytes are unsigned where all that use them say so, and every number stays what it was."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from written import written

from autotune.ir.expressions import Cast, Constant, Load, Select, var
from autotune.ir.rewrites.zero_points import infer_unsigned
from autotune.ir.workloads import Workload, random_inputs, reference_outputs


def moved(name: str, source: str) -> str:
    """The element of a tensor, or of another place a constant."""
    return f"{name}[i:6]: int8 = {source}[i] if i < 4 else -1"


def used(name: str, source: str, unsigned: bool) -> str:
    """Widen an element, as a number with a sign or without one."""
    read = f"uint8({source}[i])" if unsigned else f"{source}[i]"
    return f"{name}[i:6]: int32 = int32({read})"


def again(name: str, source: str) -> str:
    """The element of a tensor, widened without a sign and made a byte again."""
    return f"{name}[i:6]: int8 = int8(int32(uint8({source}[i])))"


@st.composite
def programs(draw: st.DrawFn) -> Workload:
    """Copies of two inputs of bytes, each of which some stages use."""
    known = ["a", "b"]
    stages: list[str] = []
    for number in range(draw(st.integers(0, 3))):
        source, name = draw(st.sampled_from(known)), f"m{number}"
        known.append(name)
        stages.append(draw(st.sampled_from([moved, again]))(name, source))
    outputs = ["last"]
    for number, name in enumerate(known):
        for sign in draw(st.sets(st.booleans())):
            outputs.append(f"u{number}{int(sign)}")
            stages.append(used(outputs[-1], name, sign))
    stages.append(used("last", draw(st.sampled_from(known)), draw(st.booleans())))
    return written("a[6]: int8, b[6]: int8", *stages, outputs=" ".join(outputs))


@given(programs())
@settings(max_examples=60)
def test_no_number_changes(workload: Workload) -> None:
    made = infer_unsigned(workload)
    arrays = random_inputs(workload, np.random.default_rng(0))
    given_ = {it.name: arrays[it.name].view(it.dtype) for it in made.inputs}
    before, after = reference_outputs(workload, arrays), reference_outputs(made, given_)
    for name in workload.outputs:
        np.testing.assert_array_equal(after[name], before[name])
    assert infer_unsigned(made) == made


def dtypes(*stages: str) -> dict[str, str]:
    made = infer_unsigned(written("a[6]: int8", *stages))
    return {name: it.dtype for name, it in made.tensors.items()}


def test_what_moves_bytes_moves_their_meaning() -> None:
    found = dtypes(moved("m", "a"), used("o", "m", True))
    assert found == {"a": "uint8", "m": "uint8", "o": "int32"}


def test_bytes_that_are_used_both_ways_are_signed() -> None:
    assert dtypes(moved("m", "a"), used("s", "a", False), used("o", "m", True))["a"] == "int8"
    assert dtypes(used("o", "a", False))["a"] == "int8"


def test_the_bits_of_constants_stay() -> None:
    made = infer_unsigned(written("a[6]: int8", moved("m", "a"), used("o", "m", True)))
    body = made.stage("m").body
    assert isinstance(body, Select) and body.on_false == Constant(255, "uint8")
    assert made.stage("o").body == Cast("int32", Load("m", (var("i"),)))
