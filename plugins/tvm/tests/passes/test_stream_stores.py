"""Results that are written past the caches."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import compile_module, lower_module
from autotune_tvm.scheduled import scheduled_module

from autotune.backends import BuildRequest
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, elementwise, softmax
from autotune.sketches import Candidate, Parallel, Sketch, Step, Stream, Tile, Vectorize
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu
from autotune.targets.target import Cache
from autotune.testing.programs import check_candidate, request_for

BACKEND = TVMBackend()
TARGET = evolve(detect_cpu(), caches=(Cache(1, 1 << 15, False),))
"""A processor of which the only cache holds less than the results here."""


def streamed(workload: Workload, cores: int) -> Iterator[Candidate]:
    """One candidate of each sketch whose result passes the caches, in parallel parts."""
    target = TARGET.with_cores(cores)
    space, seen = SketchSpace(workload, target, BACKEND.limits(target)), set[str]()
    for candidate in space.sample(100, np.random.default_rng(0)):
        chosen = candidate.config.get(f"{workload.outputs[0]}.stream")
        shared = candidate.config.get(f"{workload.outputs[0]}.i.0") != 1
        if chosen and shared and candidate.sketch.name not in seen:
            seen.add(candidate.sketch.name)
            yield candidate


def lowered(request: BuildRequest) -> str:
    return str(lower_module(scheduled_module(request), request.target, request.threads))


def by_hand(workload: Workload, *steps: Step) -> Candidate:
    return Candidate(Sketch("by-hand", workload, (), (), steps), ())


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    "workload", [elementwise(m=64, n=256), softmax(m=48, n=256)], ids=lambda it: it.name
)
def test_the_same_is_computed_and_threads_wait_for_their_stores(
    workload: Workload, cores: int
) -> None:
    found = list(streamed(workload, cores))[:3]
    assert found
    for candidate in found:
        target = TARGET.with_cores(cores)
        check_candidate(BACKEND, candidate, target, threads=cores)
        text = lowered(request_for(candidate, target, cores, None))
        (store,) = re.finditer(r'call_extern\("void", "autotune_stream_float32_\d+"', text)
        (fence,) = re.finditer(r'call_extern\("void", "autotune_stream_fence"', text)
        launch = text.find("pragma_parallel_launch_point")
        assert 0 <= launch < store.start() < fence.start()


def test_a_loop_that_one_thread_runs_ends_with_a_fence() -> None:
    workload = elementwise(m=64, n=256)
    steps = (
        Tile("Y", "j", (const(16), const(16))),
        Vectorize("Y", "j.1"),
        Stream("Y", const(1)),
    )
    candidate = by_hand(workload, *steps)
    check_candidate(BACKEND, candidate, TARGET)
    text = lowered(request_for(candidate, TARGET, 1, None))
    assert text.count('"autotune_stream_fence"') == 1
    assert "pragma_parallel_launch_point" not in text


@pytest.mark.parametrize("choice", [0, 1])
@pytest.mark.parametrize(("columns", "lanes"), [(250, 2), (252, 63), (48, 3)])
def test_stores_that_are_not_aligned_are_as_usual(columns: int, lanes: int, choice: int) -> None:
    workload = elementwise(m=64, n=columns)
    steps = (
        Tile("Y", "j", (const(columns // lanes), const(lanes))),
        Parallel("Y", ("i.0",)),
        Vectorize("Y", "j.1"),
        Stream("Y", const(choice)),
    )
    candidate = by_hand(workload, *steps)
    check_candidate(BACKEND, candidate, TARGET)
    assert "autotune_stream" not in lowered(request_for(candidate, TARGET, 1, None))


def test_the_processor_is_given_other_stores() -> None:
    """In the machine code: with the choice, and only with it."""
    workload = elementwise(m=64, n=256)
    for choice in (0, 1):
        steps = (
            Tile("Y", "j", (const(16), const(16))),
            Vectorize("Y", "j.1"),
            Stream("Y", const(choice)),
        )
        request = request_for(by_hand(workload, *steps), detect_cpu(), 1, None)
        assert ("movnt" in machine_code(request)) == bool(choice)


def machine_code(request: BuildRequest) -> str:
    module = scheduled_module(request)
    compiled = compile_module(module, request.target, request.threads)
    return str(compiled.inspect_source("asm"))
