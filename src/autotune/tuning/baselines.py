"""The programs that a task has without tuning: which there are, and what they count as."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from autotune.ir.workloads import Workload
from autotune.sketches import UNTUNED, Candidate, baseline_candidate
from autotune.store.database import Database, RecordFilter
from autotune.store.records import Baseline, Comparison, MeasureKey, Outcome, best_baseline

__all__ = ["after_turns", "current", "fastest_first", "known_here", "program_named"]


def known_here(
    database: Database, workload: str, key: MeasureKey, run_id: str | None
) -> list[Baseline]:
    """Latency that was timed here, and is no imported claim.

    Args:
        database: Where to look.
        workload: Digest of the workload.
        key: What the measurements depend on.
        run_id: The only run that counts; None where all do.
    """
    found = database.baselines(RecordFilter(workload=workload, key=key, run_id=run_id))
    return [baseline for baseline in found if not baseline.outcome.imported]


def current(
    database: Database, workload: str, key: MeasureKey, run_id: str, untuned: Outcome | None
) -> tuple[Baseline, ...]:
    """The baselines of a task as the database has them by now, the fastest first.

    Args:
        database: Other runs may have compared them with faster candidates.
        workload: Digest of the workload.
        key: What the measurements depend on.
        run_id: The run.
        untuned: What it found of the untuned program; one that took too long is not looked up.
    """
    recorded = known_here(database, workload, key, None)
    if untuned is None:
        return fastest_first(recorded)
    return fastest_first([Baseline(run_id, workload, key, untuned, 0.0), *recorded])


def fastest_first(baselines: Sequence[Baseline]) -> tuple[Baseline, ...]:
    """Baselines, the last one of each name, ordered by latency; those without come last."""
    left = list({baseline.name: baseline for baseline in baselines}.values())
    ordered = []
    while (fastest := best_baseline(left)) is not None:
        left.remove(fastest)
        ordered.append(fastest)
    return (*ordered, *left)


def after_turns(baseline: Baseline, over: Comparison, latency: float, created: float) -> Baseline:
    """Latency of a baseline after it has taken turns with the fastest candidate.

    Where that one is not faster beyond the noise, the baseline counts as no slower.

    Args:
        baseline: The baseline.
        over: The candidate against it.
        latency: Recorded latency of the candidate in seconds.
        created: Unix time in seconds.
    """
    ratio = over.ratio if over.faster else min(over.ratio, 1.0)
    return evolve(baseline, counts_as=latency * ratio, created=created)


def program_named(workload: Workload, name: str) -> Candidate | None:
    """Program that a measurer builds for the baseline of this name; None is the untuned one."""
    return None if name == UNTUNED else baseline_candidate(workload, name)
