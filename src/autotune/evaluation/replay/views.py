"""Tables, plots and a page of what a replay shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.evaluation.replay.runs import REGRET_AT
from autotune.evaluation.replay.summary import Difference, Summary
from autotune.report import Table, formats
from autotune.report.bootstrap import ConfidenceInterval

if TYPE_CHECKING:
    from autotune.report.pages.sections import Section

__all__ = ["differences_table", "page", "plot_svg", "spaces_table", "strategies_table", "tables"]


def tables(summary: Summary, differences: Sequence[Difference] = ()) -> list[Table]:
    """Everything that is shown on a terminal."""
    found = [strategies_table(summary)]
    if len(summary.spaces) > 1:
        found.append(by_space_table(summary))
    found.append(spaces_table(summary))
    if differences:
        found.append(differences_table(differences, summary.budget.evaluations))
    if summary.left_out:
        found.append(left_out_table(summary))
    return found


def strategies_table(summary: Summary) -> Table:
    """A row for each strategy, best first."""
    count = summary.budget.evaluations
    has_early = count > REGRET_AT
    rows = tuple(
        (
            it.strategy,
            str(it.runs),
            interval_text(it.to_cutoff),
            interval_text(it.to_budget),
            *([f"{it.regret_early:.3f}"] if has_early else []),
            f"{it.regret:.3f}",
            formats.percent(it.near, 1.0),
            f"{it.evaluations:.0f}",
            formats.seconds(it.elapsed),
            formats.seconds(it.strategy_seconds),
        )
        for it in summary.strategies
    )
    columns = (
        "strategy",
        "runs>",
        "P95>",
        f"P{count}>",
        *([f"regret@{REGRET_AT}>"] if has_early else []),
        f"regret@{count}>",
        "within 5 %>",
        "evaluations>",
        "virtual time>",
        "processor time>",
    )
    notes = (
        "P: mean score up to the budget, or to where random search has come 95 % of the way from "
        "the median; 0 is random search, 1 the optimum; [95 % interval]",
        "regret: mean of ln(best / optimum); times are of one run",
    )
    return Table("Strategies", columns, rows, notes if rows else ("no run was made",))


def by_space_table(summary: Summary) -> Table:
    """Mean score of each strategy on each space, a column for each, numbered as their table is."""
    names = [space.name for space in summary.spaces]
    rows = tuple(
        (
            it.strategy,
            *(f"{it.by_space[name]:.2f}" if name in it.by_space else "-" for name in names),
        )
        for it in summary.strategies
    )
    columns = ("strategy", *(f"{number}>" for number in range(1, len(names) + 1)))
    return Table(f"P{summary.budget.evaluations} by space", columns, rows)


def spaces_table(summary: Summary) -> Table:
    """A row for each space."""
    rows = tuple(
        (
            str(number),
            it.name,
            it.kernel,
            str(it.configurations),
            str(it.failed),
            formats.seconds(it.optimum),
            formats.ratio(it.median / it.optimum),
            str(it.cutoff),
        )
        for number, it in enumerate(summary.spaces, 1)
    )
    columns = (
        "no.>",
        "space",
        "kernel",
        "configurations>",
        "failed>",
        "optimum>",
        "median>",
        "P95 ends at>",
    )
    noted = [(number, note) for number, it in enumerate(summary.spaces, 1) for note in it.notes]
    notes = tuple(f"{number}: {note}" for number, note in noted)
    return Table("Spaces", columns, rows, notes)


def differences_table(differences: Sequence[Difference], count: int) -> Table:
    """Strategies beside one of them, pair by pair of space and seed."""
    rows = tuple(
        (
            it.strategy,
            interval_text(it.to_budget.interval, signed=True),
            formats.percent(it.to_budget.above, 1.0),
            interval_text(it.regret_early.interval, signed=True),
            str(it.to_budget.pairs),
        )
        for it in differences
    )
    columns = ("strategy", f"P{count}>", "above>", "regret early>", "pairs>")
    return Table(f"Compared with {differences[0].against}", columns, rows)


def left_out_table(summary: Summary) -> Table:
    """List what was not replayed, and why; one row where it is the same for all spaces."""
    found: dict[tuple[str, str], list[str]] = {}
    for it in summary.left_out:
        found.setdefault((it.strategy, it.reason), []).append(it.space)
    rows = tuple(
        (strategy, "all" if len(spaces) == len(summary.spaces) else ", ".join(spaces), reason)
        for (strategy, reason), spaces in found.items()
    )
    return Table("Left out", ("strategy", "spaces", "reason"), rows)


def interval_text(interval: ConfidenceInterval, signed: bool = False) -> str:
    """``0.62 [0.52, 0.72]``."""
    sign = "+" if signed else ""
    return f"{interval.value:{sign}.2f} [{interval.low:{sign}.2f}, {interval.high:{sign}.2f}]"


def plot_svg(summary: Summary) -> str:
    """The mean score of each strategy over evaluations, as an SVG document.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    from autotune.evaluation.replay.plot import score_plot

    svg = score_plot(summary).svg
    return svg[svg.index("<svg ") :]


def page(summary: Summary, differences: Sequence[Difference] = ()) -> str:
    """Build an HTML page that needs no network.

    Raises:
        ModuleNotFoundError: matplotlib or jinja2 is not installed.
    """
    from autotune.evaluation.replay.plot import score_plot, space_plot
    from autotune.report.pages.sections import Section, render

    first = [strategies_table(summary)]
    if differences:
        first.append(differences_table(differences, summary.budget.evaluations))
    sections: list[Section] = [
        Section("strategies", "Strategies", (score_plot(summary), *first)),
        Section("spaces", "Spaces", (spaces_table(summary), by_space_table(summary))),
    ]
    for number, space in enumerate(summary.spaces, 1):
        plot = space_plot(number, space.name, summary)
        sections.append(Section(f"space-{number}", space.name, (plot,)))
    if summary.left_out:
        sections.append(Section("left-out", "Left out", (left_out_table(summary),)))
    runs = f"{len(summary.runs)} runs of {summary.budget.evaluations} evaluations at most"
    what = f"{len(summary.strategies)} strategies, {len(summary.spaces)} spaces, {runs}"
    return render("Replay report", "recorded spaces", what, sections)
