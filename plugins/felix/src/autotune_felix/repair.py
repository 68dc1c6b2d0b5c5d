"""Repair of infeasible configurations by moves to near feasible ones."""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.sketches import Factor, Sketch
from autotune_felix.penalties import Penalties
from autotune_felix.relaxation import Relaxation
from autotune_felix.simplex import Reals, Whole

__all__ = ["Repairer"]

# Rows that are looked at together: bounds the memory for all moves of all of them.
_CHUNK = 512


@frozen
class _Move:
    """A prime that goes from one factor of an axis to another, or a knob to its next value."""

    source: int
    target: int
    prime: int


class Repairer:
    """Moves one prime, or one knob by one value, at a time until the excess is gone.

    Of all moves the one that leaves the least excess is made; of equal ones the one nearest to the
    configuration it began with. The excess falls with every move, so that it ends. A configuration
    that no single move improves is replaced by the nearest of others, which are feasible.

    Args:
        relaxation: Of the sketch.
        penalties: Of the sketch.
    """

    def __init__(self, relaxation: Relaxation, penalties: Penalties) -> None:
        self._relaxation = relaxation
        self._penalties = penalties
        self._domains = _domains(relaxation.sketch)

    def repaired(self, rows: Whole, feasible: Whole) -> Whole:
        """Configurations that satisfy all constraints, [n, params].

        Args:
            rows: Configurations with right products, [n, params].
            feasible: Configurations that satisfy all constraints, [m, params].
        """
        parts = [rows[:0]]
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            found, excess = self._descended(chunk)
            stuck = np.flatnonzero(excess > 0)
            if len(feasible) and len(stuck):
                found[stuck] = feasible[_nearest(chunk[stuck], feasible)]
                excess[stuck] = 0.0
            parts.append(found[excess == 0])
        return np.concatenate(parts)

    def neighbours(self, rows: Whole) -> Whole:
        """Configurations one move from these with no excess, [m, params]; with repetition."""
        moved = self._moved(rows, self._moves(rows))[1]
        return np.asarray(moved[self.excess(moved) == 0])

    def excess(self, rows: Whole) -> Reals:
        """Distance of configurations from constraints and domains, [n]; 0 for feasible ones."""
        total = self._penalties.of_rows(rows)
        for column, values in self._domains.items():
            away = np.abs(np.log2(rows[:, column] + 1)[:, None] - np.log2(values + 1))
            total = total + away.min(axis=1)
        return total

    def _descended(self, rows: Whole) -> tuple[Whole, Reals]:
        current, excess = rows.copy(), self.excess(rows)
        open_rows = np.flatnonzero(excess > 0)
        moves = self._moves(rows)
        while len(open_rows):
            owners, moved = self._moved(current[open_rows], moves)
            if not len(owners):
                break
            left = self.excess(moved)
            apart = _distances(moved, rows[open_rows[owners]])
            best = np.lexsort((apart, np.round(left, 9), owners))
            first = best[np.unique(owners[best], return_index=True)[1]]
            places = open_rows[owners[first]]
            better = left[first] < excess[places] - 1e-9
            current[places[better]] = moved[first[better]]
            excess[places[better]] = left[first[better]]
            open_rows = places[better & (left[first] > 0)]
        return current, excess

    def _moves(self, rows: Whole) -> list[_Move]:
        frame = self._relaxation.frame(rows)
        moves = []
        for index, axis in enumerate(self._relaxation.axes):
            primes = sorted(set(frame.primes[:, index].ravel().tolist()) - {1})
            for prime in primes:
                for source in axis.columns:
                    moves += [_Move(source, to, prime) for to in axis.columns if to != source]
        return moves

    def _moved(self, rows: Whole, moves: list[_Move]) -> tuple[NDArray[np.int64], Whole]:
        """Rows that single moves make of rows: their positions, and the configurations."""
        owners, parts = [np.zeros(0, dtype=np.int64)], [rows[:0]]
        for move in moves:
            able = np.flatnonzero(rows[:, move.source] % move.prime == 0)
            moved = rows[able]
            moved[:, move.source] //= move.prime
            moved[:, move.target] *= move.prime
            owners.append(able)
            parts.append(moved)
        for knob in self._relaxation.knobs:
            place = np.searchsorted(knob.values, rows[:, knob.column])
            for to in (place - 1, place + 1):
                able = np.flatnonzero((to >= 0) & (to < len(knob.values)))
                moved = rows[able]
                moved[:, knob.column] = knob.values[to[able]]
                owners.append(able)
                parts.append(moved)
        return np.concatenate(owners), np.concatenate(parts)


def _domains(sketch: Sketch) -> dict[int, Whole]:
    """Values of the factors that list them, by column: moves leave other lists alone."""
    return {
        column: np.array(sorted({value for value in param.values if value >= 1}), dtype=np.int64)
        for column, param in enumerate(sketch.params)
        if isinstance(param, Factor) and param.values
    }


def _distances(left: Whole, right: Whole) -> Reals:
    """Distances of configurations in octaves, [n]."""
    logarithms = (np.log2(np.abs(rows) + 1) for rows in (left, right))
    return np.asarray(np.abs(np.subtract(*logarithms)).sum(axis=-1))


def _nearest(rows: Whole, feasible: Whole) -> NDArray[np.int64]:
    return np.asarray(_distances(rows[:, None], feasible[None]).argmin(axis=1), dtype=np.int64)
