"""Programs that a user gives, and the backends on which each is tuned."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from types import MappingProxyType

from attrs import evolve, field, frozen

from autotune.backends import Backend, ImportedProgram, ProgramFile
from autotune.errors import (
    AutotuneError,
    DatabaseError,
    InvalidValueError,
    UnsupportedTarget,
    UnsupportedWorkload,
)
from autotune.ir.workloads import Workload, structure_of
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.manager import manager
from autotune.plugins.workload_names import task_name
from autotune.search.schedulers import TaskInfo, similarity_group
from autotune.sketches import UNTUNED
from autotune.spaces import EmptySpace, SearchSpace, SpaceContext
from autotune.spaces.problems import ContradictoryConstraints
from autotune.store.database import RecordFilter
from autotune.store.records import MeasureKey
from autotune.store.sqlite import open_database
from autotune.targets import Target
from autotune.tuning.foreign_programs import import_file
from autotune.tuning.options import Choice, TuneOptions, spec_of

__all__ = [
    "Task",
    "TaskRun",
    "backend_for",
    "backend_of_parts",
    "compiling_backends",
    "default_backend",
    "import_on_each",
    "no_backend_error",
    "tasks_on_backends",
    "usable_backends",
]

# The default: the first of these that is installed and compiles for the target. The core has the
# first one, which compiles for x86-64.
_USUAL_BACKENDS = ("native", "tvm", "cuda", "mlir")


def compiling_backends() -> tuple[str, ...]:
    """Names of the installed backends that make programs of workloads."""
    known = manager()
    return tuple(it for it in known.names("backend") if known.get("backend", it).compiles)


def default_backend(target: Target) -> str:
    """The backend that is used for a target where none is named.

    The first of ``native``, ``tvm``, ``cuda`` and ``mlir`` that is installed and compiles for it.
    """
    usual = [name for name in _USUAL_BACKENDS if name in compiling_backends()]
    for name in usual:
        backend: Backend = create_held_part("backend", name)
        try:
            backend.check_target(target)
        except UnsupportedTarget:
            continue
        return name
    return usual[0]


def backend_for(programs: Sequence[object], options: TuneOptions) -> str:
    """The backend of a run that names none.

    That which its search space or runner works with; or which imports its programs; or which all
    of its workloads have been tuned with by now; or the default one of its target.
    """
    if of_parts := backend_of_parts(options):
        return of_parts[0]
    workloads = [program for program in programs if isinstance(program, Workload)]
    if len(workloads) < len(programs):
        imported = [program for program in programs if not isinstance(program, Workload)]
        for name in dict.fromkeys((*_USUAL_BACKENDS, *manager().names("backend"))):
            if name in manager().names("backend"):
                backend: Backend = create_held_part("backend", name)
                if all(backend.imports(program) for program in imported):
                    return name
    return _backend_of_records(workloads, options) or default_backend(options.machine)


def backend_of_parts(options: TuneOptions) -> tuple[str, ...]:
    """The backend that the search space or the runner of a run works with; () for any."""
    for kind in ("search_space", "runner"):
        spec = spec_of(kind, options.chosen[kind].name)
        if spec is not None and spec.backend:
            return (spec.backend,)
    return ()


def _backend_of_records(workloads: Sequence[Workload], options: TuneOptions) -> str | None:
    """The installed backend of the fastest program of each workload, where it is one for all.

    What was tuned is not searched again because the default has changed.
    """
    path = Path(options.database)
    if options.fresh or not path.is_file():
        return None
    machine, found = options.machine, set()
    try:
        with open_database(path, read_only=True) as database:
            for workload in workloads:
                record = database.best(
                    RecordFilter(
                        workload=workload.digest,
                        target=machine.fingerprint,
                        threads=machine.cores,
                        status="ok",
                        imported=False,
                    )
                )
                found.add("" if record is None else record.key.backend)
    except DatabaseError:
        return None
    name = found.pop() if len(found) == 1 else ""
    return name if name in compiling_backends() else None


@frozen(eq=False)
class Task:
    """Program of several that are tuned together.

    Attributes:
        program: A workload, or a program that a backend imports.
        weight: How often it occurs; the scheduler minimises the weighted sum of latencies.
        name: What to call it; by default made from the workload.
        imported: The program as backends have imported it already, by their names: these are not
            asked again.
    """

    program: object
    weight: float = 1.0
    name: str | None = None
    imported: Mapping[str, ImportedProgram] = field(factory=dict)


@frozen(eq=False, kw_only=True)
class TaskRun:
    """A program on a backend, as a run has it: all but the outcomes of its candidates.

    Attributes:
        title: What a person calls the program.
        workload: What the backend takes the program to compute.
        target: What to tune for.
        space: The candidates.
        key: What measurements depend on.
        program: The imported program's text, if the backend has imported it.
        weight: How often it occurs.
        position: Of the program among those that were given.
        competes: Whether there are other backends for the same program.
        refusal: Why the search space of the run refuses it, where ``space`` is the one that the
            backend falls back to; "" otherwise.
        default_schedule: What the backend's default schedule is called; "" where it has none.
        least_untuned: Seconds that one call of the untuned program takes at least; 0.0 where that
            is not known, or it is timed however long that takes.
        cuts_off: Whether a baseline is cut off once it cannot win.
    """

    title: str
    workload: Workload
    target: Target
    space: SearchSpace
    key: MeasureKey
    program: str | None = None
    weight: float = 1.0
    position: int = 0
    competes: bool = False
    refusal: str = ""
    default_schedule: str = ""
    least_untuned: float = 0.0
    cuts_off: bool = True

    @property
    def name(self) -> str:
        """Name for a person: the program, and the backend where there are several."""
        if not self.competes:
            return self.title
        # A part that was given by import string is called without its module.
        return f"{self.title} on {self.key.backend.rpartition(':')[2]}"

    @property
    def contest(self) -> str:
        """Contest of backends; "" where there is one."""
        return self.title if self.competes else ""

    @property
    def baseline_names(self) -> tuple[str, ...]:
        """Names of the programs without tuning: the default schedule, and the untuned program."""
        return (*filter(None, [self.default_schedule]), UNTUNED)

    @property
    def info(self) -> TaskInfo:
        """The input of a task scheduler."""
        group, structure = similarity_group(self.workload), structure_of(self.workload)
        if self.competes:
            # The latency on one backend is no bound for another.
            group = group and f"{group} on {self.key.backend}"
            structure = structure and f"{structure} on {self.key.backend}"
        flop = float(self.workload.flop)
        return TaskInfo(self.weight, flop, group, self.contest, self.title, structure)


def tasks_on_backends(
    given: Sequence[Task],
    options: TuneOptions,
    refused: MutableMapping[int, AutotuneError] | None = None,
    fallen: MutableMapping[int, str] | None = None,
    *,
    measures: bool = True,
) -> tuple[list[TaskRun], list[str]]:
    """Every program on every backend that can take part, and what a person should know.

    With several backends, one that cannot is left out with a warning, as long as there is another.
    Programs that are refused take no position, so that the others form the run that they would
    form without them.

    Args:
        given: The programs.
        options: How to tune, with a backend.
        refused: Takes, by position among those given, the error of each program that no backend
            can take; without it such an error is raised, and names the program.
        fallen: Takes, by position, why the search space refuses a program that is searched in the
            space that its backend falls back to; without it no backend falls back. With it,
            backends do not compete: the first that takes a program has it.
        measures: Whether programs are to be timed: the target is then a machine that is here.

    Raises:
        InvalidValueError: a weight is not positive, or a program does not fit in memory.
        AutotuneError: no backend can be used, or none can take a program.
    """
    for task in given:
        _check_weight(task.weight)
    unusable: dict[str, AutotuneError] = {}
    backends = usable_backends(options, unusable, measures=measures)
    warnings = [_left_out(name, error) for name, error in unusable.items()]
    titles: list[str] = []
    tasks: list[TaskRun] = []
    for number, task in enumerate(given):
        notes: list[str] = []
        try:
            found = _on_each_backend(
                task, titles, backends, options, unusable, notes, fallen is not None
            )
        except AutotuneError as error:
            if refused is None:
                raise _naming(error, task, number, len(given)) from None
            refused[number] = error
            continue
        titles.append(found[0].title)
        tasks += found
        if fallen is not None and found[0].refusal:
            fallen[number] = found[0].refusal
        warnings += notes
    if refused and not tasks:
        _check_options(list(refused.values()))
    warnings += _too_small(tasks, options)
    warnings += _notes(tasks)
    return tasks, warnings


def _check_options(errors: Sequence[AutotuneError]) -> None:
    """Raise what all programs were refused with, where that is about none of them.

    Such as an option that the search space does not have.
    """
    same = len({str(error) for error in errors}) == 1
    if same and not isinstance(errors[0], UnsupportedWorkload):
        raise errors[0]


def _on_each_backend(
    task: Task,
    titles: Sequence[str],
    backends: Mapping[str, Backend],
    options: TuneOptions,
    unusable: Mapping[str, AutotuneError],
    warnings: list[str],
    falls_back: bool,
) -> list[TaskRun]:
    """A program, which comes after those of ``titles``, on every backend that can take it.

    Or, if backends fall back, on the first that need not, or else on the first that can.
    """
    failures: dict[str, AutotuneError] = {}
    found: list[TaskRun] = []
    title = ""
    found_by = import_on_each(task.program, backends, failures, warnings, task.imported)
    attempts = [(name, False) for name in found_by]
    attempts += [(name, True) for name in found_by if falls_back]
    for name, to_fallback in attempts:
        it, backend = found_by[name], backends[name]
        title = title or _title(task, it.workload, titles)
        _check_memory(title, it.workload)
        try:
            backend.check_workload(it.workload)
            space, refusal = _space_of(it, name, backend, options, to_fallback)
        except AutotuneError as error:
            failures[name] = error
            continue
        warnings += _loosened(title, space)
        is_said = options.machine.kind == "cpu" and not options.time_untuned
        taken = TaskRun(
            title=title,
            workload=it.workload,
            target=options.machine,
            space=space,
            key=_key(name, backend, options),
            program=it.program,
            weight=float(task.weight),
            position=len(titles),
            refusal=refusal,
            default_schedule=backend.default_schedule,
            least_untuned=it.least_untuned if is_said else 0.0,
            cuts_off=not options.time_untuned,
        )
        found.append(taken)
        if falls_back:
            return found
    if not found:
        last = dict([*failures.items()][-1:]) if falls_back else {**unusable, **failures}
        raise no_backend_error(last)
    warnings += [_left_out(name, error, title) for name, error in failures.items()]
    return [evolve(one, competes=len(found) > 1) for one in found]


def _key(name: str, backend: Backend, options: TuneOptions) -> MeasureKey:
    """The measure key of a run on a backend of this name, on this machine."""
    machine = options.machine
    return MeasureKey(
        target=machine.fingerprint,
        backend=name,
        backend_version=backend.version,
        compiler_version=backend.compiler_version_for(machine),
        threads=machine.cores,
        protocol=options.measuring,
    )


def _check_weight(weight: object) -> None:
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight > 0:
        raise InvalidValueError(f"a task's weight must be positive, not {weight!r}")


def _check_memory(name: str, workload: Workload) -> None:
    """Raise where inputs and outputs cannot be in this machine's memory at once."""
    needed = workload.io_bytes
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise InvalidValueError(
            f"{name}: its inputs and outputs are {needed} bytes, and this machine has {available}"
        )


def _naming(error: AutotuneError, task: Task, number: int, count: int) -> AutotuneError:
    """An error with the name of its program, where there are several."""
    if count > 1:
        name = "" if task.name is None else f" {task.name!r}"
        error.args = (f"task{name} ({number + 1} of {count}): {error}",)
    return error


def _loosened(title: str, space: SearchSpace) -> list[str]:
    """A warning for every soft constraint that was dropped, with the sketches it is about."""
    sketches: dict[str, list[str]] = {}
    for sketch, sources in space.loosened.items():
        for source in sources:
            sketches.setdefault(source, []).append(sketch)
    return [
        f"{title}: nothing satisfies the constraint {source!r}, which is dropped from "
        f"{', '.join(names)}"
        for source, names in sketches.items()
    ]


def _notes(tasks: Sequence[TaskRun]) -> list[str]:
    """Notes of search spaces, each once, with the programs that it is about."""
    titles: dict[str, dict[str, None]] = {}
    for task in tasks:
        for note in task.space.notes:
            titles.setdefault(note, {})[task.title] = None
    return [f"{', '.join(about)}: {note}" for note, about in titles.items()]


def _too_small(tasks: Sequence[TaskRun], options: TuneOptions) -> list[str]:
    """Tasks get a round at a time, so that the last of them may get none."""
    if options.trials is None or len(tasks) <= 1:
        return []
    if any(one.competes for one in tasks):
        size, whom = options.round_size, "every program and backend"
    else:
        size, whom = min(options.first_round, options.round_size), f"each of {len(tasks)} programs"
    needed = len(tasks) * size
    if options.trials >= needed:
        return []
    each = "one" if size == 1 else f"a round of {size}"
    return [
        f"{options.trials} trials are less than {each} for {whom}: ask for {needed} trials at "
        "least"
    ]


def usable_backends(
    options: TuneOptions, failures: MutableMapping[str, AutotuneError], *, measures: bool = True
) -> dict[str, Backend]:
    """The backends of a run that can measure, or at least compile, for its target.

    Where programs run on the machines of a runner, compiling is all that is asked of this one.

    Args:
        options: How to tune, with backends.
        failures: Takes the errors of the others, by name.
        measures: Whether they are to measure.

    Raises:
        AutotuneError: there is none; what is wrong with each.
    """
    found: dict[str, Backend] = {}
    for name in options.backend:
        try:
            backend: Backend = create_held_part("backend", name)
            if measures and options.runs_here:
                backend.check_measuring(options.machine, options.machine.cores)
            else:
                backend.check_target(options.machine)
            backend.compiler_version()
        except AutotuneError as error:
            failures[name] = error
        else:
            found[name] = backend
    if not found:
        raise no_backend_error(failures)
    return found


def _not_imported(program: object, backends: Mapping[str, Backend]) -> InvalidValueError:
    others = [
        other
        for other in manager().names("backend")
        if other not in backends and create_held_part("backend", other).imports(program)
    ]
    given = " and ".join(repr(name) for name in backends)
    if others:
        return InvalidValueError(
            f"backend {given} does not import a {_type_name(program)}; "
            f"pass backend={others[0]!r}, which does"
        )
    known = ", ".join(sorted({*backends, *compiling_backends()}))
    return InvalidValueError(
        f"cannot tune a {_type_name(program)}: give an autotune.Workload, such as "
        f"autotune.workloads.gemm(m=512, n=512, k=512), or a program that a backend imports "
        f"(backends: {known})"
    )


def _title(task: Task, workload: Workload, titles: Sequence[str]) -> str:
    """A name for a program, unique within a run."""
    name = task.name or task_name(workload)
    taken = sum(other.partition(" #")[0] == name for other in titles)
    return f"{name} #{taken + 1}" if taken else name


def _space_of(
    imported: ImportedProgram, name: str, backend: Backend, options: TuneOptions, falls_back: bool
) -> tuple[SearchSpace, str]:
    """The space of a program, and why it is the one that the backend falls back to; else ""."""
    chosen = options.chosen["search_space"]
    try:
        return _make_space(imported, name, backend, options, chosen), ""
    except (UnsupportedWorkload, EmptySpace, ContradictoryConstraints) as error:
        other = backend.fallback_space
        if not falls_back or other in ("", chosen.name):
            raise
        try:
            return _make_space(imported, name, backend, options, Choice(other)), str(error)
        except UnsupportedWorkload as second:
            raise UnsupportedWorkload(f"{error}; space {other!r}: {second}") from error


def _make_space(
    imported: ImportedProgram, name: str, backend: Backend, options: TuneOptions, chosen: Choice
) -> SearchSpace:
    context = SpaceContext(
        workload=imported.workload,
        program=imported.program,
        backend=name,
        target=options.machine,
        limits=backend.limits(options.machine),
        options=chosen.options,
    )
    space: SearchSpace = create_held_part("search_space", chosen.name, context)
    return space


def import_on_each(
    program: object,
    backends: Mapping[str, Backend],
    failures: dict[str, AutotuneError],
    warnings: list[str],
    known: Mapping[str, ImportedProgram] = MappingProxyType({}),
) -> dict[str, ImportedProgram]:
    """The program as each backend imports it; errors are added to ``failures``.

    A backend that does not import programs of this kind makes one of its own, from what another
    one has read. What is ``known`` of a backend, by its name, is not imported again, and nothing
    is where there is such a reader.
    """
    if isinstance(program, Workload):
        return {name: _made_from(program, backend) for name, backend in backends.items()}
    if known:
        reading = next(iter(known.values()))
        # Others do without its text, but it tells other tools what records are of.
        return {
            name: known[name]
            if name in known
            else evolve(reading, least_untuned=backend.least_untuned(reading.workload))
            for name, backend in backends.items()
        }
    importers = [name for name, backend in backends.items() if backend.imports(program)]
    if not importers:
        raise _not_imported(program, backends)
    imported: dict[str, ImportedProgram] = {}
    for name in importers:
        try:
            read = _import(program, name, backends[name])
        except AutotuneError as error:
            failures[name] = error
        else:
            imported[name] = read
    result: dict[str, ImportedProgram] = {}
    for name in backends:
        if name in imported:
            result[name] = imported[name]
        elif imported and name not in failures:
            reader, first = next(iter(imported.items()))
            result[name] = _made_from(first.workload, backends[name])
            warnings.append(
                f"backend {name!r} does not import a {_type_name(program)}: it competes with a "
                f"program of its own, made from what {reader!r} has read"
            )
    return result


def _made_from(workload: Workload, backend: Backend) -> ImportedProgram:
    return ImportedProgram(workload, None, backend.least_untuned(workload))


def _import(program: object, name: str, backend: Backend) -> ImportedProgram:
    """A program as a backend understands it; the text of a file is read in another process."""
    if isinstance(program, ProgramFile):
        return import_file(program, name)
    return backend.import_program(program)


def no_backend_error(failures: Mapping[str, AutotuneError]) -> AutotuneError:
    """The error of the only backend, or one that has those of all."""
    errors = list(failures.values())
    if len(errors) == 1:
        return errors[0]
    reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
    return UnsupportedWorkload(f"none of the backends can take part: {reasons}")


def _left_out(name: str, error: AutotuneError, program: str = "") -> str:
    what = f" for {program}" if program else ""
    return f"backend {name!r} does not take part{what}: {error}"


def _type_name(value: object) -> str:
    kind = type(value)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return prefix + kind.__qualname__
