"""From linalg on tensors to a workload, and to the program that is its baseline.

MLIR reads it in a process of its own: there are texts that its parser does not survive.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.backends import ProgramFile
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.text_files import read_text_file
from autotune.ir.workloads import Workload
from autotune.process import Message, ask_isolated
from autotune_mlir import bindings

__all__ = ["ask_reader", "import_program", "read_source"]

WORKER = "autotune_mlir.importing.import_worker"

# Reading takes milliseconds; starting the process may take a while on a loaded machine.
_SECONDS = 120.0


def import_program(program: object) -> tuple[Workload, str]:
    """The workload of ``program``, and the program by itself.

    See :func:`autotune_mlir.importing.reading.read_text`.

    Args:
        program: A file; or of either distribution of MLIR's bindings a module, or the function
            of one. A module has one function that is not private.

    Raises:
        UnsupportedWorkload: the text does not parse, or an operation cannot be expressed; says
            where and why.
        UnknownNameError: the file has no such function.
        InvalidValueError: the file cannot be read, or it is not clear which function is meant.
        BindingsMissing: MLIR is not installed.
    """
    text, file, function = read_source(program)
    done = ask_reader({"op": "read", "text": text, "file": file, "function": function})
    return Workload.from_json(done["workload"]), str(done["program"])


def read_source(program: object) -> tuple[str, str, str | None]:
    """The text of a program, what to call it, and the function that is meant.

    Raises:
        InvalidValueError: the file cannot be read.
        BindingsMissing: MLIR is not installed.
    """
    bindings.chosen()
    if isinstance(program, ProgramFile):
        return _read(program.path), str(program.path), program.function
    return _text_of(program), "the module", None


def ask_reader(question: Message) -> Message:
    """Ask the process that reads MLIR.

    Args:
        question: With ``op``, ``text`` and ``file``.

    Raises:
        UnsupportedWorkload: MLIR does not survive reading the text, or takes too long.
        AutotuneError: as of the operation.
    """
    what = f"{question['file']} cannot be read"
    return ask_isolated(what, WORKER, question, 1, _SECONDS, UnsupportedWorkload)


def _read(path: Path) -> str:
    try:
        return read_text_file(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidValueError(f"cannot read {str(path)!r}: {reason}") from error


def _text_of(program: Any) -> str:
    # With the places of the text that it was made from, for messages.
    return str(program.operation.get_asm(enable_debug_info=True))
