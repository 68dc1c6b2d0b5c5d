"""Programs as inputs of networks, and their training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import AffineForm, Binary, Unary
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Workload
from autotune.ir.workloads.workload import Stage
from autotune.models.features import DATAFLOW_COLUMNS, FEATURE_COLUMNS, PAM_VERSION, pam_features
from autotune.sketches import CandidateBatch, Sketch, per_sketch
from autotune.targets import Target
from autotune_pruner.networks import FLOW_LENGTH, Normaliser, Scale

__all__ = [
    "Programs",
    "TASK_COLUMNS",
    "TrainingData",
    "feature_version",
    "featurise",
    "normaliser_of",
    "task_embedding",
]

# Columns are 0, 1 or logarithms to base 2.
_LEAST_DEVIATION = 0.01

_PAM_FIDELITY = {"ours": "corrected", "published": "published"}


def feature_version(fidelity: str) -> str:
    """Names the meaning of all columns under ``"ours"`` or ``"published"``."""
    return f"{PAM_VERSION}/{TASK_VERSION}/{_PAM_FIDELITY[fidelity]}"


@frozen(eq=False)
class Programs:
    """Features of ``n`` programs.

    Attributes:
        statements: float32 ``[rows, 174]``: 164 features of each statement and 10 of the task.
        offsets: int64 ``[n + 1]``: program ``i`` has the rows ``offsets[i]`` to
            ``offsets[i + 1]``.
        dataflow: float32 ``[n, 8, 23]``.
    """

    statements: NDArray[np.float32]
    offsets: NDArray[np.int64]
    dataflow: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.dataflow)

    def rows(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the programs at ``indices``, and for each row which of these it belongs to."""
        counts = np.diff(self.offsets)[indices]
        owners = np.repeat(np.arange(len(indices), dtype=np.int64), counts)
        first = np.cumsum(counts) - counts
        return self.offsets[indices][owners] + np.arange(len(owners)) - first[owners], owners

    def take(self, indices: NDArray[np.int64]) -> Programs:
        """The programs at ``indices``, in their order."""
        rows, _ = self.rows(indices)
        counts = np.diff(self.offsets)[indices]
        return Programs(self.statements[rows], _offsets(counts), self.dataflow[indices])

    @staticmethod
    def joined(parts: Sequence[Programs]) -> Programs:
        """The programs of all parts, one part after the other."""
        counts = [np.diff(part.offsets) for part in parts]
        width = len(FEATURE_COLUMNS) + len(TASK_COLUMNS)
        none = np.zeros((0, width), dtype=np.float32)
        no_flow = np.zeros((0, FLOW_LENGTH, len(DATAFLOW_COLUMNS)), dtype=np.float32)
        return Programs(
            np.concatenate([none, *(part.statements for part in parts)]),
            _offsets(np.concatenate([np.zeros(0, dtype=np.int64), *counts])),
            np.concatenate([no_flow, *(part.dataflow for part in parts)]),
        )


@frozen(eq=False)
class TrainingData:
    """Programs and how good they are.

    Attributes:
        programs: ``n`` programs.
        labels: float32 ``[n]``: best latency of the task over the program's; 0 for a failure.
        tasks: int64 ``[n]``: number of each program's task. Only programs of one task compare.
    """

    programs: Programs
    labels: NDArray[np.float32]
    tasks: NDArray[np.int64]

    @property
    def teaches(self) -> bool:
        """True if some task has programs of which one is better than another."""
        order = np.argsort(self.tasks, kind="stable")
        same = np.diff(self.tasks[order]) == 0
        return bool((same & (np.diff(self.labels[order]) != 0)).any())

    def take(self, indices: NDArray[np.int64]) -> TrainingData:
        """The rows at ``indices``."""
        return TrainingData(self.programs.take(indices), self.labels[indices], self.tasks[indices])


def featurise(
    batch: CandidateBatch, target: Target, fidelity: str = "ours", threads: int = 1
) -> Programs:
    """Features of all candidates, in the order of the batch.

    Args:
        batch: The candidates.
        target: What they are for.
        fidelity: ``"ours"``, or ``"published"`` for features with the published errors.
        threads: Threads to share the rows out to.

    Raises:
        InvalidValueError: a quantity of some candidate passes 2^53.
    """
    parts = []
    for sketch, matrix in batch.parts:
        found = pam_features(sketch, matrix, target, _PAM_FIDELITY[fidelity], threads)
        task = np.broadcast_to(
            _embedding(sketch),
            (len(found.values), len(TASK_COLUMNS)),
        )
        statements = np.concatenate([found.values, task], axis=1)
        parts.append(Programs(statements, found.offsets, found.dataflow))
    return parts[0] if len(parts) == 1 else Programs.joined(parts)


def normaliser_of(programs: Programs, fidelity: str = "ours") -> Normaliser:
    """Scales by which the columns of ``programs`` become comparable.

    Ours shifts each column by its mean and divides it by its standard deviation. Published
    (reference: section 2.4) is a division by its maximum, 1 where that is not positive; what
    varies between the programs of one task is then a small part of most columns.
    """
    scale = _by_maximum if fidelity == "published" else _by_deviation
    return Normaliser(scale(programs.statements), scale(programs.dataflow))


def _by_maximum(values: NDArray[np.float32]) -> Scale:
    flat = values.reshape(-1, values.shape[-1])
    largest = flat.max(axis=0, initial=0.0)
    width = np.where(largest > 0, largest, np.float32(1.0))
    return Scale(np.zeros_like(width), width)


def _by_deviation(values: NDArray[np.float32]) -> Scale:
    flat = values.reshape(-1, values.shape[-1]).astype(np.float64)
    if not len(flat):
        return _by_maximum(values)
    deviation = flat.std(axis=0)
    # A column that is the same everywhere may differ in what is to be scored: not by much then.
    constant = deviation < _LEAST_DEVIATION
    width = np.where(constant, np.maximum(np.abs(flat).max(axis=0), 1.0), deviation)
    return Scale(flat.mean(axis=0).astype(np.float32), width.astype(np.float32))


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


@per_sketch
def _embedding(sketch: Sketch) -> NDArray[np.float32]:
    return task_embedding(sketch.workload)


TASK_VERSION = "task-1"
"""Meaning of the columns; a model trained with another one is not to be used."""

TASK_COLUMNS = (
    "maximum",
    "minimum",
    "addition",
    "convolution",
    "winograd",
    "depthwise",
    "matrix_product",
    "softmax",
    "batched_product",
    "unused",
)
"""``winograd`` is 0: no workload is written that way; the last column is 0 as published."""


def task_embedding(workload: Workload) -> NDArray[np.float32]:
    """The columns ``[10]`` of a workload, each 0 or 1."""
    operations = {
        node.op
        for stage in workload.stages
        for node in walk(stage.body)
        if isinstance(node, (Unary, Binary))
    }
    combiners = {stage.combiner for stage in workload.stages}
    products = {_product(stage) for stage in workload.stages}
    columns: Mapping[str, bool] = {
        "maximum": "max" in operations | combiners,
        "minimum": "min" in operations | combiners,
        "addition": "add" in operations | combiners,
        "convolution": (True, False) in products,
        "depthwise": (True, True) in products,
        "matrix_product": (False, False) in products,
        "softmax": "exp" in operations and {"max", "add"} <= combiners,
        "batched_product": (False, True) in products,
    }
    return np.array([columns.get(name, False) for name in TASK_COLUMNS], dtype=np.float32)


def _product(stage: Stage) -> tuple[bool, bool] | None:
    """Kind of a sum of products of two tensors; None for anything else.

    Returns:
        Whether one is read at sums of a spatial and a reduced axis; and whether a spatial axis
        indexes both, as channels or a batch do.
    """
    multiplies = any(isinstance(node, Binary) and node.op == "mul" for node in walk(stage.body))
    if stage.combiner != "add" or not multiplies or len(stage.loads) != 2:
        return None
    try:
        left, right = (stage.access_map(load) for load in stage.loads)
    except UnsupportedWorkload:
        return None
    spatial = {axis.name for axis in stage.spatial_axes}
    window = any(
        axes & spatial and axes - spatial
        for axes in (set(form.coefficients) for form in (*left, *right))
    )
    return window, bool(spatial & _axes(left) & _axes(right))


def _axes(forms: tuple[AffineForm, ...]) -> set[str]:
    return {axis for form in forms for axis in form.coefficients}
