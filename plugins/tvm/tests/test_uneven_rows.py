"""Rows that vectors do not divide: right, and without scalar loops."""

from __future__ import annotations

import re

from tvm_programs import machine_code, one_of_each, samples

from autotune.ir.workloads import softmax
from autotune.targets import preset

TARGET = preset("skylake-avx512-4core")


def test_exponentials_are_of_vectors() -> None:
    """The multiply-adds of a polynomial for one element alone would be scalar instructions."""
    for candidate in one_of_each(samples(softmax(m=12, n=197), TARGET)):
        if "recompute-narrow" in candidate.sketch.name:
            continue  # Vectors of four leave one element.
        assert not re.search(r"vf\w*add\w*ss\s", machine_code(candidate, TARGET))
