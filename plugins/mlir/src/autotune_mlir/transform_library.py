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
from autotune_mlir.compiler import apply_schedule, brief, new_context

__all__ = ["NamedSchedule", "apply_command", "check_applied", "library_text"]

_MAIN = "__transform_main"
_HEAD = "module attributes {transform.with_named_sequence} {"
_DEFINED = re.compile(r"transform\.named_sequence\s+(?:private\s+)?@([\w$.]+)")


@frozen
class NamedSchedule:
    """A schedule and the name that it goes by in a library.

    Attributes:
        name: Of its sequence.
        schedule: Text of a module with the sequence ``@__transform_main``.
        payload: Text of the program that it was found for.
        comment: What people should know of it.
    """

    name: str
    schedule: str
    payload: str
    comment: str


def library_text(schedules: Iterable[NamedSchedule]) -> str:
    """A module with one entry point for every schedule, named after it.

    Further sequences of a schedule become ``NAME_SEQUENCE``.

    Raises:
        InvalidSchedule: a schedule is no module of named sequences.
    """
    parts = [part for schedule in schedules for part in (_comment(schedule), _renamed(schedule))]
    return "\n".join([_HEAD, *parts, "}", ""])


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
    """Whether MLIR's passes make of the program what is measured, given a library by file.

    Raises:
        InvalidSchedule: they do not, or fail.
    """
    ours = new_context()
    theirs = new_context()  # it keeps the library that it has read, for ever
    expected = _parsed(ours, schedule.payload)
    apply_schedule(expected, schedule.schedule)
    found = _parsed(theirs, schedule.payload)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.mlir"
        path.write_text(library_text([schedule]), encoding="utf-8")
        _apply_passes(found, path, schedule.name)
    if str(found) != str(expected):
        raise InvalidSchedule("MLIR's interpreter pass makes another program of it")


def _parsed(context: Any, text: str) -> Any:
    ir = bindings.load().ir
    with context, ir.Location.unknown():
        return ir.Module.parse(text)


def _apply_passes(module: Any, library: Path, entry: str) -> None:
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
