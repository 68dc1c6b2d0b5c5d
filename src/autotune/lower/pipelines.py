"""Copies into stages of shared memory, ahead of their use: loops, what is moved, and boxes.

A loop whose body fetches and then computes has every thread wait twice in each iteration. With
several stages it waits once, and the fetches of further iterations are on their way meanwhile:

    for k < n: fetch k; compute k
    ->  for k < stages - 1: fetch k
        for k < n: wait for k; fetch k + stages - 1, if there is one; compute k
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.ir.expressions import Constant, Load, ScalarExpr, Select
from autotune.lower.bodies import place_of, read_at, truth
from autotune.lower.concrete import ConcreteStatement, Number
from autotune.lower.conditions import decided
from autotune.lower.emitter import Value
from autotune.lower.instructions.fetches import COPIED_BYTES, MOST_STAGES
from autotune.lower.linear import Digits, Linear
from autotune.lower.places import Place
from autotune.lower.state import State
from autotune.nest import LoopNest
from autotune.nest.loop_nest import ELEMENT, copy_axis
from autotune.sketches.copy_engine import MOST_BOX_EXTENT, SWIZZLED_ROW_BYTES

__all__ = [
    "SWIZZLED_ROWS",
    "Moved",
    "Pipeline",
    "Request",
    "TensorBox",
    "moved",
    "pipelines_of",
    "requests_of",
    "swizzled_row",
]

SWIZZLED_ROWS = 8
"""Rows after which the pattern of swizzled ones repeats."""


@frozen
class Pipeline:
    """A loop of which several iterations have their fetches in shared memory at once.

    Attributes:
        loop: Its name.
        extent: Its iterations.
        stages: Parts of the buffer.
        bulk: Whether the copy engine fills the buffer.
    """

    loop: str
    extent: int
    stages: int
    bulk: bool

    def stage(self, digits: Digits) -> Linear:
        """The part that an iteration uses."""
        return digits.remainder(digits.counter(self.loop, self.extent), self.stages)

    def round(self, digits: Digits) -> Linear:
        """The number of times that its part has been used before."""
        return digits.quotient(digits.counter(self.loop, self.extent), self.stages)


def pipelines_of(
    statements: Sequence[ConcreteStatement], nest: LoopNest, number: Number
) -> dict[str, Pipeline]:
    """The loops of buffers that have several stages.

    Raises:
        UnsupportedWorkload: a loop has too few iterations for its stages, or the copy engine
            fills a buffer of one stage.
    """
    found = {}
    for buffer in nest.buffers:
        stages, name = number(buffer.stages), buffer.name
        if stages == 1:
            if buffer.bulk:
                raise UnsupportedWorkload(f"the copy engine fills {name!r}, which has one stage")
            continue
        copy = next(it for it in statements if it.write.buffer == name)
        loop = copy.loops[buffer.depth - 1]
        if loop.bound is not None or not 1 < stages <= min(loop.extent, MOST_STAGES):
            raise UnsupportedWorkload(
                f"{loop.name!r}, a loop of {loop.extent} iterations, has no {stages} stages; "
                f"at most {MOST_STAGES}"
            )
        found[name] = Pipeline(loop.name, loop.extent, stages, buffer.bulk)
    return found


@frozen(eq=False)
class Moved:
    """Neighbouring elements that a copy moves as they are.

    Attributes:
        place: Where they are.
        at: The first of them.
        lanes: Their number.
        to: Where the first of them goes.
        choices: Conditions of the workload; where one does not hold, zeros are written.
    """

    place: Place
    at: Linear
    lanes: int
    to: Linear
    choices: tuple[ScalarExpr, ...]

    def conditions(self, state: State, statement: ConcreteStatement) -> Iterator[Value]:
        """Its choices as values."""
        for choice in self.choices:
            yield truth(state, statement, choice)


def moved(state: State, statement: ConcreteStatement, to: Place, index: Linear) -> Moved | None:
    """The elements that one instruction moves; None where that takes a load and a store."""
    body, choices = statement.body, []
    while isinstance(body, Select):
        if not isinstance(body.on_false, Constant) or body.on_false.value != 0:
            return None
        known = decided(body.condition, dict(statement.axes), state.digits)
        if known is False:
            return None
        choices += [] if known else [body.condition]
        body = body.on_true
    if not isinstance(body, Load):
        return None
    place, at = place_of(state, statement, body.tensor), read_at(state, statement, body)
    size = state.lanes * element_type(to.dtype).bytes
    alike = place.kind == "argument" and place.dtype == to.dtype
    if at is None or not alike or size not in COPIED_BYTES:
        return None
    first = [_first_of_lanes(state, form) for form in (at, index)]
    if any(form is None for form in first):
        return None
    from_at, to_at = first
    assert from_at is not None and to_at is not None
    return Moved(place, from_at, state.lanes, to_at, tuple(choices))


def _first_of_lanes(state: State, index: Linear) -> Linear | None:
    """The place of the first lane, where all lie behind it and it is aligned; else None."""
    form = state.digits.resolved(index)
    if state.lane is None:
        return form
    lane, lanes = state.lane
    if form.coefficient(lane) != 1 or not state.digits.is_apart(form, lane):
        return None
    first = form.without(lane)
    aligned = all(it % lanes == 0 for it in (first.constant, *(by for _, by in first.terms)))
    return first if aligned else None


@frozen
class TensorBox:
    """A tensor of which boxes are copied, as the copy engine has to know it.

    Attributes:
        buffer: The array with its elements.
        dtype: Their type.
        shape: Its extents.
        box: Extents of what one request copies.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    box: tuple[int, ...]


@frozen(eq=False)
class Request:
    """A box that one thread asks for.

    Attributes:
        tensor: The tensor, and the extents of the box.
        corner: Where it begins.
        to: Where its first element goes in the buffer.
    """

    tensor: TensorBox
    corner: tuple[Linear, ...]
    to: Linear


def requests_of(
    state: State, statement: ConcreteStatement, place: Place, to: Linear
) -> list[Request]:
    """The boxes of what a statement copies in one stage.

    Args:
        state: Where the walk is.
        statement: A copy that threads would make together.
        place: The buffer, of one stage.
        to: The place of its first element.

    Raises:
        UnsupportedWorkload: the engine does not copy such regions, or not as they are.
    """
    body, row = statement.body, place.shape[-1]
    *outer, rows, last = _region(place)
    problem = f"the copy engine does not fill {place.name!r}"
    if any(extent != 1 for extent in outer) or place.elements != statement.guards[ELEMENT]:
        raise UnsupportedWorkload(f"{problem}: it is no matrix, or has no whole rows")
    if rows % SWIZZLED_ROWS:
        raise UnsupportedWorkload(f"{problem}: {rows} rows are no multiple of {SWIZZLED_ROWS}")
    if not isinstance(body, Load):
        raise UnsupportedWorkload(f"{problem}: its elements are computed on the way")
    source = place_of(state, statement, body.tensor)
    heights = range(SWIZZLED_ROWS, MOST_BOX_EXTENT + 1, SWIZZLED_ROWS)
    height = max(it for it in heights if rows % it == 0)
    tensor = TensorBox(source.name, source.dtype, source.shape, (*outer, height, row))
    corner = _corner(state, statement, len(source.shape))
    return [
        Request(
            tensor,
            (*corner[:-2], corner[-2] + down, corner[-1] + plane * row),
            to + (plane * rows + down) * row,
        )
        for plane in range(last // row)
        for down in range(0, rows, height)
    ]


def swizzled_row(place: Place) -> int:
    """Bytes of the rows of a place that the copy engine fills.

    Raises:
        UnsupportedWorkload: it does not swizzle such rows.
    """
    size = place.shape[-1] * element_type(place.dtype).bytes
    if size not in SWIZZLED_ROW_BYTES or not place.elements:
        raise UnsupportedWorkload(
            f"the copy engine does not fill {place.name!r}: it has no rows of "
            f"{', '.join(map(str, SWIZZLED_ROW_BYTES))} bytes"
        )
    return size


def _region(place: Place) -> tuple[int, ...]:
    """Extents of what is copied, whose last dimension is laid out in planes of rows."""
    planes, *outer, row = place.shape
    return (*outer, planes * row)


def _corner(state: State, statement: ConcreteStatement, rank: int) -> list[Linear]:
    """Indices at which a copy begins: where all loops of its own do."""
    own = statement.loops[len(statement.loops) - _OWN_LOOPS :]
    with ExitStack() as stack:
        for loop in own:
            stack.enter_context(state.digits.at(loop.name, 0))
        axes = [statement.axes.get(copy_axis(dim), Linear()) for dim in range(rank)]
        return [state.digits.resolved(axis) for axis in axes]


# Rounds, threads and lanes.
_OWN_LOOPS = 3
