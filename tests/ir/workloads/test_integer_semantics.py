"""Integers and truth values in the reference: of their own type, and exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from written import written

from autotune.ir.workloads import Workload, reference_outputs

LARGE = st.integers(-(2**63) + 1, 2**63 - 1)


def pointwise(op: str, dtype: str, count: int) -> Workload:
    stage = f"Y[i]: {dtype} = {op}(X[i], Z[i])"
    return written(f"X[i]: {dtype}, Z[i]: {dtype}", stage, name=op, i=count)


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
    workload = written("X[1]: uint64", "Y[i:1]: uint64 = X[i] + 1")
    largest = np.array([2**64 - 2], np.uint64)
    assert reference_outputs(workload, {"X": largest})["Y"][0] == 2**64 - 1


@pytest.mark.parametrize(("combiner", "wanted"), [("max", 0), ("min", 1)])
def test_the_identity_of_truth_values(combiner: str, wanted: int) -> None:
    (stage,) = written("X[3]: bool", f"Y[; k:3]: bool {combiner}= X[k]").stages
    assert stage.identity() == wanted


@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "int64"])
@pytest.mark.parametrize("largest", [3, 2**15 - 1, 2**63 - 1])
def test_sums_of_products_wrap_around(dtype: str, largest: int) -> None:
    kind = np.iinfo(dtype)
    high = min(kind.max, largest)
    product = f"C[i:2, j:2; k:3]: {dtype} += A[i, k] * B[k, j]"
    workload = written(f"A[2, 3]: {dtype}, B[3, 2]: {dtype}", product)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(max(kind.min, -high), high, it.shape, dtype) for it in workload.inputs)
    wanted = (a.astype(object) @ b.astype(object) - kind.min) % 2**kind.bits + kind.min
    assert reference_outputs(workload, {"A": a, "B": b})["C"].tolist() == wanted.tolist()
