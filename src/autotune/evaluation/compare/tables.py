"""A comparison as tables, CSV and JSON."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from attrs import asdict

from autotune.evaluation.compare.figures import (
    NEAR,
    Cell,
    ComparedRuns,
    cell_of,
    pairs_of,
    speedup_over,
    verdict,
)
from autotune.evaluation.compare.plan import BASELINE, COMPARE_SCHEMA, COMPARE_VERSION, Plan
from autotune.report import Table, formats
from autotune.report.bootstrap import ConfidenceInterval, PairedDifference

__all__ = ["compare_json", "compare_tables", "csv_text"]

# With fewer seeds bootstrap intervals are too narrow.
_ENOUGH_SEEDS = 5
_MOST_FAILURES = 10


def compare_tables(study: ComparedRuns) -> list[Table]:
    """Build a table for each workload, one over all of them, and one of pairs."""
    tables = [_workload_table(study, workload) for workload in study.workloads]
    tables.append(_total_table(study))
    if len(study.contenders) > 1:
        tables.append(_pair_table(study))
    return tables


def compare_json(plan: Plan, study: ComparedRuns) -> dict[str, Any]:
    """Everything as a JSON object; latencies in seconds, unknown figures null."""
    over_all = {
        name: speedup_over(study, name, BASELINE, study.workloads) for name in study.contenders
    }
    return {
        "schema": COMPARE_SCHEMA,
        "version": COMPARE_VERSION,
        **{name: plan.head[name] for name in ("budget", "common", *plan.setting)},
        "seeds": study.seeds,
        "baseline": BASELINE if BASELINE in study.contenders else None,
        "workloads": [
            {
                "label": it.label,
                "digest": it.digest,
                "best_known": _known(study.best_known(it.label)),
                "contenders": [
                    cell_of(study, it.label, name).to_json() for name in study.contenders
                ],
            }
            for it in plan.workloads
        ],
        "contenders": [
            {
                "name": it.name,
                "arguments": list(it.arguments),
                "speedup": (found := over_all[it.name]) and asdict(found),
                "verdict": verdict(study, it.name),
            }
            for it in plan.contenders
        ],
        "pairs": [pair.to_json() for pair in pairs_of(study)],
        "failures": [{**asdict(it), "error": why} for it, why in study.failures.items()],
        "runs": [
            {**asdict(run), "latency": _known(run.latency)}
            for workload in study.workloads
            for name in study.contenders
            for run in study.of(workload, name)
        ],
    }


def csv_text(study: ComparedRuns) -> str:
    """Write a line for each contender on each workload, with a head."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    figures = ("latency", "speedup")
    bounds = [f"{name}_{end}" for name in figures for end in ("value", "low", "high")]
    plain = ("near", "near_runs", "seconds")
    writer.writerow(["workload", "contender", "runs", "empty", *bounds, *plain])
    for workload in study.workloads:
        for contender in study.contenders:
            data = cell_of(study, workload, contender).to_json()
            speedup = data["speedup"] and data["speedup"]["interval"]
            row = [data[name] for name in ("workload", "contender", "runs", "empty")]
            for found in (data["latency"], speedup):
                row += [found[end] for end in ("value", "low", "high")] if found else [None] * 3
            writer.writerow([*row, *(data[name] for name in plain)])
    return text.getvalue()


def _workload_table(study: ComparedRuns, workload: str) -> Table:
    rows = tuple(_row(cell_of(study, workload, name), study) for name in study.contenders)
    heads = (
        *("contender", "runs>", "median latency>", f"over {BASELINE}>"),
        *(f"trials to {NEAR:.0%}>", "reached>", "seconds>"),
    )
    best = study.best_known(workload)
    notes = [f"best known {formats.seconds(_known(best))}"]
    failed = [(it, why) for it, why in study.failures.items() if it.workload == workload]
    notes += [f"{it.label} failed: {why}" for it, why in failed[:_MOST_FAILURES]]
    if len(failed) > _MOST_FAILURES:
        notes.append(f"and {len(failed) - _MOST_FAILURES} others failed")
    return Table(workload, heads, rows, tuple(notes))


def _row(cell: Cell, study: ComparedRuns) -> tuple[str, ...]:
    many = cell.runs > 1
    return (
        cell.contender,
        f"{cell.runs}/{study.seeds}" + (f", {cell.empty} empty" if cell.empty else ""),
        _latency(cell.latency, many),
        "1" if cell.contender == BASELINE else _ratio(cell.speedup, many),
        f"{cell.near:.0f}" if math.isfinite(cell.near) else "-",
        f"{cell.near_runs}/{cell.runs}",
        f"{cell.seconds:.0f}" if math.isfinite(cell.seconds) else "-",
    )


def _total_table(study: ComparedRuns) -> Table:
    many = study.seeds > 1
    rows = []
    for name in study.contenders:
        found = speedup_over(study, name, BASELINE, study.workloads)
        rows.append((name, "1" if name == BASELINE else _ratio(found, many)))
    notes = [text for name in study.contenders if (text := verdict(study, name))]
    notes += _caveats(study)
    count = f"{len(study.workloads)} workloads" if len(study.workloads) > 1 else "one workload"
    title = f"{count}, geometric mean of the speed"
    return Table(title, ("contender", f"over {BASELINE}>"), tuple(rows), tuple(notes))


def _caveats(study: ComparedRuns) -> list[str]:
    notes = []
    if study.seeds == 1:
        notes.append("one seed: there are no intervals, and any difference may be chance")
    elif study.seeds < _ENOUGH_SEEDS:
        notes.append(f"intervals of fewer than {_ENOUGH_SEEDS} seeds are too narrow")
    if study.failures:
        notes.append(f"{len(study.failures)} runs failed and are in no figure")
    return notes


def _pair_table(study: ComparedRuns) -> Table:
    many = study.seeds > 1
    rows = []
    for pair in pairs_of(study):
        found = pair.speedup
        chance = f"{found.above:.0%}" if found is not None and many else "-"
        rows.append((pair.first, pair.second, _ratio(found, many), chance))
    heads = ("contender", "beside", "speed>", "is faster>")
    notes = ("is faster: share of the resamples in which it is",) if many else ()
    return Table("pairs, over all workloads", heads, tuple(rows), notes)


def _latency(found: ConfidenceInterval | None, many: bool) -> str:
    if found is None or not math.isfinite(found.value):
        return "-"
    text = formats.seconds(found.value)
    if not many:
        return text
    return f"{text} [{', '.join(formats.seconds(_known(it)) for it in (found.low, found.high))}]"


def _ratio(found: PairedDifference | None, many: bool) -> str:
    if found is None:
        return "-"
    at = found.interval
    text = f"{at.value:.3f}x"
    return f"{text} [{at.low:.3f}, {at.high:.3f}]" if many else text


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
