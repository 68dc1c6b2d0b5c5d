"""Loads and stores: from registers or memory, of scalars, vectors, strides and squares."""

from __future__ import annotations

from autotune.errors import UnsupportedWorkload
from autotune.lower.emitter import Value
from autotune.lower.linear import Linear
from autotune.lower.places import Place
from autotune.lower.state import State, Tile

__all__ = ["is_square", "load", "load_chosen", "store"]


def load(state: State, place: Place, index: Linear, mask: Value | None = None) -> Value:
    """The elements of a place at an index, one for each lane if it depends on the lane.

    Raises:
        UnsupportedWorkload: lanes lie otherwise in registers.
    """
    at = state.digits.resolved(index)
    lane = state.lane[0] if state.lane else None
    if place.kind == "registers":
        return _from_register(state, place, at)
    moved = lane is not None and state.digits.depends(at, lane)
    key = (place.name, at, lane if moved else None)
    if mask is not None and moved:
        return _from_memory(state, place, index, at, mask)
    if key not in state.loaded:
        state.loaded[key] = _from_memory(state, place, index, at, None)
    return state.loaded[key]


def _from_register(state: State, place: Place, at: Linear) -> Value:
    lane, lanes = state.lane or (None, 1)
    step = at.coefficient(lane) if lane else 0
    if at.without(lane).terms:
        raise UnsupportedWorkload(f"{place.name!r} is read at registers that are not known")
    if step == 0:
        number, part = divmod(at.constant, place.lanes)
        value = state.emitter.register(place, number)
        return value if place.lanes == 1 else state.emitter.lane(value, part)
    if place.lanes == 1:
        numbers = (at.constant + step * number for number in range(lanes))
        return state.emitter.gathered([state.emitter.register(place, it) for it in numbers])
    if step != 1 or place.lanes != lanes or at.constant % lanes:
        raise UnsupportedWorkload(f"lanes of {place.name!r} lie otherwise in its registers")
    return state.emitter.register(place, at.constant // lanes)


def _from_memory(
    state: State, place: Place, index: Linear, at: Linear, mask: Value | None
) -> Value:
    if state.lane is None or not state.digits.depends(at, state.lane[0]):
        return state.emitter.load(place, at, 1)
    lane, lanes = state.lane
    step, rest = at.coefficient(lane), at.without(lane)
    if not state.digits.is_apart(at, lane):
        return state.emitter.gathered(_lane_by_lane(state, place, at, mask))
    if step == 1:
        return state.emitter.load(place, rest, lanes, mask)
    if state.tile is not None and is_square(state, place, index):
        return _from_tile(state, state.tile, place, at)
    return state.emitter.load_strided(place, rest, step, lanes, mask)


def _lane_by_lane(state: State, place: Place, at: Linear, mask: Value | None) -> list[Value]:
    lane, lanes = state.lane or ("", 1)
    emitter, zero = state.emitter, state.emitter.constant(0, place.dtype)

    def one(number: int) -> Value:
        def read() -> Value:
            return emitter.load(place, state.digits.resolved(at), 1)

        with state.digits.at(lane, number):
            if mask is None:
                return read()
            chosen = emitter.lane(emitter.wide(mask, lanes), number)
            return emitter.choose(chosen, read, lambda: zero)

    with state.in_lanes(None):
        return [one(number) for number in range(lanes)]


def is_square(state: State, place: Place, index: Linear) -> bool:
    """Tell whether lanes of all rows of the tile are read as a square, whose rows lie along them.

    All of it is read then, wherever it ends: rows that begin outside the place are moved into it,
    and hold anything.
    """
    tile, digits = state.tile, state.digits
    if tile is None or state.lane is None or digits.shifts or place.kind == "registers":
        return False
    lane, lanes = state.lane
    if not all(digits.is_apart(index, digit) for digit in (lane, tile.row)):
        return False
    steps = index.coefficient(tile.row), index.coefficient(lane)
    return steps[0] == 1 and steps[1] not in (0, 1) and place.elements >= lanes


def _from_tile(state: State, tile: Tile, place: Place, at: Linear) -> Value:
    """A row of what is written: a column of a square that is read in rows and transposed once."""
    lane, lanes = state.lane or ("", 1)
    row, digits = state.digits.fixed[tile.row], state.digits
    corner = at.without(lane) - row
    if (place.name, corner) not in tile.columns:
        step, last = at.coefficient(lane), Linear((), place.elements - lanes)
        rows = []
        for number in range(lanes):
            begin = digits.smaller(corner + step * number, last)
            rows.append(state.emitter.load(place, digits.larger(begin, Linear()), lanes))
        tile.columns[place.name, corner] = state.emitter.transposed(rows)
    return tile.columns[place.name, corner][row]


def load_chosen(state: State, place: Place, index: Linear, offset: Value) -> Value:
    """The elements at an index to which a scalar is added that the program computes."""
    at = state.digits.resolved(index)
    if state.lane is None or not state.digits.depends(at, state.lane[0]):
        return state.emitter.load_chosen(place, at, offset, 1)
    lane, lanes = state.lane
    if at.coefficient(lane) != 1 or not state.digits.is_apart(at, lane):
        values = []
        for number in range(lanes):
            with state.digits.at(lane, number):
                one = state.digits.resolved(index)
                values.append(state.emitter.load_chosen(place, one, offset, 1))
        return state.emitter.gathered(values)
    return state.emitter.load_chosen(place, at.without(lane), offset, lanes)


def store(
    state: State, place: Place, index: Linear, value: Value, mask: Value | None, stream: bool
) -> None:
    """Write a value, one for each lane.

    Raises:
        UnsupportedWorkload: lanes lie otherwise in registers, go to one place, or are anywhere
            under a mask.
    """
    at = state.digits.resolved(index)
    if place.kind == "registers":
        if mask is not None:
            raise UnsupportedWorkload(f"{place.name!r} is in registers, and written under a mask")
        _to_register(state, place, at, value)
        return
    state.loaded.clear()
    if state.lane is None:
        state.emitter.store(place, at, value, None, stream)
        return
    lane, lanes = state.lane
    value = state.emitter.wide(value, lanes)
    if at.coefficient(lane) == 1 and state.digits.is_apart(at, lane):
        state.emitter.store(place, at.without(lane), value, mask, stream)
        return
    if mask is not None or not state.digits.depends(at, lane):
        raise UnsupportedWorkload(f"lanes of {place.name!r} are written anywhere, or at one place")
    with state.in_lanes(None):
        for number in range(lanes):
            with state.digits.at(lane, number):
                scalar = state.emitter.lane(value, number)
                state.emitter.store(place, state.digits.resolved(at), scalar, None, False)


def _to_register(state: State, place: Place, at: Linear, value: Value) -> None:
    lane, lanes = state.lane or (None, 1)
    emitter, step = state.emitter, at.coefficient(lane) if lane else 0
    if at.without(lane).terms:
        raise UnsupportedWorkload(f"{place.name!r} is written at registers that are not known")
    number, part = divmod(at.constant, place.lanes)
    if place.lanes == 1 and step:
        wide = emitter.wide(value, lanes)
        for it in range(lanes):
            emitter.set_register(place, number + step * it, emitter.lane(wide, it))
    elif place.lanes == 1:
        emitter.set_register(place, number, value)
    elif step == 1 and place.lanes == lanes and part == 0:
        emitter.set_register(place, number, emitter.wide(value, lanes))
    elif lane is None:
        held = emitter.register(place, number)
        emitter.set_register(place, number, emitter.with_lane(held, part, value))
    else:
        raise UnsupportedWorkload(f"lanes of {place.name!r} lie otherwise in its registers")
