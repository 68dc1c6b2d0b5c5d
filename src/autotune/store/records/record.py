"""Measured candidate with everything needed to understand and rebuild it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
from attrs import evolve, field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.converter import JsonForm, json_forms, object_form
from autotune.ir.workloads import Workload
from autotune.sketches import UNTUNED, Candidate
from autotune.store.records.outcome import Outcome

if TYPE_CHECKING:
    from cattrs import Converter

RECORD_SCHEMA = 2
BASELINE_SCHEMA = 3
"""Of records of baselines: versions that do not know them must not take them for trials."""
_READABLE = (1, 2, 3)
_OF_BASELINES = ("baseline", "counts_as")


BASELINE_PLACES = ("default", "untuned")
"""Words that stand for the number of a trial in the name of a baseline's record."""


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
        baseline: What the program is called, where this is no candidate of a search but what a
            user has without tuning; "" for a candidate.
        counts_as: See :class:`~autotune.store.records.Baseline`; None for a candidate.
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
    baseline: str = ""
    counts_as: float | None = None

    @property
    def name(self) -> str:
        """``RUN/TRIAL``; of a baseline ``RUN/untuned`` or ``RUN/default``."""
        place = BASELINE_PLACES[self.baseline == UNTUNED] if self.baseline else self.trial
        return f"{self.run_id}/{place}"

    def on(self, workload: Workload, program: str | None) -> Record:
        """The same record for an equal workload: its candidate has that one's names.

        Args:
            workload: The workload.
            program: The imported program's text that the schedule is to be replayed on.

        Raises:
            InvalidValueError: the workloads are not equal.
        """
        if workload == self.candidate.sketch.workload and program == self.program:
            return self
        return evolve(self, candidate=self.candidate.on(workload), program=program)

    @property
    def scheduled(self) -> Candidate | None:
        """Candidate that a backend is asked to build; None is the untuned program."""
        return None if self.baseline == UNTUNED else self.candidate

    @property
    def latency(self) -> float | None:
        """Seconds per call; None unless the outcome is ok."""
        return self.outcome.latency

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Key that orders valid records, the best first.

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
        data: dict[str, Any] = {"schema": BASELINE_SCHEMA if record.baseline else RECORD_SCHEMA}
        workload = converter.unstructure(record.candidate.sketch.workload)
        for name, value in write_fields(record).items():
            if name in _OF_BASELINES and not record.baseline:
                continue
            data |= {"workload": workload, **value} if name == "candidate" else {name: value}
        return data

    def read(data: Any, _: Any) -> Any:
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if schema not in _READABLE:
            raise InvalidValueError(
                f"a record of schema {schema!r}; this version reads "
                f"{', '.join(map(str, _READABLE))}"
            )
        if (schema == BASELINE_SCHEMA) != bool(data.get("baseline")):
            raise InvalidValueError(
                f"a record of schema {BASELINE_SCHEMA} names its baseline, and no other does: "
                f"schema {schema}, baseline {data.get('baseline')!r}"
            )
        candidate = {name: data[name] for name in ("workload", "sketch", "config")}
        later = {"program": None} if schema == 1 else {}
        return read_fields({**data, **later, "candidate": candidate}, Record)

    converter.register_unstructure_hook(Record, write)
    converter.register_structure_hook(Record, read)


RUN_STATUSES = ("running", "interrupted", "finished", "failed")


@frozen
class Run:
    """Run of the tuner on one task.

    ``workload`` is the workload's spelling: an equal one under other names is another run, which
    finds the records of this one. ``identity`` names everything that decides which candidates are
    proposed (workload, measure key, space, strategy, options, cost model, seed), but not the
    budget: a larger budget continues the same run. ``trials`` is that budget, 0 where time alone
    limits it. ``checkpoint`` is the tuner's JSON state after
    the last complete round.
    """

    run_id: str
    identity: str
    workload: str
    key: MeasureKey
    space: str
    strategy: str
    options: Mapping[str, Any] = field(hash=False)
    seed: int
    trials: int
    status: str
    created: float
    checkpoint: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def network(self) -> str:
        """Identity of the tuned network before it is read; "" for none."""
        return str(self.options.get("network", ""))

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of its tasks for people; none of a run of an older version."""
        names = self.options.get("task_names")
        return tuple(map(str, names)) if isinstance(names, list) else ()


def run_identity(
    workload: str,
    key: MeasureKey,
    space: str,
    strategy: str,
    options: Mapping[str, Any],
    seed: int,
) -> str:
    """Digest of what decides a run's proposals; see :class:`Run`."""
    content = [
        workload,
        attrs.astuple(key),
        space,
        strategy,
        dict(options),
        seed,
    ]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


WARM_USES = ("best", "seed", "training")
"""The best of equal records; a first proposal from those of another task; training data."""


@frozen
class WarmSource(JsonForm):
    """A recorded task that a run began with.

    Attributes:
        record: Name of the record of its fastest candidate, ``RUN/TRIAL``.
        workload: Digest of its workload.
        task: What a person calls it.
        distance: From the task of the run; see :class:`autotune.ir.workloads.WorkloadForm`.
        used_as: What for: of :data:`WARM_USES`.
        candidate: Digest of the candidate that was proposed because of it; "" where none was.
        training: Records of it that the cost model learned from.
    """

    record: str
    workload: str
    task: str
    distance: float
    used_as: tuple[str, ...]
    candidate: str = ""
    training: int = 0
