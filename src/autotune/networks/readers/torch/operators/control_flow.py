"""Operators of torch that run graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import Value, input_value, loop, reshape, select
from autotune.networks.readers.torch.call import Item

__all__ = ["HIGHER_ORDER"]

_MOST_TRIPS = 1 << 12

Run = Callable[[Any, Sequence[Item]], Item]
"""From a graph and what it is given to what it returns."""


def _inside(skipped: int) -> Callable[[Run, Sequence[Item], Mapping[str, Item]], Item]:
    """A graph that is run as it is, behind so many arguments and the graph itself."""

    def rule(run: Run, args: Sequence[Item], _named: Mapping[str, Item]) -> Item:
        return run(args[skipped], args[skipped + 1 :])

    return rule


def _cond(run: Run, args: Sequence[Item], _named: Mapping[str, Item]) -> Item:
    """Both cases, of which one is chosen."""
    condition, yes, no, operands = args
    if isinstance(condition, Value) and condition.constant is not None:
        condition = bool(condition.constant.reshape(-1)[0])
    if not isinstance(condition, Value):
        return run(yes if condition else no, operands)
    sides = [run(it, operands) for it in (yes, no)]
    truth = reshape(condition, ())
    return [_chosen(truth, one, other) for one, other in zip(*sides, strict=True)]


def _chosen(truth: Value, one: Item, other: Item) -> Item:
    if one is None and other is None:
        return None
    return select(truth, one, other)


def _scan(run: Run, args: Sequence[Item], _named: Mapping[str, Item]) -> Item:
    """A step along the first axis of some tensors."""
    body, states, slices, *more = args
    fixed = more[-1] if more else []
    read = [it for it in fixed if it.constant is None]

    def step(
        old: Sequence[Value], each: Sequence[Value], given: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        waiting = iter(given)
        known = [next(waiting) if it.constant is None else it for it in fixed]
        found = list(run(body, [*old, *each, *known]))
        return found[: len(old)], found[len(old) :]

    last, kept = loop(step, slices[0].shape[0], states, slices, read)
    return [*last, *kept]


def _while(run: Run, args: Sequence[Item], _named: Mapping[str, Item]) -> Item:
    """A loop of as many steps as its condition says of constants, such as a counter."""
    condition, body, states, *more = args
    fixed = more[-1] if more else []
    trips = _trips(run, condition, body, states, fixed)
    read = [it for it in fixed if it.constant is None]

    def step(
        old: Sequence[Value], _slices: Sequence[Value], given: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        waiting = iter(given)
        known = [next(waiting) if it.constant is None else it for it in fixed]
        return list(run(body, [*old, *known])), []

    return list(loop(step, trips, states, fixed=read)[0]) if trips else list(states)


def _trips(
    run: Run, condition: Item, body: Item, states: Sequence[Value], fixed: Sequence[Value]
) -> int:
    """Number of a loop's trips, found from those of its states that are constant."""
    for trips in range(_MOST_TRIPS + 1):
        (goes_on,) = _listed(run(condition, [*states, *fixed]))
        if isinstance(goes_on, Value):
            if goes_on.constant is None:
                raise UnsupportedWorkload(
                    "how often it runs is known when it runs only; use a loop of a fixed number "
                    "of steps"
                )
            goes_on = bool(goes_on.constant.reshape(-1)[0])
        if not goes_on:
            return trips
        after = _listed(run(body, [*states, *fixed]))
        states = [
            it if it.constant is not None else input_value("state", it.shape, it.dtype)
            for it in after
        ]
    raise UnsupportedWorkload(f"it runs more than {_MOST_TRIPS} times")


def _listed(found: Item) -> list[Item]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


HIGHER_ORDER: Mapping[str, Callable[[Run, Sequence[Item], Mapping[str, Item]], Item]] = {
    "wrap_with_set_grad_enabled": _inside(1),
    "wrap_with_autocast": _inside(4),
    "cond": _cond,
    "scan": _scan,
    "while_loop": _while,
}
