"""Records of a program are those of every equal one, whatever its tensors and axes are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import autotune
from autotune.ir.workloads import Workload, random_inputs, reference_outputs
from autotune.measure.validation import expectations, mismatch


def check_answers_from_records(
    first: Any, second: Any, workload: Workload, folder: Path, **settings: Any
) -> tuple[autotune.Result, autotune.Result]:
    """Tune one program, then an equal one of other names: nothing is measured twice.

    Args:
        first: A program.
        second: The same one under other names.
        workload: What the second one is imported as.
        folder: Where the database is made.
        settings: Of both runs.

    Returns:
        Both results.
    """
    # Without a warm start both propose the same.
    given = {"database": folder / "records.db", "trials": 6, "threads": 1, "seed": 3, **settings}
    given = {"warm_start": False, **given}
    one, other = (autotune.tune(program, **given) for program in (first, second))
    assert (one.cached, other.cached) == (0, other.trials) and other.trials == one.trials
    assert one.run_id != other.run_id and one.workload.digest == other.workload.digest
    best, same = one.require_best(), other.require_best()
    assert same.name == best.name and same.candidate.digest == best.candidate.digest
    assert other.workload == same.candidate.sketch.workload == workload
    inputs = random_inputs(workload, np.random.default_rng(0))
    wanted = reference_outputs(workload, inputs)
    found = other.build()(*(inputs[tensor.name] for tensor in workload.inputs))
    outputs = found if isinstance(found, tuple) else (found,)
    assert mismatch(expectations(workload, list(wanted.values())), list(outputs)) is None
    return one, other
