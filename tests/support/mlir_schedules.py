"""Candidates of a workload, and what the programs made of them compute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from autotune_mlir import compiler
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.schedule import schedule
from numpy.typing import NDArray

from autotune.backends import BuildRequest, aligned_copy, aligned_empty
from autotune.sketches import Candidate
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target
from autotune.workloads import Workload, reference


def candidates(
    workload: Workload, target: Target, each: int, *, draws: int = 400, seed: int = 0
) -> Iterator[Candidate]:
    """Random candidates: up to ``each`` of every sketch that the backend can replay."""
    space = SketchSpace(workload, target, MLIRBackend().limits(target))
    left = {sketch.name: each for sketch in space.sketches()}
    for candidate in space.sample(draws, np.random.default_rng(seed)):
        if left[candidate.sketch.name] > 0:
            left[candidate.sketch.name] -= 1
            yield candidate
    assert not any(count == each for count in left.values()), "a sketch was never drawn"


def outputs(
    backend: MLIRBackend,
    workload: Workload,
    candidate: Candidate,
    target: Target,
    threads: int = 1,
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """What the candidate's program computes from random inputs, and what it should."""
    inputs = reference.random_inputs(workload, np.random.default_rng(1))
    expected = reference.reference_outputs(workload, inputs)
    arrays = [aligned_copy(inputs[tensor.name]) for tensor in workload.inputs]
    tensors = [workload.tensors[name] for name in workload.outputs]
    results = [aligned_empty(tensor.shape, tensor.dtype) for tensor in tensors]
    request = BuildRequest(workload, None, candidate, target, threads)
    call = backend.compile(backend.lower(request)).bind(arrays, results)
    call.poison()
    call.run()
    return call.outputs(), [expected[name] for name in workload.outputs]


def check(
    backend: MLIRBackend,
    workload: Workload,
    candidate: Candidate,
    target: Target,
    threads: int = 1,
) -> None:
    """The candidate's program computes what the workload says."""
    found, expected = outputs(backend, workload, candidate, target, threads)
    for result, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            result, wanted, rtol=2e-5, atol=2e-5, err_msg=f"{candidate.sketch.name}"
        )


def scheduled(workload: Workload, candidate: Candidate) -> object:
    """The module of a candidate, before the passes that lower it."""
    module = compiler.parse_payload(payload(workload))
    compiler.apply_schedule(module, schedule(candidate, workload))
    return module
