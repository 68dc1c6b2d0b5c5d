"""``autotune report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.destinations import OutputFile
from autotune.cli.options import existing_database_option, json_option
from autotune.cli.query import open_for_reading
from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError

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
_LIBRARIES = ("jinja2", "matplotlib")
_RATES = ("measured", "target")


@click.command("report", epilog=EPILOG)
@existing_database_option
@click.option(
    "-o",
    "--output",
    "page_path",
    metavar="FILE",
    required=True,
    type=OutputFile("page"),
    help="The page to write; - for standard output.",
)
@click.option(
    "--png",
    "png_folder",
    metavar="FOLDER",
    type=OutputFile("export"),
    help="Also write each plot as a PNG file into this folder.",
)
@click.option("--run", "run_id", metavar="RUN", help="Only this run, as `records runs` names it.")
@click.option(
    "--rates",
    type=click.Choice(_RATES),
    default=_RATES[0],
    show_default=True,
    help="For the roofline: measured now, where the records are of this machine, or as the "
    "target describes it.",
)
@json_option
def command(
    database: str,
    page_path: str,
    png_folder: str | None,
    run_id: str | None,
    rates: str,
    json_path: str | None,
) -> int:
    """Write one page about a database that needs no network.

    Curves of the best latency over trials and time for each task, and for the sum of a network's
    tasks; where the time went; outcomes and reasons of rejections; each task below the roofs of
    its machine; the shares of a network's tasks before and after; and the schedules to use as loop
    nests.
    """
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, notify, write_text
    from autotune.report.pages.contents import collect
    from autotune.report.pages.roofline import measured_rates, stated_rates

    if png_folder == "-":
        raise InvalidValueError("--png '-' is standard output; name a folder")
    with open_for_reading(database) as opened:
        if run_id is not None:
            _check_run(opened, run_id)
        contents = collect(opened, run_id)
    if not contents.tasks:
        notify(f"autotune: no record in {database} matches")
        Output(json_path).json(None)
        return NOTHING_FOUND
    text, made = _written(contents, measured_rates if rates == _RATES[0] else stated_rates)
    write_text(page_path, text)
    plots = [] if png_folder is None else _write_plots(png_folder, made)
    Output(json_path).json(
        {
            "file": page_path,
            "tasks": [task.to_json() for task in contents.tasks],
            "runs": [run.run.run_id for run in contents.runs],
            "plots": plots,
        }
    )
    also = f", and {len(plots)} plots to {png_folder}" if plots else ""
    notify(f"autotune: {len(contents.tasks)} tasks written to {page_path}{also}")
    return OK


def _check_run(database: Database, run_id: str) -> None:
    if database.run(run_id) is None:
        raise UnknownNameError("run", run_id, [run.run_id for run in database.runs()])


def _written(contents: Contents, rates_of: RatesOf) -> tuple[str, Sequence[Section]]:
    """The page as HTML, and its sections.

    Raises:
        AutotuneError: a library that draws or writes it is not installed.
    """
    try:
        from autotune.report.pages.sections import render_page, sections
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _LIBRARIES:
            raise
        from autotune.plugins.installing import install_extra

        raise AutotuneError(
            f"a report is made with {library}, which is not installed: run "
            + install_extra("report")
        ) from error
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
