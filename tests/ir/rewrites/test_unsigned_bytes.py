"""Bytes are unsigned where all that use them say so, and every number stays what it was."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.rewrites.zero_points import infer_unsigned
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, random_inputs, reference_outputs

AXES = (Axis("i", 6),)
AT = var("i")


def stage(name: str, dtype: str, body: ScalarExpr) -> Stage:
    return Stage(Tensor(name, (6,), dtype), AXES, body)


def moved(source: str) -> ScalarExpr:
    """The element of a tensor, or of another place a constant."""
    inside = Binary("lt", IndexValue(AT), IndexValue(const(4)))
    return Select(inside, Load(source, (AT,)), Constant(-1, "int8"))


def used(source: str, unsigned: bool) -> ScalarExpr:
    """Widen an element, as a number with a sign or without one."""
    read: ScalarExpr = Load(source, (AT,))
    return Cast("int32", Cast("uint8", read) if unsigned else read)


@st.composite
def programs(draw: st.DrawFn) -> Workload:
    """Copies of two inputs of bytes, each of which some stages use."""
    known = ["a", "b"]
    stages: list[Stage] = []
    for number in range(draw(st.integers(0, 3))):
        source = draw(st.sampled_from(known))
        known.append(f"m{number}")
        made = st.sampled_from([moved(source), Cast("int8", used(source, True))])
        stages.append(stage(known[-1], "int8", draw(made)))
    for number, name in enumerate(known):
        for sign in draw(st.sets(st.booleans())):
            stages.append(stage(f"u{number}{int(sign)}", "int32", used(name, sign)))
    stages.append(stage("last", "int32", used(draw(st.sampled_from(known)), draw(st.booleans()))))
    outputs = tuple(it.name for it in stages if it.output.dtype == "int32")
    inputs = tuple(Tensor(name, (6,), "int8") for name in "ab")
    return Workload("bytes", inputs, tuple(stages), outputs)


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


def dtypes(*stages: Stage) -> dict[str, str]:
    workload = Workload("bytes", (Tensor("a", (6,), "int8"),), stages, (stages[-1].name,))
    return {name: it.dtype for name, it in infer_unsigned(workload).tensors.items()}


def test_what_moves_bytes_moves_their_meaning() -> None:
    found = dtypes(stage("m", "int8", moved("a")), stage("o", "int32", used("m", True)))
    assert found == {"a": "uint8", "m": "uint8", "o": "int32"}


def test_bytes_that_are_used_both_ways_are_signed() -> None:
    copy, one = stage("m", "int8", moved("a")), stage("s", "int32", used("a", False))
    assert dtypes(copy, one, stage("o", "int32", used("m", True)))["a"] == "int8"
    assert dtypes(stage("o", "int32", used("a", False)))["a"] == "int8"


def test_the_bits_of_constants_stay() -> None:
    made = infer_unsigned(
        Workload(
            "bytes",
            (Tensor("a", (6,), "int8"),),
            (stage("m", "int8", moved("a")), stage("o", "int32", used("m", True))),
            ("o",),
        )
    )
    body = made.stage("m").body
    assert isinstance(body, Select) and body.on_false == Constant(255, "uint8")
    assert made.stage("o").body == Cast("int32", Load("m", (AT,)))
