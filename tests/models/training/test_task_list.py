from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models.training import ListedTask, TaskList, builtin_task_lists

SHIPPED = [(name, task) for name in builtin_task_lists() for task in TaskList.read(name).tasks]


def test_the_lists_that_are_shipped() -> None:
    assert builtin_task_lists() == ["cpu-60"]
    tasks = TaskList.read("cpu-60").tasks
    assert len(tasks) >= 60
    digests = {task.make().digest for task in tasks}
    assert len(digests) == len(tasks), "a task is there twice"
    sources = {task.source for task in tasks}
    assert sources == {"ResNet-50", "MobileNet-V2", "BERT-base", "TVM's workload suite"}


def benchmarked(workload: str, shape: Mapping[str, int]) -> bool:
    """Tell whether strategies are compared by this workload, whatever surrounds it.

    A pre-trained model must not have seen its shape: products count in any order of their axes,
    convolutions with and without an epilogue.
    """
    size = sorted(shape.get(axis, 0) for axis in "mnk")
    if workload in ("gemm", "dense"):
        return size == [512, 512, 512]
    if workload == "batch_matmul":
        return shape["b"] == 12 and size == [64, 128, 128]
    if workload == "softmax":
        return (shape["m"], shape["n"]) == (512, 512)
    if workload == "conv2d":
        given = [shape.get(key, 1) for key in ("h", "w", "ci", "co", "kh", "kw", "stride")]
        return given in ([14, 14, 256, 256, 3, 3, 1], [56, 56, 64, 128, 3, 3, 2])
    if workload == "depthwise_conv2d":
        return [shape.get(key, 1) for key in ("h", "w", "c", "stride")] == [14, 14, 512, 2]
    return False


@pytest.mark.parametrize(("name", "task"), SHIPPED, ids=lambda it: getattr(it, "name", it))
def test_no_list_has_what_strategies_are_compared_by(name: str, task: ListedTask) -> None:
    assert not benchmarked(task.workload, task.make().parameters)


def _write(folder: Path, **changes: Any) -> str:
    item = {"name": "one", "workload": "gemm", "shape": {"m": 8, "n": 8, "k": 8}}
    data = {"schema": "autotune.tasks", "version": 1, "tasks": [item], **changes}
    path = folder / "tasks.json"
    path.write_text(json.dumps(data))
    return str(path)


def test_a_list_of_ones_own(tmp_path: Path) -> None:
    item = {"name": "wide", "workload": "gemm", "shape": {"m": 8, "n": 8, "k": 8}}
    path = _write(tmp_path, tasks=[{**item, "dtype": "float64"}, {**item, "name": "other"}])
    tasks = TaskList.read(path)
    assert tasks.tasks[0].make().parameters["dtype"] == "float64"
    assert [task.name for task in tasks.only(["other"]).tasks] == ["other"]
    assert tasks.only([]) == tasks
    with pytest.raises(UnknownNameError, match=r"'othr'.*Did you mean 'other'"):
        tasks.only(["othr"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version 1"),
        ({"schema": "other"}, "schema"),
        ({"tasks": []}, "has no tasks"),
        ({"tasks": 3}, "has no tasks"),
        ({"task": []}, "has a field 'task'; .* Did you mean 'tasks'"),
        ({"options": 3}, "tasks.json': options must be a table, not 3"),
        ({"tasks": [3]}, "task 1 must be a table, not 3"),
        ({"tasks": [{"name": "one", "shape": {}}]}, "task 'one': workload is missing"),
        ({"tasks": [{"name": "one", "workload": "gemm"}]}, "task 'one': shape must be a table"),
        (
            {"tasks": [{"name": "one", "wrkload": "gemm"}]},
            "task 'one' has a field 'wrkload'; .* Did you mean 'workload'",
        ),
        (
            {"tasks": [{"workload": "gemm", "shape": {"m": 8.5}}]},
            "task 1: shape: m must be a whole number, not 8.5",
        ),
        (
            {"tasks": [{"workload": "gemm", "shape": {"m": True}}]},
            "task 1: shape: m must be a whole number, not True",
        ),
        (
            {"tasks": [{"workload": "gemm", "shape": {}, "dtype": 32}]},
            "task 1: dtype must be a text, not 32",
        ),
    ],
)
def test_what_is_no_list_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        TaskList.read(_write(tmp_path, **changes))


def test_names_are_unique(tmp_path: Path) -> None:
    item = {"name": "one", "workload": "gemm", "shape": {"m": 8, "n": 8, "k": 8}}
    with pytest.raises(InvalidValueError, match="two tasks called 'one'"):
        TaskList.read(_write(tmp_path, tasks=[item, item]))


def test_unknown_lists_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"'cpu-6'.*cpu-60.*Did you mean"):
        TaskList.read("cpu-6")
    with pytest.raises(InvalidValueError, match="cannot be read"):
        TaskList.read(str(tmp_path / "missing.json"))
    for name, kind in (("text.json", "JSON"), ("text.toml", "TOML")):
        (tmp_path / name).write_text("{")
        with pytest.raises(InvalidValueError, match=f"text.* is no {kind}"):
            TaskList.read(str(tmp_path / name))


def test_toml_says_the_same_as_json(tmp_path: Path) -> None:
    one = tmp_path / "one.toml"
    one.write_text(
        '[options]\ntrials = 4\nstrategy = "grid"\n[[tasks]]\nworkload = "gemm"\n'
        'shape = { m = 8, n = 8, k = 8 }\ndtype = "float64"\noptions = { trials = 8 }\n'
    )
    item = {"workload": "gemm", "shape": {"m": 8, "n": 8, "k": 8}, "dtype": "float64"}
    two = _write(
        tmp_path,
        options={"trials": 4, "strategy": "grid"},
        tasks=[{**item, "options": {"trials": 8}}],
    )
    assert TaskList.read(str(one)).tasks == TaskList.read(two).tasks
    (task,) = TaskList.read(two).tasks
    assert task.name == "gemm m=8 n=8 k=8 float64"
    assert task.options == {"trials": 8, "strategy": "grid"}


def test_a_task_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    listed = TaskList.read(_write(tmp_path, tasks=[{"workload": "gemm", "shape": {"m": 8}}]))
    with pytest.raises(InvalidValueError, match=r"task 'gemm m=8': gemm: the shape lacks n, k"):
        listed.workloads()
