"""New candidates by sampling, in equal shares per sketch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from autotune.errors import InvalidValueError
from autotune.search.strategies.history import History
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.candidates import Positions
from autotune.spaces.search_space import SearchSpace

ATTEMPTS = 4
"""Samples drawn, each twice as large as the one before, until the rest is enumerated."""

ENUMERATION_LIMIT = 65_536
"""Spaces up to this size are held in memory once sampling finds too little that is new."""


def whole_space(space: SearchSpace, limit: int = ENUMERATION_LIMIT) -> CandidateBatch | None:
    """Every row of a space, one part for each sketch; None for a space beyond the limit."""
    if space.count() > limit:
        return None
    sketches = space.sketches()
    try:
        sets = [space.feasible_set(sketch) for sketch in sketches]
    except InvalidValueError:
        return CandidateBatch.of(list(space.enumerate())).over(sketches)
    return CandidateBatch.of_rows(sketches, [it.listed(0, it.count) for it in sets])


def spread(counts: Sequence[int], queues: Sequence[Positions], n: int) -> list[int]:
    """Take up to ``n`` positions from the fronts of one queue per sketch.

    Each goes to the sketch with the smallest count so far (the first of them where several
    are equal) that has any left; ``counts`` is how many each had before.
    """
    taken = [0] * len(queues)
    chosen: list[int] = []
    while len(chosen) < n:
        open_sketches = [s for s, queue in enumerate(queues) if taken[s] < len(queue)]
        if not open_sketches:
            break
        sketch = min(open_sketches, key=lambda s: counts[s] + taken[s])
        chosen.append(int(queues[sketch][taken[sketch]]))
        taken[sketch] += 1
    return chosen


class FreshSampler:
    """Draws candidates that ``history`` does not know and notes them there."""

    def __init__(self, space: SearchSpace, rng: np.random.Generator, history: History) -> None:
        self._space = space
        self._rng = rng
        self._history = history

    def sample(self, n: int) -> CandidateBatch:
        """A sample of ``n`` rows without repetition and without known ones, so often fewer."""
        return self._history.unseen(self._space.sample(n, self._rng))

    def draw(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates; fewer only when the space has no more."""
        chosen: list[Candidate] = []
        for attempt in range(ATTEMPTS):
            missing = n - len(chosen)
            if missing <= 0:
                return chosen
            size = 2 * max(missing, len(self._history.sketches)) << attempt
            chosen += self._take(self.sample(size), missing)
        return chosen + self._take_rest(n - len(chosen))

    def _take(self, batch: CandidateBatch, n: int) -> list[Candidate]:
        # Shuffled, because a sample may have its uniform half first.
        queues = [
            self._rng.permutation(batch.positions_of(index)) for index in range(len(batch.parts))
        ]
        chosen = batch.take(spread(self._history.counts, queues, n))
        self._history.add(chosen)
        return chosen

    def _take_rest(self, n: int) -> list[Candidate]:
        if self._everything is not None:
            return self._take(self._history.unseen(self._everything), n)
        known = self._history
        unseen = (item for item in self._space.enumerate() if not known.knows(item))
        chosen = list(itertools.islice(unseen, n))
        self._history.add(chosen)
        return chosen

    @cached_property
    def _everything(self) -> CandidateBatch | None:
        return whole_space(self._space)
