"""The backend ``external``: programs that the user builds and runs by commands or functions."""

from __future__ import annotations

from typing import NoReturn

from autotune.backends import Backend, BuildRequest, Executable, ImportedProgram, LoweredProgram
from autotune.errors import UnsupportedWorkload
from autotune.external.given import configuration_of, note_given
from autotune.external.program import ExternalProgram
from autotune.ir.workloads import Workload
from autotune.sketches.limits import ScheduleLimits
from autotune.targets import Target

__all__ = ["ExternalBackend"]


class ExternalBackend(Backend):
    """Imports external programs, and leaves building and running to measurer ``external``."""

    name = "external"
    version = "1"

    def compiler_version(self) -> str:
        """None that is known: which compiler a command calls is the user's business."""
        return "of the program"

    def check_target(self, target: Target) -> None:
        """Any target will do: commands know what they are for."""

    def check_workload(self, workload: Workload) -> None:
        """Raises UnsupportedWorkload for what a compiler has to build."""
        if not workload.external:
            raise UnsupportedWorkload(
                f"backend 'external' compiles nothing, and workload {workload.name!r} is to be "
                "compiled: choose another backend"
            )

    def limits(self, target: Target) -> ScheduleLimits:
        """No step can be replayed."""
        return ScheduleLimits(frozenset(), 0, 0, "backend 'external'", backend=self.name)

    def worker_environment(self, threads: int) -> dict[str, str]:
        """None of its own."""
        return {}

    def warm_up(self) -> None:
        """Do nothing: there is nothing to load."""

    def imports(self, program: object) -> bool:
        """Return whether it is an :class:`ExternalProgram`."""
        return isinstance(program, ExternalProgram)

    def import_program(self, program: object) -> ImportedProgram:
        """The external workload of a program, and its text.

        Raises:
            InvalidValueError: it has no configuration, or its default is not feasible.
        """
        if not isinstance(program, ExternalProgram):
            raise UnsupportedWorkload(f"not an external program: {type(program).__name__}")
        return ImportedProgram(note_given(program).sketch.workload, program.text)

    def lower(self, request: BuildRequest) -> LoweredProgram:
        """Raises UnsupportedWorkload: nothing is compiled here."""
        _refuse()

    def compile(self, lowered: LoweredProgram) -> Executable:
        """Raises UnsupportedWorkload: nothing is compiled here."""
        _refuse()

    def show(self, request: BuildRequest) -> str:
        """The values of the parameters, a line each; runs nothing."""
        values = configuration_of(request.candidate, request.program)
        return "".join(f"{name} = {value!r}\n" for name, value in values.items())


def _refuse() -> NoReturn:
    raise UnsupportedWorkload(
        "an external program is built and run by the commands of its spec, which a record does "
        "not run: autotune tune-external SPEC"
    )
