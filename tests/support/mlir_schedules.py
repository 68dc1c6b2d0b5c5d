"""Candidates of a workload, and what the programs made of them compute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from autotune_mlir import compiler
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.schedule import schedule

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload, reference
from autotune.sketches import Candidate
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target
from autotune.testing.guarded_arrays import guarded_calls


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


def check(
    backend: MLIRBackend,
    workload: Workload,
    candidate: Candidate,
    target: Target,
    threads: int = 1,
) -> None:
    """The candidate's program computes what the workload says.

    One that reads or writes beside its arrays ends this process.
    """
    inputs = reference.random_inputs(workload, np.random.default_rng(1))
    expected = reference.reference_outputs(workload, inputs)
    arrays = [inputs[tensor.name] for tensor in workload.inputs]
    request = BuildRequest(workload, None, candidate, target, threads)
    executable = backend.compile(backend.lower(request))
    for call in guarded_calls(executable, workload, arrays):
        call.poison()
        call.run()
        for name, result in zip(workload.outputs, call.outputs(), strict=True):
            np.testing.assert_allclose(
                result, expected[name], rtol=2e-5, atol=2e-5, err_msg=candidate.sketch.name
            )


def scheduled(workload: Workload, candidate: Candidate) -> object:
    """The module of a candidate, before the passes that lower it."""
    module = compiler.parse_payload(payload(workload))
    compiler.apply_schedule(module, schedule(candidate, workload))
    return module
