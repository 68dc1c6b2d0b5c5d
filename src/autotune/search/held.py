"""Calls of strategies and schedulers, which may be a plugin's and do anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from autotune.errors import AutotuneError, PluginError
from autotune.process.child import describe
from autotune.process.interrupts import is_of_user
from autotune.search.schedulers import TaskScheduler
from autotune.search.strategies import Strategy
from autotune.sketches import Candidate

__all__ = ["asked_of", "calling", "state_of"]

_SHOWN_CHARACTERS = 80


@contextmanager
def calling(part: Strategy | TaskScheduler, method: str) -> Iterator[None]:
    """Around a call of a part: what it raises is an error that names part and call.

    Also what would end the process, such as ``SystemExit``. An interrupt by the user passes.

    Raises:
        PluginError: the call raised anything that autotune does not raise on purpose.
    """
    try:
        yield
    except AutotuneError:
        raise
    except (Exception, SystemExit, GeneratorExit, KeyboardInterrupt) as error:
        if is_of_user(error):
            raise
        raise PluginError(f"{_noun(part)} failed in {method}(): {describe(error)}") from error


def asked_of(strategy: Strategy, n: int) -> list[Candidate]:
    """What a strategy proposes; none when it is exhausted.

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
    """Names a part by its kind, its name and where it is from."""
    kind = "strategy" if isinstance(part, Strategy) else "scheduler"
    name = getattr(part, "name", type(part).__name__)
    return f"{kind} {name!r} ({type(part).__module__})"
