"""Writing records as a JSON database of TVM's MetaSchedule.

TVM's own passes then apply the schedules to the functions that they were found for: a schedule
is the trace of its primitives, and is looked up by the function's structure. The target plays no
part in that, so one database holds records of one target.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from attrs import define, field, frozen
from tvm_ffi import structural_equal

from autotune.backends import ExportReport, InvalidSchedule
from autotune.errors import AutotuneError, InvalidValueError
from autotune.ir.workloads import Workload
from autotune.sketches import Tensorize, is_default, is_uneven, lane_splits
from autotune.store.records import Record
from autotune.targets import Target
from autotune_tvm import compiler, runtime
from autotune_tvm.blocks import Block
from autotune_tvm.default_schedule import default_schedule
from autotune_tvm.scheduled import program_of

__all__ = ["FILES", "OTHER_BLOCKS", "export", "has_other_blocks"]

FILES = ("database_workload.json", "database_tuning_record.json")
"""In the order in which they are put in place: records refer to workloads."""

OTHER_BLOCKS = (
    "scans, or reduces truth values, to several tensors in one block, or over windows of "
    "different sizes, and this package schedules other blocks for them"
)
"""Description of programs whose traces TVM and this package do not share."""

_BEFORE_EQUALS = 1 - 1e-6


def has_other_blocks(workload: Workload, module: Any) -> bool:
    """Tell if this package schedules other blocks than a program has: see ``OTHER_BLOCKS``."""
    from autotune_tvm.importer import blocks_of

    scans = any(stage.scan_axis is not None for stage in workload.stages)
    return scans or len(blocks_of(module)) < len(workload.stages)


def export(records: Iterable[Record], folder: Path) -> ExportReport:
    """Write records into two files in ``folder``, which is made if it does not exist.

    The files appear when they are complete.

    Raises:
        InvalidValueError: the folder cannot be written to or has such files already, or the
            records are of several targets, thread counts or protocols.
    """
    _check_folder(folder)
    runtime.load()
    try:
        with tempfile.TemporaryDirectory(prefix=".autotune-", dir=folder.parent) as scratch:
            writer = _Writer(Path(scratch))
            for record in records:
                writer.add(record)
            files = _put_in_place(Path(scratch), folder) if writer.exported else ()
    except OSError as error:
        raise InvalidValueError(
            f"{str(folder)!r} cannot be written: {error.strerror or error}"
        ) from error
    return ExportReport(writer.exported, tuple(writer.refused), files)


def _check_folder(folder: Path) -> None:
    if not folder.parent.is_dir():
        raise InvalidValueError(f"{str(folder)!r}: there is no folder {str(folder.parent)!r}")
    if folder.exists() and not folder.is_dir():
        raise InvalidValueError(f"{str(folder)!r} is a file; the format needs a folder")
    for name in FILES:
        if (folder / name).exists():
            raise InvalidValueError(
                f"{str(folder)!r} has a file {name!r} already; name another folder, or move the "
                "database in it away"
            )


def _put_in_place(scratch: Path, folder: Path) -> tuple[str, ...]:
    folder.mkdir(exist_ok=True)
    for name in FILES:
        with (scratch / name).open("rb") as file:
            os.fsync(file.fileno())
        (scratch / name).rename(folder / name)
    return tuple(str(folder / name) for name in FILES)


@frozen
class _Conditions:
    """The part that MetaSchedule does not distinguish, shared by all records of a database."""

    fingerprint: str
    threads: int
    protocol: str
    target: str = field(eq=False)

    @staticmethod
    def of(record: Record) -> _Conditions:
        key = record.key
        name = str(record.target.get("name", "a target without a name"))
        return _Conditions(key.target, key.threads, key.protocol, name)

    def __str__(self) -> str:
        return f"{self.target}, {self.threads} threads, {self.protocol}"


@define(eq=False)
class _Writer:
    """A database under construction."""

    scratch: Path
    exported: int = 0
    refused: list[tuple[str, str]] = field(factory=list)
    database: Any = None
    conditions: _Conditions | None = None
    programs: dict[tuple[str, str | None], list[Any]] = field(factory=dict)

    def add(self, record: Record) -> None:
        """Write one record, or note why it cannot be."""
        self._check_conditions(_Conditions.of(record))
        try:
            if record.outcome.latency is None:
                raise InvalidValueError(f"its outcome is {record.outcome.status!r}, not ok")
            self._write(record)
        except AutotuneError as error:
            self.refused.append((record.name, str(error)))
        else:
            self.exported += 1

    def _check_conditions(self, found: _Conditions) -> None:
        if self.conditions is None:
            self.conditions = found
        if found != self.conditions:
            raise InvalidValueError(
                "the records are of several targets, thread counts or protocols "
                f"({self.conditions}; {found}), and MetaSchedule does not tell them apart; "
                "choose with --target, --threads or --protocol"
            )

    def _modules(self, workload: Workload, program: str | None) -> list[Any]:
        key = workload.digest, program
        if key not in self.programs:
            self.programs[key] = _looked_up(workload, program)
        return self.programs[key]

    def _write(self, record: Record) -> None:
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo
        from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord, Workload

        if any(isinstance(step, Tensorize) for step in record.candidate.sketch.steps):
            raise InvalidValueError(
                "its schedule calls instructions in this package's own way, which TVM alone does "
                "not know"
            )
        sketch = record.candidate.sketch
        if any(is_uneven(*split) for split in lane_splits(sketch.workload, sketch.core_steps)):
            raise InvalidValueError(
                "its schedule reduces in lanes that do not divide their axis, for which this "
                "package changes the program first, which TVM alone does not know"
            )
        workload = record.candidate.sketch.workload
        modules = self._modules(workload, record.program)
        if has_other_blocks(workload, modules[0]):
            raise InvalidValueError(f"its program {OTHER_BLOCKS}, which TVM alone does not know")
        schedule = _schedule(modules[0], record)
        arguments = ArgInfo.from_entry_func(modules[0], remove_preproc=True)
        target = compiler.described_target(Target.from_json(record.target), record.key.threads)
        conditions = _counted_seconds(record), target, arguments
        first = TuningRecord(schedule.trace, Workload(modules[0]), *conditions)
        _check_written(first, schedule.mod, self.scratch)
        if self.database is None:
            self.database = JSONDatabase(*(str(self.scratch / name) for name in FILES))
        for module in modules:
            known = self.database.commit_workload(module)
            self.database.commit_tuning_record(TuningRecord(schedule.trace, known, *conditions))


def _schedule(module: Any, record: Record) -> Any:
    """The schedule of a record on ``module``, with its trace; that of a baseline is TVM's own."""
    from autotune_tvm.importer import blocks_of
    from autotune_tvm.replay import schedule as replayed

    workload = record.candidate.sketch.workload
    blocks = {} if record.program is None else blocks_of(module)
    if record.scheduled is None:
        schedule = runtime.load().s_tir.Schedule(module)
        # MetaSchedule passes over a trace without instructions: this one changes nothing.
        schedule.get_sblock(Block.of(workload.stages[-1], blocks).name)
        return schedule
    if is_default(record.candidate):
        target = Target.from_json(record.target)
        return default_schedule(module, target, record.key.threads)
    schedule = replayed(module, record.candidate, workload, blocks)
    from autotune_tvm.trace.step import TraceStep

    steps = record.candidate.sketch.steps
    is_trace = any(isinstance(step, TraceStep) for step in steps)
    return _as_traced(module, record, schedule, blocks) if is_trace else schedule


def _as_traced(module: Any, record: Record, schedule: Any, blocks: Mapping[str, Block]) -> Any:
    """The schedule of a trace of TVM's own, with nothing but that trace.

    Where loops had to be brought into another order first, ``schedule``, which has that, too.
    """
    from autotune_tvm.trace.replay import apply_trace
    from autotune_tvm.trace.space import prepared
    from autotune_tvm.trace.step import trace_of

    sketch = record.candidate.sketch
    replayed, names = prepared(sketch.workload, module, blocks)
    if not structural_equal(replayed, module):
        return schedule
    alone = runtime.load().s_tir.Schedule(module)
    apply_trace(trace_of(sketch), alone, names, record.candidate.config)
    return alone if structural_equal(alone.mod, schedule.mod) else schedule


def _counted_seconds(record: Record) -> list[float]:
    """Seconds whose mean MetaSchedule compares: of a baseline, just less than what it counts as.

    MetaSchedule takes the fastest of equals, and a candidate that is no gain is not to be taken.
    Samples are written where their mean is the latency, as it is of what came from MetaSchedule.
    """
    samples, latency = record.outcome.samples, record.latency or 0.0
    if record.counts_as is not None:
        return [record.counts_as * _BEFORE_EQUALS]
    return list(samples) if samples and fmean(samples) == latency else [latency]


def _looked_up(workload: Workload, program: str | None) -> list[Any]:
    """The forms in which TVM looks a function up, the one that passes use first.

    An imported function that does not call itself ``main``, or does not say that its arguments
    never overlap, is looked up with that added when it is given by itself (as passes do), and as
    it is when it is given in a module of its own.
    """
    tvm = runtime.load()
    if program is None:
        return [program_of(workload, None)]
    from autotune_tvm.emit import ENTRY
    from autotune_tvm.importer import module_from_text

    plain = module_from_text(program)
    # Registered with TVM by this import.
    import_module("tvm.s_tir.meta_schedule")
    normalize = tvm.get_global_func("tvm.s_tir.meta_schedule.normalize_mod")
    forms = [normalize(plain[ENTRY]), plain]
    return forms[:1] if structural_equal(*forms) else forms


def _check_written(record: Any, program: Any, scratch: Path) -> None:
    """Return whether a tuning record survives being written, and makes the same program again.

    Args:
        record: The tuning record.
        program: What its trace made when it was recorded.
        scratch: A folder for a database of this record alone.

    Raises:
        InvalidSchedule: it does not.
    """
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        try:
            alone = JSONDatabase(work_dir=folder)
            alone.commit_workload(record.workload.mod)
            alone.commit_tuning_record(record)
            found = JSONDatabase(work_dir=folder, allow_missing=False).get_all_tuning_records()
            again = found[0].as_measure_candidate().sch.mod
        except Exception as error:  # TVM raises whatever its primitives raise
            message = f"its trace cannot be replayed: {compiler.brief(error)}"
            raise InvalidSchedule(message) from error
    if not structural_equal(program, again):
        raise InvalidSchedule("its trace makes another program")
