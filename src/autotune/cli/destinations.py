"""Destinations of a command: never what it reads, nor a file of another kind."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

import click
from attrs import frozen
from click.types import StringParamType

from autotune.errors import InvalidValueError

__all__ = ["InputFile", "OutputFile", "checked_destinations"]

STANDARD_OUTPUT = "-"
# What SQLite keeps beside a database.
_SIDE_FILES = ("-wal", "-shm", "-journal")
_SQLITE = b"SQLite format 3\0"
# Devices that take everything, or nothing, and keep nothing.
_SINKS = ("/dev/null", "/dev/full", "/dev/tty")
_HEAD_BYTES = 1 << 12
_APPENDED = ("log", "totals", "results", "runs")
# Of zlib, for data with the head of gzip.
_GZIP_BITS = 31


class InputFile(StringParamType):
    """An option that may name a file which the command reads.

    Args:
        beside: The option without which the value names no file.
    """

    name = "file"

    def __init__(self, beside: str | None = None) -> None:
        self.beside = beside


class OutputFile(StringParamType):
    """An option that names a file which the command writes.

    Args:
        kind: What is written, a key of ``KINDS``.
    """

    name = "file"

    def __init__(self, kind: str) -> None:
        self.kind = kind


@frozen
class _Output:
    """A file to be written: the option's name for the user, the path, and the kind."""

    option: str
    path: str
    kind: str


def checked_destinations(context: click.Context, force: bool) -> Mapping[str, str]:
    """Check the output of each option of a command; by the name of its parameter.

    It is asked before any work is done, and leaves nothing behind. ``"-"``, and every name of the
    file that standard output is, become ``"-"``.

    Args:
        context: Of the command, with the values of all its options.
        force: Whether existing files of another kind may be replaced.

    Raises:
        InvalidValueError: an output would replace what the command reads, another output, or
            something that is no file of its kind, or it cannot be written.
    """
    inputs = [
        (_shown(option), path) for option, value in _inputs(context) for path in _paths_of(value)
    ]
    chosen: dict[str, str] = {}
    seen: list[_Output] = []
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if not isinstance(option.type, OutputFile) or value is None:
            continue
        kind = option.type.kind
        if kind == "records" and context.params.get("format_name") != "jsonl":
            kind = "export"
        output = _Output(_shown(option), value, kind)
        for other in seen:
            if _same_file(value, other.path):
                both = f"{other.option} and {output.option} both name {other.path!r}"
                raise InvalidValueError(f"{both}: the outputs of a command go to different files")
        seen.append(output)
        if _is_standard_output(value):
            chosen[str(option.name)] = STANDARD_OUTPUT
            continue
        _check_inputs(output, inputs)
        _check_place(output, force)
        chosen[str(option.name)] = value
    return MappingProxyType(chosen)


def _inputs(context: click.Context) -> Iterator[tuple[click.Parameter, str]]:
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if isinstance(option.type, InputFile):
            beside = option.type.beside
            if beside is None or context.params.get(beside) is not None:
                values = value if isinstance(value, tuple) else (value,)
                yield from ((option, path) for path in values if isinstance(path, str))


def _shown(option: click.Parameter) -> str:
    """``--json`` for an option, ``FILE`` for an argument."""
    if isinstance(option, click.Argument):
        return "FILE"
    return option.opts[0]


def _paths_of(value: str) -> list[str]:
    """Paths that a value may stand for; a database of a plugin is called ``NAME:PATH``."""
    _, colon, rest = value.partition(":")
    return [path for path in (value, rest if colon else "") if path and path != "-"]


def _identity(path: str) -> tuple[int, int] | None:
    """Device and number of the file that a path leads to, None where there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _same_file(one: str, other: str) -> bool:
    """Return whether two paths lead to one file, through links of either kind, also to be made."""
    if one == other or (_is_standard_output(one) and _is_standard_output(other)):
        return True
    if STANDARD_OUTPUT in (one, other):
        return False
    if os.path.realpath(one) == os.path.realpath(other):
        # Devices keep nothing: there is nothing in them to be replaced.
        return not os.path.exists(one) or os.path.isfile(one) or os.path.isdir(one)
    identity = _identity(one)
    return identity is not None and os.path.isfile(one) and identity == _identity(other)


def _stream_identity(stream: TextIO | None) -> tuple[int, int] | None:
    try:
        status = os.fstat(stream.fileno()) if stream is not None else None
    except (OSError, ValueError):  # closed, or in memory
        return None
    return None if status is None else (status.st_dev, status.st_ino)


def _is_standard_output(path: str) -> bool:
    if path == STANDARD_OUTPUT:
        return True
    identity = _identity(path)
    if identity is None or os.path.realpath(path) == "/dev/null":
        return False
    return identity == _stream_identity(sys.stdout)


def _check_inputs(output: _Output, inputs: list[tuple[str, str]]) -> None:
    """Raise where the command would write over what it reads; nothing overrules that."""
    for option, path in inputs:
        if _same_file(output.path, path):
            raise InvalidValueError(
                f"{output.option} {output.path!r} is the file that {option} names, and would "
                "replace it; name another file"
            )
        if output.kind == "export" and _is_within(path, output.path):
            raise InvalidValueError(
                f"{output.option} {output.path!r} is a folder that holds {path!r}, which {option} "
                "names: an export writes there under names of its own; name another folder"
            )
        for suffix in _SIDE_FILES:
            if _same_file(output.path, os.path.realpath(path) + suffix):
                raise InvalidValueError(
                    f"{output.option} {output.path!r} is a part of the database that {option} "
                    "names, and would replace it; name another file"
                )


def _is_beside_database(path: str) -> bool:
    """Tell if SQLite would take a file for a part of the database that it is called after."""
    for suffix in _SIDE_FILES:
        whole = Path(path.removesuffix(suffix))
        if path.endswith(suffix) and whole.is_file():
            with whole.open("rb") as stream:
                return stream.read(len(_SQLITE)) == _SQLITE
    return False


def _is_within(path: str, folder: str) -> bool:
    """Return whether a path leads to something in a folder, or below it."""
    parents = Path(os.path.realpath(path)).parents
    return os.path.isdir(folder) and Path(os.path.realpath(folder)) in parents


def _check_place(output: _Output, force: bool) -> None:
    """Raise unless the file can be made, or may be replaced."""
    named = f"{output.option} {output.path!r}"
    try:
        if _is_beside_database(output.path):
            raise InvalidValueError(
                f"{named} is called like a part of a database that lies there, which would read "
                "it; name another file"
            )
        mode = _mode(output.path)
        if mode is None:
            _check_folder(output)
            return
        if stat.S_ISDIR(mode):
            if output.kind != "export":
                raise InvalidValueError(f"{named} cannot be written: Is a directory")
            return
        if not os.access(output.path, os.W_OK, effective_ids=True):
            raise InvalidValueError(f"{named} cannot be written: permission denied")
        if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not _is_sink(output.path)):
            raise InvalidValueError(f"{named} is a device; name a file, or - for standard output")
        if stat.S_ISREG(mode):
            if _identity(output.path) == _stream_identity(sys.stderr):
                raise InvalidValueError(f"{named} is where standard error goes; name another file")
            # What is appended to another file would neither keep nor replace what is in it.
            if not force or output.kind in _APPENDED:
                _check_kind(output, Path(output.path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidValueError(f"{named} cannot be written: {reason}") from error


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _check_folder(output: _Output) -> None:
    folder = os.path.dirname(os.path.realpath(output.path))
    named = f"{output.option} {output.path!r}"
    if not os.path.isdir(folder):
        reason = "Not a directory" if os.path.exists(folder) else "No such file or directory"
        raise InvalidValueError(
            f"{named} cannot be written: {reason}; there is no directory "
            f"{os.path.dirname(output.path)!r}"
        )
    try:
        # Permissions do not tell: nobody can make a file in /proc. This one has no name.
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InvalidValueError(
            f"{named} cannot be written: no file can be made in {folder!r}: {error.strerror}"
        ) from error


def _is_sink(path: str) -> bool:
    identity = _identity(path)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return identity in [*map(_identity, _SINKS), *map(_stream_identity, streams)]


def _check_kind(output: _Output, path: Path) -> None:
    """Raise unless a file is empty, or begins as what this option wrote before."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    what, beginnings, marks = KINDS[output.kind]
    if not head or (_unpacked(head).startswith(beginnings) and any(it in head for it in marks)):
        return
    found = f" and is no {what}" if what else ""
    if head.startswith(_SQLITE):
        found = " and is a database"
    advice = "" if output.kind in _APPENDED else ", or add --force"
    raise InvalidValueError(
        f"{output.option} {output.path!r} exists{found}: it is kept; name another file{advice}"
    )


def _unpacked(head: bytes) -> bytes:
    """The beginning of what is in a file, packed by gzip or not."""
    try:
        return zlib.decompressobj(_GZIP_BITS).decompress(head)
    except zlib.error:
        return head


_ANY = (b"",)
KINDS: Mapping[str, tuple[str, tuple[bytes, ...], tuple[bytes, ...]]] = MappingProxyType(
    {
        "report": (
            "report of this command",
            (b'{\n "', b"[\n ", b"{}\n", b"[]\n", b"null\n"),
            _ANY,
        ),
        "log": ("log of events", (b'{"event":',), _ANY),
        "totals": ("log of total latencies", (b"seconds\ttrials\t",), _ANY),
        "runs": ("log of replayed runs", (b'{"space": ',), _ANY),
        "library": (
            "library of a network",
            (b"\x7fELF", b"// Schedules that autotune found"),
            _ANY,
        ),
        "kernel": ("exported kernel", (b"",), (b"\x7fELF", b"tuned by autotune")),
        "page": (
            "report page of autotune",
            (b"<!DOCTYPE html>",),
            (b"<title>Tuning report: ", b"<title>Replay report: "),
        ),
        "plot": (
            "SVG",
            (b"<svg ", b'<?xml version="1.0" encoding="utf-8" standalone="no"?>\n<!DOCTYPE svg'),
            _ANY,
        ),
        "table": ("table of a comparison", (b"workload,contender,",), _ANY),
        "results": ("file of results", (b'{"kind": "study"',), _ANY),
        "model": ("file of a cost model", (b"PK\x03\x04",), (b"header.npy",)),
        "records": ("file of records", (b'{"schema":',), _ANY),
        # Caches of Kernel Tuner, T4 and T1.
        "space": (
            "recorded space",
            (b'{"device_name":', b'{\n "schema_version": "1.', b'{\n "General":'),
            _ANY,
        ),
        # A file of a format that only a backend knows.
        "export": ("", (), ()),
    }
)
"""Kinds of written files: what a user calls each, how it begins, and what its beginning holds."""
