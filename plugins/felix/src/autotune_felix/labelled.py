"""Programs with known latencies, as the residual network learns from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError

__all__ = ["Labelled", "Scale"]

Values = NDArray[np.float32]

_ARRAYS = ("statements", "counts", "programs", "labels", "tasks")


@frozen(eq=False)
class Labelled:
    """Programs of several tasks.

    Attributes:
        statements: float32 ``[rows, columns]``: those of the first program, then of the second.
        counts: int64 ``[n]``: statements of each program.
        programs: float32 ``[n, columns]``.
        labels: float32 ``[n]``: logarithm of the latency over the estimate.
        tasks: int64 ``[n]``: labels of equal numbers compare.
    """

    statements: Values
    counts: NDArray[np.int64]
    programs: Values
    labels: Values
    tasks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.counts)

    @staticmethod
    def of(
        statements: NDArray[Any], programs: NDArray[Any], labels: NDArray[Any], task: int
    ) -> Labelled:
        """Programs of one task with equally many statements, ``[n, statements, columns]``."""
        count, each, columns = statements.shape
        return Labelled(
            statements.astype(np.float32).reshape(count * each, columns),
            np.full(count, each, dtype=np.int64),
            programs.astype(np.float32),
            labels.astype(np.float32),
            np.full(count, task, dtype=np.int64),
        )

    @staticmethod
    def none(statement: int, program: int) -> Labelled:
        """Nothing, with so many columns of statements and of programs."""
        return Labelled.of(np.zeros((0, 1, statement)), np.zeros((0, program)), np.zeros(0), 0)

    @staticmethod
    def joined(parts: Sequence[Labelled]) -> Labelled:
        """All of them in order; at least one."""
        return Labelled(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS)
        )

    def take(self, indices: NDArray[np.int64]) -> Labelled:
        """Select the given places, in that order."""
        starts = np.cumsum(self.counts) - self.counts
        rows = [np.arange(starts[i], starts[i] + self.counts[i]) for i in indices.tolist()]
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        return Labelled(
            self.statements[flat],
            self.counts[indices],
            self.programs[indices],
            self.labels[indices],
            self.tasks[indices],
        )

    def of_other_tasks(self) -> Labelled:
        """The same with numbers of tasks that no own task has: they are negative."""
        return evolve(self, tasks=-1 - np.abs(self.tasks))

    def teaches(self) -> bool:
        """Return whether some task has two programs: one alone gives no ranking."""
        return bool(len(self)) and int(np.unique(self.tasks, return_counts=True)[1].max()) > 1

    def by_count(self) -> Iterator[tuple[NDArray[np.int64], Values]]:
        """Places of programs with equally many statements, and those: ``[m, count, columns]``."""
        starts = np.cumsum(self.counts) - self.counts
        for count in np.unique(self.counts).tolist():
            places = np.flatnonzero(self.counts == count)
            yield places, self.statements[starts[places][:, None] + np.arange(count)]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """By name, for a file."""
        return {name: getattr(self, name) for name in _ARRAYS}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Labelled:
        """Read what :meth:`to_arrays` gave.

        Raises:
            InvalidValueError: something is missing or does not fit together.
        """
        try:
            found = Labelled(*(arrays[name] for name in _ARRAYS))
        except KeyError as error:
            raise InvalidValueError(f"the model's programs lack {error}") from error
        lengths = {len(found.counts), len(found.programs), len(found.labels), len(found.tasks)}
        if len(lengths) != 1 or found.counts.sum() != len(found.statements):
            raise InvalidValueError("the model's programs do not fit together")
        return found


@frozen(eq=False)
class Scale:
    """Centre and scale of columns.

    Attributes:
        mean: float32 ``[columns]``.
        spread: float32 ``[columns]``, positive.
    """

    mean: Values
    spread: Values

    @staticmethod
    def of(values: Values) -> Scale:
        """Return the scale that gives each column of ``[n, columns]`` mean 0 and spread 1.

        A column that hardly varies is scaled as if it varied by one: it must not count more
        where it does vary.
        """
        if not len(values):
            columns = values.shape[1]
            return Scale(np.zeros(columns, np.float32), np.ones(columns, np.float32))
        mean = values.mean(axis=0, dtype=np.float64)
        spread = values.std(axis=0, dtype=np.float64)
        spread = np.where(spread < 0.1, 1.0, spread)
        return Scale(mean.astype(np.float32), spread.astype(np.float32))
