"""Records of functions of Relax modules, as searches would have stored them; needs TVM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from attrs import frozen
from autotune_tvm.backend import TVMBackend
from autotune_tvm.networks.apply_records import ApplyRecords, mark_constants, unscheduled
from autotune_tvm.networks.graph import ENTRY, array_of, bindings_of, shape_of
from tvm import relax

from autotune.backends import Backend
from autotune.backends.native import NativeBackend
from autotune.sketches import Candidate
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.store.sqlite import open_database
from autotune.targets import Target
from autotune.testing.programs import sample_candidates

PASSES = relax.transform
BACKENDS: dict[str, Backend] = {"native": NativeBackend(), "tvm": TVMBackend()}


def fused(module: Any) -> Any:
    """The module, cut into functions as in a pipeline of somebody else's."""
    steps = [PASSES.LegalizeOps(), PASSES.AnnotateTIROpPattern(), PASSES.FuseOps()]
    return tvm.transform.Sequential([*steps, PASSES.FuseTIR()])(module)


@frozen(eq=False)
class Cut:
    """A function of a network that was cut, and what a backend may make of it.

    Attributes:
        name: Of the function.
        function: A ``PrimFunc`` that says which of its parameters are constants.
        backend: Name of the backend.
        target: The machine.
    """

    name: str
    function: Any
    backend: str
    target: Target

    def candidates(self) -> dict[str, Candidate]:
        """A candidate of every sketch, by its name."""
        workload = TVMBackend().import_program(self.function).workload
        found = sample_candidates(BACKENDS[self.backend], workload, self.target)
        return {it.sketch.name: it for it in found}

    def record(self, candidate: Candidate | None = None) -> Record:
        """The record of a candidate; by default of the first one."""
        candidate = candidate or next(iter(self.candidates().values()))
        text = TVMBackend().import_program(self.function).program
        target = self.target
        key = MeasureKey(target.fingerprint, self.backend, "1", "1", target.cores, "warm-3")
        return Record(
            *("run", 0, candidate, key, target.to_json(), "sketch-1"),
            *(Outcome("ok", 1e-3, (1e-3,)), 0.0),
            program=text if self.backend == "tvm" else None,
        )


def cuts(module: Any, backend: str, target: Target) -> list[Cut]:
    """The functions of a module that is cut."""
    found = unscheduled(mark_constants(module))
    return [Cut(name, it, backend, target) for name, it in found.items()]


def stored(path: Path, records: Sequence[Record]) -> Path:
    """A database with these records."""
    with open_database(path) as database:
        for record in records:
            database.append_record(record)
    return path


def applied(module: Any, records: Sequence[Record], target: Target, folder: Path) -> Any:
    """The module with the schedules of these records, and nothing else changed."""
    return ApplyRecords(stored(folder / "records.db", records), target=target)(module)


def with_sketch(module: Any, sketch: str, backend: str, target: Target, folder: Path) -> Any:
    """The module with a candidate of a sketch for the one function that it has."""
    (cut,) = cuts(module, backend, target)
    return applied(module, [cut.record(cut.candidates()[sketch])], target, folder)


def constants(module: Any) -> list[tuple[tuple[int, ...], str]]:
    """Shapes and types of constants that calls in ``main`` are given, in order."""
    calls = (it.value for it in bindings_of(module[ENTRY]) if len(it.value.args) > 1)
    fields = (field for call in calls for field in call.args[1].fields)
    return [(shape_of(it), str(it.ty.dtype)) for it in fields if array_of(it) is not None]
