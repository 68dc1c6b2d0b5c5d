"""HTML page that needs no network: plots are within it, and texts of records are escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune.ir.printable import printable
from autotune.report.pages.contents import Contents
from autotune.report.pages.plots import Plot
from autotune.report.pages.sections import Listing, Section
from autotune.report.table import Table

__all__ = ["render", "render_page"]

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
