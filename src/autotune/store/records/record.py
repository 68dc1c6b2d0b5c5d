"""One measured candidate with everything needed to understand and rebuild it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.converter import JsonForm, json_forms, object_form
from autotune.sketches import Candidate
from autotune.store.records.outcome import Outcome

if TYPE_CHECKING:
    from cattrs import Converter

RECORD_SCHEMA = 2
_READABLE = (1, 2)


@frozen
class MeasureKey(JsonForm):
    """The conditions of a measurement, other than workload and candidate.

    Attributes:
        target: Fingerprint of the target.
        backend: Name of the backend.
        backend_version: Version of the backend plugin.
        compiler_version: Version of the compiler behind it.
        threads: Threads the program ran on.
        protocol: Identity of the measuring protocol, such as ``warm-3``: whether caches were
            warm, and the version of the timing procedure.
    """

    target: str
    backend: str
    backend_version: str
    compiler_version: str
    threads: int
    protocol: str


@frozen
class Record(JsonForm):
    """A candidate's outcome under a measure key, as stored; it refers to nothing outside itself.

    Attributes:
        run_id: The run that measured it.
        trial: Position in that run, from 0.
        candidate: Sketch and configuration; ``candidate.sketch.workload`` is the workload.
        key: What the measurement depends on.
        target: The full target description, as JSON.
        space: Name and version of the search space, such as ``sketch-1``.
        outcome: What happened.
        created: Unix time in seconds.
        elapsed: Seconds that its run had taken by then.
        program: The imported program's text that the schedule is replayed on; None where the
            backend makes the program from the workload.
    """

    run_id: str
    trial: int
    candidate: Candidate
    key: MeasureKey
    target: Mapping[str, Any] = field(hash=False)
    space: str
    outcome: Outcome = field(hash=False)
    created: float
    elapsed: float = 0.0
    program: str | None = field(default=None, repr=False)

    @property
    def latency(self) -> float | None:
        """Seconds per call; None unless the outcome is ok."""
        return self.outcome.latency

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """What orders valid records, the best first.

        Those that were timed here come before imported ones, whose latencies are claims, and those
        that were not beaten in turns before those that were.
        """
        return self.outcome.imported, bool(self.outcome.beaten_by), self.latency or 0.0


@json_forms
def _forms(converter: Converter) -> None:
    write_fields, read_fields = object_form(
        converter, Record, required=("elapsed", "program"), ignores_others=True
    )

    def write(record: Record) -> dict[str, Any]:
        data: dict[str, Any] = {"schema": RECORD_SCHEMA}
        workload = converter.unstructure(record.candidate.sketch.workload)
        for name, value in write_fields(record).items():
            data |= {"workload": workload, **value} if name == "candidate" else {name: value}
        return data

    def read(data: Any, _: Any) -> Any:
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if schema not in _READABLE:
            raise InvalidValueError(
                f"a record of schema {schema!r}; this version reads "
                f"{' and '.join(map(str, _READABLE))}"
            )
        candidate = {name: data[name] for name in ("workload", "sketch", "config")}
        later = {"program": None} if schema == 1 else {}
        return read_fields({**data, **later, "candidate": candidate}, Record)

    converter.register_unstructure_hook(Record, write)
    converter.register_structure_hook(Record, read)
