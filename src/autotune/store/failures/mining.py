"""Failures of candidates that were thought feasible, as records have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, var
from autotune.ir.workloads import Workload
from autotune.nest.tape import build_tape
from autotune.sketches import Candidate, ProductEquals, Sketch
from autotune.store.failures.rules import CHANCE, Rule, separating_rules
from autotune.store.records import Outcome, Record

__all__ = ["FailureGroup", "mine_failures", "phase_of"]

# Workload, target, backend, threads.
_Place = tuple[str, str, str, int]

_PHASES = {
    "invalid": "lower",
    "build_error": "build",
    "wrong_result": "verify",
    "implausible": "run",
}


@frozen
class FailureGroup:
    """Failures of one phase, and what explains them.

    Attributes:
        workload: Name of the workload, whatever its shape.
        sketch: Name of the sketch; "" for all sketches of these workloads together.
        target: Name of the target.
        backend: Name of the backend.
        threads: Threads that the programs ran on.
        phase: ``lower``, ``build``, ``load``, ``verify``, ``run``, or ``unknown``.
        failures: How many candidates failed in this phase; of one sketch, those that no rule
            for all sketches explains.
        passed: How many were ok.
        rules: What separates them, the surest first.
        messages: What the failures say, the most frequent first, at most three.
    """

    workload: str
    sketch: str
    target: str
    backend: str
    threads: int
    phase: str
    failures: int
    passed: int
    rules: tuple[Rule, ...]
    messages: tuple[str, ...]

    @property
    def unexplained(self) -> int:
        """Failures that no rule holds for."""
        return self.failures - sum(rule.failures for rule in self.rules)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "workload": self.workload,
            "sketch": self.sketch or None,
            "target": self.target,
            "backend": self.backend,
            "threads": self.threads,
            "phase": self.phase,
            "failures": self.failures,
            "passed": self.passed,
            "rules": [rule.to_json() for rule in self.rules],
            "unexplained": self.unexplained,
            "messages": list(self.messages),
        }


def phase_of(outcome: Outcome) -> str:
    """The phase in which a candidate failed; "unknown" where its outcome does not say.

    A crash or timeout has the seconds of the phase in which it happened as its last timing.
    """
    return _PHASES.get(outcome.status) or (list(outcome.timings) or ["unknown"])[-1]


def mine_failures(records: Iterable[Record], chance: float = CHANCE) -> list[FailureGroup]:
    """Rules that separate failed candidates from valid ones.

    Variables are the parameters of a sketch and the expressions that its constraints limit: a
    limit that is declared too high is found as such. First all sketches of workloads of one name
    are looked at together, with the variables that they share; then each sketch by itself, for
    the failures that are left. A candidate that was measured several times counts once, with the
    last outcome that is no retriable failure, if there is one.

    Args:
        records: Records in the order in which they were measured.
        chance: See :func:`separating_rules`.

    Returns:
        Groups with failures; a sketch has one only where it has a rule of its own.

    Raises:
        InvalidValueError: the chance is no probability.
    """
    if not 0 < chance <= 1:
        raise InvalidValueError(f"the chance must be above 0 and at most 1, not {chance}")
    found: dict[_Place, dict[str, Record]] = {}
    spelled: dict[str, Workload] = {}
    for record in records:
        # Equal workloads under other names have the variables of the first.
        own = record.candidate.sketch.workload
        record = record.on(spelled.setdefault(own.digest, own), record.program)
        key, name = record.key, str(record.target.get("name", record.key.target))
        workload = record.candidate.sketch.workload.name
        group = found.setdefault((workload, name, key.backend, key.threads), {})
        digest = record.candidate.digest
        if digest not in group or not record.outcome.retriable:
            group[digest] = record
    groups: list[FailureGroup] = []
    for place, members in found.items():
        passed = [record for record in members.values() if record.outcome.ok]
        phases: dict[str, list[Record]] = {}
        for record in members.values():
            if not record.outcome.ok:
                phases.setdefault(phase_of(record.outcome), []).append(record)
        for phase, failed in phases.items():
            groups += _mine_phase(place, phase, passed, failed, chance)
    return groups


def _mine_phase(
    place: _Place, phase: str, passed: list[Record], failed: list[Record], chance: float
) -> Iterator[FailureGroup]:
    """The group of all sketches, then those of sketches that have rules of their own."""
    common, left = _mine_group(place, "", phase, passed, failed, chance)
    yield common
    by_sketch: dict[str, list[Record]] = {}
    for record in left:
        by_sketch.setdefault(record.candidate.sketch.name, []).append(record)
    for name, remaining in by_sketch.items():
        own = [record for record in passed if record.candidate.sketch.name == name]
        group, _ = _mine_group(place, name, phase, own, remaining, chance)
        if group.rules:
            yield group


def _mine_group(
    place: _Place,
    sketch: str,
    phase: str,
    passed: list[Record],
    failed: list[Record],
    chance: float,
) -> tuple[FailureGroup, list[Record]]:
    """A group, and the failures that it leaves unexplained."""
    workload, target, backend, threads = place
    good, bad = ([record.candidate for record in of] for of in (passed, failed))
    names = _shared_variables([candidate.sketch for candidate in (*good, *bad)])
    values = _values(bad, names)
    rules = separating_rules(names, _values(good, names), values, chance)
    left = np.ones(len(failed), dtype=np.bool_)
    for rule in rules:
        left &= ~rule.holds(names, values)
    group = FailureGroup(
        workload,
        sketch,
        target,
        backend,
        threads,
        phase=phase,
        failures=len(failed),
        passed=len(passed),
        rules=tuple(rules),
        messages=_messages(failed),
    )
    return group, [record for record, is_left in zip(failed, left, strict=True) if is_left]


def _limited(sketch: Sketch) -> dict[str, IntExpr]:
    """Variables of a sketch: its parameters, and what its constraints limit, by their text."""
    found = {name: var(name) for name in sketch.param_names}
    for constraint in sketch.constraints:
        if not isinstance(constraint, ProductEquals):
            found.setdefault(repr(constraint.expression), constraint.expression)
    return found


def _shared_variables(sketches: Iterable[Sketch]) -> list[str]:
    """Names of the variables that all of them have."""
    different = {sketch.digest: sketch for sketch in sketches}
    first, *others = (_limited(sketch) for sketch in different.values())
    return [name for name in first if all(name in other for other in others)]


def _values(candidates: Sequence[Candidate], names: Sequence[str]) -> NDArray[np.int64]:
    """Values of variables [n, variables]."""
    values = np.zeros((len(candidates), len(names)), dtype=np.int64)
    places: dict[str, list[int]] = {}
    for place, candidate in enumerate(candidates):
        places.setdefault(candidate.sketch.digest, []).append(place)
    for members in places.values():
        sketch = candidates[members[0]].sketch
        rows = np.array([candidates[place].values for place in members], dtype=np.int64)
        limited = _limited(sketch)
        tape = build_tape(sketch.param_names, {name: limited[name] for name in names})
        values[members] = tape.evaluate(rows)
    return values


def _messages(failed: list[Record]) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for record in failed:
        first = (record.outcome.message.strip().splitlines() or [""])[0]
        counts[first] = counts.get(first, 0) + 1
    ordered = sorted(counts, key=lambda text: -counts[text])
    return tuple(text for text in ordered if text)[:3]
