"""Scans become stages, whose results continue one another."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_mlir import bindings
from autotune_mlir.importing.reading import read_text
from mlir_compiled_programs import COMPILED_PROGRAMS, TORCH_SCAN
from mlir_programs import function
from needs import skip_here

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import random_inputs, reference_outputs

GENERIC = COMPILED_PROGRAMS["scan"].text


@pytest.fixture
def torch_scan() -> str:
    if bindings.load().root != "torch_mlir":
        skip_here(f"{bindings.VARIABLE} asks for bindings without the dialect of scans")
    return function(TORCH_SCAN)


def test_those_of_torch_are_read(torch_scan: str) -> None:
    workload, program = read_text(torch_scan, "program.mlir")
    assert [axis.kind for axis in workload.stages[0].axes] == ["spatial", "scan"]
    assert "tm_tensor" not in program
    arrays = random_inputs(workload, np.random.default_rng(0))
    (found,) = reference_outputs(workload, arrays).values()
    np.testing.assert_allclose(found, np.cumprod(arrays["arg0"], 1), rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("inclusive(true)", "inclusive(false)", "it is exclusive"),
        ("arith.mulf %x, %o", "arith.subf %x, %o", "it does not combine"),
        ("constant 1.0", "constant 2.0", "it does not begin with the neutral element"),
    ],
)
def test_others_of_torch_are_refused(torch_scan: str, old: str, new: str, reason: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=rf"at program.mlir:\d+:\d+: {reason}"):
        read_text(torch_scan.replace(old, new), "program.mlir")


def test_a_start_that_is_not_neutral_is_refused() -> None:
    with pytest.raises(UnsupportedWorkload, match=r"linalg.generic at .*does not begin with"):
        read_text(GENERIC.replace("constant 0.0", "constant 2.0"), "program.mlir")
