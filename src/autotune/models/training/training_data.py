"""Recorded outcomes as training data: grouped by task, split by task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.workloads import Workload
from autotune.models.cost import TrainingGroup
from autotune.plugins.workload_names import task_name
from autotune.sketches import Candidate
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target

__all__ = ["folds_by_task", "only_target", "select_tasks", "training_groups"]


def training_groups(records: Iterable[Record]) -> list[TrainingGroup]:
    """Make a group for each workload under each measure key, in order of appearance.

    Latencies of different keys do not compare: another protocol, backend or target measures
    something else. A candidate that was measured several times counts once, with the last outcome
    that is no retriable failure, if there is one.
    """
    found: dict[tuple[str, MeasureKey], dict[str, tuple[Candidate, Outcome]]] = {}
    workloads: dict[str, Workload] = {}
    for record in records:
        candidate, workload = record.candidate, record.candidate.sketch.workload
        workloads.setdefault(workload.digest, workload)
        group = found.setdefault((workload.digest, record.key), {})
        if candidate.digest not in group or not record.outcome.retriable:
            group[candidate.digest] = candidate, record.outcome
    return [
        TrainingGroup(task_name(workloads[digest]), digest, tuple(told.values()))
        for (digest, _), told in found.items()
    ]


def only_target(records: Sequence[Record], wanted: Target | None = None) -> Target:
    """The target that records are of.

    Args:
        records: The records, at least one.
        wanted: The target that is meant; None where there has to be one only.

    Raises:
        InvalidValueError: there are several, or none is the wanted one.
    """
    found = {record.key.target: record.target for record in records}
    if wanted is not None:
        if wanted.fingerprint not in found:
            raise InvalidValueError(
                f"there are no records of target {wanted.name!r} with {wanted.cores} cores; "
                f"there are of {_named(found.values())}"
            )
        return wanted
    if len(found) != 1:
        raise InvalidValueError(
            f"there are records of several targets ({_named(found.values())}); name one"
        )
    (description,) = found.values()
    return Target.from_json(description)


def select_tasks(
    groups: Sequence[TrainingGroup], names: Iterable[str]
) -> tuple[list[TrainingGroup], list[TrainingGroup]]:
    """Groups that are not named, and those that are.

    Args:
        groups: All groups.
        names: What a person calls a task, such as ``"gemm m=64 n=64 k=64 float32"``; the name of
            its workload, which may be that of many; or the digest of its workload.

    Raises:
        UnknownNameError: a name is that of no group.
    """
    held: set[int] = set()
    for name in names:
        meant = {
            number
            for number, group in enumerate(groups)
            if name in (group.name, group.name.partition(" ")[0], group.workload)
        }
        if not meant:
            raise UnknownNameError("task", name, dict.fromkeys(group.name for group in groups))
        held |= meant
    kept = [group for number, group in enumerate(groups) if number not in held]
    return kept, [groups[number] for number in sorted(held)]


def folds_by_task(
    groups: Sequence[TrainingGroup], folds: int, seed: int = 0
) -> list[tuple[int, ...]]:
    """Numbers of the groups of each fold; all groups of one workload are in the same one.

    Args:
        groups: The groups.
        folds: How many folds.
        seed: Decides which tasks are together.

    Raises:
        InvalidValueError: there are fewer workloads than folds, or fewer than two folds.
    """
    workloads = list(dict.fromkeys(group.workload for group in groups))
    if not 2 <= folds <= len(workloads):
        raise InvalidValueError(
            f"folds must be between 2 and {len(workloads)}, the number of tasks, not {folds}"
        )
    order = np.random.default_rng(seed).permutation(len(workloads))
    fold_of = {workloads[task]: place % folds for place, task in enumerate(order.tolist())}
    return [
        tuple(number for number, group in enumerate(groups) if fold_of[group.workload] == fold)
        for fold in range(folds)
    ]


def _named(targets: Iterable[object]) -> str:
    described = [Target.from_json(dict(target)) for target in targets]  # type: ignore[call-overload]
    return ", ".join(f"{target.name} with {target.cores} cores" for target in described)
