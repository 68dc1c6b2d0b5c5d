"""When the values of a plan are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autotune.networks.plan.plan import Repeat, Step, leaves, places_of

__all__ = ["lifetimes"]

Lives = dict[int, tuple[int, int]]


def lifetimes(steps: Sequence[Step]) -> Lives:
    """First and last step that each value is needed in; steps are counted without trips of loops.

    What is used inside of a loop and outside of it is needed in all of the loop.

    Args:
        steps: The steps, with places of kind ``value``.
    """
    uses: Counter[int] = Counter()
    for step in leaves(steps):
        uses.update(_values_of(step))
    found, _, _ = _walked(steps, uses, 0)
    return found


def _walked(
    steps: Sequence[Step], uses: Counter[int], begin: int
) -> tuple[Lives, Counter[int], int]:
    """Lives in steps that begin at a number, how often each value is used there, and the next
    number."""
    lives: Lives = {}
    counts: Counter[int] = Counter()
    at = begin
    for step in steps:
        if isinstance(step, Repeat):
            inner, used, end = _walked(step.steps, uses, at)
            whole = at, end - 1
            inner = {it: inner[it] if used[it] == uses[it] else whole for it in inner}
        else:
            used, end = Counter(_values_of(step)), at + 1
            inner = dict.fromkeys(used, (at, at))
        for value, (first, last) in inner.items():
            old = lives.get(value, (first, last))
            lives[value] = min(old[0], first), max(old[1], last)
        counts += used
        at = end
    return lives, counts, at


def _values_of(step: Step) -> list[int]:
    assert not isinstance(step, Repeat)
    return [place.number for place in places_of(step) if place.kind == "value"]
