"""Functions of a module that was read, and a library of schedules for them."""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from autotune.backends import InvalidSchedule
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.sketches import is_default
from autotune.store.jsonl import replacing
from autotune.store.records import Record
from autotune_mlir import bindings
from autotune_mlir.emit import on_tensors, payload, quoted
from autotune_mlir.networks.module_reading import ModuleFunction
from autotune_mlir.parsing import new_context, operation_named, operations_in
from autotune_mlir.schedule import schedule
from autotune_mlir.schedule.script import MAIN
from autotune_mlir.transform_library import (
    UNTAGGED,
    NamedSchedule,
    apply_passes,
    identifier,
    library_text,
    parsed,
)

__all__ = ["SCHEDULE", "write_library"]

SCHEDULE = "autotune.schedule"
"""Attribute of a function whose operations have the attributes by which a schedule finds them."""

_PREPARED = (
    "// Prepared by autotune: functions that were tuned are as their schedules need them.\n"
)
_ANY = "!transform.any_op"
_CLEANUP = "builtin.module(canonicalize,cse)"
# What there is of these depends on which stages write into one empty tensor, and on clean-ups.
_LOOSE = ("tensor.", "affine.", "ub.", "arith.constant")
# They differ for NaN, and schedules are for either.
_ALIKE = {"arith.maxnumf": "arith.maximumf", "arith.minnumf": "arith.minimumf"}


@frozen(eq=False)
class _Scheduled:
    """A function and its schedule.

    Attributes:
        function: The function.
        workload: What it computes.
        named: The schedule.
        by_structure: Whether it works on the function as it is in the module; else on its
            prepared form only.
    """

    function: ModuleFunction
    workload: Workload
    named: NamedSchedule
    by_structure: bool = True


def write_library(
    module: str, functions: Sequence[ModuleFunction], path: Path, records: Mapping[str, Record]
) -> tuple[str, ...]:
    """Write a module of named sequences with one entry, and the prepared module beside it.

    The entry gives every function that has a schedule, found by its name and type, that schedule,
    and leaves the others alone.

    Args:
        module: Text of the module.
        functions: Its functions.
        path: The file.
        records: What schedules each workload, by its digest.

    Returns:
        What a person should know about the files, a line each.

    Raises:
        InvalidValueError: a file cannot be written.
    """
    if not path.parent.is_dir():
        raise InvalidValueError(f"{str(path)!r}: there is no folder {str(path.parent)!r}")
    tuned = [(it, record) for it in functions if (record := _record_of(it, records)) is not None]
    left = [f"@{it.name}" for it, _ in tuned if _has_truth(it)]
    scheduled, refused = _applicable([it for it in tuned if not _has_truth(it[0])], module)
    prepared = path.with_name(f"{path.stem}.payload.mlir")
    if prepared.exists() and not prepared.read_bytes().startswith(_PREPARED.encode()):
        raise InvalidValueError(
            f"{str(prepared)!r} belongs to {str(path)!r} and would be replaced, but autotune has "
            "not written it; name another file"
        )
    texts = {
        path: library_text(_distinct(scheduled), _entry_text(scheduled)),
        prepared: _PREPARED + _prepared_text(module, scheduled),
    }
    for file, text in texts.items():
        with replacing(file) as stream:
            stream.write(text.encode())
    lines = [f"{path}: nothing for {named}: {error}" for named, error in refused]
    return (*_remarks(path, prepared, scheduled, left), *lines)


def _record_of(function: ModuleFunction, records: Mapping[str, Record]) -> Record | None:
    """The record that has a schedule for a function; None where there is none."""
    workload = function.workload
    record = None if workload is None else records.get(workload.digest)
    if record is None or record.scheduled is None or is_default(record.scheduled):
        return None
    return record


def _applicable(
    tuned: Sequence[tuple[ModuleFunction, Record]], module: str
) -> tuple[list[_Scheduled], list[tuple[str, InvalidSchedule]]]:
    """The functions that a script alone can schedule, and why it cannot schedule the others."""
    scheduled: list[_Scheduled] = []
    refused = []
    for function, record in tuned:
        try:
            scheduled.append(_checked(_named(function, record), module))
        except InvalidSchedule as error:
            refused.append((f"@{function.name}", error))
    return scheduled, refused


def _has_truth(function: ModuleFunction) -> bool:
    """Tell whether a function has tensors of truth values, of which MLIR's vectors are bits."""
    workload = function.workload
    assert workload is not None
    return any(tensor.dtype == "bool" for tensor in workload.tensors.values())


def _remarks(
    path: Path, prepared: Path, scheduled: Sequence[_Scheduled], left: Sequence[str]
) -> list[str]:
    lines = [
        f"{path}: schedules of {len(scheduled)} functions, applied by mlir-opt MODULE "
        f"--transform-preload-library=transform-library-paths={path} --transform-interpreter"
    ]
    others = [f"@{it.function.name}" for it in scheduled if not it.by_structure]
    if others:
        lines.append(
            f"{path}: the operations of {', '.join(others)} are not those that were scheduled, "
            f"such as a product added to an argument: take {prepared} in place of the module"
        )
    if left:
        lines.append(
            f"{path}: nothing for {', '.join(left)}: schedules of truth values are for tensors of "
            "bytes, and these are of i1"
        )
    return lines


def _named(function: ModuleFunction, record: Record) -> _Scheduled:
    workload = function.workload
    assert workload is not None
    candidate = record.on(workload, None).scheduled
    assert candidate is not None
    script, program = schedule(candidate, workload), payload(workload)
    distinct = f"{program}\0{script}"
    digest = hashlib.sha256(distinct.encode()).hexdigest()[:8]
    latency = f"{record.latency:.4g} s, " if record.latency is not None else ""
    comment = f"@{function.name}: {latency}record {record.name}"
    name = f"{identifier(function.name)}_{digest}"
    return _Scheduled(function, workload, NamedSchedule(name, script, program, comment))


def _distinct(scheduled: Sequence[_Scheduled]) -> list[NamedSchedule]:
    return list({it.named.name: it.named for it in scheduled}.values())


def _checked(scheduled: _Scheduled, module: str) -> _Scheduled:
    """Find out whether the schedule does for the function itself what it does for its program."""
    only = [scheduled]
    prepared = evolve(scheduled, by_structure=False)
    expected = _applied([prepared], _prepared_text(module, [prepared]), scheduled)
    try:
        found = _applied(only, module, scheduled)
    except InvalidSchedule:
        return prepared
    return scheduled if found == expected else prepared


def _applied(scheduled: Sequence[_Scheduled], module: str, wanted: _Scheduled) -> Counter[str]:
    """Count the loops and operations of each kind of a function after a library was applied.

    Raises:
        InvalidSchedule: the library cannot be applied.
    """
    mlir = bindings.load()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.mlir"
        text = library_text(_distinct(scheduled), _entry_text(scheduled))
        path.write_text(text, encoding="utf-8")
        found = parsed(module)
        apply_passes(found, path, MAIN)
    with found.context, mlir.ir.Location.unknown():
        mlir.passmanager.PassManager.parse(_CLEANUP).run(found.operation)
        function = operation_named(found, wanted.function.name)
        names = (str(operation.name) for operation in operations_in(function))
        return Counter(_ALIKE.get(name, name) for name in names if not name.startswith(_LOOSE))


def _entry_text(scheduled: Sequence[_Scheduled]) -> str:
    """The sequence that gives each function of a module its schedule."""
    lines = []
    for number, it in enumerate(scheduled):
        function, name = it.function, it.named.name
        found = [f"sym_name = {quoted(function.name)}", f"function_type = {function.kind}"]
        if not it.by_structure:
            found.append(f"{SCHEDULE} = {quoted(name)}")
        sequence = f"{name}{UNTAGGED}" if it.by_structure else name
        lines += [
            f'%f{number} = transform.structured.match ops{{["func.func"]}} '
            f"attributes {{{', '.join(found)}}} in %root : ({_ANY}) -> {_ANY}",
            f"transform.foreach %f{number} : {_ANY} {{",
            f"^bb0(%one: {_ANY}):",
            f"  transform.include @{sequence} failures(propagate) (%one) : ({_ANY}) -> ()",
            "}",
        ]
    head = f"  transform.named_sequence @{MAIN}(%root: {_ANY} {{transform.readonly}}) {{"
    body = "\n".join(f"    {line}" for line in (*lines, "transform.yield"))
    return f"{head}\n{body}\n  }}"


def _prepared_text(module: str, scheduled: Sequence[_Scheduled]) -> str:
    """The module, its scheduled functions in the form that schedules are for."""
    mlir = bindings.load()
    # In a context of their own.
    texts = {it.function.name: on_tensors(it.workload) for it in scheduled}
    with new_context(), mlir.ir.Location.unknown():
        prepared = mlir.ir.Module.parse(module)
        for it in scheduled:
            function = it.function
            before: Any = operation_named(prepared, function.name)
            made = mlir.ir.Module.parse(texts[it.function.name])
            after = made.body.operations[0].operation
            prepared.body.append(after)
            after.move_before(before)
            after.attributes["sym_name"] = before.attributes["sym_name"]
            if "sym_visibility" in before.attributes:
                after.attributes["sym_visibility"] = before.attributes["sym_visibility"]
            after.attributes[SCHEDULE] = mlir.ir.StringAttr.get(it.named.name)
            before.erase()
        return f"{prepared}\n"
