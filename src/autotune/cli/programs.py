"""Options that select a program in a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autotune.cli.destinations import InputFile
from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.backends import ProgramFile
    from autotune.ir.workloads import Workload

__all__ = [
    "asked_program",
    "imported_workload",
    "importing_backend",
    "named_workload",
    "program_options",
    "read_workload",
]

Command = TypeVar("Command", bound=Callable[..., Any])

# What names of workloads do not have, as a rule, and those of files do.
_FILE = re.compile(r"[./\\]")

# What to install where no backend reads a format.
_READERS: Mapping[str, str] = {"mlir": "autotune-mlir"}


def program_options(command: Command) -> Command:
    """``--mlir FILE`` and ``--function NAME``."""
    options = (
        click.option(
            "--mlir",
            "mlir_path",
            metavar="FILE",
            type=InputFile(),
            help="The program is in this file, in linalg on tensors; in place of WORKLOAD.",
        ),
        click.option(
            "--function",
            metavar="NAME",
            help="The function to tune, where the file has several.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def asked_program(
    workload: str | None,
    shape: Sequence[str],
    dtype: str | None,
    mlir_path: str | None,
    function: str | None,
) -> ProgramFile | None:
    """The program in a file that the options ask for, or None where they ask for none.

    Raises:
        InvalidValueError: the options contradict each other.
    """
    from autotune.backends import ProgramFile

    if mlir_path is None:
        if function is not None:
            raise InvalidValueError("--function needs the file that it is in: --mlir FILE")
        return None
    given = {"WORKLOAD": workload, "--shape": shape, "--dtype": dtype}
    for name, value in given.items():
        if value:
            raise InvalidValueError(
                f"--mlir and {name} exclude each other: the file is the whole program"
            )
    return ProgramFile(mlir_path, "mlir", function)


def imported_workload(
    importer: str,
    program: str | None,
    shape: Sequence[str],
    dtype: str | None,
    function: str | None,
) -> Workload:
    """Workload that a named importer reads in a program.

    Raises:
        InvalidValueError: no program is given, or its shape is.
        AutotuneError: as :func:`autotune.tuning.foreign_programs.import_by`.
    """
    from autotune.tuning.foreign_programs import import_by

    if program is None:
        raise InvalidValueError(f"--importer {importer} needs a program in place of WORKLOAD")
    if shape or dtype:
        raise InvalidValueError("--importer excludes --shape and --dtype: the program says it all")
    return import_by(importer, program, function)


def named_workload(name: str, shape: Sequence[str], dtype: str | None) -> Workload:
    """The workload of a name, ``--shape`` and ``--dtype``.

    Raises:
        InvalidValueError: the name is a file's, or as :func:`make_workload`.
        UnknownNameError: there is no such workload, or no such shape parameter.
    """
    from autotune.cli.options import read_shape
    from autotune.plugins.manager import manager
    from autotune.plugins.workload_names import make_workload

    if _FILE.search(name) and name not in manager().names("workload"):
        raise InvalidValueError(
            f"{name!r} is no name of a workload; a program in a file is given by --mlir {name}, "
            f"or by --importer NAME {name}"
        )
    return make_workload(name, read_shape(shape), dtype)


def importing_backend(program: ProgramFile) -> str:
    """Name of the installed backend that imports the program.

    Raises:
        InvalidValueError: there is none.
    """
    from autotune.plugins.guarded_parts import create_held_part
    from autotune.plugins.manager import manager

    for name in manager().names("backend"):
        if create_held_part("backend", name).imports(program):
            return name
    from autotune.plugins.installing import install_distributions

    raise InvalidValueError(
        f"no installed backend imports {program.format} files; run "
        + install_distributions(_READERS[program.format])
    )


def read_workload(program: ProgramFile) -> Workload:
    """The workload of a program.

    Raises:
        InvalidValueError: no backend imports it, or the file cannot be read.
        UnsupportedWorkload: it cannot be expressed.
    """
    from autotune.tuning.foreign_programs import import_file

    return import_file(program, importing_backend(program)).workload
