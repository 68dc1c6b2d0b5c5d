"""Integers and truth values in the reference: of their own type, and exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.ir.expressions import Binary, Constant, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, reference_outputs

LARGE = st.integers(-(2**63) + 1, 2**63 - 1)


def pointwise(op: str, dtype: str, count: int) -> Workload:
    x, z = (Load(name, (var("i"),)) for name in "XZ")
    stage = Stage(Tensor("Y", (count,), dtype), (Axis("i", count),), Binary(op, x, z))
    inputs = tuple(Tensor(name, (count,), dtype) for name in "XZ")
    return Workload(op, inputs, (stage,), ("Y",))


@given(st.lists(st.tuples(LARGE, LARGE.filter(bool)), min_size=1, max_size=8))
def test_quotients_are_truncated_exactly(pairs: list[tuple[int, int]]) -> None:
    given = {
        name: np.array(part, np.int64)
        for name, part in zip("XZ", zip(*pairs, strict=True), strict=True)
    }
    found = reference_outputs(pointwise("div", "int64", len(pairs)), given)["Y"]
    wanted = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs]
    assert found.tolist() == wanted


def test_constants_have_their_type() -> None:
    body = Binary("add", Load("X", (var("i"),)), Constant(1, "uint64"))
    stage = Stage(Tensor("Y", (1,), "uint64"), (Axis("i", 1),), body)
    workload = Workload("add", (Tensor("X", (1,), "uint64"),), (stage,), ("Y",))
    largest = np.array([2**64 - 2], np.uint64)
    assert reference_outputs(workload, {"X": largest})["Y"][0] == 2**64 - 1


@pytest.mark.parametrize(("combiner", "wanted"), [("max", 0), ("min", 1)])
def test_the_identity_of_truth_values(combiner: str, wanted: int) -> None:
    axes = (Axis("k", 3, "reduce"),)
    stage = Stage(Tensor("Y", (), "bool"), axes, Load("X", (var("k"),)), combiner)
    assert stage.identity() == wanted


@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "int64"])
@pytest.mark.parametrize("largest", [3, 2**15 - 1, 2**63 - 1])
def test_sums_of_products_wrap_around(dtype: str, largest: int) -> None:
    kind = np.iinfo(dtype)
    high = min(kind.max, largest)
    axes = (Axis("i", 2), Axis("j", 2), Axis("k", 3, "reduce"))
    body = Binary("mul", Load("A", (var("i"), var("k"))), Load("B", (var("k"), var("j"))))
    stage = Stage(Tensor("C", (2, 2), dtype), axes, body, "add")
    inputs = (Tensor("A", (2, 3), dtype), Tensor("B", (3, 2), dtype))
    workload = Workload("product", inputs, (stage,), ("C",))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(max(kind.min, -high), high, it.shape, dtype) for it in inputs)
    wanted = (a.astype(object) @ b.astype(object) - kind.min) % 2**kind.bits + kind.min
    assert reference_outputs(workload, {"A": a, "B": b})["C"].tolist() == wanted.tolist()
