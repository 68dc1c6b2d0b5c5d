"""``autotune report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import frozen

from autotune.cli.app import NOTHING_FOUND, OK
from autotune.cli.arguments import command_of, option
from autotune.cli.destinations import OutputFile
from autotune.cli.options import read_database
from autotune.cli.output import Output, drawing, notify, write_text
from autotune.cli.query import open_for_reading
from autotune.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from autotune.report.pages.contents import Contents
    from autotune.report.pages.roofline import RatesOf
    from autotune.report.pages.sections import Section
    from autotune.store.database import Database

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune report -o report.html
  autotune report --database records.db -o report.html --png plots --run 0123456789ab
"""
_RATES = ("measured", "target")


@frozen
class _Asked:
    database: str = read_database()
    page_path: str = option(
        "-o --output FILE", "The page to write; - for standard output.", OutputFile("page")
    )
    png_folder: str | None = option(
        "--png FOLDER",
        "Also write each plot as a PNG file into this folder.",
        OutputFile("export"),
    )
    run_id: str | None = option("--run RUN", "Only this run, as `records runs` names it.")
    rates: str = option(
        "--rates",
        "For the roofline: measured now, where the records are of this machine, or as the "
        "target describes it.",
        click.Choice(_RATES),
        shown=_RATES[0],
    )


@command_of("report", _Asked, EPILOG)
def command(asked: _Asked, output: Output) -> int:
    """Write one page about a database that needs no network.

    Curves of the best latency over trials and time for each task, and for the sum of a network's
    tasks; where the time went; outcomes and reasons of rejections; each task below the roofs of
    its machine; the shares of a network's tasks before and after; and the schedules to use as loop
    nests.
    """
    from autotune.report.pages.contents import collect
    from autotune.report.pages.roofline import measured_rates, stated_rates

    if asked.png_folder == "-":
        raise InvalidValueError("--png '-' is standard output; name a folder")
    with open_for_reading(asked.database) as opened:
        if asked.run_id is not None:
            _check_run(opened, asked.run_id)
        contents = collect(opened, asked.run_id)
    if not contents.tasks:
        notify(f"autotune: no record in {asked.database} matches")
        output.json(None)
        return NOTHING_FOUND
    text, made = _written(contents, measured_rates if asked.rates == _RATES[0] else stated_rates)
    write_text(asked.page_path, text)
    plots = [] if asked.png_folder is None else _write_plots(asked.png_folder, made)
    output.json(
        {
            "file": asked.page_path,
            "tasks": [task.to_json() for task in contents.tasks],
            "runs": [run.run.run_id for run in contents.runs],
            "plots": plots,
        }
    )
    also = f", and {len(plots)} plots to {asked.png_folder}" if plots else ""
    notify(f"autotune: {len(contents.tasks)} tasks written to {asked.page_path}{also}")
    return OK


def _check_run(database: Database, run_id: str) -> None:
    if database.run(run_id) is None:
        raise UnknownNameError("run", run_id, [run.run_id for run in database.runs()])


def _written(contents: Contents, rates_of: RatesOf) -> tuple[str, Sequence[Section]]:
    """The page as HTML, and its sections.

    Raises:
        AutotuneError: a library that draws or writes it is not installed.
    """
    with drawing("a report is made"):
        from autotune.report.pages.sections import render_page, sections
    made = sections(contents, rates_of)
    return render_page(contents, made), made


def _write_plots(folder: str, made: Sequence[Section]) -> list[str]:
    """Write each plot as a file that appears when complete; returns their names."""
    from autotune.report.pages.plots import Plot
    from autotune.store.jsonl import replacing

    plots = [block for section in made for block in section.blocks if isinstance(block, Plot)]
    try:
        Path(folder).mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidValueError(f"--png {folder!r} cannot be made: {error.strerror}") from error
    names = [f"autotune-{plot.name}.png" for plot in plots]
    for name, plot in zip(names, plots, strict=True):
        with replacing(Path(folder) / name) as stream:
            stream.write(plot.png)
    return names
