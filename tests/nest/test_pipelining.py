"""Rows that are written while the next one is computed."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from row_norms import layer_norm, pipelined, rms_norm, with_small_cache
from rule_sketches import LIMITS, TARGET

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload, softmax
from autotune.ir.workloads.reference import reference_outputs
from autotune.nest import derive, derive_nest
from autotune.sketches import Candidate, Sketch, SoftwarePipeline
from autotune.spaces import SketchSpace
from autotune.testing.nest_interpreter import run_candidate
from autotune.testing.programs import check_nest

SMALL = with_small_cache(TARGET)
WORKLOADS = (softmax(m=48, n=64), rms_norm(32, 64), layer_norm(32, 64))


def candidates(workload: Workload) -> list[Candidate]:
    space = SketchSpace(workload, SMALL, LIMITS)
    names = {sketch.name for sketch in pipelined(workload, SMALL, LIMITS)}
    found = [
        candidate
        for candidate in space.sample(60, np.random.default_rng(0))
        if candidate.sketch.name in names
    ]
    assert found
    return found


def inputs_of(workload: Workload) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {it.name: rng.normal(size=it.shape).astype(np.float32) for it in workload.inputs}


def moved(sketch: Sketch, host: str) -> Sketch:
    """The sketch with its rows written in the loops of another stage."""
    steps = [
        evolve(step, inside=host) if isinstance(step, SoftwarePipeline) else step
        for step in sketch.steps
    ]
    return evolve(sketch, steps=tuple(steps))


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_the_same_is_computed(workload: Workload) -> None:
    for candidate in candidates(workload)[:4]:
        check_nest(candidate, inputs_of(workload), tolerance=1e-7)


def test_extents_and_allocations_are_those_without() -> None:
    for sketch in pipelined(WORKLOADS[0], SMALL, LIMITS):
        without = [step for step in sketch.steps if not isinstance(step, SoftwarePipeline)]
        own, other = (derive_nest(each) for each in (sketch, evolve(sketch, steps=tuple(without))))
        assert [(it.name, it.shape, it.depth) for it in own.buffers] == [
            (it.name, it.shape, it.depth) for it in other.buffers
        ]
        assert [it.name for it in own.statements if it.pipelined] == ["Y"]
        assert not any(it.pipelined for it in other.statements)


@pytest.mark.parametrize(
    ("workload", "host", "lost"),
    [
        (WORKLOADS[0], "S_partial", "'E' overwrites 'E'"),
        (WORKLOADS[0], "S", "'E' overwrites 'E'"),
        (WORKLOADS[1], "S", "'S.init' overwrites 'S'"),
        (WORKLOADS[2], "V_partial", "'T.init' overwrites 'T'"),
    ],
)
def test_what_is_overwritten_before_is_refused(
    workload: Workload, host: str, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = candidates(workload)[0]
    sketch = moved(candidate.sketch, host)
    with pytest.raises(InvalidValueError, match=lost):
        derive_nest(sketch)
    # And it has to be: the wrong rows would be written.
    monkeypatch.setattr(derive, "check_pipelines", lambda statements: None)
    inputs = inputs_of(workload)
    got = run_candidate(Candidate(moved(candidate.sketch, host), candidate.values), inputs)["Y"]
    assert not np.allclose(got, reference_outputs(workload, inputs)["Y"], rtol=1e-3)


@pytest.mark.parametrize("host", ["Y", "nothing"])
def test_hosts_are_ahead_in_the_loop(host: str) -> None:
    sketch = moved(candidates(WORKLOADS[0])[0].sketch, host)
    with pytest.raises(InvalidValueError, match="not the last statement of one loop around both"):
        derive_nest(sketch)
