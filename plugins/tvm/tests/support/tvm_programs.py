"""Candidates compiled by TVM for machines other than this one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import compile_module, generate_code
from needs import skip_here
from tile_machine import has_tiles

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload, random_inputs, reference_outputs
from autotune.sketches import Candidate
from autotune.targets import Target, detect_cpu
from autotune.targets.processors import missing_features
from autotune.testing.programs import (
    check_candidate,
    check_program,
    request_for,
    sample_candidates,
)

BACKEND = TVMBackend()
_TILES = "amx-tile"


def samples(workload: Workload, target: Target, each: int = 1) -> list[Candidate]:
    """Random candidates: ``each`` times as many as there are sketches."""
    return sample_candidates(BACKEND, workload, target, each)


def one_of_each(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The first candidate of every sketch."""
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.sketch.name, candidate)
    return list(found.values())


def check_imported(program: Any, *, every: bool = False) -> Workload:
    """Check that an imported function computes its workload, and so do candidates in its place.

    Candidates are printed from the workload, of every kind of which ``test_printed.py`` and others
    try all sketches: one in the middle tells whether it is given the function's arguments.

    Args:
        program: A ``PrimFunc``.
        every: Whether a candidate of every sketch is tried.

    Returns:
        What it was imported as.
    """
    imported = BACKEND.import_program(program)
    workload, text, target = imported.workload, imported.program, detect_cpu()
    check_program(BACKEND, BuildRequest(workload, text, None, target, 1))
    candidates = sample_candidates(BACKEND, workload, target)
    for candidate in candidates if every else candidates[len(candidates) // 2 :][:1]:
        check_candidate(BACKEND, candidate, target, program=text)
    assert candidates
    return workload


def machine_code(candidate: Candidate, target: Target) -> str:
    """The assembly of a candidate on one thread."""
    lowered = BACKEND.lower(request_for(candidate, target)).program.module
    return str(generate_code(lowered, target, 1, runs_here=False)[0].inspect_source("s"))


def runs_here(target: Target) -> bool:
    """Tell whether this machine can run programs for a target."""
    features = set(target.features)
    runs = not missing_features(features, detect_cpu().features)
    return runs and (_TILES not in features or has_tiles())


def need(target: Target) -> None:
    """Skip a test of programs that this machine cannot run."""
    if not runs_here(target):
        skip_here(f"it cannot run programs for {target.name}")


def check_module(module: Any, workload: Workload, target: Target) -> None:
    """Compile ``main``, whose arguments are in the workload's order, and compare its results."""
    arrays = random_inputs(workload, np.random.default_rng(0))
    expected = reference_outputs(workload, arrays)
    inputs = [tvm.runtime.tensor(arrays[tensor.name]) for tensor in workload.inputs]
    outputs = [tvm.runtime.tensor(np.full_like(expected[name], -77)) for name in workload.outputs]
    compile_module(module, target, 1)["main"](*inputs, *outputs)
    for name, output in zip(workload.outputs, outputs, strict=True):
        np.testing.assert_allclose(output.numpy(), expected[name], rtol=2e-5, atol=2e-5)
