"""Reuse on the tape against the same found by running the loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from oracles.pam import Program, StatementOracle

from autotune.ir.workloads import Workload, conv2d, dense, gemm, softmax
from autotune.nest import nest_tape
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace

WORKLOADS = (
    gemm(m=5, n=17, k=6),
    conv2d(h=5, w=6, ci=2, co=5, kh=2, kw=3, pad=1, stride=2, bias=1, relu=1),
    dense(m=3, n=5, k=16),
    softmax(m=4, n=6),
)


def expected_reuse(candidate: Candidate) -> dict[str, tuple[float, ...]]:
    """Kind (0 loop, 1 serial, 2 none), iterations, bytes and count, by statement and buffer."""
    program = Program(nest_tape(candidate.sketch).nest, candidate.config, "corrected", False)
    oracles = [StatementOracle(program, index) for index in range(len(program.nest.statements))]
    return {
        f"{oracle.statement.name}/{touch.buffer}": oracle.reuse(touch)
        for oracle in oracles
        for touch in oracle.walk.touches
    }


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_sketch(workload: Workload, space_of: Callable[[Workload], SketchSpace]) -> None:
    space = space_of(workload)
    for candidate in space.sample(2 * len(space.sketches()), np.random.default_rng(5)):
        tape = nest_tape(candidate.sketch).tape
        row = tape.evaluate(np.array([candidate.values], dtype=np.int64))[0].tolist()
        values = dict(zip(tape.output_index, row, strict=True))
        for place, (kind, iterations, between, count) in expected_reuse(candidate).items():
            statement, buffer = place.split("/")
            found = {
                part: values[f"{statement}/reuse_{part}/{buffer}"]
                for part in ("loop", "serial", "iterations", "bytes", "count", "share")
            }
            assert (found["loop"], found["serial"]) == (kind == 0, kind == 1), place
            assert found["iterations"] == pytest.approx(iterations * found["share"]), place
            assert found["bytes"] == pytest.approx(between * found["share"]), place
            assert found["count"] == count, place
