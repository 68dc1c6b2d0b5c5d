"""The backend of runs that name none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.backends import Backend
from autotune.errors import DatabaseError, UnsupportedTarget
from autotune.ir.workloads import Workload
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.manager import manager
from autotune.store.database import RecordFilter
from autotune.store.sqlite import open_database
from autotune.targets import Target
from autotune.tuning.choices import spec_of
from autotune.tuning.options import TuneOptions

__all__ = ["backend_for", "backend_of_parts", "compiling_backends", "default_backend"]

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
