"""Caches of values derived from a sketch."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar

from autotune.sketches.sketch import Sketch

__all__ = ["per_sketch"]

Given = ParamSpec("Given")
Made = TypeVar("Made")

MOST_KEPT = 256


def per_sketch(
    make: Callable[Concatenate[Sketch, Given], Made],
    *,
    exact: bool = False,
    most: int = MOST_KEPT,
) -> Callable[Concatenate[Sketch, Given], Made]:
    """Remember what a function makes of sketches: a decorator, also for bound methods.

    Threads may share it. What was asked for longest ago is forgotten first.

    Args:
        make: Makes it of a sketch and of other arguments, which must be hashable.
        exact: Whether sketches must be equal in all that is in them to share it, also in names,
            domains and constraints. Otherwise those share it that mean the same programs and spell
            them alike: what is made of a sketch names its stages.
        most: How many results are kept.
    """
    kind = _Exactly if exact else _Program

    def made(key: _Program, *args: Given.args, **kwargs: Given.kwargs) -> Made:
        return make(key.sketch, *args, **kwargs)

    kept: Callable[..., Made] = lru_cache(maxsize=most)(made)

    @wraps(make)
    def found(sketch: Sketch, /, *args: Given.args, **kwargs: Given.kwargs) -> Made:
        return kept(kind(sketch), *args, **kwargs)

    return found


class _Program:
    """A sketch as a key that equals those that are spelled alike."""

    __slots__ = ("sketch",)

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch

    def __hash__(self) -> int:
        return hash(self.sketch.spelling)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Program) and self.sketch.spelling == other.sketch.spelling


class _Exactly(_Program):
    """A sketch as a key that equals those of equal sketches."""

    __slots__ = ()
    __hash__ = _Program.__hash__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Exactly):
            return False
        # By identity first: comparing sketches takes as long as reading a tape.
        return self.sketch is other.sketch or self.sketch == other.sketch
