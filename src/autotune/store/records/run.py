"""A tuning run as an entity that can be resumed, and the records that it began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import attrs
from attrs import field, frozen

from autotune.ir.converter import JsonForm
from autotune.store.records.record import MeasureKey

RUN_STATUSES = ("running", "interrupted", "finished", "failed")


@frozen
class Run:
    """Run of the tuner on one task.

    ``workload`` is the workload's spelling: an equal one under other names is another run, which
    finds the records of this one. ``identity`` names everything that decides which candidates are
    proposed (workload, measure key, space, strategy, options, cost model, seed), but not the
    budget: a larger budget continues the same run. ``trials`` is that budget, 0 where time alone
    limits it. ``checkpoint`` is the tuner's JSON state after
    the last complete round.
    """

    run_id: str
    identity: str
    workload: str
    key: MeasureKey
    space: str
    strategy: str
    options: Mapping[str, Any] = field(hash=False)
    seed: int
    trials: int
    status: str
    created: float
    checkpoint: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def network(self) -> str:
        """Identity of the tuned network before it is read; "" for none."""
        return str(self.options.get("network", ""))

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of its tasks for people; none of a run of an older version."""
        names = self.options.get("task_names")
        return tuple(map(str, names)) if isinstance(names, list) else ()


def run_identity(
    workload: str,
    key: MeasureKey,
    space: str,
    strategy: str,
    options: Mapping[str, Any],
    seed: int,
) -> str:
    """Digest of what decides a run's proposals; see :class:`Run`."""
    content = [
        workload,
        attrs.astuple(key),
        space,
        strategy,
        dict(options),
        seed,
    ]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
