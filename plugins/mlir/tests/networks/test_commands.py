"""The commands on whole networks, given a module of MLIR."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_lines import Command
from mlir_modules import MIXED, written


def test_the_tasks_of_a_module(read_here: None, command: Command, tmp_path: Path) -> None:
    written(tmp_path, MIXED)
    done = command("model-tasks", "model.mlir", "--json", "tasks.json", "--threads", "1")
    assert done.status == 0, done.stderr
    assert "can be tuned: 4 of 4 tasks, 6 of 6 calls" in done.stdout
    assert "argument 0 of function @dynamic has the dynamic shape" in done.stderr
    tasks = json.loads((tmp_path / "tasks.json").read_text())["tasks"]
    assert [it["name"] for it in tasks] == ["first", "added", "normalized", "main_1"]
    assert tasks[0]["nodes"] == ["first", "again"] and tasks[0]["occurrences"] == 3


@pytest.mark.slow
def test_a_module_is_tuned_and_its_library_is_written_again(
    command: Command, tmp_path: Path
) -> None:
    written(tmp_path, MIXED)
    here = ("--threads", "1", "--database", "tuned.db")
    small = ("--trials", "6", "--round-size", "2", "--cost-model", "random", "--quiet")
    done = command("tune-model", "model.mlir", *here, *small, "-o", "a.mlir", "--json", "a.json")
    assert done.status == 0, done.stderr
    assert "a.mlir: schedules of " in done.stderr
    data = json.loads((tmp_path / "a.json").read_text())
    assert data["network"]["backend"] == "native" and data["trials"] == 6
    assert [task["name"] for task in data["tasks"]] == ["first", "normalized", "added", "main_1"]
    again = command("build-model", "model.mlir", *here, "-o", "b.mlir")
    assert again.status == 0, again.stderr
    for name in ("{}.mlir", "{}.payload.mlir"):
        one, other = ((tmp_path / name.format(it)).read_text() for it in "ab")
        assert one == other
    built = command("build-model", "model.mlir", *here, "-o", "net.so")
    assert built.status == 0 and (tmp_path / "net.so").exists(), built.stderr
    refused = command("build-model", "model.mlir", *here, "-o", "model.mlir")
    assert refused.status == 2 and "--output" in refused.stderr
