"""``autotune report``: what it writes, and where."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_lines import refused
from needs import browser
from read_page import read_page

from autotune.plugins.installing import install_extra

needs_libraries = pytest.mark.needs("report")
REPORT = ("report", "-o")


@needs_libraries
def test_a_page_and_its_plots_are_written(tuned_cli: Any) -> None:
    done = tuned_cli(*REPORT, "report.html", "--png", "plots", "--rates", "target", "--json", "-")
    assert done.status == 0
    page = read_page(Path("report.html").read_text(encoding="utf-8"))
    assert page.titles["task-1"] == "Task 1: gemm m=8 n=8 k=8 float32"
    assert sum(int(row[2]) for row in page.tables["tasks"][0].rows) == 20
    written = {path.name for path in Path("plots").iterdir()}
    shown = {f"autotune-{name.removeprefix('plot-')}.png" for name in page.images}
    assert written == shown and len(written) >= 4
    told = json.loads(done.stdout)
    assert told["file"] == "report.html" and set(told["plots"]) == written
    assert [task["records"] for task in told["tasks"]] == [20] and len(told["runs"]) == 1
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n") for path in Path("plots").iterdir())
    assert done.stderr == (
        f"autotune: 1 tasks written to report.html, and {len(written)} plots to plots\n"
    )
    again = tuned_cli(*REPORT, "report.html", "--png", "plots", "--rates", "target")
    assert again.status == 0, "its own files are replaced"


@needs_libraries
def test_a_page_can_go_to_standard_output(tuned_cli: Any) -> None:
    done = tuned_cli(*REPORT, "-", "--rates", "target")
    assert done.status == 0
    assert read_page(done.stdout).titles["task-1"].startswith("Task 1: gemm")
    assert tuned_cli.files() == {"autotune.db", "out.json"}


def test_a_page_replaces_no_file_of_another_kind(tuned_cli: Any) -> None:
    for content in (b"notes\n", b"<!DOCTYPE html>\n<title>mine</title>", b"SQLite format 3\0"):
        Path("mine").write_bytes(content)
        assert "'mine' exists and is" in refused(tuned_cli(*REPORT, "mine"))
        assert Path("mine").read_bytes() == content
    before = Path("autotune.db").read_bytes()
    assert "is the file that" in refused(tuned_cli(*REPORT, "autotune.db", "--force"))
    assert Path("autotune.db").read_bytes() == before


def test_plots_are_not_written_beside_the_database(tuned_cli: Any) -> None:
    message = refused(tuned_cli(*REPORT, "report.html", "--png", ".", "--force"))
    assert "is a folder that holds 'autotune.db'" in message
    assert "name a folder" in refused(tuned_cli(*REPORT, "report.html", "--png", "-"))
    assert tuned_cli.files() == {"autotune.db", "out.json"}


@needs_libraries
def test_a_folder_for_plots_that_is_a_file_is_refused(tuned_cli: Any) -> None:
    Path("plots").write_text("notes")
    assert "'plots' exists" in refused(tuned_cli(*REPORT, "report.html", "--png", "plots"))
    assert Path("plots").read_text() == "notes"


def test_an_unknown_run_is_told_its_nearest_name(tuned_cli: Any) -> None:
    assert "unknown run 'nothing'" in refused(tuned_cli(*REPORT, "r.html", "--run", "nothing"))


def test_a_database_without_records_gives_no_page(cli: Any) -> None:
    assert cli("records", "import", os.devnull).status == 0
    done = cli(*REPORT, "report.html")
    assert done.status == 1
    assert done.stderr == "autotune: no record in autotune.db matches\n"
    assert not Path("report.html").exists()


def test_no_database_is_one_line(cli: Any) -> None:
    assert "missing.db" in refused(cli("report", "--database", "missing.db", "-o", "report.html"))


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_without_its_libraries_one_line_says_what_to_install(
    tuned_cli: Any, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    for module in ("page", "sections", "plots"):
        monkeypatch.delitem(sys.modules, f"autotune.report.pages.{module}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    message = refused(tuned_cli(*REPORT, "report.html", "--rates", "target"))
    assert f"which is not installed: run {install_extra('report')}" in message
    assert not Path("report.html").exists()


POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
LISTS_WHAT_IT_LOADS = """<script>
addEventListener("load", () => {
  const loaded = performance.getEntriesByType("resource").map(entry => entry.name);
  document.documentElement.dataset.loaded = loaded.join(" ");
});
</script>"""


@pytest.mark.long
@needs_libraries
@pytest.mark.needs("chromium")
def test_a_browser_shows_it_without_the_network(tuned_cli: Any) -> None:
    assert tuned_cli(*REPORT, "report.html", "--rates", "target").status == 0
    page = read_page(Path("report.html").read_text(encoding="utf-8"))
    command = [
        browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        f"--user-data-dir={tuned_cli.folder / 'profile'}",
        "--virtual-time-budget=10000",
    ]
    address = (tuned_cli.folder / "report.html").as_uri()
    # The browser asks for addresses of its own: a page that may load anything lists what it did.
    text = Path("report.html").read_text(encoding="utf-8")
    assert text.count(POLICY) == 1
    watched = tuned_cli.folder / "watched.html"
    watched.write_text(text.replace(POLICY, "") + LISTS_WHAT_IT_LOADS, encoding="utf-8")
    done = subprocess.run(
        [*command, "--dump-dom", watched.as_uri()],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    shown = read_page(done.stdout)
    assert shown.tables == page.tables and set(shown.images) == set(page.images)
    (loaded,) = re.findall(r'data-loaded="([^"]*)"', done.stdout)
    assert [it for it in loaded.split() if not it.startswith("data:")] == []
    shot = tuned_cli.folder / "page.png"
    subprocess.run(
        [*command, f"--screenshot={shot}", "--window-size=1200,3000", address],
        capture_output=True,
        timeout=300,
        check=True,
    )
    from matplotlib.image import imread

    pixels = imread(shot)[:, :, :3]
    # Curves are blue, bars too: drawn, and not the sign of a broken image.
    blue = (pixels[:, :, 2] > 0.6) & (pixels[:, :, 0] < 0.3)
    assert int(blue.sum()) > 500
