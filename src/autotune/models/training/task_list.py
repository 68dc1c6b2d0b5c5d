"""Lists of tasks whose schedules are recorded: data, shipped with the package or in a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from attrs import field, frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.text_files import read_text_file
from autotune.ir.workloads import Workload
from autotune.plugins.workload_names import make_workload

__all__ = ["ListedTask", "TaskList", "builtin_task_lists"]

SCHEMA = "autotune.tasks"
VERSION = 1


@frozen
class ListedTask:
    """A workload by name and shape.

    Attributes:
        name: What it is called in its list.
        workload: Name of a workload builder.
        shape: The builder's shape.
        dtype: Element type; None for the builder's default.
        source: Where it occurs, for people.
    """

    name: str
    workload: str
    shape: Mapping[str, int] = field(hash=False)
    dtype: str | None = None
    source: str = ""

    def make(self) -> Workload:
        """The workload.

        Raises:
            UnknownNameError: there is no such builder, or no such shape parameter.
            InvalidValueError: the builder does not take the shape or type.
        """
        return make_workload(self.workload, self.shape, self.dtype)


@frozen
class TaskList:
    """Tasks with names of their own.

    Attributes:
        name: The list's own name, or the path of its file.
        description: What the tasks are, for people.
        tasks: In the order in which they are recorded.
    """

    name: str
    description: str
    tasks: tuple[ListedTask, ...]

    def only(self, names: Iterable[str]) -> TaskList:
        """The list with the named tasks only, in its own order; all where none is named.

        Raises:
            UnknownNameError: there is no task of a name.
        """
        known = [task.name for task in self.tasks]
        wanted = set(names)
        for name in sorted(wanted - set(known)):
            raise UnknownNameError(f"task of {self.name}", name, known)
        kept = tuple(task for task in self.tasks if not wanted or task.name in wanted)
        return TaskList(self.name, self.description, kept)

    @staticmethod
    def read(name: str) -> TaskList:
        """A list that is shipped, by name, or one in a file that ends in ``.json``.

        Raises:
            UnknownNameError: no list of this name is shipped.
            InvalidValueError: a file cannot be read or is no task list.
        """
        if not name.endswith(".json"):
            return _read_shipped(name)
        try:
            text = read_text_file(name)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidValueError(f"task list {name!r} cannot be read: {error}") from error
        return _parse(name, text)


def builtin_task_lists() -> list[str]:
    """Names of the lists that are shipped."""
    folder = resources.files("autotune.models.training") / "tasks"
    return sorted(item.name.removesuffix(".json") for item in folder.iterdir())


def _read_shipped(name: str) -> TaskList:
    known = builtin_task_lists()
    if name not in known:
        raise UnknownNameError("task list", name, known, "A list of your own is a file *.json.")
    file = resources.files("autotune.models.training") / "tasks" / f"{name}.json"
    return _parse(name, file.read_text(encoding="utf-8"))


def _parse(name: str, text: str) -> TaskList:
    try:
        data = json.loads(text)
        if (data["schema"], data["version"]) != (SCHEMA, VERSION):
            raise ValueError(f"its schema is not {SCHEMA!r} of version {VERSION}")
        tasks = tuple(_task(item) for item in data["tasks"])
        description = str(data.get("description", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidValueError(f"{name!r} is no task list: {error!r}") from error
    if not tasks:
        raise InvalidValueError(f"task list {name!r} has no tasks")
    names = [task.name for task in tasks]
    for twice in sorted({it for it in names if names.count(it) > 1}):
        raise InvalidValueError(f"task list {name!r} has two tasks called {twice!r}")
    return TaskList(name, description, tasks)


def _task(item: Mapping[str, Any]) -> ListedTask:
    unknown = set(item) - {"name", "workload", "shape", "dtype", "source"}
    if unknown:
        raise ValueError(f"a task has no {sorted(unknown)[0]!r}")
    return ListedTask(
        str(item["name"]),
        str(item["workload"]),
        dict(item["shape"]),
        item.get("dtype"),
        str(item.get("source", "")),
    )
