"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from autotune.errors import InvalidValueError

__all__ = [
    "backend_option",
    "check_json_path",
    "check_log_path",
    "database_option",
    "json_option",
    "progress_options",
    "read_options",
    "read_progress_mode",
    "read_shape",
    "shape_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_DATABASE = "autotune.db"
PROGRESS_MODES = ("auto", "live", "plain", "quiet")


def json_option(command: Command) -> Command:
    """``--json FILE``."""
    return click.option(
        "--json",
        "json_path",
        metavar="FILE",
        callback=lambda _context, _option, path: check_json_path(path),
        help="Also write the result as JSON; - for standard output.",
    )(command)


def backend_option(command: Command) -> Command:
    """``--backend NAME,...``."""
    return click.option(
        "--backend",
        metavar="NAME,...",
        help="What compiles and runs: by default the one that is installed, or tvm; several, such "
        "as tvm,mlir, compete.",
    )(command)


def database_option(command: Command) -> Command:
    """``--database FILE``."""
    return click.option(
        "--database",
        metavar="FILE",
        default=DEFAULT_DATABASE,
        show_default=True,
        help="Where the records are.",
    )(command)


def progress_options(command: Command) -> Command:
    """``--progress MODE``, ``--quiet`` and ``--log FILE``."""
    options = (
        click.option(
            "--progress",
            "progress_mode",
            type=click.Choice(PROGRESS_MODES),
            help="How to show progress; by default live on a terminal and plain elsewhere.",
        ),
        click.option("--quiet", is_flag=True, help="Show only warnings; as --progress quiet."),
        click.option(
            "--log",
            "log_path",
            metavar="FILE",
            help="Append every event as a line of JSON; - for standard output.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_progress_mode(mode: str | None, quiet: bool) -> str:
    """What ``--progress`` and ``--quiet`` ask for together.

    Raises:
        InvalidValueError: one contradicts the other.
    """
    if not quiet:
        return mode or "auto"
    if mode not in (None, "quiet"):
        raise InvalidValueError(f"--quiet contradicts --progress {mode}")
    return "quiet"


def check_log_path(log_path: str | None, json_path: str | None) -> None:
    """Check that a log and a result do not go to the same place.

    Raises:
        InvalidValueError: they do.
    """
    if log_path is None or json_path is None:
        return
    if log_path == json_path or os.path.realpath(log_path) == os.path.realpath(json_path):
        raise InvalidValueError(f"--log and --json both name {log_path!r}")


def shape_option(command: Command) -> Command:
    """``--shape k=v,...``."""
    return click.option(
        "--shape",
        metavar="K=V,...",
        multiple=True,
        help="Shape of the workload, such as m=512,n=512,k=512.",
    )(command)


def check_json_path(path: str | None) -> str | None:
    """Check that a file can be written, before anything is done whose result it would hold.

    Raises:
        InvalidValueError: it cannot.
    """
    if path is None or path == "-":
        return path
    file = Path(path)
    if file.is_dir():
        raise InvalidValueError(f"--json {path!r} is a directory")
    if not file.parent.is_dir():
        raise InvalidValueError(f"--json {path!r}: there is no directory {str(file.parent)!r}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise InvalidValueError(f"--json {path!r} cannot be written: permission denied")
    return path


def read_shape(texts: Sequence[str]) -> dict[str, str]:
    """Read ``--shape``, which may be given in one piece or several."""
    from autotune.plugins.workload_names import parse_assignments

    return parse_assignments(",".join(texts), "--shape")


def read_options(texts: Sequence[str], option: str) -> dict[str, Any]:
    """Read ``name=value`` texts; values that are JSON numbers or booleans become such.

    Raises:
        InvalidValueError: a text is not of this form.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InvalidValueError(f"{option} {text!r} is not of the form name=value")
        if name in values:
            raise InvalidValueError(f"{option} names {name!r} twice")
        values[name] = _value(value)
    return values


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text
