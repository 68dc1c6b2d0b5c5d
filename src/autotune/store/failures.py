"""Failures of candidates that were thought feasible, and the smallest rules that tell them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, var
from autotune.ir.workloads import Workload
from autotune.nest.tape import build_tape
from autotune.sketches import Candidate, ProductEquals, Sketch
from autotune.sketches.candidates import Matrix
from autotune.store.records import Outcome, Record

__all__ = [
    "Condition",
    "FailureGroup",
    "Rule",
    "mine_failures",
    "phase_of",
    "separating_rules",
]

Mask = NDArray[np.bool_]

CHANCE = 0.01
"""A rule is proposed only where chance would produce one like it less often than this."""

MOST_VALUES = 64
"""Values of one variable that conditions are made of."""

_RELATIONS: dict[str, Callable[[Any, int], Any]] = {
    "at_least": lambda values, limit: values >= limit,
    "at_most": lambda values, limit: values <= limit,
    "equals": lambda values, limit: values == limit,
}
_SIGNS = {"at_least": ">=", "at_most": "<=", "equals": "="}


@frozen
class Condition:
    """A variable against a value.

    Attributes:
        variable: Name of the variable.
        relation: ``at_least``, ``at_most`` or ``equals``.
        value: The value.
    """

    variable: str
    relation: str
    value: int

    def holds(self, values: NDArray[np.int64]) -> Mask:
        """Mark the values of the variable for which it holds, [n]."""
        return np.asarray(_RELATIONS[self.relation](values, self.value), dtype=np.bool_)

    def __str__(self) -> str:
        return f"{self.variable} {_SIGNS[self.relation]} {self.value}"


@frozen
class Rule:
    """Conditions, one or two, that hold together for failures only.

    Attributes:
        conditions: The conditions; the constraint that they suggest is that not all hold.
        failures: Failed rows for which they hold, those of earlier rules left out.
        chance: Bound on the probability that rows which fail by chance give such a rule.
    """

    conditions: tuple[Condition, ...]
    failures: int
    chance: float

    def holds(self, names: Sequence[str], matrix: Matrix) -> Mask:
        """Mark the rows [n, variables] for which all conditions hold; shape [n]."""
        held = np.ones(len(matrix), dtype=np.bool_)
        for condition in self.conditions:
            held &= condition.holds(matrix[:, list(names).index(condition.variable)])
        return held

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions))

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "never": [{"variable": it.variable, it.relation: it.value} for it in self.conditions],
            "failures": self.failures,
            "chance": self.chance,
        }


def separating_rules(
    names: Sequence[str], passed: Matrix, failed: Matrix, chance: float = CHANCE
) -> list[Rule]:
    """Rules over at most two variables that hold for some failures and for nothing that passed.

    One after the other, each for failures that no earlier one explains. Of all such rules that
    one is taken which chance would produce most rarely: n rows, f of them failed, of which a rule
    holds for s and for no other; that s given rows are all failures has the chance
    C(f, s) / C(n, s), and there are so many rules of its size to try. So a second variable has
    to earn its place.

    Args:
        names: Names of the variables.
        passed: Values of rows that passed [p, variables].
        failed: Values of rows that failed [f, variables].
        chance: Rules that chance may produce more often than this are not proposed.
    """
    rules: list[Rule] = []
    while len(failed) and names:
        conditions = _conditions(names, failed)
        best = min(
            (
                Rule(found, count, _chance(len(passed), len(failed), count) * tried)
                for found, count, tried in _widest(names, passed, failed, conditions)
            ),
            key=lambda rule: rule.chance,
            default=None,
        )
        if best is None or best.chance > chance:
            break
        rules.append(best)
        failed = failed[~best.holds(names, failed)]
    return rules


def _chance(passed: int, failed: int, explained: int) -> float:
    """C(f, s) / C(f + p, s)."""
    return math.prod((failed - i) / (failed + passed - i) for i in range(explained))


def _conditions(names: Sequence[str], failed: Matrix) -> list[Condition]:
    """Every condition with a value that some failure has; of many values, some evenly spread."""
    found = []
    for name, column in zip(names, failed.T, strict=True):
        values = np.unique(column)
        if len(values) > MOST_VALUES:
            values = values[np.linspace(0, len(values) - 1, MOST_VALUES).astype(np.int64)]
        found += [Condition(name, *it) for it in itertools.product(_RELATIONS, values.tolist())]
    return found


def _widest(
    names: Sequence[str], passed: Matrix, failed: Matrix, conditions: Sequence[Condition]
) -> Iterator[tuple[tuple[Condition, ...], int, int]]:
    """The condition, and the pair, for most failures of those that hold for no passed row.

    Yields:
        Conditions, failures that they hold for, and how many such rules there are to try.
    """
    variables = np.array([names.index(it.variable) for it in conditions], dtype=np.int64)
    good = _held(passed, variables, conditions)
    bad = _held(failed, variables, conditions)
    explained = np.where(good.any(axis=1), 0, bad.sum(axis=1))
    first = int(explained.argmax())
    if explained[first]:
        yield (conditions[first],), int(explained[first]), len(conditions)
    # Rows that both of a pair hold for, for all pairs at once; sums below 2**24 are exact.
    both = bad @ bad.T
    both[(good @ good.T > 0) | (variables[:, None] >= variables)] = 0
    left, right = divmod(int(both.argmax()), len(conditions))
    if both[left, right]:
        pairs = int((variables[:, None] < variables).sum())
        yield (conditions[left], conditions[right]), int(both[left, right]), pairs


def _held(
    matrix: Matrix, variables: NDArray[np.int64], conditions: Sequence[Condition]
) -> NDArray[np.float32]:
    """Return whether each condition holds for each row, as 0 and 1 [conditions, n]."""
    held = np.empty((len(conditions), len(matrix)), dtype=np.float32)
    for row, (variable, condition) in enumerate(zip(variables, conditions, strict=True)):
        held[row] = condition.holds(matrix[:, variable])
    return held


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
