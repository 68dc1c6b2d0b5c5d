"""Schedules that nobody measured: what the draft model takes for the best of a few."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from autotune.backends.native import NativeBackend
from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune.models import ModelContext
from autotune.models.pruning import PSA
from autotune.sketches import Candidate, Sketch
from autotune.spaces import FeasibleSpace
from autotune.spaces.feasible import FeasibleSet
from autotune.spaces.loosening import loosen
from autotune.spaces.rules import generate_sketches
from autotune.spaces.sketch_space import BUILT_IN_RULES
from autotune.targets import Target

__all__ = ["draft_candidate"]

_SAMPLES = 128


def draft_candidate(workload: Workload, machine: Target) -> Candidate | None:
    """The best of a few configurations by the draft model; nothing is compiled or timed.

    They are of the first and of the last sketch of the search space: to read a sketch takes as
    long as to score thousands of configurations, and more of these make up for the others. The
    same workload gets the same one in every process.

    Args:
        workload: What it computes.
        machine: A CPU, with as many cores as there are threads.

    Returns:
        None where the search space refuses the workload: there are only loops over its axes.
    """
    limits = NativeBackend().limits(machine)
    try:
        made = generate_sketches(workload, machine, limits, BUILT_IN_RULES).sketches
        chosen = {**_first_feasible(made), **_first_feasible(reversed(made))}
        if not chosen:
            return None
        batch = FeasibleSpace(chosen).sample(_SAMPLES, np.random.default_rng(0))
        scores = PSA(ModelContext(target=machine)).score(batch)
    except AutotuneError:
        return None
    if not np.isfinite(scores).any():
        return None
    # Of a number that is none nothing is known.
    best = int(np.argmax(np.where(np.isfinite(scores), scores, -np.inf)))
    return list(batch)[best]


def _first_feasible(sketches: Iterable[Sketch]) -> dict[Sketch, FeasibleSet]:
    """The first one that has configurations, with these; empty where none has."""
    for made in sketches:
        sketch, feasible, _ = loosen(made)
        if feasible.count:
            return {sketch: feasible}
    return {}
