"""The tables that the command line shows: pure functions from data to `Table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from autotune.plugins.manager import PluginStatus
from autotune.plugins.workload_names import BuilderInfo, task_name
from autotune.process.stopwatch import ACTIVITIES
from autotune.report import formats
from autotune.report.confirmation import comparison_text, confirmation_lines, short_name
from autotune.report.table import Table
from autotune.store.records import Outcome, Record
from autotune.store.rejections import describe_rejections
from autotune.store.trial_log import describe_counts
from autotune.tuning.result import Result, Rival

__all__ = [
    "Finding",
    "builders_table",
    "comparison_table",
    "findings_table",
    "plugins_table",
    "records_table",
    "share_text",
    "time_line",
]

ACTIVITY_LABELS = {
    "startup": "start-up",
    "search": "search",
    "model": "model",
    "build": "build",
    "run": "run",
    "other": "other",
}


@frozen
class Finding:
    """One line of a diagnosis; ``status`` is ``ok``, ``warning`` or ``error``."""

    label: str
    status: str
    message: str


def comparison_table(
    result: Result, vendor: Outcome | None = None, vendor_name: str = "", caveat: str = ""
) -> Table:
    """What tuning gained: untuned, tuned, vendor; and below it trials, time and record.

    Args:
        result: What tuning returned.
        vendor: Latency of the vendor library, where there is one.
        vendor_name: What that library is called.
        caveat: Why its latency cannot be compared, if it cannot; then no ratio is shown.
    """
    tuned = None if result.best is None else result.best.outcome.latency
    untuned = None if result.baseline is None else result.baseline.latency
    backend = short_name(result.backend)
    lines = [(f"untuned ({backend})", untuned)]
    if result.rivals:
        lines += [(f"tuned ({backend})", tuned), *map(_rival_line, result.rivals)]
    else:
        lines.append(("tuned", tuned))
    if vendor is not None:
        lines.append((vendor_name or "vendor", vendor.latency))
    flop = result.workload.flop
    rows = tuple(
        (
            label,
            formats.seconds(latency),
            formats.rate(flop, latency),
            formats.ratio(latency / tuned if latency and tuned else None),
        )
        for label, latency in lines
    )
    notes = _notes(result)
    if caveat:
        rows = (*rows[:-1], (*rows[-1][:-1], "not comparable"))
        notes = (*notes, f"{vendor_name or 'vendor'} is not comparable here: {caveat}")
    columns = ("program", "latency>", "rate>", "time / tuned>")
    return Table(result.task, columns, rows, notes)


def _rival_line(rival: Rival) -> tuple[str, float | None]:
    best = rival.result.best
    latency = None if best is None else best.outcome.latency
    return f"tuned ({short_name(rival.result.backend)})", latency


def _rival_notes(result: Result) -> list[str]:
    """What became of the other backends that competed."""
    notes = []
    for rival in result.rivals:
        other, name = rival.result, short_name(rival.result.backend)
        if rival.comparison is not None:
            notes.append(comparison_text(rival.comparison, other.backend))
        notes.append(f"{name}: {other.trials} trials ({describe_counts(other.outcomes)})")
        if other.best is None:
            notes.append(other.failure_text())
    return notes


def _notes(result: Result) -> tuple[str, ...]:
    total = sum(result.seconds.values())
    cached = f", {result.cached} of them from records" if result.cached else ""
    notes = [
        f"trials: {result.trials}{cached} ({describe_counts(result.outcomes)})",
        time_line(result.seconds),
    ]
    if result.from_records:
        notes[1] = f"answered from records; the run took {formats.seconds(total)} when it was made"
    if result.best is None:
        notes.append(result.failure_text())
    else:
        if result.confirmation is not None:
            notes += confirmation_lines(result.confirmation)
        if result.rejections:
            counts = {reason: found.count for reason, found in result.rejections.items()}
            notes.append(f"turned down: {describe_rejections(counts)}")
        best = result.best
        notes += _rival_notes(result)
        notes.append(
            f"record: {result.database}, run {best.run_id}, trial {best.trial}, "
            f"candidate {best.candidate.digest}"
        )
    return tuple(notes)


def time_line(seconds: Mapping[str, float]) -> str:
    """Where the time went, on one line, largest first."""
    total = sum(seconds.values())
    parts = sorted(ACTIVITIES, key=lambda name: -seconds.get(name, 0.0))
    listed = ", ".join(
        f"{ACTIVITY_LABELS[name]} {formats.seconds(seconds.get(name, 0.0))}"
        f" ({formats.percent(seconds.get(name, 0.0), total)})"
        for name in parts
    )
    return f"time: {formats.seconds(total)} = {listed}"


def share_text(seconds: Mapping[str, float]) -> str:
    """``"build 52 %, run 41 %, start-up 7 %"``: shares of at least one percent, largest first."""
    total = sum(seconds.values())
    shares = [(seconds.get(name, 0.0) / total, name) for name in ACTIVITIES] if total > 0 else []
    listed = sorted(shares, key=lambda item: -item[0])
    return ", ".join(
        f"{ACTIVITY_LABELS[name]} {100 * share:.0f} %" for share, name in listed if share >= 0.01
    )


def plugins_table(statuses: Sequence[PluginStatus]) -> Table:
    """What is registered, and what failed to be."""
    rows = tuple(
        (s.kind, s.name, s.distribution or "-", s.version or "-", s.status, s.error)
        for s in statuses
    )
    columns = ("kind", "name", "distribution", "version", "status", "error")
    return Table("", columns, rows)


def builders_table(builders: Sequence[BuilderInfo]) -> Table:
    """Workload builders and what they take."""
    rows = tuple(
        (info.name, ", ".join(map(str, info.shape)), info.dtype or "-", info.description)
        for info in builders
    )
    return Table("", ("workload", "shape", "default dtype", "description"), rows)


def records_table(records: Sequence[Record]) -> Table:
    """Records, in the given order."""
    rows = []
    for record in records:
        workload = record.candidate.sketch.workload
        latency = record.outcome.latency
        rows.append(
            (
                task_name(workload),
                formats.seconds(latency),
                formats.rate(workload.flop, latency),
                str(record.target.get("name", "-")),
                f"{short_name(record.key.backend)} {record.key.backend_version}",
                str(record.key.threads),
                record.candidate.sketch.name,
                f"{record.run_id}/{record.trial}",
            )
        )
    columns = (
        "workload",
        "latency>",
        "rate>",
        "target",
        "backend",
        "threads>",
        "sketch",
        "record",
    )
    return Table("", columns, tuple(rows))


def findings_table(findings: Sequence[Finding]) -> Table:
    """A diagnosis."""
    rows = tuple((finding.status, finding.label, finding.message) for finding in findings)
    return Table("", ("status", "what", "finding"), rows)
