from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_workloads import SMALL_WORKLOADS, VARIED_WORKLOADS, two_products
from renamed_workloads import reordered, respelled
from written import written

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload, conv2d, gemm, softmax

Made = tuple[str, int, int]
"""An operation, and the places of the tensors that it reads: inputs first, then stages."""
Plan = tuple[int, tuple[Made, ...], tuple[int, ...]]
"""Number of inputs, the stages made of them, and the places of the outputs."""

KNOWN = (*SMALL_WORKLOADS.values(), *VARIED_WORKLOADS)


@st.composite
def plans(draw: st.DrawFn, whole: bool = True) -> Plan:
    """A few stages of very few kinds, so that many are alike; ``whole``: all are needed."""
    inputs, made = draw(st.integers(1, 2)), list[Made]()
    for number in range(draw(st.integers(1, 4))):
        places = st.integers(0, inputs + number - 1)
        made.append((draw(st.sampled_from(("add", "sub"))), draw(places), draw(places)))
    places = range(inputs, inputs + len(made))
    read = {place for _, left, right in made for place in (left, right)}
    sinks = [place for place in places if place not in read]
    more = draw(st.lists(st.sampled_from(places), max_size=1))
    needed = sinks if whole else draw(st.lists(st.sampled_from(places), min_size=1, max_size=2))
    return inputs, tuple(made), tuple(draw(st.permutations(sorted({*needed, *more}))))


def workload_of(plan: Plan) -> Workload:
    inputs, made, outputs = plan
    stages = [
        f"T{number}[i:4] = {op}(T{left}[i], T{right}[i])"
        for number, (op, left, right) in enumerate(made, inputs)
    ]
    given_inputs = ", ".join(f"T{number}[4]" for number in range(inputs))
    return written(given_inputs, *stages, outputs=" ".join(f"T{at}" for at in outputs))


def are_alike(one: Plan, other: Plan) -> bool:
    """Tell whether some numbering of inputs and stages makes one plan the other: all are tried."""
    if (one[0], len(one[1]), len(one[2])) != (other[0], len(other[1]), len(other[2])):
        return False
    inputs, made, outputs = one
    wanted = {(other[0] + number, *it) for number, it in enumerate(other[1])}
    for first in itertools.permutations(range(inputs)):
        for then in itertools.permutations(range(inputs, inputs + len(made))):
            new = (*first, *then)
            found = {(new[n], op, new[a], new[b]) for n, (op, a, b) in enumerate(made, inputs)}
            if found == wanted and tuple(new[at] for at in outputs) == other[2]:
                return True
    return False


@settings(max_examples=60)
@given(st.sampled_from(KNOWN), st.integers(0, 10**6))
def test_no_name_and_no_order_of_independent_stages_changes_a_digest(
    workload: Workload, seed: int
) -> None:
    other = reordered(respelled(workload, seed), seed)
    assert other.digest == workload.digest
    assert other.canonical == workload.canonical
    assert other == workload or other.spelling != workload.spelling


@settings(max_examples=150)
@given(plans() | plans(whole=False), st.integers(0, 10**6))
def test_nor_does_it_where_stages_are_alike(plan: Plan, seed: int) -> None:
    workload = workload_of(plan)
    assert respelled(workload, seed).digest == workload.digest
    if len(set(plan[2])) == len(plan[2]) and not unneeded(workload):
        assert reordered(respelled(workload, seed), seed).digest == workload.digest


def unneeded(workload: Workload) -> set[str]:
    """Stages without which every output can be computed."""
    needed = set(workload.outputs)
    for stage in reversed(workload.stages):
        if stage.name in needed:
            needed |= set(stage.reads)
    return {stage.name for stage in workload.stages} - needed


@settings(max_examples=300)
@given(plans(), plans())
def test_digests_are_equal_where_structures_are_and_only_there(one: Plan, other: Plan) -> None:
    equal = workload_of(one).digest == workload_of(other).digest
    assert equal == are_alike(one, other)


@settings(max_examples=150)
@given(plans(whole=False), plans(whole=False))
def test_what_nobody_needs_counts_too(one: Plan, other: Plan) -> None:
    if workload_of(one).digest == workload_of(other).digest:
        assert are_alike(one, other)


def test_stages_that_nobody_needs_may_stand_anywhere() -> None:
    def made(last: str) -> Workload:
        stages = "A[i:4] = exp(X[i])", "B[i:4] = log(Y[i])", "C[i:4] = abs(B[i])"
        return written("X[4], Y[4], Z[4]", *stages, f"D[i:4] = abs({last}[i])", outputs="A")

    workload = made("X")
    for seed in range(20):
        assert reordered(respelled(workload, seed), seed).digest == workload.digest
    assert made("Y").digest != workload.digest


def changed() -> list[Workload]:
    """A small network, and that network with one thing changed, each another one."""

    def network(
        body: str = "X[a, b] * float32(2.0)",
        dtype: str = "float32",
        extent: int = 5,
        combine: str = "+",
        outputs: str = "S P",
        weights: str = "k, j",
        unread: int = 0,
    ) -> Workload:
        shapes = ("X[4, 8]", "Z[6, 4]", f"W[{weights}]", *(f"U{n}[1]" for n in range(unread)))
        inputs = ", ".join(f"{shape}: {dtype}" for shape in shapes)
        product = f"S[i:4, j; k]: {dtype} {combine}= P[i, k] * W[{weights}]"
        stages = f"P[a:4, b:6]: {dtype} = {body}", product
        return written(inputs, *stages, name="net", outputs=outputs, j=extent, k=6)

    return [
        network(),
        network("X[a, b] + float32(2.0)"),
        network("float32(2.0) * X[a, b]"),
        network("X[a, b] * float32(3.0)"),
        network("X[a, b] * float64(2.0)"),
        network("X[a, b] if X[a, b] < float32(0.0) else X[a, b]"),
        network("exp(X[a, b])"),
        network("Z[b, a] * float32(2.0)"),
        network("X[a, b + 1] * float32(2.0)"),
        network(dtype="float64"),
        network(extent=6),
        network(combine="max"),
        network(outputs="S"),
        network(outputs="P S"),
        network(weights="j, k"),
        network(unread=1),
        network(unread=2),
    ]


def test_every_change_of_structure_changes_the_digest() -> None:
    digests = [workload.digest for workload in changed()]
    assert len(set(digests)) == len(digests)
    for number, workload in enumerate(changed()):
        assert reordered(respelled(workload, number), number).digest == digests[number]


def test_what_is_read_where_data_says_is_renamed_too() -> None:
    def looked_up(table: str, ids: str, block: int = 4) -> Workload:
        body = f"{table}[{ids}[i // {block}, j % {block}], j]"
        tables = "T[32, 16], U[32, 16], I[4, 16]: int64, K[4, 16]: int64"
        return written(tables, f"Y[i:8, j:16] = {body}")

    workload = looked_up("T", "I")
    for seed in range(10):
        assert reordered(respelled(workload, seed), seed).digest == workload.digest
    # Which of two equal inputs is read is a name.
    assert looked_up("U", "K").digest == workload.digest
    assert looked_up("T", "I", 2).digest != workload.digest


def test_indices_are_sorted_by_their_names_no_more() -> None:
    """Sums and products of axes are kept in the order of their texts."""
    seen = {respelled(conv2d(h=9, w=7, ci=3, co=5, pad=1), seed).digest for seed in range(20)}
    assert seen == {conv2d(h=9, w=7, ci=3, co=5, pad=1).digest}


def test_the_canonical_form_is_its_own() -> None:
    for workload in KNOWN:
        canonical = workload.canonical
        assert canonical.canonical == canonical
        assert canonical.digest == canonical.spelling == workload.digest


def test_a_renaming_that_lacks_a_name_is_no_workload() -> None:
    workload = gemm(m=2, n=3, k=4)
    names = workload.names
    twice = attrs.evolve(names, tensors={**names.tensors, "A": "t1", "B": "t1"})
    with pytest.raises(InvalidValueError, match="two tensors are called 't1'"):
        workload.renamed(twice)


def test_two_products_correspond_by_their_outputs() -> None:
    workload = two_products(12, 6)
    turned = attrs.evolve(workload, outputs=workload.outputs[::-1])
    assert turned.digest != workload.digest
    assert softmax(m=3, n=4).digest != softmax(m=4, n=3).digest
