"""``autotune tune --tasks``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_lines import refused
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

from autotune.models.training import TaskList

QUICK_START = Path(__file__).parents[2] / "docs" / "examples" / "quick_start.toml"
OPTIONS = {
    "backend": REFERENCE_BACKEND,
    "space": TOY_SPACE,
    "cost-model": "random",
    "measurer": "command_lines:ScriptedMeasurer",
    "threads": 1,
    "trials": 2,
}


def task(size: int, **fields: Any) -> dict[str, Any]:
    shape = {"m": size, "n": size, "k": size}
    return {"workload": "gemm", "shape": shape, "name": f"square-{size}", **fields}


def write(folder: Path, *tasks: Any, **options: Any) -> None:
    data = {"options": {**OPTIONS, **options}, "tasks": tasks}
    (folder / "list.json").write_text(json.dumps(data))


def test_every_task_is_a_run_and_all_are_one_table(cli: Any) -> None:
    write(cli.folder, task(8), task(16, options={"trials": 3, "space": "sketch"}))
    done = cli("tune", "--tasks", "list.json", "--json", "out.json")
    assert done.status == 0, done.stderr
    first, second = json.loads((cli.folder / "out.json").read_text())["tasks"]
    assert [first["task"], second["task"]] == ["square-8", "square-16"]
    assert first["result"]["schema"] == "autotune.result" and not first["failure"]
    assert (first["result"]["trials"], second["result"]["trials"]) == (2, 3)
    assert first["result"]["space"] != second["result"]["space"]
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[2:4]] == ["square-8", "square-16"]
    assert "task 2 of 2: square-16" in done.stderr
    assert len(json.loads(cli("records", "runs", "--json", "-").stdout)) == 2


def test_the_same_command_does_what_is_missing(cli: Any) -> None:
    write(cli.folder, task(8), task(16))
    assert cli("tune", "--tasks", "list.json", "--only", "square-8").status == 0
    again = cli("tune", "--tasks", "list.json", "--json", "out.json")
    first, second = json.loads((cli.folder / "out.json").read_text())["tasks"]
    assert first["result"]["run"]["from_records"], again.stderr
    assert not second["result"]["run"]["from_records"]


def test_the_command_line_counts_last(cli: Any) -> None:
    write(cli.folder, task(8, options={"trials": 3, "seed": 5}), task(16))
    done = cli("tune", "--tasks", "list.json", "--trials", "1", "--json", "-", "--quiet")
    results = [it["result"] for it in json.loads(done.stdout)["tasks"]]
    assert [(it["trials"], it["seed"]) for it in results] == [(1, 5), (1, 0)]


def test_options_of_every_form(cli: Any) -> None:
    write(
        cli.folder,
        task(
            8,
            options={
                "strategy-option": {"epsilon": 0.5, "population": 16},
                "protocol": ["quick", "min_samples=2"],
                "warm-start": False,
                "time-untuned": True,
            },
        ),
    )
    done = cli("tune", "--tasks", "list.json", "--json", "-", "--quiet")
    assert done.status == 0, done.stderr
    (best,) = json.loads(cli("best", "--json", "-").stdout)
    assert best["key"]["protocol"].startswith("warm-3+")


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (task(8, workload="gem"), "task 'square-8': unknown workload 'gem'"),
        (
            task(8, options={"trails": 3}),
            "task 'square-8': options: unknown option 'trails'; .*Did you mean 'trials'",
        ),
        (task(8, options={"trials": "few"}), "'square-8': options: .*'few' is not a valid int"),
        (task(8, options={"trials": 0}), "options: trials must be a whole number of at least 1"),
        (task(8, options={"trials": [3]}), "options: trials must be a text or a number, not"),
        (task(8, options={"time-untuned": 1}), "time-untuned must be true or false, not 1"),
        (task(8, options={"protocol": {"min_sample": 3}}), "Did you mean 'min_samples'"),
        (task(8, options={"database": "x.db"}), "options: unknown option 'database'"),
        (task(8, options={"json": "x.json"}), "options: unknown option 'json'"),
    ],
)
def test_a_mistake_in_any_task_is_named_before_the_first_starts(
    cli: Any, item: dict[str, Any], words: str
) -> None:
    write(cli.folder, task(4), item)
    line = refused(cli("tune", "--tasks", "list.json"))
    assert line.startswith("autotune: error: task list 'list.json', task ")
    assert re.search(words, line), line
    assert not (cli.folder / "autotune.db").exists()


def test_a_task_that_cannot_be_tuned_does_not_stop_the_others(cli: Any) -> None:
    write(cli.folder, task(4, options={"backend": "backend_with_gaps:NoBackend"}), task(8))
    done = cli("tune", "--tasks", "list.json", "--json", "out.json")
    first, second = json.loads((cli.folder / "out.json").read_text())["tasks"]
    assert done.status == 1 and first["result"] is None
    assert first["failure"].startswith("no program runs on")
    assert f"square-4: {first['failure']}" in done.stdout
    assert second["result"]["best"] is not None


def test_an_option_that_a_part_refuses_is_named(cli: Any) -> None:
    write(cli.folder, task(8, options={"strategy-option": {"epsilo": 0.5}}))
    done = cli("tune", "--tasks", "list.json", "--quiet")
    assert done.status == 2
    assert (
        "task 'square-8': options: strategy 'evolutionary' has no option 'epsilo'" in done.stderr
    )


def test_recording_takes_the_same_lists_and_no_options(cli: Any) -> None:
    write(cli.folder, task(4))
    line = refused(cli("train", "record", "--tasks", "list.json"))
    assert "task 'square-4': options are those of `autotune tune`" in line


def test_the_example_can_be_read() -> None:
    listed = TaskList.read(str(QUICK_START))
    assert len(listed.workloads()) == len(listed.tasks) == 3
