"""Calls of strategies and schedulers, which may be a plugin's and do anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autotune.errors import PluginError
from autotune.plugins.calling import Calling, part_noun
from autotune.search.schedulers import TaskScheduler
from autotune.search.strategies import Strategy
from autotune.sketches import Candidate

__all__ = ["asked_of", "calling", "state_of"]

_SHOWN_CHARACTERS = 80


def calling(part: Strategy | TaskScheduler, method: str) -> Calling:
    """Around a call of a part; see :class:`~autotune.plugins.calling.Calling`."""
    return Calling(_noun(part), f"in {method}()")


def asked_of(strategy: Strategy, n: int) -> list[Candidate]:
    """Ask a strategy for candidates; none when it is exhausted.

    Raises:
        PluginError: it fails, or returns something other than candidates.
    """
    with calling(strategy, "ask"):
        asked: object = strategy.ask(n)
        if asked is None:
            return []
        if isinstance(asked, list | tuple) and all(isinstance(it, Candidate) for it in asked):
            return list(asked)
        shown = repr(asked)[:_SHOWN_CHARACTERS]
    raise PluginError(f"{_noun(strategy)} returned {shown} from ask(), not a list of candidates")


def state_of(part: Strategy | TaskScheduler) -> dict[str, Any]:
    """The state of a part.

    Raises:
        PluginError: it fails, or its state is no JSON object: NaN and infinity are none, either.
    """
    with calling(part, "state"):
        state: object = part.state()
    try:
        json.dumps(state, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise PluginError(f"{_noun(part)} has a state() that is no JSON: {error}") from error
    if not isinstance(state, Mapping):
        kind = type(state).__name__
        raise PluginError(f"{_noun(part)} has a state() that is a {kind}, not a JSON object")
    return dict(state)


def _noun(part: Strategy | TaskScheduler) -> str:
    return part_noun("strategy" if isinstance(part, Strategy) else "scheduler", part)
