"""Table of what can be tuned of a network."""

from __future__ import annotations

from autotune.errors import one_line
from autotune.networks.api import Coverage, TaskCoverage
from autotune.networks.model_result import percent_text
from autotune.report import Table, formats

__all__ = ["coverage_table"]

_REASON_WIDTH = 72
_FLOP_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def flop_text(flop: float) -> str:
    """A number of operations: ``"1.23 GFLOP"``."""
    scale, unit = next((it for it in _FLOP_UNITS if flop >= it[0]), _FLOP_UNITS[-1])
    return f"{flop / scale:.3g} {unit}FLOP"


def coverage_table(coverage: Coverage) -> Table:
    """The tasks of a network: which can be tuned, why the others cannot."""
    rows = [_coverage_row(it, coverage) for it in coverage.tasks]
    computing = [it for it in coverage.tasks if not it.task.view]
    tuned = [it for it in computing if it.task.is_tunable and it.space == coverage.space]
    fallen = [it for it in computing if it.task.is_tunable and it.space != coverage.space]
    calls = sum(it.task.occurrences for it in computing)
    tuned_calls = sum(it.task.occurrences for it in tuned)
    notes = [
        f"can be tuned: {len(tuned)} of {len(computing)} tasks, {tuned_calls} of {calls} calls, "
        f"{percent_text(coverage.tunable_flop, coverage.flop)} of the flop"
    ]
    if fallen:
        spaces = ", ".join(sorted({it.space for it in fallen}))
        notes.append(f"by the fallback to {spaces}: {len(fallen)} tasks")
    if len(tuned) + len(fallen) < len(computing):
        notes.append("what is refused is run by the backend's default schedule")
    title = f"{coverage.network.name}: {flop_text(coverage.flop)} in {calls} calls"
    columns = ("task", "calls>", "flop>", "share>", "sketches>", "configurations>", "tuned")
    return Table(title, columns, tuple(rows), tuple(notes))


def _coverage_row(it: TaskCoverage, coverage: Coverage) -> tuple[str, ...]:
    task = it.task
    how = f"by space {it.space}"
    if task.view:
        how = "no: a view, which computes nothing"
    elif task.refusal:
        how = f"no: {one_line(task.refusal, _REASON_WIDTH)}"
    return (
        formats.shortened(task.name),
        str(task.occurrences),
        flop_text(task.flop),
        percent_text(task.total_flop, coverage.flop),
        str(it.sketches or "-"),
        f"{it.configurations:,}" if it.configurations else "-",
        how,
    )
