"""Programs that a command line names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from autotune.cli.arguments import argument, option
from autotune.cli.destinations import InputFile
from autotune.cli.options import SHAPE_HELP, read_shape
from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.backends import ProgramFile
    from autotune.ir.workloads import Workload

__all__ = ["DTYPE_HELP", "AskedProgram", "importing_backend", "read_workload"]

DTYPE_HELP = "Element type; the workload's default if it is not given."
# What names of workloads do not have, as a rule, and those of files do.
_FILE = re.compile(r"[./\\]")

# What to install where no backend reads a format.
_READERS: Mapping[str, str] = {"mlir": "autotune-mlir"}


@frozen
class AskedProgram:
    """A program that a command line names: a workload of a shape, or what is in a file.

    Attributes:
        workload: WORKLOAD, or None.
        shape: ``--shape``, in one piece or several.
        dtype: ``--dtype``.
        mlir_path: ``--mlir``.
        function: ``--function``.
    """

    workload: str | None = argument(kind=InputFile(beside="importer"))
    shape: tuple[str, ...] = option("--shape K=V,...", SHAPE_HELP)
    dtype: str | None = option("--dtype", "Element type.")
    mlir_path: str | None = option(
        "--mlir FILE",
        "The program is in this file, in linalg on tensors; in place of WORKLOAD.",
        InputFile(),
    )
    function: str | None = option(
        "--function NAME", "The function to tune, where the file has several."
    )

    def file(self) -> ProgramFile | None:
        """The program in a file that is asked for, or None where there is none.

        Raises:
            InvalidValueError: the options contradict each other.
        """
        from autotune.backends import ProgramFile

        if self.mlir_path is None:
            if self.function is not None:
                raise InvalidValueError("--function needs the file that it is in: --mlir FILE")
            return None
        given = {"WORKLOAD": self.workload, "--shape": self.shape, "--dtype": self.dtype}
        for name, value in given.items():
            if value:
                raise InvalidValueError(
                    f"--mlir and {name} exclude each other: the file is the whole program"
                )
        return ProgramFile(self.mlir_path, "mlir", self.function)

    def imported(self, importer: str) -> Workload:
        """Workload that a named importer reads in a program.

        Raises:
            InvalidValueError: no program is given, or its shape is.
            AutotuneError: as :func:`autotune.tuning.foreign_programs.import_by`.
        """
        from autotune.tuning.foreign_programs import import_by

        if self.workload is None:
            raise InvalidValueError(f"--importer {importer} needs a program in place of WORKLOAD")
        if self.shape or self.dtype:
            raise InvalidValueError(
                "--importer excludes --shape and --dtype: the program says it all"
            )
        return import_by(importer, self.workload, self.function)

    def named(self, missing: str) -> Workload:
        """The workload of this name, shape and element type.

        Args:
            missing: Message where there is no name.

        Raises:
            InvalidValueError: there is none, or it is a file's, or as :func:`make_workload`.
            UnknownNameError: there is no such workload, or no such shape parameter.
        """
        from autotune.plugins.manager import manager
        from autotune.plugins.workload_names import make_workload

        name = self.workload
        if name is None:
            raise InvalidValueError(missing)
        if _FILE.search(name) and name not in manager().names("workload"):
            raise InvalidValueError(
                f"{name!r} is no name of a workload; a program in a file is given by --mlir "
                f"{name}, or by --importer NAME {name}"
            )
        return make_workload(name, read_shape(self.shape), self.dtype)


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
