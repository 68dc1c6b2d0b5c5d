"""Rows that vectors do not divide: right, and without scalar loops."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinning import thinned
from tvm_programs import BACKEND, machine_code, one_of_each, samples, scheduled_text
from uneven_rows import UNEVEN_ROWS

from autotune.ir.workloads import Workload, softmax
from autotune.targets import detect_cpu, preset
from autotune.testing.programs import check_candidate

TARGET = preset("skylake-avx512-4core")


@pytest.mark.parametrize("workload", thinned(UNEVEN_ROWS, 3))
def test_results_are_those_of_the_reference(workload: Workload) -> None:
    target = detect_cpu()
    for candidate in one_of_each(samples(workload, target)):
        check_candidate(BACKEND, candidate, target)


@settings(max_examples=4, deadline=None)
@given(rows=st.integers(1, 9), columns=st.integers(1, 150), seed=st.integers(0, 99))
def test_rows_of_any_length(rows: int, columns: int, seed: int) -> None:
    target = detect_cpu()
    found = samples(softmax(m=rows, n=columns), target)
    check_candidate(BACKEND, found[np.random.default_rng(seed).integers(len(found))], target)


def test_whole_rounds_have_no_conditions() -> None:
    for candidate in one_of_each(samples(softmax(m=12, n=197), TARGET)):
        text = scheduled_text(candidate, TARGET)
        assert not re.search(r"T\.where|if_then_else", text)
        assert "T.vectorized(5)" in text


def test_exponentials_are_of_vectors() -> None:
    """The multiply-adds of a polynomial for one element alone would be scalar instructions."""
    for candidate in one_of_each(samples(softmax(m=12, n=197), TARGET)):
        if "recompute-narrow" in candidate.sketch.name:
            continue  # Vectors of four leave one element.
        assert not re.search(r"vf\w*add\w*ss\s", machine_code(candidate, TARGET))
