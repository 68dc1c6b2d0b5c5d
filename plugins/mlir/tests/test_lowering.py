"""Where the passes leave buffers."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from numpy.typing import NDArray

from autotune.ir.workloads import gemm, random_inputs, reference_outputs
from autotune.sketches import Candidate
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target
from autotune.testing.programs import request_for, run_executable

ON_THE_STACK = "memref.alloca"
# Whatever is on the stack is given back at the end of such an operation.
SCOPES = ("func.func", "scf.forall")
# A row of what is copied takes 2 KiB, and is put on the stack.
PRODUCT = gemm(m=96, n=128, k=512)
LITTLE_STACK = 512 << 10

needs_openmp = pytest.mark.needs("openmp")


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=needs_openmp)])
def test_many_tiles_need_no_more_stack_than_one(
    threads: int, backend: MLIRBackend, target: Target
) -> None:
    space = SketchSpace(PRODUCT, target, backend.limits(target))
    sketch = next(sketch for sketch in space.sketches() if sketch.name == "plain-rows")
    lanes = next(param for param in sketch.params if param.name == "C.j.3").values
    assert lanes is not None
    values = {"C.i.extent": 96, "C.i.0": 96, "C.j.0": 128 // lanes[0], "C.j.3": lanes[0]}
    values |= {"C.k.0": 128, "C.k.1": 4}
    tiny = Candidate(sketch, tuple(values.get(param.name, 1) for param in sketch.params))
    assert values["C.i.0"] * values["C.j.0"] * 512 * 4 > 2 * LITTLE_STACK
    executable = backend.build(request_for(tiny, target, threads))
    found: list[NDArray[Any]] = []
    inputs = random_inputs(PRODUCT, np.random.default_rng(0))
    before = threading.stack_size(LITTLE_STACK)
    try:
        thread = threading.Thread(
            target=lambda: found.extend(run_executable(executable, PRODUCT, inputs))
        )
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    expected = reference_outputs(PRODUCT, inputs)["C"]
    np.testing.assert_allclose(found[0], expected, rtol=2e-5, atol=2e-5)
