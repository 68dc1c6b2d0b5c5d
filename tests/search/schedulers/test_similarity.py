from __future__ import annotations

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from autotune.ir.workloads import Workload, conv2d, dense, elementwise, gemm
from autotune.search.schedulers import similarity_group


def test_names_do_not_matter() -> None:
    product = gemm(m=64, n=64, k=64)
    assert similarity_group(evolve(product, name="lv69_main")) == similarity_group(product)


def test_structures_differ() -> None:
    workloads: list[Workload] = [
        gemm(m=64, n=64, k=64),
        gemm(m=64, n=64, k=64, dtype="float64"),
        dense(m=64, n=64, k=64),
        conv2d(h=8, w=8, ci=64, co=64, kh=1, kw=1),
        elementwise(m=64, n=8192),
    ]
    assert len({similarity_group(workload) for workload in workloads}) == len(workloads)


@given(st.integers(1, 512), st.integers(1, 512))
def test_tasks_of_a_group_have_about_the_same_flop(m: int, other: int) -> None:
    one, two = gemm(m=m, n=64, k=64), gemm(m=other, n=64, k=64)
    ratio = max(one.flop, two.flop) / min(one.flop, two.flop)
    if similarity_group(one) == similarity_group(two):
        assert ratio < 1.62
    if ratio == 1:
        assert similarity_group(one) == similarity_group(two)
