"""The tables of networks: pure functions from data to `Table`."""

from __future__ import annotations

from autotune.errors import one_line
from autotune.networks.api import Coverage, TaskCoverage
from autotune.networks.model_result import DEFAULT, TUNED, VIEW, ModelResult, ModelTask
from autotune.report import Table, formats, time_line

__all__ = ["coverage_table", "model_table"]

_REASON_WIDTH = 72
_FLOP_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def flop_text(flop: float) -> str:
    """A number of operations: ``"1.23 GFLOP"``."""
    scale, unit = next((it for it in _FLOP_UNITS if flop >= it[0]), _FLOP_UNITS[-1])
    return f"{flop / scale:.3g} {unit}FLOP"


def coverage_table(coverage: Coverage) -> Table:
    """The tasks of a network: which can be tuned, and why the others cannot."""
    rows = [_coverage_row(it, coverage) for it in coverage.tasks]
    computing = [it for it in coverage.tasks if not it.task.view]
    tuned = [it for it in computing if it.task.is_tunable]
    calls = sum(it.task.occurrences for it in computing)
    tuned_calls = sum(it.task.occurrences for it in tuned)
    notes = [
        f"can be tuned: {len(tuned)} of {len(computing)} tasks, {tuned_calls} of {calls} calls, "
        f"{_percent(coverage.tunable_flop, coverage.flop)} of the flop"
    ]
    if len(tuned) < len(computing):
        notes.append("what is refused is run by the backend's default schedule")
    title = f"{coverage.network.name}: {flop_text(coverage.flop)} in {calls} calls"
    columns = ("task", "calls>", "flop>", "share>", "sketches>", "configurations>", "tuned")
    return Table(title, columns, tuple(rows), tuple(notes))


def _coverage_row(it: TaskCoverage, coverage: Coverage) -> tuple[str, ...]:
    task = it.task
    how = f"by space {coverage.space}"
    if task.view:
        how = "no: a view, which computes nothing"
    elif task.refusal:
        how = f"no: {one_line(task.refusal, _REASON_WIDTH)}"
    return (
        task.name,
        str(task.occurrences),
        flop_text(task.flop),
        _percent(task.total_flop, coverage.flop),
        str(it.sketches or "-"),
        f"{it.configurations:,}" if it.configurations else "-",
        how,
    )


def _percent(part: float, whole: float) -> str:
    """A share in percent with up to two decimals: ``"99.96 %"``, ``"100 %"``."""
    if not whole > 0:
        return "-"
    share = 100 * part / whole
    text = f"{share:.2f}".rstrip("0").rstrip(".")
    # What is not all of it is not shown as all of it.
    return f"{'<' if text == '100' and part < whole else ''}{text} %"


def model_table(result: ModelResult) -> Table:
    """What is run for each task of a network and how long it takes, the longest first."""
    tasks = sorted(result.tasks, key=lambda it: (it.task.view, -(it.total or 0.0)))
    columns = ["task", "calls>", "flop share>", "trials>", "latency>", "total>", "share>"]
    if result.timing is not None:
        columns.append("in network>")
    rows = [_model_row(task, result) for task in tasks]
    return Table(_headline(result), (*columns, "run by"), tuple(rows), tuple(_notes(result)))


def _model_row(task: ModelTask, result: ModelResult) -> tuple[str, ...]:
    run_by = task.run_by if task.run_by in (TUNED, VIEW) else f"{task.run_by}: {task.reason}"
    measured = [formats.seconds(task.measured)] if result.timing is not None else []
    return (
        task.name,
        str(task.task.occurrences),
        _percent(task.task.total_flop, result.flop),
        str(task.trials or "-"),
        formats.seconds(task.latency),
        "-" if task.task.view else formats.seconds(task.total),
        formats.percent(task.total or 0.0, result.latency),
        *measured,
        one_line(run_by, _REASON_WIDTH),
    )


def _headline(result: ModelResult) -> str:
    figures = []
    if result.timing is not None:
        figures.append(f"{formats.seconds(result.timing.latency)} an inference")
    if result.latency:
        figures.append(f"{formats.seconds(result.latency)} estimated from its tasks")
    if result.speedup is not None:
        figures.append(f"{formats.ratio(result.speedup)} the speed without tuning")
    return f"{result.name}: {', '.join(figures)}" if figures else result.name


def _notes(result: ModelResult) -> list[str]:
    computing = [it for it in result.tasks if not it.task.view]
    tuned = [it for it in computing if it.run_by == TUNED]
    flop = sum(it.task.total_flop for it in tuned)
    notes = [
        f"tuned: {len(tuned)} of {len(computing)} tasks, {_percent(flop, result.flop)} of the flop"
    ]
    fallen = [it for it in computing if it.run_by == DEFAULT]
    times = [it.total for it in fallen if it.total is not None]
    if times:
        share = formats.percent(sum(times), result.latency)
        notes.append(f"by the default schedule: {len(fallen)} tasks, {share} of the time")
    if result.untimed:
        notes.append(f"not timed, and no part of the estimate: {_listed(result.untimed)}")
    if result.from_records:
        total = formats.seconds(sum(result.seconds.values()))
        notes.append(f"answered from records; the run took {total} when it was made")
    elif result.seconds:
        notes.append(f"trials: {result.trials}; {result.reason}")
        notes.append(time_line(result.seconds))
    if result.timing is not None:
        timing = result.timing
        inside = sum(timing.tasks.values())
        notes.append(
            f"measured: median of {timing.calls} calls, the fastest "
            f"{formats.seconds(timing.fastest)}; {formats.seconds(inside)} of it in the tasks"
        )
    return [*notes, f"records: {result.database}"]


def _listed(names: tuple[str, ...], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
