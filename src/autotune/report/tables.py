"""The tables that the command line shows: pure functions from data to `Table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from autotune.errors import one_line
from autotune.external.given import recorded_configuration
from autotune.ir.workloads import Workload
from autotune.plugins.manager import PluginStatus
from autotune.plugins.workload_names import BuilderInfo, task_name
from autotune.process.stopwatch import ACTIVITIES
from autotune.report import formats
from autotune.report.lines import (
    baseline_phrase,
    comparison_text,
    confirmation_lines,
    short_name,
    warm_start_text,
)
from autotune.report.table import Table
from autotune.sketches import UNTUNED, baseline_label
from autotune.store.records import Baseline, Outcome, Record
from autotune.store.rejections import describe_rejections
from autotune.store.trial_log import describe_counts
from autotune.tuning.machines import Fleet
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

_VALUES_WIDTH = 60
ACTIVITY_LABELS = {
    "startup": "start-up",
    "search": "search",
    "model": "model",
    "build": "build",
    "run": "run",
    "confirm": "confirmation",
    "other": "other",
}


@frozen
class Finding:
    """Line of a diagnosis; ``status`` is ``ok``, ``warning`` or ``error``."""

    label: str
    status: str
    message: str


def comparison_table(
    result: Result, vendor: Outcome | None = None, vendor_name: str = "", caveat: str = ""
) -> Table:
    """The tuned program beside what it can be compared with, and the baselines last.

    Below it trials, time, confirmation and record.

    Args:
        result: What tuning returned.
        vendor: Latency of the vendor library, where there is one.
        vendor_name: What that library is called.
        caveat: Why its latency cannot be compared, if it cannot; then no ratio is shown.
    """
    tuned, baseline = _confirmed_latencies(result)
    backend = short_name(result.backend)
    label = f"tuned ({backend})" if result.rivals else "tuned"
    lines = [(f"{label}, not used" if result.keeps_baseline else label, tuned)]
    if vendor is not None:
        lines.append((vendor_name, vendor.latency))
    lines += [_rival_line(rival, tuned) for rival in result.rivals]
    lines += _baseline_lines(result.workload, result.baselines, backend, baseline)
    flop = result.workload.flop
    rows = []
    for label, latency in lines:
        ratio = formats.ratio(latency / tuned if latency and tuned else None)
        if caveat and label == vendor_name:
            ratio = "not comparable"
        rows.append((label, formats.seconds(latency), formats.rate(flop, latency), ratio))
    notes = _notes(result)
    if caveat:
        notes = (*notes, f"{vendor_name} is not comparable here: {caveat}")
    columns = ("program", "latency>", "rate>", "tuned speedup>")
    comparable = None if vendor is None or caveat else vendor.latency
    used = baseline if result.keeps_baseline else tuned
    title = _headline(result, used, comparable, vendor_name)
    return Table(title, columns, tuple(rows), notes)


def _baseline_lines(
    workload: Workload, baselines: Sequence[Baseline], backend: str, fastest: float | None
) -> list[tuple[str, float | None]]:
    """Lines on programs without tuning, the untuned program even where it could not be timed.

    Args:
        workload: What is tuned.
        baselines: The fastest first; they were timed one beside the other.
        backend: Name of the backend.
        fastest: Seconds of the first of them, from the turns at the end.
    """
    lines = []
    for it in baselines:
        latency, first = it.outcome.latency, baselines[0].outcome.latency
        if latency is not None and first is not None and fastest is not None:
            latency *= fastest / first
        if it.name == UNTUNED or latency is not None:
            lines.append((f"{baseline_label(workload, it.name)} ({backend})", latency))
    return lines or [(f"{baseline_label(workload, UNTUNED)} ({backend})", None)]


def _headline(
    result: Result, latency: float | None, vendor: float | None, vendor_name: str
) -> str:
    """The task, and the speed of the program to use beside what a user would have had.

    That is no naive loop nest, which has a line of its own.
    """
    if latency is None:
        return result.task
    figures = [formats.seconds(latency)]
    if result.workload.flop:
        figures.append(formats.rate(result.workload.flop, latency))
    if vendor is not None:
        figures.append(f"{formats.ratio(vendor / latency)} the speed of {vendor_name}")
    for rival in result.rivals:
        if rival.comparison is not None:
            figures.append(comparison_text(rival.comparison, short_name(rival.result.backend)))
    if result.keeps_baseline:
        figures.append(f"{baseline_phrase(result.baseline_name)}, which no candidate beats")
    elif result.speedup is not None and (default := _default_baseline(result)):
        name = baseline_phrase(result.baseline_name)
        beaten = "" if default in name else f", which beats {default}"
        figures.append(f"{formats.ratio(result.speedup)} the speed of {name}{beaten}")
    return f"{result.task}: {', '.join(figures)}"


def _default_baseline(result: Result) -> str:
    """Name of the default baseline, such as the compiler's default schedule; "" if unknown."""
    labels = [
        baseline_label(result.workload, it.name)
        for it in result.baselines
        if it.outcome.latency is not None
    ]
    return next((label for label in labels if label != UNTUNED), "")


def _confirmed_latencies(result: Result) -> tuple[float | None, float | None]:
    """Of the fastest candidate and the baseline, from the turns that they took at the end.

    As recorded where it took none.
    """
    tuned, confirmation = result.confirmed_latency, result.confirmation
    untuned = None if result.baseline is None else result.baseline.latency
    if result.fastest is None or tuned is None or confirmation is None:
        return tuned, untuned
    over, winner = confirmation.over_baseline, result.fastest.candidate.digest
    return tuned, tuned * over.ratio if over and confirmation.winner == winner else untuned


def _rival_line(rival: Rival, tuned: float | None) -> tuple[str, float | None]:
    best = rival.result.fastest
    latency = None if best is None else best.outcome.latency
    if rival.comparison is not None and tuned is not None:
        latency = tuned * rival.comparison.ratio
    return f"tuned ({short_name(rival.result.backend)})", latency


def _rival_notes(result: Result) -> list[str]:
    """The results of the other backends that competed."""
    notes = []
    for rival in result.rivals:
        other, name = rival.result, short_name(rival.result.backend)
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
    if result.warm_start:
        notes.insert(1, warm_start_text(result.warm_start))
    if result.from_records:
        notes[-1] = (
            f"answered from records; the run took {formats.seconds(total)} when it was made"
        )
    if result.best is None:
        notes.append(result.failure_text())
    else:
        if result.rejections:
            counts = {reason: found.count for reason, found in result.rejections.items()}
            notes.append(f"rejected: {describe_rejections(counts)}")
        best = result.best
        notes += _rival_notes(result)
        if result.confirmation is not None:
            compared = result.baseline is not None and result.baseline.ok
            untuned = baseline_label(result.workload, UNTUNED)
            name = result.baseline_name if compared else untuned
            notes += confirmation_lines(result.confirmation, name)
        notes += _baseline_notes(result)
        notes.append(_record_note(result.database, best))
    return tuple(notes)


def _baseline_notes(result: Result) -> list[str]:
    """Notes on programs without tuning that could not be timed, and on the use of one of them."""
    notes = []
    if result.least_speedup is not None:
        least = formats.seconds(result.least_untuned)
        notes.append(
            f"{UNTUNED}: not run, since a call takes {least} at least, "
            f"{formats.ratio(result.least_speedup)} as long; --time-untuned runs it"
        )
    for baseline in result.baselines:
        outcome = baseline.outcome
        if not outcome.ok and (baseline.name == UNTUNED or outcome.status != "invalid"):
            slow = "too slow to be timed: " if outcome.status == "timeout" else ""
            why = one_line(outcome.message) or "no message"
            name = baseline_label(result.workload, baseline.name)
            notes.append(f"{name}: {slow}{outcome.status} ({why})")
    if result.keeps_baseline:
        name = baseline_phrase(result.baseline_name)
        notes.append(f"no candidate is a gain over {name}: it is the result")
    return notes


def _record_note(database: str, best: Record) -> str:
    if best.baseline:
        name = baseline_label(best.candidate.sketch.workload, best.baseline)
        return f"record: {database}, {best.name}: {name}"
    return (
        f"record: {database}, run {best.run_id}, trial {best.trial}, "
        f"candidate {best.candidate.digest}"
    )


def time_line(seconds: Mapping[str, float]) -> str:
    """Line on the time by activity, largest first."""
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
    """Registered parts, and plugins that failed to load."""
    rows = tuple(
        (s.kind, s.name, s.distribution or "-", s.version or "-", s.status, s.error)
        for s in statuses
    )
    columns = ("kind", "name", "distribution", "version", "status", "error")
    return Table("", columns, rows)


def fleet_table(fleet: Fleet) -> Table:
    """Machines of a runner, and what tells them apart."""
    rows = []
    for state in fleet.machines:
        machine = state.machine
        mine = machine.fingerprint
        seconds = state.reference_seconds or (mine.reference_seconds if mine else 0.0)
        rows.append(
            (
                machine.name,
                "+".join(sorted(machine.roles)),
                mine.device if mine else "-",
                mine.digest if mine else "-",
                formats.seconds(seconds) if seconds else "-",
                f"{machine.drift - 1:+.1%}" if mine and mine.reference_seconds else "-",
                str(machine.load),
                "yes" if state.takes_part else "no: another fingerprint",
            )
        )
    columns = ("machine", "roles", "device", "fingerprint", "reference", "drift", "load", "races")
    return Table(f"runner {fleet.runner}, backend {fleet.backend}", columns, tuple(rows))


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
                _sketch_text(record),
                record.name,
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
    return Table("", columns, tuple(rows), _claims(records))


def _sketch_text(record: Record) -> str:
    """The sketch of a record, or the values of an external program's configuration."""
    values = recorded_configuration(record)
    if values is None:
        return record.candidate.sketch.name
    return one_line(", ".join(f"{name}={value}" for name, value in values.items()), _VALUES_WIDTH)


def _claims(records: Sequence[Record]) -> tuple[str, ...]:
    """Name the records that nobody has timed here."""
    claims = [it.name for it in records if it.outcome.imported]
    return (f"imported, not measured here: {', '.join(claims)}",) if claims else ()


def findings_table(findings: Sequence[Finding]) -> Table:
    """A diagnosis."""
    rows = tuple((finding.status, finding.label, finding.message) for finding in findings)
    return Table("", ("status", "what", "finding"), rows)
