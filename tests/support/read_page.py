"""A page of a report, read as a browser reads it."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from xml.etree import ElementTree

from attrs import define, field

_VOID = ("meta", "img")
_SVG = "data:image/svg+xml;base64,"


@define
class ReadTable:
    """A table: its caption, headings, and rows of cells."""

    caption: str = ""
    headings: list[str] = field(factory=list)
    rows: list[list[str]] = field(factory=list)


@define
class ReadPage:
    """Contents of a page.

    Attributes:
        tags: Every element, in order: its name and its attributes.
        tables: The tables of each section, by the section's id.
        images: The drawing of each figure, by the figure's id, as XML.
        listings: Every listing, by its title.
        titles: The heading of each section, by the section's id.
        text: All that is shown as text.
    """

    tags: list[tuple[str, dict[str, str]]] = field(factory=list)
    tables: dict[str, list[ReadTable]] = field(factory=dict)
    images: dict[str, ElementTree.Element] = field(factory=dict)
    listings: dict[str, str] = field(factory=dict)
    titles: dict[str, str] = field(factory=dict)
    text: str = ""


def read_page(html: str) -> ReadPage:
    """Read a page; fails where elements are not closed in the order of their opening."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open, f"never closed: {reader.open}"
    return reader.page


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = ReadPage()
        self.open: list[str] = []
        self._section = ""
        self._figure = ""
        self._listing = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.page.tags.append((tag, given))
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "section":
            self._section = given["id"]
            assert self._section not in self.page.tables, "two sections with one id"
            self.page.tables[self._section] = []
        elif tag == "figure":
            self._figure = given["id"]
        elif tag == "img":
            assert given["src"].startswith(_SVG)
            data = base64.b64decode(given["src"].removeprefix(_SVG), validate=True)
            self.page.images[self._figure] = ElementTree.fromstring(data)
        elif tag == "table":
            self.page.tables[self._section].append(ReadTable())
        elif tag == "tr" and "tbody" in self.open:
            self._tables[-1].rows.append([])
        elif tag == "th":
            self._tables[-1].headings.append("")
        elif tag == "td":
            self._tables[-1].rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside not in ("style", "script"):
            self.page.text += data
        if inside == "h2":
            self.page.titles[self._section] = self.page.titles.get(self._section, "") + data
        elif inside == "caption":
            self._tables[-1].caption += data
        elif inside == "th":
            self._tables[-1].headings[-1] += data
        elif inside == "td":
            self._tables[-1].rows[-1][-1] += data
        elif inside == "summary":
            self._listing = data
        elif inside == "pre":
            self.page.listings[self._listing] = data

    @property
    def _tables(self) -> list[ReadTable]:
        return self.page.tables[self._section]
