"""What is derived from a sketch and the bounds of its parameters, once for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from autotune.nest.relaxed.bounds import ParamBounds, param_bounds
from autotune.nest.relaxed.intervals import Interval
from autotune.sketches import Sketch

__all__ = ["BySketch"]

_MOST_KNOWN = 1024

Found = TypeVar("Found")


class BySketch(Generic[Found]):
    """Makes something of a sketch when it is first asked for, and keeps it.

    Sketches that mean the same programs share it if their parameters have the same bounds.

    Args:
        make: Makes it of a sketch and the bounds of its parameters.
    """

    def __init__(self, make: Callable[[Sketch, ParamBounds], Found]) -> None:
        self._make = make
        # By identity first: comparing sketches takes as long as reading a tape.
        self._known: dict[int, tuple[Sketch, Found]] = {}
        self._found: dict[tuple[str, tuple[tuple[str, Interval], ...]], Found] = {}

    def of(self, sketch: Sketch) -> Found:
        """What belongs to ``sketch``.

        Raises:
            InvalidValueError: a parameter has no bounds.
        """
        if id(sketch) not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            bounds = param_bounds(sketch)
            key = sketch.digest, tuple(bounds.items())
            if key not in self._found:
                if len(self._found) >= _MOST_KNOWN:
                    self._found.clear()
                self._found[key] = self._make(sketch, bounds)
            self._known[id(sketch)] = sketch, self._found[key]
        return self._known[id(sketch)][1]
