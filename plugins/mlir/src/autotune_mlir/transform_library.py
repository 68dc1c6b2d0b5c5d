"""Records as libraries of named sequences of the Transform dialect, which other tools apply."""

from __future__ import annotations

import hashlib
import importlib
import re
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from autotune.backends import ExportReport, InvalidSchedule
from autotune.errors import AutotuneError, InvalidValueError
from autotune.sketches import is_default, is_indexed, lane_splits
from autotune.store.jsonl import replacing
from autotune.store.records import Record
from autotune_mlir import bindings
from autotune_mlir.emit import INIT, STAGE, payload, quoted
from autotune_mlir.parsing import (
    brief,
    here,
    kernel_of,
    new_context,
    operation_named,
    operations_in,
)
from autotune_mlir.schedule import schedule as script_of
from autotune_mlir.schedule.script import MAIN, module_of

__all__ = [
    "NamedSchedule",
    "UNTAGGED",
    "apply_command",
    "apply_passes",
    "apply_schedule",
    "check_applied",
    "export",
    "identifier",
    "library_text",
    "parsed",
]

UNTAGGED = "_untagged"
"""Ends the name of the sequence for programs without attributes."""
_NOTE = """\
// Schedules that autotune found. A sequence finds operations by the attributes `autotune.stage`
// and `autotune.init`, which the programs beside this file have; NAME_untagged is for a program
// without them, in a module of its own, whose operations are the same and in the same order.
"""
_HEAD = "module attributes {transform.with_named_sequence} {"
_DEFINED = re.compile(r"transform\.named_sequence\s+(?:private\s+)?@([\w$.]+)")


@frozen
class NamedSchedule:
    """A schedule and the name that it goes by in a library.

    Attributes:
        name: Of its sequence.
        schedule: Text of a module with the sequence ``@__transform_main``.
        payload: Text of the program that it was found for.
        comment: A remark for readers.
    """

    name: str
    schedule: str
    payload: str
    comment: str


def library_text(schedules: Iterable[NamedSchedule], entry: str = "") -> str:
    """A module with two entry points for every schedule, ``NAME`` and ``NAME_untagged``.

    The first is for programs whose operations have the attributes by which schedules find them,
    the second gives them these attributes first. Further sequences become ``NAME_SEQUENCE``.

    Args:
        schedules: The schedules, of different names.
        entry: Text of a sequence for a module with several programs, which comes first.

    Raises:
        InvalidSchedule: a schedule is no module of named sequences.
    """
    lines = [*_NOTE.splitlines(), _HEAD, *filter(None, [entry]), find_text()]
    for schedule in schedules:
        lines += [_comment(schedule), _renamed(schedule), _for_untagged(schedule)]
    return "\n".join([*lines, "}", ""])


def apply_command(library: str, name: str, payload: str) -> str:
    """The command with which MLIR's own tool applies a schedule.

    Args:
        library: Path of the library.
        name: Of the schedule.
        payload: Path of the program.
    """
    return (
        f"mlir-opt {payload} --transform-preload-library=transform-library-paths={library} "
        f"--transform-interpreter=entry-point={name}"
    )


def check_applied(schedule: NamedSchedule) -> None:
    """Return whether MLIR's passes make of the program what is measured, given a library by file.

    Raises:
        InvalidSchedule: they do not, or fail.
    """
    expected = parsed(schedule.payload)
    apply_schedule(expected, schedule.schedule)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.mlir"
        path.write_text(library_text([schedule]), encoding="utf-8")
        for entry, tagged in ((schedule.name, True), (f"{schedule.name}{UNTAGGED}", False)):
            found = parsed(schedule.payload)
            if not tagged:
                _drop_tags(found)
            apply_passes(found, path, entry)
            if str(found) != str(expected):
                raise InvalidSchedule("MLIR's interpreter pass makes another program of it")


def _drop_tags(module: Any) -> None:
    """Take the attributes away by which schedules find operations."""
    for operation in operations_in(module.operation):
        for tag in (STAGE, INIT):
            if tag in operation.attributes:
                del operation.attributes[tag]


def parsed(text: str) -> Any:
    """A program in a context of its own: a context keeps the libraries that it has read."""
    ir = bindings.load().ir
    with new_context(), ir.Location.unknown():
        return ir.Module.parse(text)


def apply_passes(module: Any, library: Path, entry: str) -> None:
    """Apply a sequence of a library by MLIR's own passes.

    Args:
        module: The ``ir.Module``; changed. Its context must not have read another library.
        library: Path of the library.
        entry: Name of the sequence.

    Raises:
        InvalidSchedule: a pass fails.
    """
    loaded = bindings.load()
    passes = (
        f"builtin.module(transform-preload-library{{transform-library-paths={library}}},"
        f"transform-interpreter{{entry-point={entry}}})"
    )
    with module.context, loaded.ir.Location.unknown():
        try:
            loaded.passmanager.PassManager.parse(passes).run(module.operation)
        except loaded.ir.MLIRError as error:
            raise InvalidSchedule(f"MLIR's interpreter pass fails: {brief(error)}") from error


def apply_schedule(module: Any, schedule: str) -> None:
    """Transform a program by a script of the Transform dialect, as ``mlir-opt`` does it.

    Args:
        module: The ``ir.Module``; changed, and not to be used when this fails.
        schedule: Text of a module with the sequence ``@__transform_main``.

    Raises:
        InvalidSchedule: the script does not parse, or one of its operations fails.
    """
    interpreter = bindings.load().interpreter
    with here(module.context) as ir:
        try:
            script = ir.Module.parse(schedule)
            named = operation_named(script, MAIN)
            if named is None:
                raise InvalidSchedule(f"the script has no sequence @{MAIN}")
            interpreter.apply_named_sequence(module, named, script)
        except (ir.MLIRError, ValueError) as error:  # of what does not parse, of what fails
            raise InvalidSchedule(brief(error)) from error


def _comment(schedule: NamedSchedule) -> str:
    return "\n".join(f"  // {line}".rstrip() for line in schedule.comment.splitlines())


def _for_untagged(schedule: NamedSchedule) -> str:
    return tagging_text(f"{schedule.name}{UNTAGGED}", schedule.name, schedule.payload)


def _renamed(schedule: NamedSchedule) -> str:
    """The sequences of a schedule under names that are its own."""
    text = schedule.schedule.strip()
    if not (text.startswith(_HEAD) and text.endswith("}")):
        raise InvalidSchedule(f"schedule {schedule.name!r} is no module of named sequences")
    body = text[len(_HEAD) : -1]
    for name in _DEFINED.findall(body):
        new = schedule.name if name == MAIN else f"{schedule.name}_{name}"
        body = re.sub(rf"@{re.escape(name)}(?![\w$.])", f"@{new}", body)
    return textwrap.indent(textwrap.dedent(body).strip("\n"), "  ")


FIND = "autotune_find"
"""Sequence that every library has: all operations that may compute a stage, in order."""

_ANY = "!transform.any_op"
_PAD = "tensor.pad"
_SOFTMAX = "linalg.softmax"
# Operations of linalg that compute nothing by themselves.
_PARTS = ("linalg.fill", "linalg.index", "linalg.yield")


@frozen
class _Tagged:
    """An operation that computes a stage.

    Attributes:
        stage: Name of the stage.
        kind: Name of the operation.
        initialised: Number of the operand that holds the identity of a reduction; None for
            operations that reduce nothing.
    """

    stage: str
    kind: str
    initialised: int | None


def find_text() -> str:
    """The sequence :data:`FIND`."""
    generated = importlib.import_module(f"{bindings.load().root}.dialects._linalg_ops_gen")
    kinds = {getattr(kind, "OPERATION_NAME", None) for kind in vars(generated).values()}
    names = sorted(kind for kind in kinds if isinstance(kind, str) and kind not in _PARTS)
    listed = ", ".join(f'"{name}"' for name in names)
    match = f"transform.structured.match ops{{[{listed}]}} in %root : ({_ANY}) -> {_ANY}"
    lines = [
        f"transform.named_sequence @{FIND}(%root: {_ANY} {{transform.readonly}}) -> {_ANY} {{",
        f"  %found = {match}",
        f"  transform.yield %found : {_ANY}",
        "}",
    ]
    return "\n".join(f"  {line}" for line in lines)


def tagging_text(name: str, schedule: str, payload: str) -> str:
    """A sequence that gives a program its attributes and then applies a schedule.

    Softmax is taken apart and named operations become generic ones, as in the import.

    Args:
        name: Of the sequence.
        schedule: Name of the sequence that schedules.
        payload: Text of the program that the schedule was found for; it has the attributes.
    """
    tagged = _tagged(payload)
    computing = [item for item in tagged if item.kind != _PAD]
    lines: list[str] = []
    if computing:
        lines += [
            f'%softmax = transform.structured.match ops{{["{_SOFTMAX}"]}} in %root '
            f": ({_ANY}) -> {_ANY}",
            f"%parts = transform.structured.decompose_interface %softmax : ({_ANY}) -> {_ANY}",
        ]
        lines.append(
            f"%all = transform.include @{FIND} failures(propagate) (%root) : ({_ANY}) -> {_ANY}"
        )
        lines += _split("%all", "%op", len(computing))
    for number, item in enumerate(computing):
        generic = f"%generic{number}"
        lines.append(
            f"{generic} = transform.structured.generalize %op{number} : ({_ANY}) -> {_ANY}"
        )
        lines += _annotate(generic, STAGE, item.stage)
        if item.initialised is not None:
            lines.append(
                f"%init{number} = transform.get_producer_of_operand {generic}[{item.initialised}] "
                f": ({_ANY}) -> {_ANY}"
            )
            lines += _annotate(f"%init{number}", INIT, item.stage)
    pads = [item for item in tagged if item.kind == _PAD]
    if pads:
        match = f'transform.structured.match ops{{["{_PAD}"]}} in %root'
        lines.append(f"%pads = {match} : ({_ANY}) -> {_ANY}")
        lines += _split("%pads", "%pad", len(pads))
    for number, item in enumerate(pads):
        lines += _annotate(f"%pad{number}", STAGE, item.stage)
    lines.append(f"transform.include @{schedule} failures(propagate) (%root) : ({_ANY}) -> ()")
    body = "\n".join(f"    {line}" for line in (*lines, "transform.yield"))
    head = f"  transform.named_sequence @{name}(%root: {_ANY} {{transform.readonly}}) {{"
    return f"{head}\n{body}\n  }}"


def _split(handle: str, stem: str, count: int) -> list[str]:
    """Split a handle into one for each operation; fails where there are more or fewer."""
    names = ", ".join(f"{stem}{number}" for number in range(count))
    kinds = ", ".join([_ANY] * count)
    results = f"({kinds})" if count > 1 else kinds
    return [f"{names} = transform.split_handle {handle} : ({_ANY}) -> {results}"]


def _annotate(handle: str, attribute: str, value: str) -> list[str]:
    name = f"{handle}_{attribute.rpartition('.')[2]}"
    return [
        f"{name} = transform.param.constant {quoted(value)} -> !transform.any_param",
        f'transform.annotate {handle} "{attribute}" = {name} : {_ANY}, !transform.any_param',
    ]


def _tagged(payload: str) -> Sequence[_Tagged]:
    """The operations of a program's stages, in order."""
    ir = bindings.load().ir
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(payload)
        (block,) = kernel_of(module).regions[0].blocks
        operations = [view.operation for view in block.operations]
        return [_described(one) for one in operations if STAGE in one.attributes]


def _described(operation: Any) -> _Tagged:
    stage = str(operation.attributes[STAGE].value)
    if operation.name == _PAD:
        return _Tagged(stage, _PAD, None)
    inputs = list(operation.attributes["operandSegmentSizes"])[0]
    start = operation.operands[inputs].owner
    initialised = INIT in start.attributes
    return _Tagged(stage, operation.name, inputs if initialised else None)


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
    workload, candidate = record.candidate.sketch.workload, record.scheduled
    if is_default(candidate):
        raise InvalidValueError(
            f"it is {record.baseline}, which is no script but passes of mlir-opt"
        )
    program = payload(workload)
    # A baseline has no steps: of the untuned program no sequence is applied.
    script = module_of({}) if candidate is None else script_of(candidate, workload)
    distinct = "\0".join([program, script, record.baseline or ""])
    name = f"{identifier(workload.name)}_{_digest(distinct)}"
    command = apply_command(path.name, name, _payload_path(path, record, program).name)
    remarks = [_remark(record), *_needed(record), command]
    return NamedSchedule(name, script, program, "\n".join(remarks))


def identifier(name: str) -> str:
    """A name that MLIR takes."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return text if re.match(r"[A-Za-z]", text) else f"kernel_{text}"


def _remark(record: Record) -> str:
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
