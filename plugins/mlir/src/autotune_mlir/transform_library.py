"""Schedules as named sequences of the Transform dialect, which other MLIR tools apply."""

from __future__ import annotations

import re
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import frozen

from autotune.backends import InvalidSchedule
from autotune_mlir import bindings
from autotune_mlir.emit import INIT, STAGE
from autotune_mlir.parsing import brief, new_context
from autotune_mlir.tagging import find_text, tagging_text
from autotune_mlir.transform_scripts import apply_schedule
from autotune_mlir.traversal import operations_in

__all__ = [
    "UNTAGGED",
    "NamedSchedule",
    "apply_command",
    "apply_passes",
    "check_applied",
    "library_text",
    "parsed",
]

_MAIN = "__transform_main"
UNTAGGED = "_untagged"
"""Ends the name of the sequence for programs without attributes."""
_NOTE = """\
// Schedules that autotune found. A sequence finds operations by the attributes `autotune.stage`
// and `autotune.init`, which the programs beside this file have; NAME_untagged is for a program
// without them, in a module of its own, whose operations are the same and in the same order.
"""
_HEAD = "module attributes {transform.with_named_sequence} {"
_DEFINED = re.compile(r"transform\.named_sequence\s+(?:private\s+)?@([\w$.]+)")


@frozen
class NamedSchedule:
    """A schedule and the name that it goes by in a library.

    Attributes:
        name: Of its sequence.
        schedule: Text of a module with the sequence ``@__transform_main``.
        payload: Text of the program that it was found for.
        comment: A remark for readers.
    """

    name: str
    schedule: str
    payload: str
    comment: str


def library_text(schedules: Iterable[NamedSchedule], entry: str = "") -> str:
    """A module with two entry points for every schedule, ``NAME`` and ``NAME_untagged``.

    The first is for programs whose operations have the attributes by which schedules find them,
    the second gives them these attributes first. Further sequences become ``NAME_SEQUENCE``.

    Args:
        schedules: The schedules, of different names.
        entry: Text of a sequence for a module with several programs, which comes first.

    Raises:
        InvalidSchedule: a schedule is no module of named sequences.
    """
    lines = [*_NOTE.splitlines(), _HEAD, *filter(None, [entry]), find_text()]
    for schedule in schedules:
        lines += [_comment(schedule), _renamed(schedule), _for_untagged(schedule)]
    return "\n".join([*lines, "}", ""])


def apply_command(library: str, name: str, payload: str) -> str:
    """The command with which MLIR's own tool applies a schedule.

    Args:
        library: Path of the library.
        name: Of the schedule.
        payload: Path of the program.
    """
    return (
        f"mlir-opt {payload} --transform-preload-library=transform-library-paths={library} "
        f"--transform-interpreter=entry-point={name}"
    )


def check_applied(schedule: NamedSchedule) -> None:
    """Return whether MLIR's passes make of the program what is measured, given a library by file.

    Raises:
        InvalidSchedule: they do not, or fail.
    """
    expected = parsed(schedule.payload)
    apply_schedule(expected, schedule.schedule)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.mlir"
        path.write_text(library_text([schedule]), encoding="utf-8")
        for entry, tagged in ((schedule.name, True), (f"{schedule.name}{UNTAGGED}", False)):
            found = parsed(schedule.payload)
            if not tagged:
                _drop_tags(found)
            apply_passes(found, path, entry)
            if str(found) != str(expected):
                raise InvalidSchedule("MLIR's interpreter pass makes another program of it")


def _drop_tags(module: Any) -> None:
    """Take the attributes away by which schedules find operations."""
    for operation in operations_in(module.operation):
        for tag in (STAGE, INIT):
            if tag in operation.attributes:
                del operation.attributes[tag]


def parsed(text: str) -> Any:
    """A program in a context of its own: a context keeps the libraries that it has read."""
    ir = bindings.load().ir
    with new_context(), ir.Location.unknown():
        return ir.Module.parse(text)


def apply_passes(module: Any, library: Path, entry: str) -> None:
    """Apply a sequence of a library by MLIR's own passes.

    Args:
        module: The ``ir.Module``; changed. Its context must not have read another library.
        library: Path of the library.
        entry: Name of the sequence.

    Raises:
        InvalidSchedule: a pass fails.
    """
    loaded = bindings.load()
    passes = (
        f"builtin.module(transform-preload-library{{transform-library-paths={library}}},"
        f"transform-interpreter{{entry-point={entry}}})"
    )
    with module.context, loaded.ir.Location.unknown():
        try:
            loaded.passmanager.PassManager.parse(passes).run(module.operation)
        except loaded.ir.MLIRError as error:
            raise InvalidSchedule(f"MLIR's interpreter pass fails: {brief(error)}") from error


def _comment(schedule: NamedSchedule) -> str:
    return "\n".join(f"  // {line}".rstrip() for line in schedule.comment.splitlines())


def _for_untagged(schedule: NamedSchedule) -> str:
    return tagging_text(f"{schedule.name}{UNTAGGED}", schedule.name, schedule.payload)


def _renamed(schedule: NamedSchedule) -> str:
    """The sequences of a schedule under names that are its own."""
    text = schedule.schedule.strip()
    if not (text.startswith(_HEAD) and text.endswith("}")):
        raise InvalidSchedule(f"schedule {schedule.name!r} is no module of named sequences")
    body = text[len(_HEAD) : -1]
    for name in _DEFINED.findall(body):
        new = schedule.name if name == _MAIN else f"{schedule.name}_{name}"
        body = re.sub(rf"@{re.escape(name)}(?![\w$.])", f"@{new}", body)
    return textwrap.indent(textwrap.dedent(body).strip("\n"), "  ")
