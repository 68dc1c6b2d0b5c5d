"""The sections of a page, as tables, plots and listings, and the page, which needs no network."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from operator import attrgetter
from pathlib import Path

from attrs import frozen
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune.errors import AutotuneError, one_line
from autotune.external import recorded_configuration
from autotune.ir.printable import printable
from autotune.nest import describe
from autotune.process.stopwatch import ACTIVITIES
from autotune.report import formats
from autotune.report.lines import step_lines
from autotune.report.pages import plots
from autotune.report.pages.contents import (
    Contents,
    CurvePoint,
    RunContents,
    TaskContents,
    best_so_far,
    improvements,
)
from autotune.report.pages.plots import Plot
from autotune.report.pages.roofline import Rates, RatesOf, Roofline, place
from autotune.report.table import Table
from autotune.report.tables import ACTIVITY_LABELS
from autotune.sketches import Candidate, baseline_label
from autotune.store.trial_log import describe_counts
from autotune.targets import Target

__all__ = ["Block", "Listing", "Section", "render", "render_page", "sections"]

_MESSAGE_WIDTH = 300
_TITLE_WIDTH = 160


@frozen
class Listing:
    """Lines of text as they stand."""

    title: str
    text: str


Block = Table | Plot | Listing


@frozen
class Section:
    """A part of the page.

    Attributes:
        id: What links call it.
        title: Its heading.
        blocks: What is in it, in order.
    """

    id: str
    title: str
    blocks: tuple[Block, ...]


@frozen(eq=False)
class _Placed:
    """A task below the roofs of its machine: with the program to use, and without tuning."""

    rates: Rates
    best: Roofline | None
    before: Roofline | None


def sections(contents: Contents, rates_of: RatesOf) -> tuple[Section, ...]:
    """Everything that a page shows of a database.

    Args:
        contents: What it holds.
        rates_of: Gives the rates of a target; asked once for each.
    """
    numbers = {id(task): number for number, task in enumerate(contents.tasks, 1)}
    placed = _place_all(contents.tasks, rates_of)
    made = [_tasks_section(contents, placed)]
    if contents.runs:
        made.append(_runs_section(contents.runs))
    made += [
        _network_section(number, run, numbers)
        for number, run in enumerate(contents.runs, 1)
        if len(run.tasks) > 1
    ]
    made += _roofline_sections(placed)
    made += [
        _task_section(number, task, here)
        for (number, task), here in zip(enumerate(contents.tasks, 1), placed, strict=True)
    ]
    return tuple(made)


def _tasks_section(contents: Contents, placed: Sequence[_Placed]) -> Section:
    rows = []
    for (number, task), here in zip(enumerate(contents.tasks, 1), placed, strict=True):
        best = here.best
        share = None if best is None else best.share
        rows.append(
            (
                str(number),
                _title(task),
                str(task.outcomes.total()),
                str(task.outcomes["ok"]),
                formats.seconds(task.before),
                formats.seconds(task.after),
                _over(task.before, task.after),
                formats.rate(task.workload.flop, task.after),
                "-" if share is None else formats.percent(share, 1.0),
                f"{task.key.backend} {task.key.backend_version}",
                task.target,
                str(task.key.threads),
            )
        )
    of_program = ("untuned>", "tuned>", "gain>", "rate>", "of the roof>")
    of_machine = ("backend", "target", "threads>")
    columns = ("task>", "workload", "records>", "valid>", *of_program, *of_machine)
    blocks: list[Block] = [Table("", columns, tuple(rows))]
    if contents.tasks:
        blocks.append(plots.outcomes_plot(contents))
    return Section("tasks", "Tasks", tuple(blocks))


def _runs_section(runs: Sequence[RunContents]) -> Section:
    labels = tuple(f"{ACTIVITY_LABELS[name]}>" for name in ACTIVITIES)
    columns = ("run>", "id", "started", "strategy", "space", "seed>", "tasks>", "measured>")
    rows = []
    for number, it in enumerate(runs, 1):
        run = it.run
        # Runs of earlier versions have fewer activities.
        spent = [
            f"{it.seconds.get(name, 0.0):.1f} s" if it.seconds else "-" for name in ACTIVITIES
        ]
        rows.append(
            (
                str(number),
                run.run_id,
                _date(run.created),
                run.strategy,
                run.space,
                str(run.seed),
                str(len(it.tasks) + it.missing),
                str(it.trials),
                run.status,
                f"{sum(it.seconds.values()):.1f} s" if it.seconds else "-",
                *spent,
            )
        )
    notes = tuple(f"run {number}: {it.note}" for number, it in enumerate(runs, 1) if it.note)
    blocks: list[Block] = [Table("", (*columns, "status", "time>", *labels), tuple(rows), notes)]
    timed = [(number, it) for number, it in enumerate(runs, 1) if it.seconds]
    if timed:
        blocks.append(plots.time_plot(timed))
    return Section("runs", "Runs, and where the time went", tuple(blocks))


def _network_section(number: int, run: RunContents, numbers: Mapping[int, int]) -> Section:
    shares = run.shares
    before = [share.before for share in shares]
    after = [share.after for share in shares]
    rows = []
    for share in shares:
        rows.append(
            (
                str(numbers[id(share.task)]),
                _title(share.task),
                f"{share.weight:g}",
                formats.seconds(share.before),
                _part(share.before, before),
                formats.seconds(share.after),
                _part(share.after, after),
                _over(share.before, share.after),
            )
        )
    sums = (_sum(before), _sum(after))
    note = f"sum: {formats.seconds(sums[0])} before, {formats.seconds(sums[1])} after"
    missing = (f"{run.missing} tasks have no record",) if run.missing else ()
    columns = (
        "task>",
        "workload",
        "calls>",
        "before>",
        "share>",
        "after>",
        "share after>",
        "gain>",
    )
    total = run.total
    blocks: list[Block] = [Table("Shares", columns, tuple(rows), (note, *missing))]
    if total:
        blocks = [plots.total_plot(number, run), _points("Total", total), *blocks]
    blocks.append(plots.shares_plot(number, run, dict(numbers)))
    return Section(f"run-{number}", f"Run {number}: a network of {len(rows)} tasks", tuple(blocks))


def _place_all(tasks: Sequence[TaskContents], rates_of: RatesOf) -> list[_Placed]:
    known: dict[Target, Rates] = {}
    return [_place(task, rates_of, known) for task in tasks]


def _place(task: TaskContents, rates_of: RatesOf, known: dict[Target, Rates]) -> _Placed:
    target = task.read_target()
    if target not in known:
        known[target] = rates_of(target)
    rates = known[target]
    if task.workload.external:
        # Nobody knows how much it computes.
        return _Placed(rates, None, None)
    best = task.after and place(task.workload, task.after, rates.target)
    before = task.before and place(task.workload, task.before, rates.target)
    return _Placed(rates, best or None, before or None)


def _roofline_sections(placed: Sequence[_Placed]) -> list[Section]:
    """Sections of the roofline, one for each target."""
    by_target: dict[int, list[int]] = {}
    for index, it in enumerate(placed):
        by_target.setdefault(id(it.rates), []).append(index)
    made = []
    with_programs = [it for it in by_target.values() if any(placed[at].best for at in it)]
    for number, indices in enumerate(with_programs, 1):
        rates = placed[indices[0]].rates
        programs = [
            (index + 1, best, placed[index].before)
            for index in indices
            if (best := placed[index].best) is not None
        ]
        peaks = [f"{dtype} {formats.rate(1, 1 / it)}" for dtype, it in _peaks(rates, programs)]
        bandwidth = rates.target.memory_bandwidth
        figures = ", ".join([*peaks, f"memory {formats.size(bandwidth)}/s"])
        rows = tuple(_roofline_row(task, best) for task, best, _ in programs)
        columns = (
            "task>",
            "operands",
            "flop per byte>",
            "rate>",
            "at least>",
            "by",
            "of the roof>",
        )
        table = Table("", columns, rows, (f"{figures}: {rates.source}",))
        plot = plots.roofline_plot(number, rates, programs)
        title = f"Roofline of {rates.target.name}, {rates.target.cores} cores"
        made.append(Section(f"roofline-{number}", title, (plot, table)))
    return made


def _peaks(
    rates: Rates, programs: Sequence[tuple[int, Roofline, Roofline | None]]
) -> Iterator[tuple[str, float]]:
    for dtype in sorted({best.dtype for _, best, _ in programs}):
        if peak := rates.target.peak_flops.get(dtype):
            yield dtype, peak


def _roofline_row(task: int, best: Roofline) -> tuple[str, ...]:
    return (
        str(task),
        best.dtype,
        f"{best.intensity:.3g}",
        formats.rate(round(best.rate), 1.0),
        formats.seconds(best.least),
        best.by or "-",
        "-" if best.share is None else formats.percent(best.share, 1.0),
    )


def _task_section(number: int, task: TaskContents, here: _Placed) -> Section:
    blocks: list[Block] = []
    if task.trials:
        blocks.append(plots.curves_plot(number, task))
    for run_id, trials in task.trials.items():
        if points := best_so_far(trials):
            blocks.append(_points(f"Best so far in run {run_id}", points))
    notes = [f"outcomes: {describe_counts(task.outcomes)}"]
    notes += [
        f"{baseline_label(task.workload, it.baseline)}: {formats.seconds(it.latency)} "
        f"({it.outcome.status})"
        for it in sorted(task.baselines, key=attrgetter("created"))
    ]
    if here.best is not None and here.best.share is not None:
        share = formats.percent(here.best.share, 1.0)
        notes.append(f"roofline: {share} of what {here.best.by} allows")
    rejected = sorted(task.rejections.items(), key=lambda item: (-item[1].count, item[0]))
    rows = tuple(
        (reason, str(found.count), one_line(found.message, _MESSAGE_WIDTH))
        for reason, found in rejected
    )
    columns = ("rejected because of", "candidates>", "the first of them")
    blocks.append(Table("Outcomes", columns, rows, tuple(notes)))
    if task.best is not None:
        blocks += _schedule(task)
    return Section(f"task-{number}", f"Task {number}: {_title(task)}", tuple(blocks))


def _schedule(task: TaskContents) -> list[Block]:
    """The program to use: its loop nest and its steps, or its values if it is external."""
    best = task.best
    assert best is not None
    claim = ", imported and not measured here" if best.outcome.imported else ""
    title = f"record {best.name}, {formats.seconds(best.latency)}{claim}"
    values = recorded_configuration(best)
    if values is not None:
        text = "\n".join(f"{name} = {value!r}" for name, value in values.items())
        return [Listing(f"Configuration of {title}", text)]
    steps = Listing(f"Schedule of {title}", "\n".join(step_lines(best.candidate)))
    return [Listing(f"Loop nest of {title}", _nest(best.candidate)), steps]


def _nest(candidate: Candidate) -> str:
    if candidate.sketch.is_opaque:
        return "the compiler's own schedule: it has no symbolic nest"
    try:
        return describe(candidate.sketch, candidate.config)
    except AutotuneError as error:
        return f"no loop nest: {error}"


def _points(title: str, points: Sequence[CurvePoint]) -> Table:
    rows = tuple(
        (str(point.trials), f"{point.elapsed:.3f}", f"{point.seconds:.6e}")
        for point in improvements(points)
    )
    return Table(title, ("trials>", "elapsed, s>", "best, s>"), rows)


def _title(task: TaskContents) -> str:
    return one_line(task.title, _TITLE_WIDTH)


def _over(before: float | None, after: float | None) -> str:
    return formats.ratio(before / after if before and after else None)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _part(value: float | None, values: Sequence[float | None]) -> str:
    whole = sum(it for it in values if it is not None)
    return "-" if value is None else formats.percent(value, whole)


def _date(created: float) -> str:
    try:
        return f"{datetime.fromtimestamp(created, timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return "-"


_TEMPLATE = "page.html.jinja"


def render_page(contents: Contents, sections: Sequence[Section]) -> str:
    """The page as HTML.

    Args:
        contents: What the sections were made of.
        sections: In the order in which they are shown.
    """
    records = sum(task.outcomes.total() for task in contents.tasks)
    summary = f"{len(contents.tasks)} tasks, {len(contents.runs)} runs, {records} records"
    return render("Tuning report", contents.location, summary, sections)


def render(heading: str, location: str, summary: str, sections: Sequence[Section]) -> str:
    """A page as HTML.

    Args:
        heading: What it is.
        location: What it is about.
        summary: How much there is in it.
        sections: In the order in which they are shown.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    environment.filters["data_uri"] = _data_uri
    environment.tests.update(table=_is(Table), plot=_is(Plot), listing=_is(Listing))
    text: str = environment.get_template(_TEMPLATE).render(
        heading=heading, location=location, summary=summary, sections=sections
    )
    return text


def _clean(value: object) -> object:
    # Texts that are escaped already are of another type.
    return printable(value) if type(value) is str else value


def _data_uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _is(kind: type) -> object:
    return lambda value: isinstance(value, kind)
