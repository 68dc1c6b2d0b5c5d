"""Failures of candidates that were thought feasible, counted, and the limits that tell them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, var
from autotune.ir.workloads import Workload
from autotune.nest.tape import build_tape
from autotune.sketches import Candidate, ProductEquals, Sketch
from autotune.store.records import Outcome, Record

__all__ = ["FailureGroup", "Rule", "grouped_failures", "phase_of"]

CHANCE = 0.01
"""A rule is given only where chance would produce one like it less often than this."""

_SIGNS = {"at_least": ">=", "at_most": "<="}


@frozen
class Rule:
    """A limit of a variable that some failures are beyond and nothing that passed.

    Attributes:
        variable: Name of the variable.
        relation: ``at_least`` or ``at_most``.
        value: Of the failure that is nearest to what passed.
        failures: Failures that it holds for, those of earlier rules left out.
        chance: Bound on the probability that rows which fail by chance give such a rule.
    """

    variable: str
    relation: str
    value: int
    failures: int
    chance: float

    def __str__(self) -> str:
        return f"{self.variable} {_SIGNS[self.relation]} {self.value}"

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "never": [{"variable": self.variable, self.relation: self.value}],
            "failures": self.failures,
            "chance": self.chance,
        }


def _rules(
    passed: Mapping[str, NDArray[np.int64]],
    failed: Mapping[str, NDArray[np.int64]],
    count: int,
    chance: float,
) -> tuple[list[Rule], NDArray[np.bool_]]:
    """Limits of variables, one after the other, each for failures that no earlier one explains.

    Of f failures among n rows, s given ones are all failures with the chance C(f, s) / C(n, s);
    two limits of each variable could have been found.

    Args:
        passed: Values of each variable where nothing failed [n].
        failed: Values of each variable of the failures [count].
        count: How many failures there are.
        chance: See :func:`grouped_failures`.

    Returns:
        The rules, and which failures are left [count].
    """
    rules: list[Rule] = []
    left = np.ones(count, dtype=np.bool_)
    while failed and left.any():
        beyond = {}
        for name, values in failed.items():
            good = passed[name]
            beyond[name, "at_least"] = left & (values > good.max(initial=-(1 << 62)))
            beyond[name, "at_most"] = left & (values < good.min(initial=1 << 62))
        (name, relation), found = max(beyond.items(), key=lambda item: int(item[1].sum()))
        explained, bad = int(found.sum()), int(left.sum())
        rows = bad + len(passed[name])
        tried = len(beyond) * math.prod((bad - i) / (rows - i) for i in range(explained))
        if not explained or tried > chance:
            break
        nearest = failed[name][found]
        value = nearest.min() if relation == "at_least" else nearest.max()
        rules.append(Rule(name, relation, int(value), explained, tried))
        left &= ~found
    return rules, left


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
        rules: Limits that tell them apart, that of the most failures first.
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


def grouped_failures(records: Iterable[Record], chance: float = CHANCE) -> list[FailureGroup]:
    """Failed candidates by what they can be compared with, and the limits that tell them.

    Variables are the parameters of a sketch and the expressions that its constraints limit: a
    limit that is declared too high is found as such. First all sketches of workloads of one name
    are looked at together, then each by itself for the failures that are left. A candidate that
    was measured several times counts once, with the last outcome that is no retriable failure, if
    there is one.

    Args:
        records: Records in the order in which they were measured.
        chance: Rules that chance may produce more often than this are left out.

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
        place = (record.candidate.sketch.workload.name, name, key.backend, key.threads)
        group = found.setdefault(place, {})
        digest = record.candidate.digest
        if digest not in group or not record.outcome.retriable:
            group[digest] = record
    return [group for place, of in found.items() for group in _by_phase(place, of, chance)]


def _by_phase(
    place: _Place, members: Mapping[str, Record], chance: float
) -> Iterator[FailureGroup]:
    """The group of all sketches in each phase, then those of sketches with rules of their own."""
    phases: dict[str, list[Record]] = {}
    for record in members.values():
        phase = "" if record.outcome.ok else phase_of(record.outcome)
        phases.setdefault(phase, []).append(record)
    passed = phases.pop("", [])
    for phase, failed in phases.items():
        common, left = _group(place, "", phase, passed, failed, chance)
        yield common
        for name in dict.fromkeys(record.candidate.sketch.name for record in left):
            good, bad = (
                [record for record in of if record.candidate.sketch.name == name]
                for of in (passed, left)
            )
            own, _ = _group(place, name, phase, good, bad, chance)
            if own.rules:
                yield own


def _group(
    place: _Place,
    sketch: str,
    phase: str,
    passed: Sequence[Record],
    failed: Sequence[Record],
    chance: float,
) -> tuple[FailureGroup, list[Record]]:
    """A group, and the failures that it leaves unexplained."""
    good, bad = ([record.candidate for record in of] for of in (passed, failed))
    names = _shared([_limited(it.sketch) for it in (*good, *bad)])
    rules, left = _rules(_values(good, names), _values(bad, names), len(bad), chance)
    workload, target, backend, threads = place
    group = FailureGroup(
        workload=workload,
        sketch=sketch,
        target=target,
        backend=backend,
        threads=threads,
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


def _shared(found: Sequence[dict[str, IntExpr]]) -> list[str]:
    """Names of the variables that sketches for all shapes of a workload have."""
    return [name for name in found[0] if all(name in other for other in found)]


def _values(candidates: Sequence[Candidate], names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Values of variables, [n] of each."""
    values = np.zeros((len(names), len(candidates)), dtype=np.int64)
    places: dict[str, list[int]] = {}
    for place, candidate in enumerate(candidates):
        places.setdefault(candidate.sketch.digest, []).append(place)
    for members in places.values():
        sketch = candidates[members[0]].sketch
        rows = np.array([candidates[place].values for place in members], dtype=np.int64)
        limited = _limited(sketch)
        tape = build_tape(sketch.param_names, {name: limited[name] for name in names})
        values[:, members] = tape.evaluate(rows).T
    return dict(zip(names, values, strict=True))


def _messages(failed: Sequence[Record]) -> tuple[str, ...]:
    """First lines of what they say, the most frequent first."""
    firsts = ((record.outcome.message.strip().splitlines() or [""])[0] for record in failed)
    return tuple(text for text, _ in Counter(filter(None, firsts)).most_common(3))
