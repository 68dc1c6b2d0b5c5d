"""Features of statements and of their data flow, for batches of configurations."""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models.features.conventions import conventions_for
from autotune.models.features.plan import sketch_plan
from autotune.sketches import Sketch
from autotune.targets import Target

__all__ = ["PAM_VERSION", "PamFeatures", "pam_features"]

PAM_VERSION = "pam-1"
"""Meaning of the columns; a model trained with another one is not to be used."""


@frozen(eq=False)
class PamFeatures:
    """Features of ``n`` configurations.

    Attributes:
        values: float32 ``[rows, 164]``, in the order of ``FEATURE_COLUMNS``: the rows of the
            first configuration, then those of the second, ...
        offsets: int64 ``[n + 1]``: configuration ``i`` has the rows ``offsets[i]`` up to
            ``offsets[i + 1]``.
        statements: Names of the statements behind the rows of each configuration, in program
            order: one per stored buffer. An initialisation is part of its update.
        dataflow: float32 ``[n, 8, 23]``, in the order of ``DATAFLOW_COLUMNS``.
    """

    values: NDArray[np.float32]
    offsets: NDArray[np.int64]
    statements: tuple[str, ...]
    dataflow: NDArray[np.float32]


def pam_features(
    sketch: Sketch,
    matrix: NDArray[np.int64],
    target: Target,
    fidelity: str = "corrected",
    threads: int = 1,
) -> PamFeatures:
    """Features of the configurations ``[n, params]`` of one sketch.

    The 164 columns are Ansor's (OSDI'20) with the definitions of TVM's extractor; the data-flow
    block is that of Pruner (ASPLOS'25). ``docs/pam-features.md`` lists them all.

    Args:
        sketch: The sketch.
        matrix: int64, one configuration a row.
        target: What the program is for; its kind says whether it is a GPU program.
        fidelity: ``"corrected"``, or with the errors of the ``"published"`` extractor, or with
            the conventions of ``"tvm"``.
        threads: Threads to share the rows out to.

    Raises:
        InvalidValueError: the matrix does not fit the sketch, or for some configuration a
            quantity passes 2^53 or something is divided by zero.
        UnknownNameError: there is no such fidelity.
    """
    plan = sketch_plan(sketch, conventions_for(fidelity), target.kind == "cuda")
    if matrix.ndim != 2 or matrix.shape[1] != len(sketch.param_names):
        raise InvalidValueError(
            f"sketch {sketch.name!r} has {len(sketch.param_names)} parameters; "
            f"got a matrix {matrix.shape}"
        )
    if matrix.dtype != np.int64:
        raise InvalidValueError(f"configurations are int64, not {matrix.dtype}")
    try:
        values, dataflow = plan.native.evaluate(np.ascontiguousarray(matrix), threads)
    except (OverflowError, ValueError) as error:
        raise InvalidValueError(f"sketch {sketch.name!r}: {error}") from error
    rows = len(plan.statements)
    offsets = np.arange(len(matrix) + 1, dtype=np.int64) * rows
    flat = values.reshape(len(matrix) * rows, values.shape[2])
    return PamFeatures(flat, offsets, plan.statements, dataflow)
