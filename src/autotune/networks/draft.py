"""Schedules that nobody measured: what the draft model takes for the best of a few."""

from __future__ import annotations

import numpy as np

from autotune.backends.native import NativeBackend
from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune.models.pruning import PSA
from autotune.plugins import Context
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import Target

__all__ = ["draft_candidate"]

_SAMPLES = 128


def draft_candidate(workload: Workload, machine: Target) -> Candidate | None:
    """The best of a few configurations by the draft model; nothing is compiled or timed.

    The same workload gets the same one in every process.

    Args:
        workload: What it computes.
        machine: A CPU, with as many cores as there are threads.

    Returns:
        None where the search space refuses the workload: there are only loops over its axes.
    """
    try:
        space = SketchSpace(workload, machine, NativeBackend().limits(machine))
        batch = space.sample(_SAMPLES, np.random.default_rng(0))
        scores = PSA(Context(target=machine, workload=workload)).score(batch)
    except AutotuneError:
        return None
    if not np.isfinite(scores).any():
        return None
    # Of a number that is none nothing is known.
    best = int(np.argmax(np.where(np.isfinite(scores), scores, -np.inf)))
    return list(batch)[best]
