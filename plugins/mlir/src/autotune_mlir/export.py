"""Writing records as libraries of schedules for MLIR's own tools."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from autotune.backends import BuildRequest, ExportReport
from autotune.errors import AutotuneError, InvalidValueError
from autotune.sketches import is_default, is_indexed, lane_splits
from autotune.store.jsonl import replacing
from autotune.store.records import Record
from autotune.targets import Target
from autotune_mlir.schedule.script import module_of
from autotune_mlir.scripted import program_of, schedule_of
from autotune_mlir.transform_library import (
    NamedSchedule,
    apply_command,
    check_applied,
    library_text,
)

__all__ = ["export", "identifier"]


def export(records: Iterable[Record], path: Path) -> ExportReport:
    """Write the schedules of records into one library, and their programs beside it.

    Files replace earlier ones once they are complete. Every record is written, or named with the
    reason why it cannot be.

    Args:
        records: Of this backend, with an ok outcome.
        path: The file.

    Raises:
        InvalidValueError: the file cannot be written.
    """
    if not path.parent.is_dir():
        raise InvalidValueError(f"{str(path)!r}: there is no folder {str(path.parent)!r}")
    exported, refused = 0, []
    schedules: dict[str, NamedSchedule] = {}
    payloads: dict[Path, str] = {}
    for record in records:
        try:
            made = _schedule(record, path)
            if made.name not in schedules:
                check_applied(made)
        except AutotuneError as error:
            refused.append((record.name, str(error)))
            continue
        exported += 1
        schedules.setdefault(made.name, made)
        payloads[_payload_path(path, record, made.payload)] = made.payload
    if not schedules:
        return ExportReport(exported, tuple(refused), (), "")
    _write(path, library_text(schedules.values()))
    for file, text in payloads.items():
        _write(file, text)
    command = apply_command(str(path), next(iter(schedules)), str(next(iter(payloads))))
    files = tuple(map(str, (path, *payloads)))
    usage = f"Apply a schedule with:\n  {command}"
    return ExportReport(exported, tuple(refused), files, usage)


def _schedule(record: Record, path: Path) -> NamedSchedule:
    """The schedule of a record, under a name that it shares with those of equal texts.

    Raises:
        InvalidValueError: the record has no schedule of this kind.
        InvalidSchedule: no script says a step.
    """
    if record.outcome.latency is None:
        raise InvalidValueError(f"its outcome is {record.outcome.status!r}, not ok")
    request = _request(record)
    if is_default(request.candidate):
        raise InvalidValueError(
            f"it is {record.baseline}, which is no script but passes of mlir-opt"
        )
    payload = program_of(request.workload, None)
    # A baseline has no steps: of the untuned program no sequence is applied.
    script = schedule_of(request) or module_of({})
    distinct = "\0".join([payload, script, record.baseline or ""])
    name = f"{identifier(request.workload.name)}_{_digest(distinct)}"
    command = apply_command(path.name, name, _payload_path(path, record, payload).name)
    remarks = [_comment(record), *_needed(record), command]
    return NamedSchedule(name, script, payload, "\n".join(remarks))


def _request(record: Record) -> BuildRequest:
    workload, target = record.candidate.sketch.workload, Target.from_json(record.target)
    return BuildRequest(workload, record.program, record.scheduled, target, record.key.threads)


def identifier(name: str) -> str:
    """A name that MLIR takes."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return text if re.match(r"[A-Za-z]", text) else f"kernel_{text}"


def _comment(record: Record) -> str:
    workload = record.candidate.sketch.workload
    shape = ", ".join(f"{name}={value}" for name, value in workload.parameters.items())
    target = str(record.target.get("name", "a target without a name"))
    threads = "1 thread" if record.key.threads == 1 else f"{record.key.threads} threads"
    return (
        f"{workload.name}: {shape or 'an imported program'}\n"
        f"{record.outcome.latency:.4g} s on {target}, {threads}; record {record.name}"
    )


def _needed(record: Record) -> list[str]:
    """Requirements on the release of MLIR that applies a schedule."""
    sketch = record.candidate.sketch
    splits = lane_splits(sketch.workload, sketch.core_steps)
    indexed = any(is_indexed(workload.stage(step.stage)) for workload, step in splits)
    return (
        ["needs MLIR 23: before, it miscounts indices of reductions in lanes"] if indexed else []
    )


def _payload_path(path: Path, record: Record, payload: str) -> Path:
    """The file of a program, beside the library."""
    workload = record.candidate.sketch.workload
    name = f"{identifier(workload.name)}_{_digest(payload)}"
    return path.with_name(f"{path.stem}.{name}.payload.mlir")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _write(path: Path, content: str) -> None:
    with replacing(path) as stream:
        stream.write(content.encode())
