"""``autotune export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from autotune.cli.app import NOTHING_FOUND, OK
from autotune.cli.arguments import argument, command_of, nested, option
from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.output import Output, notify
from autotune.cli.query import (
    Query,
    Selected,
    chosen_record,
    open_for_reading,
    record_option,
)
from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.backends.native.exports import Machine
    from autotune.store.records import Record

__all__ = ["command"]

# As of `autotune.backends.native.exports.FORMATS`, which has a compiler behind it.
FORMATS = ("c", "object", "shared", "tvm-ffi")

EPILOG = """\b
Examples:
  autotune export gemm.c gemm --shape m=512,n=512,k=512
  autotune export gemm.o gemm --format object --target haswell
  autotune export gemm.so --format shared --record 0123456789ab/17
  autotune export gemm.so gemm --format shared --target x86-64-v3 --target x86-64-v4
  autotune export gemm.o gemm --format object --target aarch64-linux-gnu:cortex-a76
  autotune export gemm.so gemm --format tvm-ffi --name matmul
"""


@frozen
class _Asked:
    path: str = argument("FILE", OutputFile("kernel"))
    selected: Selected = nested(Selected, without=("target",))
    record_id: str | None = record_option()
    format_name: str = option(
        "--format",
        "A source file of C; an object file; a shared library, linked by the C compiler (CC); "
        "or one that tvm_ffi.load_module loads. All but the last have a header beside FILE.",
        click.Choice(FORMATS),
        shown="c",
    )
    targets: tuple[str, ...] = option(
        "--target TARGET",
        "What it is for: cpu, a preset such as x86-64-v3, a JSON file, or a triple with or "
        "without a processor; repeated, the library chooses by the processor that it runs on.  "
        "[default: that of the record]",
        InputFile(),
    )
    name: str | None = option("--name NAME", "Of the function.  [default: that of the workload]")


@command_of("export", _Asked, EPILOG)
def command(asked: _Asked, output: Output) -> int:
    """Write the fastest recorded schedule of WORKLOAD, or a given record, for other programs.

    The files need neither this package nor Python. For each target it is the fastest of the
    records that were made for it, or else of those that were made for the most registers that it
    has. The header says how functions are called, and what they return.
    """
    from autotune.backends.native.exports import export_kernel, kernel_of

    if asked.path == "-":
        raise InvalidValueError(
            "a kernel is a file and its header: it cannot go to standard output"
        )
    records, missing = _found(asked)
    if not records:
        notify(f"autotune: {missing}")
        output.json(None)
        return NOTHING_FOUND
    _check_workload(records)
    chosen = _chosen(records, asked.targets)
    workload = records[0].candidate.sketch.workload
    kernel = kernel_of(
        _identifier(workload.name) if asked.name is None else asked.name,
        [(record.candidate, _target_of(record), machine) for record, machine in chosen],
        max(record.key.threads for record, _ in chosen),
    )
    files = [str(file) for file in export_kernel(kernel, asked.format_name, Path(asked.path))]
    output.json(
        {
            "format": asked.format_name,
            "files": files,
            "function": kernel.name,
            "variants": [
                {"target": machine.name, "triple": machine.triple, "record": record.name}
                for record, machine in chosen
            ],
        }
    )
    for record, machine in chosen:
        output.say(f"{kernel.name} for {machine.name}: record {record.name}")
    output.say(f"written to {' and '.join(files)}")
    return OK


def _found(asked: _Asked) -> tuple[list[Record], str]:
    """The records to choose from, or why there are none."""
    query = Query.read(asked.selected)
    with open_for_reading(asked.selected.database) as opened:
        if asked.record_id is None:
            records = query.fastest(opened)
        else:
            found = chosen_record(opened, query, asked.record_id)
            records = [] if found is None else [found]
        return records, "" if records else query.none_matches(opened)


def _check_workload(records: Sequence[Record]) -> None:
    """Refuse records of several workloads, and those that have no loop nest.

    Raises:
        InvalidValueError: it says which.
    """
    names = {record.candidate.sketch.workload.digest: _described(record) for record in records}
    if len(names) > 1:
        raise InvalidValueError(
            f"records of several workloads match ({'; '.join(sorted(names.values())[:4])}"
            f"{'; ...' if len(names) > 4 else ''}): say which by --shape, --dtype or --record"
        )
    for record in records:
        if record.candidate.sketch.is_opaque:
            raise InvalidValueError(
                f"record {record.name} is a schedule of the compiler's own, which has no loop "
                "nest to be written: tune with the space sketch"
            )


def _described(record: Record) -> str:
    workload = record.candidate.sketch.workload
    values = ", ".join(f"{key}={value}" for key, value in workload.parameters.items())
    return f"{workload.name} {values}".strip()


def _identifier(text: str) -> str:
    """The name of a workload as one of C."""
    name = "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in text)
    return f"kernel_{name}" if not name or name[0].isdigit() else name


def _target_of(record: Record) -> Any:
    from autotune.targets import Target

    return Target.from_json(record.target)


def _chosen(records: Sequence[Record], targets: Sequence[str]) -> list[tuple[Record, Machine]]:
    """The record for each target; without targets the fastest, for its own."""
    from operator import attrgetter

    from autotune.backends.native.exports import machine_of

    if not targets:
        fastest = min(records, key=attrgetter("rank"))
        return [(fastest, machine_of(_target_of(fastest)))]
    machines = [_machine(text) for text in targets]
    return [(_best_for(machine, records), machine) for machine in machines]


def _machine(text: str) -> Machine:
    from autotune.backends.native.exports import is_triple, machine_of, machine_of_triple
    from autotune.tuning.options import described_target

    return machine_of_triple(text) if is_triple(text) else machine_of(described_target(text, None))


def _best_for(machine: Machine, records: Sequence[Record]) -> Record:
    """The record to use on a machine: made for it, or for the most registers that it has."""
    from autotune.backends.native.backend import missing_features

    def order(record: Record) -> tuple[bool, bool, int, Any]:
        target = _target_of(record)
        room = target.vector_bytes * target.vector_registers
        fits = room <= machine.target.vector_bytes * machine.target.vector_registers
        fits = fits and not missing_features(record.candidate, machine.features)
        own = target.fingerprint == machine.target.fingerprint
        return not own, not fits, -room if fits else room, record.rank

    return min(records, key=order)
