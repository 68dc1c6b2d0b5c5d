"""Model files, parsed first in a process that may die of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autotune.networks.frontend import Frontend
from autotune.plugins.guarded_parts import create_held_part
from autotune.process import Message, ask_isolated
from autotune.process.child import connect, serve
from autotune.process.error_codec import refusing

__all__ = ["check_file"]

SECONDS = 300.0
"""Time limit for reading a file, the import of its reader included."""

_MODULE = "autotune.networks.model_files"


def check_file(path: Path, frontend: str, meanwhile: Callable[[], object] = int) -> None:
    """Have a frontend parse a file in a process of its own.

    Args:
        path: The file.
        frontend: Name or import string of a frontend that accepts it.
        meanwhile: Called while that process works.

    Raises:
        InvalidValueError: the frontend dies of the file or does not end.
        AutotuneError: as :meth:`autotune.networks.Frontend.check_file`.
    """
    question = {"op": "check", "path": str(path), "frontend": frontend}
    what = f"{str(path)!r} cannot be read"
    ask_isolated(what, _MODULE, question, 1, SECONDS, meanwhile=meanwhile)


# What follows runs in that process.


def _check(question: Message) -> Message:
    reader: Frontend = create_held_part("frontend", question["frontend"])
    reader.check_file(Path(question["path"]))
    return {}


def main() -> None:
    """Run a worker; started by ``WorkerProcess`` only."""
    connection, _ = connect(_MODULE)
    serve(connection, {"check": refusing(_check)})
