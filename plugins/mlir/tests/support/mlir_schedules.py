"""Candidates of a workload, and what their schedules make of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.compiler import Lowered, generate
from autotune_mlir.parsing import parse_payload
from autotune_mlir.transform_library import apply_schedule

from autotune.backends.native.executable import Layout, NestExecutable
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


def scheduled(program: str, script: str | None) -> str:
    """The text of a program that a script of the Transform dialect was applied to."""
    module = parse_payload(program)
    if script is not None:
        apply_schedule(module, script)
    return str(module)


def executable_of(lowered: Lowered, workload: Workload) -> NestExecutable:
    """Compile a program by MLIR's own passes."""
    return NestExecutable(generate(lowered), Layout((), (), uses_tiles=False), workload)
