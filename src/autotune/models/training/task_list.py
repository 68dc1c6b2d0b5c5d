"""Lists of tasks: data, shipped with the package or in a file of JSON or TOML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from attrs import field, frozen

from autotune.errors import (
    AutotuneError,
    InvalidValueError,
    UnknownNameError,
    did_you_mean,
    near_matches,
)
from autotune.ir.text_files import document, read_text_file
from autotune.ir.workloads import Workload
from autotune.plugins.workload_names import make_workload

__all__ = ["ListedTask", "TaskList", "builtin_task_lists"]

SCHEMA = "autotune.tasks"
VERSION = 1
_FIELDS = ("schema", "version", "description", "options", "tasks")
_TASK_FIELDS = ("name", "workload", "shape", "dtype", "source", "options")
_FILES = (".json", ".toml")


@frozen
class ListedTask:
    """A workload by name and shape.

    Attributes:
        name: What it is called in its list.
        workload: Name of a workload builder.
        shape: The builder's shape.
        dtype: Element type; None for the builder's default.
        source: Where it occurs, for people.
        options: How it is tuned, by the command line's names of options.
    """

    name: str
    workload: str
    shape: Mapping[str, int] = field(hash=False)
    dtype: str | None = None
    source: str = ""
    options: Mapping[str, Any] = field(factory=dict, hash=False)

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

    def place(self, task: ListedTask) -> str:
        """Place of a task for messages: its list and its name."""
        return f"task list {self.name!r}, task {task.name!r}"

    def workloads(self) -> list[Workload]:
        """The workload of each task.

        Raises:
            InvalidValueError: one cannot be made; names the task, and what is wrong with it.
        """
        made = []
        for task in self.tasks:
            try:
                made.append(task.make())
            except AutotuneError as error:
                raise InvalidValueError(f"{self.place(task)}: {error}") from error
        return made

    @staticmethod
    def read(name: str) -> TaskList:
        """A list that is shipped, by name, or one in a file that ends in ``.json`` or ``.toml``.

        Raises:
            UnknownNameError: no list of this name is shipped.
            InvalidValueError: a file cannot be read or is no task list; names the task and field.
        """
        if not name.endswith(_FILES):
            return _read_shipped(name)
        try:
            text = read_text_file(name)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidValueError(f"task list {name!r} cannot be read: {error}") from error
        return _parse(name, text, is_json=name.endswith(".json"))


def builtin_task_lists() -> list[str]:
    """Names of the lists that are shipped."""
    folder = resources.files("autotune.models.training") / "tasks"
    return sorted(item.name.removesuffix(".json") for item in folder.iterdir())


def _read_shipped(name: str) -> TaskList:
    known = builtin_task_lists()
    if name not in known:
        extra = "A list of your own is a file *.json or *.toml."
        raise UnknownNameError("task list", name, known, extra)
    file = resources.files("autotune.models.training") / "tasks" / f"{name}.json"
    return _parse(name, file.read_text(encoding="utf-8"), is_json=True)


def _parse(name: str, text: str, *, is_json: bool) -> TaskList:
    place = f"task list {name!r}"
    data = _table(document(text, place, is_json=is_json), place, _FIELDS)
    given = (data.get("schema", SCHEMA), data.get("version", VERSION))
    if given != (SCHEMA, VERSION):
        raise InvalidValueError(f"{place}: its schema is not {SCHEMA!r} of version {VERSION}")
    options = _table(data.get("options", {}), f"{place}: options")
    items = data.get("tasks")
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        raise InvalidValueError(f"{place} has no tasks: a list of tables is needed")
    tasks = tuple(
        _task(item, options, f"{place}, {_noun(item, at)}") for at, item in enumerate(items)
    )
    names = [task.name for task in tasks]
    for twice in sorted({it for it in names if names.count(it) > 1}):
        raise InvalidValueError(f"{place} has two tasks called {twice!r}: give each a name")
    return TaskList(name, _text(data, "description", place), tasks)


def _noun(item: object, at: int) -> str:
    """Noun for a task before it is known to be one: its name, or its number from 1."""
    name = item.get("name") if isinstance(item, Mapping) else None
    return f"task {name!r}" if isinstance(name, str) else f"task {at + 1}"


def _task(item: object, usual: Mapping[str, Any], place: str) -> ListedTask:
    data = _table(item, place, _TASK_FIELDS)
    workload, shape = _text(data, "workload", place), _table(data.get("shape"), f"{place}: shape")
    if not workload:
        raise InvalidValueError(f"{place}: workload is missing")
    for key, extent in shape.items():
        if isinstance(extent, bool) or not isinstance(extent, int):
            raise InvalidValueError(
                f"{place}: shape: {key} must be a whole number, not {extent!r}"
            )
    dtype = _text(data, "dtype", place) or None
    named = " ".join([workload, *(f"{key}={it}" for key, it in shape.items()), dtype or ""])
    options = _table(data.get("options", {}), f"{place}: options")
    return ListedTask(
        _text(data, "name", place) or named.strip(),
        workload,
        dict(shape),
        dtype,
        _text(data, "source", place),
        {**usual, **options},
    )


def _text(data: Mapping[str, Any], key: str, place: str) -> str:
    value = data.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidValueError(f"{place}: {key} must be a text, not {value!r}")
    return value or ""


def _table(data: object, place: str, known: Sequence[str] = ()) -> Mapping[str, Any]:
    """A table, whose keys are among the known ones, if there are any."""
    if not isinstance(data, Mapping):
        raise InvalidValueError(f"{place} must be a table, not {data!r}")
    for key in data:
        if known and key not in known:
            raise InvalidValueError(
                f"{place} has a field {key!r}; allowed: {', '.join(known)}."
                f"{did_you_mean(near_matches(str(key), known))}"
            )
    return data
