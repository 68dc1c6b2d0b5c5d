"""Which programs are tuned on which backends: what each backend makes of what a user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from autotune.backends import Backend
from autotune.errors import AutotuneError, InvalidValueError, PluginError, UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part
from autotune.plugins.workload_names import task_name
from autotune.spaces import SearchSpace
from autotune.tuning.settings import Settings, default_backend

__all__ = ["Entrant", "Task", "all_entrants", "backend_for", "check_instance"]


@frozen(eq=False)
class Task:
    """One of several programs that are tuned together.

    Attributes:
        program: A workload, or a program that a backend imports.
        weight: How often it occurs; the scheduler minimises the weighted sum of latencies.
        name: What to call it; by default made from the workload.
    """

    program: object
    weight: float = 1.0
    name: str | None = None


@frozen(eq=False)
class Entrant:
    """A program on a backend.

    Attributes:
        position: Of the program among those that were given.
        title: What a person calls the program.
        weight: How often it occurs.
        backend: The backend.
        backend_name: Its name.
        workload: What the backend takes the program to compute.
        program: The imported program's text, if the backend has imported it.
        space: The candidates.
        competes: Whether there are others for the same program.
    """

    position: int
    title: str
    weight: float
    backend: Backend
    backend_name: str
    workload: Workload
    program: str | None
    space: SearchSpace
    competes: bool = False

    @property
    def name(self) -> str:
        """What a person calls it: the program, and the backend where there are several."""
        return f"{self.title} on {_short(self.backend_name)}" if self.competes else self.title


@frozen
class _Meaning:
    """A program as one backend takes it."""

    workload: Workload
    program: str | None


def all_entrants(given: Sequence[Task], settings: Settings) -> tuple[list[Entrant], list[str]]:
    """Every program on every backend that can take part, and what a person should know.

    With several backends, one that cannot is left out with a warning, as long as there is another.

    Raises:
        AutotuneError: no backend can take part for a program; names the reason of each.
    """
    warnings: list[str] = []
    unusable: dict[str, AutotuneError] = {}
    backends = _usable_backends(settings, unusable)
    warnings += [_left_out(name, error) for name, error in unusable.items()]
    titles: list[str] = []
    entrants: list[Entrant] = []
    for position, task in enumerate(given):
        weight = task.weight
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight > 0:
            raise InvalidValueError(f"a task's weight must be positive, not {weight!r}")
        failures: dict[str, AutotuneError] = {}
        meanings = _understood(task.program, backends, failures, warnings)
        found: list[Entrant] = []
        title = ""
        for name, meaning in meanings.items():
            title = title or _title(task, meaning.workload, titles)
            try:
                space = _make_space(meaning.workload, backends[name], settings)
            except AutotuneError as error:
                failures[name] = error
                continue
            backend, weight = backends[name], float(weight)
            found.append(
                Entrant(
                    position,
                    title,
                    weight,
                    backend,
                    name,
                    meaning.workload,
                    meaning.program,
                    space,
                )
            )
        if not found:
            raise _nobody({**unusable, **failures})
        titles.append(title)
        warnings += [_left_out(name, error, title) for name, error in failures.items()]
        entrants += [evolve(entrant, competes=len(found) > 1) for entrant in found]
    if any(entrant.competes for entrant in entrants):
        warnings += _too_small(len(entrants), settings)
    return entrants, warnings


def _too_small(entrants: int, settings: Settings) -> list[str]:
    """Backends get a round at a time, so that the last of them may get none."""
    needed = entrants * settings.round_size
    if settings.trials >= needed:
        return []
    return [
        f"{settings.trials} trials are less than a round of {settings.round_size} for every "
        f"program and backend: ask for {needed} trials at least, or for smaller rounds"
    ]


def backend_for(given: Sequence[Task]) -> str:
    """The backend where none is named: the default one, or the first that imports the programs.

    Raises:
        InvalidValueError: none is installed.
    """
    default = default_backend()
    programs = [task.program for task in given if not isinstance(task.program, Workload)]
    if programs:
        for name in (default, *manager().names("backend")):
            backend: Backend = create_part("backend", name)
            if all(backend.imports(program) for program in programs):
                return name
    return default


def check_instance(kind: str, name: str, made: object, expected: type[object]) -> None:
    """Check what a plugin's part has made.

    Raises:
        PluginError: it is not what it should be.
    """
    if not isinstance(made, expected):
        raise PluginError(
            f"{kind} {name!r} made a {_type_name(made)}, not a {expected.__qualname__}"
        )


def _usable_backends(settings: Settings, failures: dict[str, AutotuneError]) -> dict[str, Backend]:
    """Those that can measure for the target; the others are added to ``failures``."""
    found: dict[str, Backend] = {}
    for name in settings.backends:
        try:
            backend: Backend = create_part("backend", name)
            backend.check_measuring(settings.target, settings.threads)
            backend.compiler_version()
        except AutotuneError as error:
            failures[name] = error
        else:
            found[name] = backend
    if not found:
        raise _nobody(failures)
    return found


def _understood(
    program: object,
    backends: Mapping[str, Backend],
    failures: dict[str, AutotuneError],
    warnings: list[str],
) -> dict[str, _Meaning]:
    """What each backend takes a program to be; those that cannot are added to ``failures``.

    A backend that does not import programs of this kind makes one of its own, from what another
    one has read.
    """
    if isinstance(program, Workload):
        return dict.fromkeys(backends, _Meaning(program, None))
    importers = [name for name, backend in backends.items() if backend.imports(program)]
    if not importers:
        raise _not_imported(program, backends)
    imported: dict[str, _Meaning] = {}
    for name in importers:
        try:
            read = backends[name].import_program(program)
        except AutotuneError as error:
            failures[name] = error
        else:
            imported[name] = _Meaning(read.workload, read.program)
    result: dict[str, _Meaning] = {}
    for name in backends:
        if name in imported:
            result[name] = imported[name]
        elif imported and name not in failures:
            reader, meaning = next(iter(imported.items()))
            result[name] = _Meaning(meaning.workload, None)
            warnings.append(
                f"backend {name!r} does not import a {_type_name(program)}: it competes with a "
                f"program of its own, made from what {reader!r} has read"
            )
    return result


def _not_imported(program: object, backends: Mapping[str, Backend]) -> InvalidValueError:
    others = [
        other
        for other in manager().names("backend")
        if other not in backends and create_part("backend", other).imports(program)
    ]
    given = " and ".join(repr(name) for name in backends)
    if others:
        return InvalidValueError(
            f"backend {given} does not import a {_type_name(program)}; "
            f"pass backend={others[0]!r}, which does"
        )
    known = ", ".join(sorted({*backends, *manager().names("backend")}))
    return InvalidValueError(
        f"cannot tune a {_type_name(program)}: give an autotune.Workload, such as "
        f"autotune.ir.workloads.gemm(m=512, n=512, k=512), or a program that a backend imports "
        f"(backends: {known})"
    )


def _title(task: Task, workload: Workload, titles: Sequence[str]) -> str:
    """What to call a program: unique among those that are tuned together."""
    name = task.name or task_name(workload)
    taken = sum(other.partition(" #")[0] == name for other in titles)
    return f"{name} #{taken + 1}" if taken else name


def _make_space(workload: Workload, backend: Backend, settings: Settings) -> SearchSpace:
    space: SearchSpace = create_part(
        "search_space",
        settings.space,
        workload=workload,
        target=settings.target,
        limits=backend.limits(settings.target),
    )
    check_instance("search space", settings.space, space, SearchSpace)
    return space


def _left_out(name: str, error: AutotuneError, program: str = "") -> str:
    what = f" for {program}" if program else ""
    return f"backend {name!r} does not take part{what}: {error}"


def _nobody(failures: Mapping[str, AutotuneError]) -> AutotuneError:
    """The error of the only backend, or one that has those of all."""
    errors = list(failures.values())
    if len(errors) == 1:
        return errors[0]
    reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
    return UnsupportedWorkload(f"none of the backends can take part: {reasons}")


def _short(name: str) -> str:
    """A part's name without the module, where it was given by import string."""
    return name.rpartition(":")[2]


def _type_name(value: object) -> str:
    kind = type(value)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return prefix + kind.__qualname__
