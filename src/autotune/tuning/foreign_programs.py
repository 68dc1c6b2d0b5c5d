"""Programs of others, read by compilers and importers in a process that may die of them.

Whatever reads the text of a program, from a record or a file, may crash on it or not end. Each
function here starts a process for one question, with a deadline, so that both are an error. What
an object of a compiler is, the caller has made in this process: that is not isolated again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from autotune.backends import (
    Backend,
    BuildRequest,
    ExportReport,
    ForeignSchedule,
    ImportedProgram,
    ProgramFile,
)
from autotune.errors import InvalidValueError
from autotune.ir.converter import from_json, to_json
from autotune.ir.workloads import Workload
from autotune.measure import MeasureProtocol
from autotune.plugins.guarded_parts import create_held_part, hold
from autotune.plugins.importer import import_workload
from autotune.plugins.parts import check_recorded, recorded_part
from autotune.process import Message, ask_isolated, make_private_folder
from autotune.process.child import Handler, connect, serve
from autotune.process.error_codec import refusing
from autotune.store.jsonl import BadLine, read_lines, write_lines
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target

__all__ = [
    "build_request",
    "check_build",
    "export_records",
    "import_by",
    "import_file",
    "imported_records",
    "show_record",
]

SECONDS = 120.0
"""Time limit for a compiler to read a program and answer, its import included."""

SECONDS_PER_RECORD = 60.0
"""Further time for every record that it exports."""

SECONDS_PER_MEBIBYTE = 300.0
"""Further time for every mebibyte of another tool's records."""

_MODULE = "autotune.tuning.foreign_programs"


def show_record(record: Record, backend: str | None) -> str:
    """The scheduled program of a record as its backend shows it.

    Args:
        record: The record.
        backend: As of :func:`autotune.plugins.parts.recorded_part`.

    Raises:
        InvalidValueError: the backend dies of it or does not end.
        UnknownNameError: no plugin registers the backend.
        AutotuneError: the backend refuses it.
    """
    return str(_ask_about(record, "has no script", "show", backend)["text"])


def check_build(record: Record, backend: str | None) -> None:
    """Compile a record's candidate on the program that the record holds; raises where that fails.

    Args:
        record: The record.
        backend: As of :func:`autotune.plugins.parts.recorded_part`.

    Raises:
        AutotuneError: as :func:`show_record`.
    """
    _ask_about(record, "cannot be compiled", "build", backend)


def import_file(program: ProgramFile, backend: str) -> ImportedProgram:
    """A program in a file, as a backend understands it.

    Raises:
        InvalidValueError: the backend dies of it or does not end.
        AutotuneError: as :meth:`autotune.backends.Backend.import_program`.
    """
    question = {"file": to_json(program), "name": backend}
    answer = _ask(f"{program.path} cannot be read", "import", question)
    return from_json(ImportedProgram, answer)


def import_by(importer: str, program: str, function: str | None) -> Workload:
    """Import a file by :func:`autotune.plugins.importer.import_workload`.

    Raises:
        InvalidValueError: the importer ends its process or does not end.
        AutotuneError: as :func:`autotune.plugins.importer.import_workload`.
    """
    question = {"importer": importer, "program": program, "function": function}
    what = f"importer {importer!r} cannot read {program!r}"
    return Workload.from_json(_ask(what, "read", question)["workload"])


def export_records(
    records: Iterable[Record], format_name: str, path: Path, backend: str
) -> ExportReport:
    """Records in a format of their backend; see :meth:`autotune.backends.Backend.export_records`.

    Args:
        records: Records of one backend.
        format_name: Name of the format.
        path: Where to.
        backend: Name or import string of the backend, which the caller trusts.

    Raises:
        InvalidValueError: the backend dies of a program or does not end: files may be incomplete.
        AutotuneError: as :meth:`autotune.backends.Backend.export_records`.
    """
    folder = make_private_folder()
    try:
        lines = folder.path / "records.jsonl"
        with lines.open("wb") as stream:
            count = sum(1 for _ in write_lines(records, stream))
        question = {"lines": str(lines), "format": format_name, "path": str(path), "name": backend}
        more = count * SECONDS_PER_RECORD
        answer = _ask("the records cannot be exported", "export", question, more_seconds=more)
    finally:
        folder.remove()
    return from_json(ExportReport, answer)


@contextlib.contextmanager
def imported_records(
    path: Path, format_name: str, backend: str, target: Target, created: float
) -> Iterator[tuple[Iterator[Record | BadLine], tuple[tuple[str, str], ...]]]:
    """Records of another tool; see :meth:`autotune.backends.Backend.import_records`.

    They are those of a run that is called after the format and what the records say, so that the
    same records are the same run wherever they are read.

    Args:
        path: What the tool wrote.
        format_name: Name of the format.
        backend: Name of the backend.
        target: What they are taken for; each has as many of its cores as it was timed on.
        created: Unix time in seconds that the records get.

    Returns:
        The records, to be read in this context, and where the others are and why they are left
        out.

    Raises:
        InvalidValueError: the backend dies of a program or does not end.
        AutotuneError: as :meth:`autotune.backends.Backend.import_records`.
    """
    folder = make_private_folder()
    try:
        lines = folder.path / "records.jsonl"
        question = {
            "lines": str(lines),
            "format": format_name,
            "path": str(path),
            "name": backend,
            "target": target.to_json(),
            "created": created,
        }
        more = _bytes_in(path) / (1 << 20) * SECONDS_PER_MEBIBYTE
        answer = _ask(f"{str(path)!r} cannot be imported", "take", question, more_seconds=more)
        with lines.open("rb") as stream:
            refused = tuple((str(where), str(why)) for where, why in answer["refused"])
            yield read_lines(stream), refused
    finally:
        folder.remove()


def _bytes_in(path: Path) -> int:
    """Of a file, or the files of a folder; 0 where they cannot be read."""
    try:
        files = list(path.iterdir()) if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files)
    except OSError:
        return 0


def build_request(record: Record, program: str | None) -> BuildRequest:
    """The request to build a record's candidate."""
    target = Target.from_json(record.target)
    workload = record.candidate.sketch.workload
    return BuildRequest(workload, program, record.scheduled, target, record.key.threads)


def _ask_about(record: Record, lacks: str, op: str, backend: str | None) -> Message:
    # Said here, before anything is started.
    check_recorded("backend", record.key.backend, backend)
    question = {"record": record.to_json(), "backend": backend}
    return _ask(f"record {record.name} {lacks}", op, question, record.key.threads)


def _ask(
    what: str, op: str, question: Message, threads: int = 1, more_seconds: float = 0.0
) -> Message:
    """The answer of a process of its own; ``what`` begins the message of an error."""
    return ask_isolated(what, _MODULE, {"op": op, **question}, threads, SECONDS + more_seconds)


# What follows runs in that process.


def _compiler_of(question: Message) -> tuple[Backend, BuildRequest]:
    record = Record.from_json(question["record"])
    backend = hold("backend", recorded_part("backend", record.key.backend, question["backend"]))
    request = build_request(record, record.program)
    for name, value in backend.worker_environment(request.threads).items():
        os.environ.setdefault(name, value)
    return backend, request


def _show(question: Message) -> Message:
    backend, request = _compiler_of(question)
    return {"text": backend.show(request)}


def _build(question: Message) -> Message:
    backend, request = _compiler_of(question)
    backend.build(request)
    return {}


def _import(question: Message) -> Message:
    backend: Backend = create_held_part("backend", question["name"])
    return dict(to_json(backend.import_program(from_json(ProgramFile, question["file"]))))


def _read(question: Message) -> Message:
    found = import_workload(question["importer"], question["program"], question["function"])
    return {"workload": found.to_json()}


def _export(question: Message) -> Message:
    backend: Backend = create_held_part("backend", question["name"])
    with Path(question["lines"]).open("rb") as stream:
        records = (_good(line) for line in read_lines(stream))
        report = backend.export_records(records, question["format"], Path(question["path"]))
    return dict(to_json(report))


def _take(question: Message) -> Message:
    backend: Backend = create_held_part("backend", question["name"])
    target = Target.from_json(question["target"])
    found = backend.import_records(question["format"], Path(question["path"]), target)
    # One that was recorded under two spellings of its program is one.
    known = dict.fromkeys(map(_said, found.schedules))
    said = hashlib.sha256(json.dumps(sorted(known)).encode()).hexdigest()[:12]
    run_id = f"{question['format']}-{said}"
    with Path(question["lines"]).open("wb") as stream:
        schedules = {_said(it): it for it in reversed(found.schedules)}
        records = (
            _recorded(schedules[each], trial, run_id, question["created"], backend, target)
            for trial, each in enumerate(known)
        )
        for _ in write_lines(records, stream):
            pass
    return {"refused": [list(it) for it in found.refused]}


def _said(schedule: ForeignSchedule) -> str:
    """Describe a record of another tool, whichever names its program has."""
    return json.dumps(
        [
            schedule.candidate.sketch.workload.digest,
            schedule.candidate.digest,
            schedule.threads,
            schedule.latency,
            schedule.samples,
        ]
    )


def _recorded(
    schedule: ForeignSchedule,
    trial: int,
    run_id: str,
    created: float,
    backend: Backend,
    target: Target,
) -> Record:
    """The record of a schedule, under the measure key of a run here."""
    own = target.with_cores(schedule.threads) if target.cores != schedule.threads else target
    key = MeasureKey(
        own.fingerprint,
        backend.name,
        backend.version,
        backend.compiler_version_for(own),
        schedule.threads,
        MeasureProtocol().identity,
    )
    return Record(
        run_id,
        trial,
        schedule.candidate,
        key,
        own.to_json(),
        schedule.space,
        Outcome("ok", schedule.latency, schedule.samples),
        created,
        program=schedule.program,
    )


def _good(line: Record | BadLine) -> Record:
    if isinstance(line, BadLine):
        raise InvalidValueError(f"a record cannot be exported: {line.reason}")
    return line


_HANDLERS: Mapping[str, Handler] = {
    "show": _show,
    "build": _build,
    "import": _import,
    "read": _read,
    "export": _export,
    "take": _take,
}


def main() -> None:
    """Run a worker; started by ``WorkerProcess`` only."""
    connection, _ = connect(_MODULE)
    serve(connection, {name: refusing(handler) for name, handler in _HANDLERS.items()})
