"""The state of a walk while it prints: where loops are, and what is loaded already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, TypeVar

from attrs import define, evolve, field, frozen

from autotune.ir.workloads import Workload
from autotune.lower.concrete import ConcreteStatement
from autotune.lower.emitter import Emitter, Value
from autotune.lower.linear import Digits, Linear
from autotune.lower.places import Place, address, within
from autotune.lower.quotients import Divisor

__all__ = ["Held", "State", "Tile"]

T = TypeVar("T")


@frozen(eq=False)
class Tile:
    """A square of points that are printed row by row, and read along the rows.

    Attributes:
        row: The counter of its rows.
        columns: What is read by now, transposed, by place and index.
    """

    row: str
    columns: dict[tuple[str, Linear], list[Value]] = field(factory=dict)


@frozen(eq=False)
class Held(Generic[T]):
    """A value that is computed before a loop, for each copy of the expanded loops in it.

    Attributes:
        loops: Counters of the expanded loops that it depends on.
        values: What it is, by their values.
    """

    loops: tuple[str, ...]
    values: Mapping[tuple[int, ...], T]

    def here(self, digits: Digits) -> T:
        """The value in the copy that is being printed."""
        return self.values[tuple(digits.fixed[loop] for loop in self.loops)]


@define(eq=False)
class State:
    """The state of a walk.

    Attributes:
        emitter: What prints.
        digits: The digits of the program.
        places: Where its buffers are.
        workload: What it computes, after rewrites of its steps.
        width: Lanes of a vector register, of numbers of single precision.
        lane: Counter and number of the lanes that are printed at once.
        loaded: Values of loads that are still what memory holds, by place, index and lane.
        tile: The square that is printed, where it is one.
        held: Parts of the body, by identity, that the loops being printed do not change.
        divisors: Parts that divide vectors, by identity.
        sums: The register that a statement adds to in its innermost loops, by its name.
        known: What is found once for all copies of a statement, whose digits differ.
        has_tiles: Whether tile registers are configured.
        holds_sums: Whether an instruction has begun with the sums that it adds to.
    """

    emitter: Emitter
    digits: Digits
    places: Mapping[str, Place]
    workload: Workload
    width: int
    lane: tuple[str, int] | None = None
    loaded: dict[tuple[str, Linear, str | None], Value] = field(factory=dict)
    tile: Tile | None = None
    held: dict[int, Held[Value]] = field(factory=dict)
    divisors: dict[int, Held[Divisor]] = field(factory=dict)
    sums: dict[str, Place] = field(factory=dict)
    known: dict[tuple[ConcreteStatement, int], Any] = field(factory=dict)
    has_tiles: bool = False
    holds_sums: bool = False

    @property
    def lanes(self) -> int:
        """Numbers that are printed at once."""
        return self.lane[1] if self.lane else 1

    @contextmanager
    def in_lanes(self, lane: tuple[str, int] | None) -> Iterator[None]:
        """Print for these lanes at once."""
        before, self.lane = self.lane, lane
        yield
        self.lane = before

    @contextmanager
    def with_tiles(self, configured: AbstractContextManager[None]) -> Iterator[None]:
        """Print where tile registers are configured."""
        with configured:
            self.has_tiles = True
            yield
            self.has_tiles = False

    def forget(self) -> None:
        """Forget what is loaded."""
        self.loaded.clear()
        if self.tile is not None:
            self.tile.columns.clear()

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Forget what is loaded, before and after: what is printed between may run again."""
        self.forget()
        yield
        self.forget()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Print one side of a choice: what it loads is not loaded on the other."""
        loaded, tile = dict(self.loaded), self.tile
        if tile is not None:
            self.tile = evolve(tile, columns=dict(tile.columns))
        yield
        self.loaded, self.tile = loaded, tile

    @contextmanager
    def within(self, loop: str, begin: int, end: int) -> Iterator[None]:
        """Print some iterations of a loop."""
        whole, self.digits.ranges[loop] = self.digits.ranges[loop], (begin, end - 1)
        self.known.clear()
        yield
        self.digits.ranges[loop] = whole
        self.known.clear()

    def once(self, statement: ConcreteStatement, node: object, find: Callable[[], T]) -> T:
        """Keep what ``find`` gives for a part of a statement, before digits are resolved."""
        key = statement, id(node)
        if key not in self.known:
            self.known[key] = find()
        found: T = self.known[key]
        return found

    def address(
        self, statement: ConcreteStatement, place: Place, indices: Sequence[Linear]
    ) -> Linear:
        """The offset of an element within a place's allocation."""
        inside = [within(statement, index, place, self.digits) for index in indices]
        return address(place, inside, self.digits)
