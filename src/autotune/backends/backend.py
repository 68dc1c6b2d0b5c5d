"""The interface of a backend: from candidates to programs that run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import AutotuneError, UnknownNameError
from autotune.records import Record
from autotune.sketches import Candidate
from autotune.spaces import ScheduleLimits
from autotune.targets import Target
from autotune.workloads import Workload

Array = NDArray[Any]


class InvalidSchedule(AutotuneError):
    """The backend refuses the candidate: a step cannot be applied with these values."""


class BuildFailed(AutotuneError):
    """The compiler rejected the scheduled program."""


@frozen
class BuildRequest:
    """What to build. It travels to another process as JSON.

    Attributes:
        workload: What is computed; also names and orders the arguments.
        program: The imported program in the backend's own text form, when there is one:
            steps are then replayed on it and not on a program made from the workload.
        candidate: The schedule; None asks for the untuned program.
        target: What it runs on.
        threads: Threads the program may use.
    """

    workload: Workload
    program: str | None
    candidate: Candidate | None
    target: Target
    threads: int


@frozen
class ImportedProgram:
    """A program of the backend's own kind, understood: its meaning, and its text form."""

    workload: Workload
    program: str


@frozen
class ExportReport:
    """What became of records that were to be written in a backend's own format.

    Attributes:
        exported: How many are in the files.
        refused: Those that cannot be expressed: the record's name (``RUN/TRIAL``) and why.
        files: The files that were written.
    """

    exported: int
    refused: tuple[tuple[str, str], ...]
    files: tuple[str, ...]


class BoundCall(ABC):
    """A built program with its arguments in place, so that running it costs nothing more."""

    @abstractmethod
    def run(self) -> None:
        """Run once."""

    @abstractmethod
    def time(self, number: int) -> float:
        """Seconds per call, averaged over ``number`` calls in a native loop."""

    @abstractmethod
    def outputs(self) -> list[Array]:
        """Copies of the output arrays, in the workload's order."""

    @abstractmethod
    def poison(self) -> None:
        """Overwrite the outputs, so that a program that writes nothing cannot pass."""


class Executable(ABC):
    """A built program."""

    @abstractmethod
    def bind(self, inputs: Sequence[Array]) -> BoundCall:
        """Copy ``inputs`` (in the workload's order) to the device and allocate the outputs."""


class Backend(ABC):
    """Builds and runs candidates.

    A backend module is cheap to import: the compiler is imported on first use, which is in a
    worker process for all but importing and showing programs.
    """

    name: str
    version: str

    @abstractmethod
    def compiler_version(self) -> str:
        """Version of the compiler, found without importing it."""

    @abstractmethod
    def check_target(self, target: Target) -> None:
        """Raises UnsupportedTarget when the backend cannot compile for ``target``."""

    def check_measuring(self, target: Target) -> None:
        """Raises UnsupportedTarget when programs for ``target`` cannot be run and timed.

        A backend may compile for more targets than it can run programs on; unless it says so,
        they are the same.
        """
        self.check_target(target)

    @abstractmethod
    def limits(self, target: Target) -> ScheduleLimits:
        """What the backend can compile for ``target``."""

    @abstractmethod
    def worker_environment(self, threads: int) -> dict[str, str]:
        """Environment variables a worker process needs before the compiler is imported."""

    @abstractmethod
    def warm_up(self) -> None:
        """Import the compiler and do what the first build would otherwise pay for."""

    @abstractmethod
    def imports(self, program: object) -> bool:
        """Whether ``program`` is of this backend's own kind, found without importing it."""

    @abstractmethod
    def import_program(self, program: object) -> ImportedProgram:
        """Understand a program of the backend's own kind.

        Raises:
            UnsupportedWorkload: names the part that cannot be expressed, and why.
        """

    @abstractmethod
    def build(self, request: BuildRequest) -> Executable:
        """Replay the candidate's steps and compile.

        Raises:
            InvalidSchedule: a step cannot be applied.
            BuildFailed: the compiler rejected the program.
        """

    @abstractmethod
    def show(self, request: BuildRequest) -> str:
        """The scheduled program in the backend's own language, for people."""

    def diagnose(self) -> list[tuple[str, str, str]]:
        """Findings on the compiler's installation, for `autotune doctor`.

        Returns:
            Label, status (``"ok"``, ``"warning"`` or ``"error"``) and message of each.
        """
        return []

    def export_formats(self) -> Mapping[str, str]:
        """Formats of the compiler's own that records can be written in: name and description."""
        return MappingProxyType({})

    def export_records(self, records: Iterable[Record], format: str, path: Path) -> ExportReport:
        """Write records in one of :meth:`export_formats`; a record that cannot be is reported.

        Args:
            records: Records of this backend with an ok outcome.
            format: Name of the format.
            path: Where to; whether this is a file or a folder is up to the format.

        Raises:
            UnknownNameError: there is no such format.
            InvalidValueError: the path cannot be written to, or holds something already.
        """
        extra = f"Backend {self.name!r} offers no other."
        raise UnknownNameError("export format", format, self.export_formats(), extra)
