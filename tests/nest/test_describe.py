from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from autotune.ir.workloads import Workload, gemm
from autotune.nest import derive_nest, describe
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace

SpaceOf = Callable[[Workload], SketchSpace]
GOLDEN = Path(__file__).parent / "gemm.txt"
CONFIG = {
    "C.i.extent": 38,
    "C.i.0": 1,
    "C.i.1": 19,
    "C.i.2": 2,
    "C.j.extent": 64,
    "C.j.0": 2,
    "C.j.1": 1,
    "C.j.2": 2,
    "C.j.3": 16,
    "C.k.0": 15,
    "C.k.1": 2,
}


def test_a_packed_matrix_product(space_of: SpaceOf) -> None:
    space = space_of(gemm(m=37, n=53, k=30))
    sketch = next(s for s in space.sketches() if s.name == "packed-panel-outer")
    candidate = Candidate.from_config(sketch, CONFIG)
    assert describe(sketch, candidate.config) + "\n" == GOLDEN.read_text()


def test_without_a_configuration_extents_are_expressions(space_of: SpaceOf) -> None:
    space = space_of(gemm(m=37, n=53, k=30))
    sketch = next(s for s in space.sketches() if s.name == "packed-panel-outer")
    text = describe(sketch)
    assert "for C.i.0*C.j.0 in C.i.0*C.j.0 parallel:" in text
    assert "for C.j.3 in C.j.3 vectorized:" in text
    assert "buffer C.tile: C.i.2 x C.j.2*C.j.3 float32" in text


def test_every_statement_and_buffer_is_shown_once(space_of: SpaceOf) -> None:
    for candidate in space_of(gemm(m=37, n=53, k=30)).sample(20, np.random.default_rng(0)):
        lines = describe(candidate.sketch, candidate.config).splitlines()
        nest = derive_nest(candidate.sketch)
        shown = [line.split(":")[0].strip() for line in lines if " <- " in line]
        assert shown == [statement.name for statement in nest.statements]
        assert sum(line.startswith("buffer ") for line in lines) == len(nest.buffers)
        assert not any(" in 1:" in line or " in 1 " in line for line in lines)
