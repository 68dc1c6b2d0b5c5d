"""Source of a run's first proposals, and of what its model knew before them."""

from __future__ import annotations

from attrs import frozen

from autotune.ir.converter import JsonForm

__all__ = ["WARM_USES", "WarmSource"]

WARM_USES = ("best", "seed", "training")
"""The best of equal records; a first proposal from those of another task; training data."""


@frozen
class WarmSource(JsonForm):
    """A recorded task that a run began with.

    Attributes:
        record: Name of the record of its fastest candidate, ``RUN/TRIAL``.
        workload: Digest of its workload.
        task: What a person calls it.
        distance: From the task of the run; see :class:`autotune.ir.workloads.WorkloadForm`.
        used_as: What for: of :data:`WARM_USES`.
        candidate: Digest of the candidate that was proposed because of it; "" where none was.
        training: Records of it that the cost model learned from.
    """

    record: str
    workload: str
    task: str
    distance: float
    used_as: tuple[str, ...]
    candidate: str = ""
    training: int = 0
