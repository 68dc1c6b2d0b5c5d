"""The page as a browser reads it, and its plots; records are hostile data."""

from __future__ import annotations

import io
import re
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from attrs import evolve
from read_page import ReadPage, read_page
from tuner_bench import Bench

from autotune.nest import describe
from autotune.report.pages import plots
from autotune.report.pages.contents import Contents, best_so_far, collect, improvements
from autotune.report.pages.roofline import stated_rates
from autotune.report.pages.sections import render_page, sections
from autotune.sketches import Candidate
from autotune.store.sqlite.sqlite_database import SQLiteDatabase
from autotune.testing.sample_records import KEY, sample_baseline, sample_record

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=http://evil.example/x onerror=alert(1)>',
    "{{ 7*7 }}{% raw %}",
    "$\\frac{$ \\undefined",
    "_hidden & 'quoted'",
    "\u202egnol\x00\x1b[31m",
    "漢字" * 200,
)


def page_of(contents: Contents) -> ReadPage:
    return read_page(render_page(contents, sections(contents, stated_rates)))


@pytest.fixture(scope="module")
def contents() -> Contents:
    with SQLiteDatabase(":memory:") as database:
        Bench(database, tasks=3).tuner(60).run()
        Bench(database, seed=5).run(10)
        return collect(database)


@pytest.fixture(scope="module")
def page(contents: Contents) -> ReadPage:
    return page_of(contents)


def hostile_contents() -> Contents:
    with SQLiteDatabase(":memory:") as database:
        for trial, text in enumerate(HOSTILE):
            record = sample_record(trial % 4, 1e-3 / (trial + 1))
            sketch = record.candidate.sketch
            # Digests do not depend on names: another extent makes another task.
            workload = evolve(
                sample_record(workload=None).candidate.sketch.workload,
                name=text,
                parameters={text: text},
            )
            candidate = Candidate(
                evolve(sketch, name=text, workload=workload), record.candidate.values
            )
            database.append_record(
                evolve(
                    record,
                    run_id=text,
                    candidate=candidate,
                    key=evolve(KEY, backend=text),
                    target={**record.target, "name": text},
                )
            )
            database.append_record(
                evolve(
                    sample_record(trial % 4, status="crash"),
                    run_id=text,
                    key=evolve(KEY, backend=text),
                    outcome=evolve(sample_record(0, status="crash").outcome, message=text),
                )
            )
            database.append_baseline(
                sample_baseline(1.0, name=text, key=evolve(KEY, backend=text))
            )
        return collect(database)


def assert_needs_no_network(page: ReadPage) -> None:
    for tag, given in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base", "form")
        for name, value in given.items():
            assert not name.startswith("on"), (tag, given)
            if name in ("src", "href"):
                assert re.match(r"data:image/svg\+xml;base64,|#", value), value[:80]
    policy = [given for tag, given in page.tags if "content-security-policy" in str(given).lower()]
    assert policy[0]["content"].startswith("default-src 'none';")
    for image in page.images.values():
        assert_drawing_is_harmless(image)


def assert_drawing_is_harmless(image: ElementTree.Element) -> None:
    for element in image.iter():
        assert element.tag.rpartition("}")[2] not in ("script", "image", "foreignObject", "a")
        for name, value in element.attrib.items():
            if name.rpartition("}")[2] == "href":
                assert value.startswith("#"), value
            assert "url(" not in value or "url(#" in value


def test_a_page_needs_no_network(page: ReadPage) -> None:
    assert_needs_no_network(page)


def test_links_lead_somewhere_and_ids_are_unique(page: ReadPage) -> None:
    ids = [given["id"] for _, given in page.tags if "id" in given]
    assert len(ids) == len(set(ids))
    links = [given["href"].removeprefix("#") for tag, given in page.tags if tag == "a"]
    assert links == list(page.tables)


def test_every_task_and_run_is_there(contents: Contents, page: ReadPage) -> None:
    for number, task in enumerate(contents.tasks, 1):
        extent = task.workload.parameters["m"]
        name = f"gemm m={extent} n={extent} k={extent} float32"
        assert page.titles[f"task-{number}"] == f"Task {number}: {name}"
        assert page.tables["tasks"][0].rows[number - 1][:2] == [str(number), name]
        assert f"plot-task-{number}" in page.images
    assert [row[1] for row in page.tables["runs"][0].rows] == [
        run.run.run_id for run in contents.runs
    ]
    assert {"plot-time", "plot-outcomes", "plot-roofline-1"} < set(page.images)


def test_points_of_curves_equal_those_of_the_records(contents: Contents, page: ReadPage) -> None:
    for number, task in enumerate(contents.tasks, 1):
        curves = [it for it in page.tables[f"task-{number}"] if it.caption.startswith("Best")]
        assert [it.caption.rpartition(" ")[2] for it in curves] == list(task.trials)
        for table, trials in zip(curves, task.trials.values(), strict=True):
            points = improvements(best_so_far(trials))
            assert [tuple(map(float, row)) for row in table.rows] == [
                (point.trials, pytest.approx(point.elapsed), pytest.approx(point.seconds))
                for point in points
            ]


def test_a_network_has_a_total_and_shares(contents: Contents, page: ReadPage) -> None:
    total, shares = page.tables["run-1"]
    assert [tuple(map(float, row)) for row in total.rows] == [
        (point.trials, pytest.approx(point.elapsed), pytest.approx(point.seconds, rel=1e-6))
        for point in improvements(contents.runs[0].total)
    ]
    assert {row[0] for row in shares.rows} == {"1", "2", "3"}
    assert "run-2" not in page.tables, "one task is no network"
    for column in (4, 6):
        assert sum(int(row[column].removesuffix(" %")) for row in shares.rows) in (99, 100, 101)


def test_winners_are_shown_as_loop_nests(contents: Contents, page: ReadPage) -> None:
    nests = [text for title, text in page.listings.items() if title.startswith("Loop nest")]
    assert nests == [
        describe(task.best.candidate.sketch, task.best.candidate.config)
        for task in contents.tasks
        if task.best is not None
    ]
    assert len(nests) == 3


def test_a_plot_has_the_points_of_its_curve(contents: Contents) -> None:
    task = contents.tasks[0]
    assert len(task.trials) == 2
    by_trials, by_seconds = plots.curves_plot(1, task).figure.axes
    for axes, of in ((by_trials, "trials"), (by_seconds, "elapsed")):
        for line, trials in zip(axes.lines, task.trials.values(), strict=False):
            points = best_so_far(trials)
            assert list(line.get_xdata()) == [getattr(point, of) for point in points]
            assert list(line.get_ydata()) == [1e3 * point.seconds for point in points]


def test_plots_do_not_depend_on_the_users_settings(contents: Contents) -> None:
    usual = plots.curves_plot(1, contents.tasks[0]).svg
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path"}):
        assert plots.curves_plot(1, contents.tasks[0]).svg == usual
        assert matplotlib.rcParams["font.size"] == 30


def test_a_plot_is_a_png_too(contents: Contents) -> None:
    png = plots.curves_plot(1, contents.tasks[0]).png
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(png))
    assert pixels.shape[1] > 800 and float(pixels.std()) > 0.05


def test_texts_of_records_are_text() -> None:
    page = page_of(hostile_contents())
    assert_needs_no_network(page)
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text and "49" not in page.titles.values()
    assert "\x00" not in page.text and "\u202e" not in page.text and "\\x00" in page.text
    drawn = " ".join(text for image in page.images.values() for text in image.itertext())
    assert "<script>alert(1)</script>" in drawn
    assert "$\\frac{$" in drawn, "a name is no formula"
    assert "漢" not in drawn, "a font may lack it"


def test_a_task_without_a_valid_candidate_says_why() -> None:
    with SQLiteDatabase(":memory:") as database:
        database.append_record(sample_record(0, status="crash"))
        database.append_record(sample_record(1, status="crash"))
        page = page_of(collect(database))
    (outcomes,) = page.tables["task-1"]
    assert [row[1] for row in outcomes.rows] == ["2"]
    assert "what went wrong: crash ünïcode second line" in outcomes.rows[0][2]
    assert page.listings == {}


def test_a_kept_baseline_is_named() -> None:
    with SQLiteDatabase(":memory:") as database:
        database.append_record(sample_record(0, 1e-3))
        database.append_baseline(sample_baseline(1e-4, name="the compiler's own"))
        page = page_of(collect(database))
    assert page.tables["tasks"][0].rows[0][4:7] == ["100 us", "100 us", "1.00x"]
    (nest,) = (text for title, text in page.listings.items() if title.startswith("Loop nest"))
    assert nest == "the compiler's own schedule: it has no symbolic nest"


def columns(page: ReadPage, section: str) -> dict[str, Any]:
    table = page.tables[section][0]
    return dict(zip(table.headings, zip(*table.rows, strict=True), strict=True))


def test_rooflines_name_where_their_rates_come_from(contents: Contents, page: ReadPage) -> None:
    assert "estimated figures of the target haswell-1core" in page.text
    found = columns(page, "roofline-1")
    assert found["task"] == ("1", "2", "3") and set(found["by"]) <= {"arithmetic", "memory"}
