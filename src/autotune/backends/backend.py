"""The interface of a backend: from candidates to programs that run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import field, frozen
from numpy.typing import NDArray

from autotune.backends.native_call import NativeCall
from autotune.errors import AutotuneError, UnknownNameError, UnsupportedWorkload
from autotune.ir.element_types import ELEMENT_TYPES
from autotune.ir.workloads import Workload
from autotune.plugins import Context
from autotune.sketches import Candidate
from autotune.sketches.limits import ScheduleLimits
from autotune.store.records import Record
from autotune.targets import Target

Array = NDArray[Any]


class InvalidSchedule(AutotuneError):
    """The backend refuses the candidate: a step cannot be applied with these values."""


class BuildFailed(AutotuneError):
    """The compiler rejected the scheduled program."""


class UnsupportedExport(AutotuneError):
    """The backend cannot make programs in one process for another."""


@frozen
class BuildRequest:
    """A request to build a program. It travels to another process as JSON.

    Attributes:
        workload: What is computed; also names and orders the arguments.
        program: The imported program in the backend's own text form, when there is one:
            steps are then replayed on it and not on a program made from the workload.
        candidate: The schedule; None asks for the untuned program.
        target: What it runs on.
        threads: Threads the program may use.
        quick: Whether the program will only be compared with others that are built like it, so
            that optimisations may be left out that cost more time than they tell apart.
    """

    workload: Workload
    program: str | None
    candidate: Candidate | None
    target: Target
    threads: int
    quick: bool = False


@frozen
class ProgramFile:
    """A program in a file. Which backend imports it depends on its format.

    Attributes:
        path: The file.
        format: Its format, such as ``"mlir"``.
        function: The function that is meant, where the file has several.
    """

    path: Path = field(converter=Path)
    format: str
    function: str | None = None


@frozen
class ImportedProgram:
    """A program of the backend's own kind, understood.

    Attributes:
        workload: Its meaning.
        program: Its text form; None where it is made of the workload alone.
        least_untuned: As of :meth:`Backend.least_untuned`, of the program as it is.
    """

    workload: Workload
    program: str | None
    least_untuned: float = 0.0


@frozen
class ExportReport:
    """The outcome of an export in a backend's own format.

    Attributes:
        exported: How many are in the files.
        refused: Those that cannot be expressed: the record's name (``RUN/TRIAL``) and why.
        files: The files that were written.
        usage: How they are used, in a sentence or a command; "" where the format needs no words.
    """

    exported: int
    refused: tuple[tuple[str, str], ...]
    files: tuple[str, ...]
    usage: str = ""


@frozen
class ForeignSchedule:
    """A schedule that another tool found and timed, as a candidate of a search space here.

    Attributes:
        candidate: The schedule.
        program: Text of the imported program that it is for, as of :class:`ImportedProgram`.
        space: Name and version of the search space, such as ``trace-1``.
        threads: Threads that it was timed on.
        latency: Seconds per call as that tool counts them.
        samples: Seconds per call of what it timed, in order.
    """

    candidate: Candidate
    program: str | None
    space: str
    threads: int
    latency: float
    samples: tuple[float, ...] = ()


@frozen
class ForeignSchedules:
    """The records that a backend read of another tool's.

    Attributes:
        schedules: Those that it can replay, in the order in which they were recorded.
        refused: The others: where the record is, such as ``line 3``, and why it is left out.
    """

    schedules: tuple[ForeignSchedule, ...]
    refused: tuple[tuple[str, str], ...] = ()


@frozen(eq=False)
class LoweredProgram:
    """A candidate replayed: the program that the compiler proper will be given.

    Attributes:
        request: What it was made from.
        program: The program in the backend's own form; only the backend looks into it.
        digest: Of two programs with one digest, for the same workload, target and number of
            threads, only one need be compiled and measured. The same in every process. Empty
            where the backend cannot tell.
    """

    request: BuildRequest
    program: Any
    digest: str = ""


class BoundCall(ABC):
    """A built program with its arguments in place, so that running it costs nothing more."""

    @abstractmethod
    def run(self) -> None:
        """Run once."""

    @abstractmethod
    def time(self, number: int) -> float:
        """Seconds per call, averaged over ``number`` calls in a native loop."""

    def native(self) -> NativeCall | None:
        """A run as a C function, for timing it with nothing in between.

        Also prepares the calling thread: ask again on another thread, or when another program has
        run in between. None where a program cannot be called so; it is then timed by :meth:`time`.
        """
        return None

    @abstractmethod
    def outputs(self) -> list[Array]:
        """Copies of the output arrays, in the workload's order."""

    def is_within(self, references: Sequence[Array], bounds: Sequence[Array]) -> bool:
        """Tell whether outputs are known right, and inputs as they were, without fetching them.

        For programs that run far from here. Where this is False, :meth:`outputs` are compared.

        Args:
            references: What outputs have to be, in the workload's order.
            bounds: Largest absolute error of each of their elements, of the same shapes.
        """
        return False

    def copies(self) -> list[Array]:
        """Arrays that it reads in place of inputs: constants, packed when it was bound."""
        return []

    @abstractmethod
    def poison(self) -> None:
        """Overwrite the outputs, so that a program that writes nothing cannot pass."""


class Executable(ABC):
    """A built program."""

    digest: str = ""
    """Of the machine code: programs with one digest, for the same workload, are one program.

    The same in every process; empty where the backend cannot tell.
    """

    @abstractmethod
    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        """Put the arguments in place.

        The arrays are the caller's, in the workload's order, contiguous and aligned as
        :func:`~autotune.backends.check_arguments` says; inputs may be read-only. A backend for the
        host runs on them where they lie, so that what the caller writes into an input is what the
        next call reads, and what a call writes is in the outputs at once; of constant inputs it
        may make copies here, packed as a schedule says. A backend for a device
        copies inputs here, and outputs when it is asked for them. The call keeps the arrays alive.
        :func:`~autotune.backends.bind_copies` is for callers without memory of their own.

        Raises:
            InvalidValueError: the arrays are not those of the workload, or not aligned.
        """

    def export(self, path: Path) -> None:
        """Write the program into one file, for :meth:`Backend.load_program` of another process.

        Equal programs should give equal files.

        Raises:
            UnsupportedExport: the backend has no such files.
            BuildFailed: the program cannot be written.
        """
        raise UnsupportedExport(
            f"{type(self).__name__} cannot write programs for other processes: build and time in "
            "one process (--runner local)"
        )


class Backend(ABC):
    """Builds and runs candidates.

    A backend module is cheap to import: the compiler is imported on first use, which is in a
    worker process for all but importing and showing programs.
    """

    name: str
    version: str
    element_types: frozenset[str] = frozenset(ELEMENT_TYPES)
    """Names of those that its programs can have; see :meth:`check_workload`."""
    simulated_times: bool = False
    """True if its programs say how long they would take, and no such time passes.

    Nothing can be said then on whether a latency is plausible, and nothing is checked.
    """
    default_schedule: str = ""
    """Name of the schedule that programs get where nobody chooses one, "" where there is
    none: ``TVM's default schedule``. Tuned programs then have to beat it, too; :meth:`lower` and
    :meth:`show` are given the candidate that :func:`autotune.sketches.baseline_candidate` makes,
    and raise InvalidSchedule where there is none for a program."""

    device_kinds: frozenset[str] = frozenset()
    """Kinds of targets whose programs are :class:`~autotune.backends.CudaExecutable`: workers only
    build them, and one process that owns the device checks and times them."""

    fallback_space: str = ""
    """Name of a search space of schedules by the compiler's own rules, which takes programs that
    the space of a run refuses; "" where there is none. Tasks of networks fall back to it."""

    worker_modules: tuple[str, ...] = ()
    """Modules that a worker imports to build and run programs. Workers are forked from a process
    that has imported these, where the backend is of autotune itself: importing them starts no
    thread, and reads no variable of :meth:`worker_environment` that two runs may set to
    different values."""

    def __init__(self, context: Context | None = None) -> None:  # noqa: B027
        """A backend is made like every other part, and needs nothing."""

    @abstractmethod
    def compiler_version(self) -> str:
        """Version of the compiler, found without importing it."""

    def compiler_version_for(self, target: Target) -> str:
        """The same for programs of a target, where another compiler takes part in those."""
        return self.compiler_version()

    @abstractmethod
    def check_target(self, target: Target) -> None:
        """Raises UnsupportedTarget when the backend cannot compile for ``target``."""

    def check_measuring(self, target: Target, threads: int = 1) -> None:
        """Raises UnsupportedTarget when programs for ``target`` cannot be run and timed.

        A backend may compile for more targets than it can run programs on; by default
        they are the same. It may also need something for programs that use several threads.
        """
        self.check_target(target)

    def check_workload(self, workload: Workload) -> None:
        """Raises UnsupportedWorkload where an element type is none of the backend's."""
        for dtype in sorted(workload.dtypes - self.element_types):
            raise UnsupportedWorkload(
                f"backend {self.name!r} does not know dtype {dtype!r} of workload "
                f"{workload.name!r}; it knows: {', '.join(sorted(self.element_types))}"
            )

    @abstractmethod
    def limits(self, target: Target) -> ScheduleLimits:
        """The limits of what the backend can compile for ``target``."""

    @abstractmethod
    def worker_environment(self, threads: int) -> dict[str, str]:
        """Environment variables a worker process needs before the compiler is imported."""

    @abstractmethod
    def warm_up(self) -> None:
        """Import the compiler and do what the first build would otherwise pay for."""

    def park(self) -> None:  # noqa: B027
        """Return when only the calling thread of this process runs.

        Called after a program was timed, so that threads which wait for work by watching for it
        do not disturb the next process that times something. There is nothing to do unless the
        compiler's runtime has such threads.
        """

    @abstractmethod
    def imports(self, program: object) -> bool:
        """Tell whether ``program`` is of this backend's own kind, found without importing it."""

    @abstractmethod
    def import_program(self, program: object) -> ImportedProgram:
        """Understand a program of the backend's own kind.

        Raises:
            UnsupportedWorkload: names the part that cannot be expressed, and why.
        """

    def least_untuned(self, workload: Workload) -> float:
        """Seconds that a CPU takes at least for a call of the program made from a workload.

        0.0 where nothing can be said. Where that is long, the untuned program is run only if no
        candidate takes less.
        """
        return 0.0

    @abstractmethod
    def lower(self, request: BuildRequest) -> LoweredProgram:
        """Replay the candidate's steps. What takes long is left to :meth:`compile`.

        Raises:
            InvalidSchedule: a step cannot be applied.
            BuildFailed: the compiler's first passes rejected the program.
        """

    @abstractmethod
    def compile(self, lowered: LoweredProgram) -> Executable:
        """Compile what :meth:`lower` made, in the same process.

        Raises:
            BuildFailed: the compiler rejected the program.
        """

    def load_program(self, request: BuildRequest, path: Path) -> Executable:
        """Load what :meth:`Executable.export` has written, in whichever process; compiles nothing.

        Args:
            request: What the program was made from.
            path: The file.

        Raises:
            UnsupportedExport: the backend has no such files.
            BuildFailed: the file is no such program, or cannot be loaded here.
        """
        raise UnsupportedExport(
            f"backend {self.name!r} cannot load programs that another process has built: build "
            "and time in one process (--runner local)"
        )

    def build(self, request: BuildRequest) -> Executable:
        """Replay the candidate's steps and compile.

        Raises:
            InvalidSchedule: a step cannot be applied.
            BuildFailed: the compiler rejected the program.
            UnsupportedWorkload: an element type is none of the backend's.
        """
        self.check_workload(request.workload)
        return self.compile(self.lower(request))

    @abstractmethod
    def show(self, request: BuildRequest) -> str:
        """The scheduled program in the backend's own language, for people.

        Raises:
            InvalidSchedule: the candidate cannot be replayed.
        """

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

    def import_formats(self) -> Mapping[str, str]:
        """Formats of the compiler's own that records can be read from: name and description."""
        return MappingProxyType({})

    def import_records(self, format: str, path: Path, target: Target) -> ForeignSchedules:
        """Read records of another tool; nothing that they hold is run.

        Called in a process of its own, which a program in a record may end.

        Args:
            format: One of :meth:`import_formats`.
            path: What the tool wrote, a file or a folder.
            target: What the records are taken for; those of other machines are refused.

        Raises:
            UnknownNameError: there is no such format.
            InvalidValueError: the path cannot be read.
            UnsupportedTarget: the format has no schedules for such a target.
        """
        extra = f"Backend {self.name!r} offers no other."
        raise UnknownNameError("import format", format, self.import_formats(), extra)
