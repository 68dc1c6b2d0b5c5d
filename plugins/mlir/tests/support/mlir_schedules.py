"""Candidates of a workload, and what their schedules make of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from autotune_mlir import parsing, transform_scripts
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.schedule import schedule
from autotune_mlir.scripted import program_of

from autotune.ir.workloads import Workload
from autotune.sketches import Candidate
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target


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


def scheduled(candidate: Candidate) -> Any:
    """The module of a candidate, before the passes that lower it."""
    workload = candidate.sketch.workload
    module = parsing.parse_payload(program_of(workload, None, candidate))
    transform_scripts.apply_schedule(module, schedule(candidate, workload))
    return module
