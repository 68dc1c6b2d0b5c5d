"""A recorded search space: every configuration that was measured, and how it ended."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.candidates import Matrix
from autotune.spaces import SearchSpace
from autotune.spaces.parameters import Parameter, ParameterSpace, Value, recorded_space
from autotune.store.records import Outcome
from autotune.store.statuses import OUTCOME_STATUSES
from autotune.targets import Target

__all__ = [
    "Evaluation",
    "ListedSpace",
    "OutcomeTable",
    "RecordedSpace",
    "check_units",
    "make_space",
    "shown",
    "table_of",
]

OK = "ok"
# Best times of one kernel on two devices that differ more are in different units.
_MOST_BETWEEN_DEVICES = 200.0


@frozen
class Evaluation:
    """A configuration as it was measured.

    Attributes:
        configuration: Value of each parameter by name.
        status: How it ended, one of ``OUTCOME_STATUSES``.
        seconds: What it takes, in seconds; None unless ``ok``.
        samples: The timed samples, in seconds.
        compiling: Seconds that compiling took.
        running: Seconds that running it took, its validation included.
        framework: Seconds that the tuner itself took.
    """

    configuration: Mapping[str, Value] = field(hash=False)
    status: str
    seconds: float | None = None
    samples: tuple[float, ...] = ()
    compiling: float = 0.0
    running: float = 0.0
    framework: float = 0.0


@frozen(eq=False)
class RecordedSpace:
    """Configurations of one kernel on one device, with the outcome of each.

    Attributes:
        name: What it is called, such as ``convolution-A4000``.
        kernel: Name of the kernel.
        device: Name of the device.
        parameters: The parameters, in order.
        evaluations: What was measured, each configuration once.
        positions: Position of each value among those of its parameter, [n, parameters].
        problem: What was computed, as far as the file says; "" where it does not.
        notes: What a person should know of the data.
    """

    name: str
    kernel: str
    device: str
    parameters: tuple[Parameter, ...]
    evaluations: tuple[Evaluation, ...]
    positions: NDArray[np.int64]
    problem: str = ""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.evaluations)

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """Latency of each configuration, in seconds; infinite for those that failed; [n]."""
        found = [math.inf if it.seconds is None else it.seconds for it in self.evaluations]
        return np.array(found, dtype=np.float64)

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """Cost of evaluating each one: compiling, running and framework, in seconds; [n]."""
        found = [it.compiling + it.running + it.framework for it in self.evaluations]
        return np.array(found, dtype=np.float64)

    @cached_property
    def valid(self) -> NDArray[np.float64]:
        """The seconds of those that are ok, sorted."""
        return np.sort(self.seconds[np.isfinite(self.seconds)])

    @property
    def best(self) -> float:
        """The optimum, in seconds."""
        return float(self.valid[0])

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over parameters, configurations, outcomes and costs."""
        found = hashlib.sha256()
        for parameter in self.parameters:
            found.update(repr((parameter.name, parameter.values)).encode())
        for array in (self.positions, self.seconds, self.costs):
            found.update(np.ascontiguousarray(array).tobytes())
        found.update(",".join(it.status for it in self.evaluations).encode())
        return found.hexdigest()[:16]

    def scaled(self, factor: float) -> RecordedSpace:
        """The same with all times of the kernel (not of compiling) times ``factor``."""
        scaled = tuple(
            evolve(
                it,
                seconds=None if it.seconds is None else it.seconds * factor,
                samples=tuple(sample * factor for sample in it.samples),
            )
            for it in self.evaluations
        )
        return evolve(self, evaluations=scaled)

    def reordered(self, order: Sequence[int]) -> RecordedSpace:
        """The same with its configurations in another order: that of these positions."""
        found = tuple(self.evaluations[place] for place in order)
        return evolve(self, evaluations=found, positions=self.positions[list(order)])


def make_space(
    name: str,
    parameters: Sequence[Parameter],
    evaluations: Sequence[Evaluation],
    kernel: str = "",
    device: str = "",
    problem: str = "",
    notes: Sequence[str] = (),
) -> RecordedSpace:
    """A recorded space, checked.

    Raises:
        InvalidValueError: there is no valid configuration; one lacks a parameter, is there twice,
            or has times that are no times.
        UnknownNameError: a configuration has a parameter, or an evaluation a status, that there is
            none of.
    """
    places = [
        {_typed(value): place for place, value in enumerate(parameter.values)}
        for parameter in parameters
    ]
    rows: dict[tuple[int, ...], Evaluation] = {}
    for evaluation in evaluations:
        row = _row(name, parameters, places, evaluation)
        _check(name, evaluation)
        other = rows.setdefault(row, evaluation)
        if other is not evaluation:
            raise InvalidValueError(
                f"{name}: configuration {shown(evaluation.configuration)} is there twice, as "
                f"{_ending(other)} and as {_ending(evaluation)}"
            )
    if not rows:
        raise InvalidValueError(f"{name} has no configuration")
    if not any(it.status == OK for it in rows.values()):
        raise InvalidValueError(f"{name} has no valid configuration among {len(rows)}")
    return RecordedSpace(
        name,
        kernel or name,
        device,
        tuple(parameters),
        tuple(rows.values()),
        np.array(list(rows), dtype=np.int64).reshape(len(rows), len(parameters)),
        problem,
        tuple(notes),
    )


def check_units(spaces: Sequence[RecordedSpace]) -> None:
    """Raise where times of one kernel evidently are in different units.

    Raises:
        InvalidValueError: the best times of a kernel differ by more than 200 between two devices.
    """
    for one, other in itertools.combinations(spaces, 2):
        low, high = sorted((one, other), key=lambda it: it.best)
        if _same_kernel(one, other) and high.best > _MOST_BETWEEN_DEVICES * low.best:
            raise InvalidValueError(
                f"the best time of {low.kernel} is {low.best:.3g} s in {low.name} and "
                f"{high.best:.3g} s in {high.name}, {high.best / low.best:.0f} times as much: one "
                "of the files is in another unit, which --unit NAME=UNIT names"
            )


def _same_kernel(one: RecordedSpace, other: RecordedSpace) -> bool:
    """Return whether two spaces are of one kernel; where it has no name, by their parameters."""
    if one.problem and other.problem and one.problem != other.problem:
        return False
    if one.kernel != one.name and other.kernel != other.name:
        return one.kernel == other.kernel
    return {it.name for it in one.parameters} == {it.name for it in other.parameters}


def shown(configuration: Mapping[str, Value]) -> str:
    """A configuration in a message."""
    text = ", ".join(f"{name}={value}" for name, value in configuration.items())
    return text if len(text) <= 120 else text[:117] + "..."


def _typed(value: Value) -> tuple[bool, Value]:
    """True is not 1."""
    return isinstance(value, bool), value


def _row(
    name: str,
    parameters: Sequence[Parameter],
    places: Sequence[Mapping[tuple[bool, Value], int]],
    evaluation: Evaluation,
) -> tuple[int, ...]:
    configuration = evaluation.configuration
    row = []
    for parameter, known in zip(parameters, places, strict=True):
        if parameter.name not in configuration:
            raise InvalidValueError(
                f"{name}: configuration {shown(configuration)} lacks parameter {parameter.name!r}"
            )
        value = configuration[parameter.name]
        place = known.get(_typed(value))
        if place is None:
            raise InvalidValueError(
                f"{name}: {value!r} is no value of parameter {parameter.name!r}, which has "
                f"{shown_values(parameter)}"
            )
        row.append(place)
    if len(configuration) > len(row):
        names = [parameter.name for parameter in parameters]
        raise UnknownNameError(f"parameter of {name}", min(set(configuration) - set(names)), names)
    return tuple(row)


def shown_values(parameter: Parameter) -> str:
    """The values of a parameter in a message."""
    text = ", ".join(map(repr, parameter.values))
    return text if len(text) <= 80 else text[:77] + "..."


def _check(name: str, evaluation: Evaluation) -> None:
    if evaluation.status not in OUTCOME_STATUSES:
        raise UnknownNameError("status", evaluation.status, OUTCOME_STATUSES)
    where = f"{name}: configuration {shown(evaluation.configuration)}"
    if (evaluation.status == OK) != (evaluation.seconds is not None):
        raise InvalidValueError(f"{where} is {evaluation.status} and takes {evaluation.seconds} s")
    times = (
        evaluation.samples
        if evaluation.seconds is None
        else (
            evaluation.seconds,
            *evaluation.samples,
        )
    )
    for time in times:
        if not (math.isfinite(time) and time > 0):
            raise InvalidValueError(f"{where} takes {time} s, which is no time")
    for what in ("compiling", "running", "framework"):
        time = getattr(evaluation, what)
        if not (math.isfinite(time) and time >= 0):
            raise InvalidValueError(f"{where}: {what} took {time} s, which is no time")


def _ending(evaluation: Evaluation) -> str:
    if evaluation.seconds is None:
        return evaluation.status
    return f"{evaluation.seconds:.6g} s"


Place = tuple[str, tuple[int, ...]]


@frozen(eq=False)
class OutcomeTable:
    """A search space whose candidates have all been measured.

    Attributes:
        name: What it is called.
        kernel: Of what kernel or workload; spaces of one kernel are alike.
        digest: Of everything in it that decides a replay.
        space: The candidates that there are, no others.
        outcomes: How each of them ended.
        costs: What evaluating each of them takes on the virtual clock, in seconds; [n].
        places: Number of each candidate, by digest of its sketch and values.
        recorded: The recorded space that it was made of, or None: other tuners can be replayed
            against that only.
        target: The machine that was measured, where it is known.
        has_nest: Whether candidates have symbolic loop nests.
        notes: What a person should know of the data.
    """

    name: str
    kernel: str
    digest: str
    space: SearchSpace
    outcomes: tuple[Outcome, ...]
    costs: NDArray[np.float64]
    places: Mapping[Place, int] = field(repr=False)
    recorded: RecordedSpace | None = None
    target: Target | None = None
    has_nest: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.outcomes)

    def place(self, candidate: Candidate) -> int:
        """Number of a candidate.

        Raises:
            InvalidValueError: it was not measured.
        """
        found = self.places.get((candidate.sketch.digest, candidate.values))
        if found is None:
            raise InvalidValueError(
                f"{dict(candidate.config)} is no configuration of {self.name}, which was recorded"
            )
        return found

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """Latency of each candidate, in seconds; infinite for those that failed; [n]."""
        found = [np.inf if it.latency is None else it.latency for it in self.outcomes]
        return np.array(found, dtype=np.float64)


def table_of(recorded: RecordedSpace) -> OutcomeTable:
    """The table of a recorded space; its search space has exactly the recorded configurations."""
    columns = np.empty_like(recorded.positions)
    for number, parameter in enumerate(recorded.parameters):
        codes = np.array([parameter.encode(value) for value in parameter.values], dtype=np.int64)
        columns[:, number] = codes[recorded.positions[:, number]]
    space = ListedSpace(recorded_space(recorded.kernel, recorded.parameters, columns))
    digest = space.sketch.digest
    outcomes = []
    for it in recorded.evaluations:
        timings = {"build": it.compiling, "run": it.running}
        message = "" if it.seconds is not None else "recorded"
        outcomes.append(Outcome(it.status, it.seconds, it.samples, timings, message))
    rows = map(tuple, columns.tolist())
    return OutcomeTable(
        recorded.name,
        recorded.kernel,
        recorded.digest,
        space,
        tuple(outcomes),
        recorded.costs,
        {(digest, row): number for number, row in enumerate(rows)},
        recorded,
        notes=recorded.notes,
    )


NEAREST = 10
_FIXED_POINT = 65536.0
_BELOW_ONE = 0.5


class ListedSpace(ParameterSpace):
    """A space of listed configurations that remembers what is near each of them.

    The moves are those of the feasible set, in which all parameters are one group: one of the ten
    nearest configurations, by the sum of differences of logarithms, drawn uniformly. To find them
    takes a look at the whole list, which one run after the other would repeat.
    """

    def __init__(self, space: ParameterSpace) -> None:
        feasible = space.feasible_set(space.sketch)
        super().__init__(space.sketch.workload, space.parameters, (), feasible)
        self._rows = feasible.listed(0, feasible.count)
        self._places = {row: place for place, row in enumerate(map(tuple, self._rows.tolist()))}
        logarithms = np.log2(np.maximum(self._rows, _BELOW_ONE))
        self._at = np.rint(logarithms * _FIXED_POINT).astype(np.int64)
        count = min(NEAREST, len(self._rows) - 1)
        self._near = np.full((len(self._rows), count), -1, dtype=np.int64)

    def neighbours(self, batch: CandidateBatch, rng: np.random.Generator) -> CandidateBatch:
        source = np.random.default_rng(int(rng.integers(2**64, dtype=np.uint64)))
        return CandidateBatch(
            tuple((sketch, self._moved(matrix, source)) for sketch, matrix in batch.parts)
        )

    def _moved(self, matrix: Matrix, rng: np.random.Generator) -> Matrix:
        moved: Matrix = matrix.copy()
        places = np.array([self._places.get(row, -1) for row in map(tuple, matrix.tolist())])
        inside = places >= 0
        count = self._near.shape[1]
        if not count or not inside.any():
            return moved
        for place in np.unique(places[inside]):
            if self._near[place, 0] < 0:
                self._near[place] = self._nearest(int(place))
        chosen = rng.integers(count, size=int(inside.sum()))
        moved[inside] = self._rows[self._near[places[inside], chosen]]
        return moved

    def _nearest(self, place: int) -> NDArray[np.int64]:
        """Numbers of the nearest rows other than this one; of equally near ones the first."""
        total, count = self._near.shape[0], self._near.shape[1]
        distances = np.abs(self._at - self._at[place]).sum(axis=1)
        # Numbers break ties, and are found again in the sum.
        keys = distances * total + np.arange(total)
        keys[place] = np.iinfo(np.int64).max
        nearest: NDArray[np.int64] = np.sort(np.partition(keys, count - 1)[:count]) % total
        return nearest
