"""Reductions by updates become stages that compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    var,
)
from autotune.ir.rewrites.reductions import Reduction, combined, stages_of
from autotune.ir.workloads import Axis, Tensor, Workload, reference_outputs
from autotune.ir.workloads.reference import evaluate_body

NUMPY = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
STARTS = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}
ELEMENT = Load("X", (var("i"), var("k")))
AXES = (Axis("i", 3), Axis("k", 5, "reduce"))
X = Tensor("X", (3, 5), "float32")


def before(name: str) -> Load:
    return Load(name, (var("i"),))


def computed(reduction: Reduction, x: Any, given: Tensor = X) -> dict[str, Any]:
    """The outputs by the stages."""
    stages = stages_of(reduction, {given.name: given}, lambda name: name)
    names = tuple(output.name for output in reduction.outputs)
    return reference_outputs(Workload("made", (given,), stages, names), {given.name: x})


def updated(reduction: Reduction, x: Any) -> dict[str, Any]:
    """The outputs by the updates, one point after the other."""
    rows, columns = x.shape
    own = {
        output.name: np.full(output.shape, start.value, np.result_type(type(start.value)))
        for output, start in zip(reduction.outputs, reduction.starts, strict=True)
    }
    for i in range(rows):
        for k in range(columns):
            grid = {"i": np.array(i), "k": np.array(k)}
            values = [evaluate_body(it, grid, {"X": x, **own}) for it in reduction.updates]
            for output, value in zip(reduction.outputs, values, strict=True):
                own[output.name][i] = value
    return own


@settings(max_examples=30, deadline=None)
@given(
    combiners=st.lists(st.sampled_from(sorted(NUMPY)), min_size=1, max_size=3),
    swapped=st.booleans(),
    seed=st.integers(0, 99),
)
def test_each_of_several_results_is_a_stage(
    combiners: list[str], swapped: bool, seed: int
) -> None:
    updates: list[ScalarExpr] = []
    for place, combiner in enumerate(combiners):
        pair = (before(f"Y{place}"), Binary("mul", ELEMENT, ELEMENT) if place else ELEMENT)
        updates.append(Binary(combiner, *(pair[::-1] if swapped else pair)))
    reduction = Reduction(
        tuple(Tensor(f"Y{place}", (3,), "float32") for place in range(len(combiners))),
        AXES,
        tuple(updates),
        tuple(Constant(STARTS[combiner], "float32") for combiner in combiners),
    )
    x = np.random.default_rng(seed).integers(-3, 4, X.shape).astype(np.float32)
    found, wanted = computed(reduction, x), updated(reduction, x)
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values)


def arg(
    index: ScalarExpr, value: ScalarExpr, place: ScalarExpr, element: ScalarExpr = ELEMENT
) -> Reduction:
    """A value and its index, chosen where the conditions ``index`` and ``value`` keep them."""
    return Reduction(
        (Tensor("P", (3,), "int32"), Tensor("V", (3,), "float32")),
        AXES,
        (Select(index, before("P"), place), Select(value, before("V"), element)),
        (Constant(-1, "int32"), Constant(float("-inf"), "float32")),
    )


K = IndexValue(var("k"))
FIRST = Binary("ge", before("V"), ELEMENT)
LAST = Binary("gt", before("V"), ELEMENT)
BEYOND = Binary("gt", ELEMENT, Constant(1.0, "float32"))
BY_INDEX = Binary(
    "or",
    LAST,
    Binary("and", Binary("eq", ELEMENT, before("V")), Binary("lt", before("P"), Cast("int32", K))),
)


@settings(max_examples=30, deadline=None)
@given(
    conditions=st.sampled_from(
        [
            (FIRST, FIRST, K),
            (Unary("not", Binary("lt", before("V"), ELEMENT)), FIRST, K),
            (Binary("le", ELEMENT, before("V")), LAST, IndexValue(2 * var("k") + 1)),
            (LAST, FIRST, K),
            (BY_INDEX, LAST, Cast("int32", K)),
        ]
    ),
    seed=st.integers(0, 99),
)
def test_an_index_is_found_as_the_updates_find_it(conditions: Any, seed: int) -> None:
    x = np.random.default_rng(seed).integers(-2, 3, X.shape).astype(np.float32)
    reduction = arg(*conditions)
    found, wanted = computed(reduction, x), updated(reduction, x)
    np.testing.assert_array_equal(found["P"], wanted["P"])
    np.testing.assert_array_equal(found["V"], wanted["V"])


@pytest.mark.parametrize(
    ("reduction", "reason"),
    [
        (arg(Binary("lt", before("V"), ELEMENT), FIRST, K), "not that of the value that it keeps"),
        (arg(FIRST, Binary("eq", before("V"), ELEMENT), K), "neither the larger nor the smaller"),
        (arg(FIRST, FIRST, IndexValue(4 - var("k"))), "indices do not rise"),
        (arg(FIRST, FIRST, IndexValue(var("i") + var("k"))), "not affine in what it reduces"),
        (arg(FIRST, FIRST, Binary("add", before("P"), K)), "depends on what was there"),
        (arg(FIRST, FIRST, IndexValue(var("k") + (1 << 40))), "does not fit in int32"),
        (arg(Binary("and", FIRST, BEYOND), FIRST, K), "compares more than"),
    ],
)
def test_other_pairs_are_refused(reduction: Reduction, reason: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=reason):
        stages_of(reduction, {"X": X}, str)


def test_values_that_may_differ_when_computed_twice_are_refused() -> None:
    element = Binary("mul", ELEMENT, ELEMENT)
    keeps = Binary("ge", before("V"), element)
    with pytest.raises(UnsupportedWorkload, match="arithmetic of floats"):
        stages_of(arg(keeps, keeps, K, element), {"X": X}, str)


@settings(max_examples=20, deadline=None)
@given(operation=st.sampled_from(("and", "or")), share=st.floats(0, 1), seed=st.integers(0, 99))
def test_truth_values_are_reduced_as_bytes(operation: str, share: float, seed: int) -> None:
    x = np.random.default_rng(seed).random(X.shape) < share
    truths = Tensor("X", X.shape, "bool")
    reduction = Reduction(
        (Tensor("Y", (3,), "bool"),),
        AXES,
        (Binary(operation, before("Y"), ELEMENT),),
        (Constant(operation == "and", "bool"),),
    )
    stages = stages_of(reduction, {"X": truths}, lambda name: f"{name}_1")
    assert [stage.name for stage in stages] == ["Y_number_1", "Y"]
    wanted = x.all(axis=1) if operation == "and" else x.any(axis=1)
    np.testing.assert_array_equal(computed(reduction, x, truths)["Y"], wanted)


@pytest.mark.parametrize(("combiner", "start"), [("add", 1.0), ("mul", 0.0), ("max", 0.0)])
def test_what_starts_otherwise_is_refused(combiner: str, start: float) -> None:
    update = Binary(combiner, before("Y"), ELEMENT)
    output, first = Tensor("Y", (3,), "float32"), Constant(start, "float32")
    with pytest.raises(UnsupportedWorkload, match=f"not the identity of '{combiner}'"):
        stages_of(Reduction((output,), AXES, (update,), (first,)), {"X": X}, str)


def test_an_update_combines_what_was_there_once() -> None:
    assert combined(Binary("add", ELEMENT, before("Y")), before("Y")) == ("add", ELEMENT)
    twice = Binary("add", before("Y"), before("Y"))
    shifted = Binary("add", Load("Y", (var("i") + const(1),)), ELEMENT)
    for update in (twice, shifted, ELEMENT, Binary("sub", before("Y"), ELEMENT)):
        with pytest.raises(UnsupportedWorkload, match="its update is not output = output"):
            combined(update, before("Y"))
