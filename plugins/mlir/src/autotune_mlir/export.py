"""Writing records for other tools: libraries of schedules, object files, shared libraries."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from attrs import define, field, frozen

from autotune.backends import BuildRequest, ExportReport
from autotune.errors import AutotuneError, InvalidValueError
from autotune.sketches import is_default, names_used
from autotune.store.jsonl import replacing
from autotune.store.records import Record
from autotune.targets import Target
from autotune_mlir.compiler import Lowered
from autotune_mlir.native_library import (
    NativeFunction,
    header_opening,
    header_text,
    link_library,
    link_object,
    native_function,
)
from autotune_mlir.schedule.script import module_of
from autotune_mlir.scripted import program_of, schedule_of
from autotune_mlir.transform_library import (
    NamedSchedule,
    apply_command,
    check_applied,
    library_text,
)

__all__ = ["export", "identifier"]

_HEADER = ".h"

Lower = Callable[[BuildRequest], Lowered]


def export(records: Iterable[Record], format: str, path: Path, lower: Lower) -> ExportReport:
    """Write records into one file, and what belongs to it beside it.

    Files replace earlier ones once they are complete.

    Args:
        records: Of this backend, with an ok outcome.
        format: One that the backend offers.
        path: The file.
        lower: The backend's; refuses targets that machine code cannot be made for here.

    Raises:
        InvalidValueError: the file cannot be written, or its header would replace another one.
        CompilerMissing: functions are to be linked, and there is no C compiler.
    """
    if not path.parent.is_dir():
        raise InvalidValueError(f"{str(path)!r}: there is no folder {str(path.parent)!r}")
    if format == "transform-library":
        return _export_schedules(records, path)
    if path.suffix == _HEADER:
        raise InvalidValueError(f"{str(path)!r} is the name of a header; name the file beside it")
    return _export_functions(records, path, format == "shared-library", lower)


@frozen
class _Named:
    """A record and the name that it gets."""

    name: str
    record: Record
    request: BuildRequest


@define
class _Tally:
    """How the export of records ended."""

    exported: int = 0
    refused: list[tuple[str, str]] = field(factory=list)

    def take(self, record: Record, write: Callable[[Record], None]) -> None:
        """Write a record, or note why it cannot be."""
        try:
            if record.outcome.latency is None:
                raise InvalidValueError(f"its outcome is {record.outcome.status!r}, not ok")
            write(record)
        except AutotuneError as error:
            self.refused.append((_label(record), str(error)))
        else:
            self.exported += 1

    def report(self, files: Iterable[Path], usage: str) -> ExportReport:
        """The report for files that were written."""
        return ExportReport(self.exported, tuple(self.refused), tuple(map(str, files)), usage)


def _named(record: Record, *distinct: str) -> _Named:
    """A record under a name that it shares with those of equal texts."""
    digest = hashlib.sha256("\0".join([*distinct, record.baseline or ""]).encode()).hexdigest()[:8]
    name = identifier(record.candidate.sketch.workload.name)
    return _Named(f"{name}_{digest}", record, _request(record))


def _request(record: Record) -> BuildRequest:
    workload, target = record.candidate.sketch.workload, Target.from_json(record.target)
    return BuildRequest(workload, record.program, record.scheduled, target, record.key.threads)


def identifier(name: str) -> str:
    """A name that C and MLIR take."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return text if re.match(r"[A-Za-z]", text) else f"kernel_{text}"


def _label(record: Record) -> str:
    return record.name


def _comment(record: Record) -> str:
    workload = record.candidate.sketch.workload
    shape = ", ".join(f"{name}={value}" for name, value in workload.parameters.items())
    target = str(record.target.get("name", "a target without a name"))
    threads = "1 thread" if record.key.threads == 1 else f"{record.key.threads} threads"
    return (
        f"{workload.name}: {shape or 'an imported program'}\n"
        f"{record.outcome.latency:.4g} s on {target}, {threads}; record {_label(record)}"
    )


def _needed(record: Record) -> list[str]:
    """What the release of MLIR that applies a schedule must have."""
    indexed = "split_reduction.indexed" in names_used(record.candidate.sketch)
    return (
        ["needs MLIR 23: before, it miscounts indices of reductions in lanes"] if indexed else []
    )


def _export_schedules(records: Iterable[Record], path: Path) -> ExportReport:
    tally = _Tally()
    schedules: dict[str, NamedSchedule] = {}
    payloads: dict[Path, str] = {}

    def write(record: Record) -> None:
        request = _request(record)
        if is_default(request.candidate):
            raise InvalidValueError(
                f"it is {record.baseline}, which is no script but passes of mlir-opt"
            )
        payload = program_of(request.workload, None)
        # A baseline has no steps: of the untuned program no sequence is applied.
        script = schedule_of(request) or module_of({})
        named = _named(record, payload, script)
        if named.name in schedules:
            return
        file = _payload_path(path, record, payload)
        command = apply_command(path.name, named.name, file.name)
        remarks = [_comment(record), *_needed(record), command]
        made = NamedSchedule(named.name, script, payload, "\n".join(remarks))
        check_applied(made)
        schedules[named.name] = made
        payloads[file] = payload

    for record in records:
        tally.take(record, write)
    if not schedules:
        return tally.report((), "")
    _write(path, library_text(schedules.values()).encode())
    for file, text in payloads.items():
        _write(file, text.encode())
    command = apply_command(str(path), next(iter(schedules)), str(next(iter(payloads))))
    return tally.report((path, *payloads), f"Apply a schedule with:\n  {command}")


def _payload_path(path: Path, record: Record, payload: str) -> Path:
    """The file of a program, beside the library."""
    workload = record.candidate.sketch.workload
    digest = hashlib.sha256(payload.encode()).hexdigest()[:8]
    return path.with_name(f"{path.stem}.{identifier(workload.name)}_{digest}.payload.mlir")


def _export_functions(
    records: Iterable[Record], path: Path, shared: bool, lower: Lower
) -> ExportReport:
    tally = _Tally()
    functions: dict[str, NativeFunction] = {}

    def write(record: Record) -> None:
        distinct = (record.program or "", record.candidate.digest, str(record.key.threads))
        named = _named(record, *distinct)
        if named.name not in functions:
            functions[named.name] = _function(named, lower)

    for record in records:
        tally.take(record, write)
    if not functions:
        return tally.report((), "")
    made = list(functions.values())
    code = link_library(made) if shared else link_object(made)
    header = path.with_suffix(_HEADER)
    guard = f"{identifier(path.stem).upper()}_H"
    declared = _header_to_write(header, header_text(made, path.name, guard), path.name)
    _write(path, code)
    _write(header, declared)
    return tally.report((path, header), f"The functions and how they are called: {header}")


def _header_to_write(header: Path, text: str, library: str) -> bytes:
    """The header of a library; one that is there and declares the same serves both as it is.

    Raises:
        InvalidValueError: there is a header of another file.
    """
    # Names of files need not be UTF-8.
    wanted, opening = (it.encode(errors="replace") for it in (text, header_opening(library)))
    try:
        there = header.read_bytes()
    except FileNotFoundError:
        return wanted
    except OSError as error:
        raise InvalidValueError(f"{str(header)!r} cannot be replaced: {error.strerror}") from error
    if not there or there.startswith(opening):
        return wanted
    if there.partition(b"\n")[2] == wanted.partition(b"\n")[2]:
        return there
    raise InvalidValueError(
        f"{str(header)!r} exists and declares other functions than {library!r} would have: it is "
        "kept; name another file, or move it away"
    )


def _function(named: _Named, lower: Lower) -> NativeFunction:
    lowered = lower(named.request)
    return native_function(lowered, named.name, named.request.workload, _comment(named.record))


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as stream:
        stream.write(content)
