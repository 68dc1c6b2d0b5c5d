"""Branches, loops, and sequences of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Value,
    concat,
    constant,
    loop,
    select,
    slice_axis,
    split,
    squeeze,
    stack,
    transpose,
    unsqueeze,
)
from autotune.networks.readers.forms import vector
from autotune.networks.readers.onnx.call import Body, Call, Item, Operator, ValueNeeded

__all__ = ["CONTROL_FLOW"]


def _if(call: Call) -> list[Item]:
    condition = call[0]
    if condition.constant is None:
        return _both(call, condition)
    taken = "then_branch" if np.asarray(condition.constant).reshape(-1)[0] else "else_branch"
    return call.bodies[taken].run([], {})


def _both(call: Call, condition: Value) -> list[Item]:
    """Both branches, of which one is chosen where they agree in shapes."""
    pairs = zip(
        call.bodies["then_branch"].run([], {}), call.bodies["else_branch"].run([], {}), strict=True
    )
    found: list[Item] = []
    for yes, no in pairs:
        if not (isinstance(yes, Value) and isinstance(no, Value)) or (
            (yes.shape, yes.dtype) != (no.shape, no.dtype)
        ):
            raise ValueNeeded("its branches have results of different shapes", condition)
        found.append(select(squeeze(condition), yes, no))
    return found


def _loop(call: Call) -> list[Item]:
    body = call.bodies["body"]
    count = None if call.get(0) is None else int(call.number(0))
    states = list(call.inputs[2:])
    if call.get(1) is not None and not call.number(1):
        count = 0
    if count is not None and count > 1 and _is_plain(states):
        found = _rolled(body, count, states)
        if found is not None:
            return found
    return _unrolled(body, count, states, len(call.outputs))


def _is_plain(states: Sequence[Item]) -> bool:
    """Tell if a state is computed, so that steps are not folded away."""
    tensors = [it for it in states if isinstance(it, Value)]
    return len(tensors) == len(states) and any(it.constant is None for it in tensors)


def _rolled(body: Body, count: int, states: Sequence[Item]) -> list[Item] | None:
    """A step that runs ``count`` times; None where a step changes a shape or stops."""
    tensors = [it for it in states if isinstance(it, Value)]
    stops = False

    def step(
        now: Sequence[Value], slices: Sequence[Value], fixed: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        nonlocal stops
        replaced = {it.key: new for it, new in zip(body.captured, fixed, strict=True)}
        results = body.run([slices[0], constant(np.array(True)), *now], replaced)
        stops = not _goes_on(results[0])
        values = [it for it in results[1:] if isinstance(it, Value)]
        return values[: len(now)], values[len(now) :]

    try:
        last, kept = loop(step, count, tensors, [vector(np.arange(count))], list(body.captured))
    except ValueNeeded:
        return None
    return None if stops else [*last, *kept]


def _goes_on(condition: Item) -> bool:
    return (
        isinstance(condition, Value)
        and condition.constant is not None
        and bool(condition.constant.reshape(-1)[0])
    )


_MOST_STEPS = 1 << 12


def _unrolled(body: Body, count: int | None, states: Sequence[Item], outputs: int) -> list[Item]:
    """Steps one after the other, of which what is known is computed at once."""
    now = list(states)
    kept: list[list[Value]] = [[] for _ in range(outputs - len(states))]
    condition: Item = constant(np.array(True))
    number = 0
    while count is None or number < count:
        if number >= _MOST_STEPS:
            raise UnsupportedWorkload(f"it takes more than {_MOST_STEPS} steps one by one")
        condition, *results = body.run([vector(number), condition, *now], {})
        now, scanned = results[: len(now)], results[len(now) :]
        for parts, value in zip(kept, scanned, strict=True):
            if not isinstance(value, Value):
                raise UnsupportedWorkload("it collects what is no tensor")
            parts.append(value)
        number += 1
        if not isinstance(condition, Value) or condition.constant is None:
            if isinstance(condition, Value) and number != count:
                raise ValueNeeded("how often it runs depends on data", condition)
        elif not condition.constant.reshape(-1)[0]:
            break
    if any(not parts for parts in kept):
        raise UnsupportedWorkload("it does not run once, and what it collects has no shape")
    return [*now, *(stack(parts, 0) for parts in kept)]


def _scan(call: Call) -> list[Item]:
    """A loop over slices; in version 8 for each sequence of a batch by itself."""
    inputs = list(call.inputs)
    if call.since >= 9:
        return _scanned(call, [it for it in inputs if isinstance(it, Value)])
    if inputs[0] is not None:
        raise UnsupportedWorkload("sequences of different lengths are not supported")
    values = [it for it in inputs[1:] if isinstance(it, Value)]
    batches = [
        _scanned(call, [squeeze(slice_axis(it, 0, at, at + 1), [0]) for it in values])
        for at in range(values[0].shape[0])
    ]
    return [
        stack([it for it in parts if isinstance(it, Value)], 0)
        for parts in zip(*batches, strict=True)
    ]


def _scanned(call: Call, values: Sequence[Value]) -> list[Item]:
    body, count = call.bodies["body"], call.attribute("num_scan_inputs")
    states, slices = list(values[: len(values) - count]), list(values[len(values) - count :])
    kept = len(call.outputs) - len(states)
    axes = call.attribute("scan_input_axes") or [0] * count
    out_axes = call.attribute("scan_output_axes") or [0] * kept
    reverse = call.attribute("scan_input_directions", call.attribute("directions"))
    kept_reverse = call.attribute("scan_output_directions")
    slices = [_first(it, axis) for it, axis in zip(slices, axes, strict=True)]

    def step(
        now: Sequence[Value], each: Sequence[Value], fixed: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        replaced = {it.key: new for it, new in zip(body.captured, fixed, strict=True)}
        results = [it for it in body.run([*now, *each], replaced) if isinstance(it, Value)]
        return results[: len(now)], results[len(now) :]

    last, collected = loop(
        step,
        slices[0].shape[0],
        states,
        slices,
        list(body.captured),
        [bool(it) for it in reverse or [0] * count],
        [bool(it) for it in kept_reverse or [0] * kept],
    )
    moved = [_placed(it, axis) for it, axis in zip(collected, out_axes, strict=True)]
    return [*last, *moved]


def _first(x: Value, axis: int) -> Value:
    """With an axis before all others."""
    axis %= x.rank
    return transpose(x, [axis, *(it for it in range(x.rank) if it != axis)])


def _placed(x: Value, axis: int) -> Value:
    """With the first axis at another place."""
    order = list(range(1, x.rank))
    order.insert(axis % x.rank, 0)
    return transpose(x, order)


def _position(call: Call, position: int, length: int) -> int:
    at = int(call.number(position)) if call.inputs[position:] else length - 1
    if not -length <= at < length:
        raise UnsupportedWorkload(f"there is no tensor {at} in a sequence of {length}")
    return at % length


def _at(call: Call) -> Value:
    items = call.sequence(0)
    return items[_position(call, 1, len(items))]


def _insert(call: Call) -> list[Item]:
    items = list(call.sequence(0))
    at = int(call.number(2)) if call.inputs[2:] else len(items)
    items.insert(at, call[1])
    return [tuple(items)]


def _erase(call: Call) -> list[Item]:
    items = list(call.sequence(0))
    del items[_position(call, 1, len(items))]
    return [tuple(items)]


def _to_sequence(call: Call) -> list[Item]:
    x, axis = call[0], call.attribute("axis")
    length = x.shape[axis]
    if call.get(1) is None:
        parts = split(x, [1] * length, axis)
        kept = call.attribute("keepdims")
        return [tuple(parts if kept else (squeeze(it, [axis]) for it in parts))]
    sizes = call.ints(1)
    if call[1].rank == 0:
        part = sizes[0]
        sizes = [min(part, length - start) for start in range(0, length, part)]
    return [tuple(split(x, sizes, axis))]


def _from_sequence(call: Call) -> Value:
    items, axis = call.sequence(0), call.attribute("axis")
    if call.attribute("new_axis"):
        return concat([unsqueeze(it, [axis]) for it in items], axis)
    return concat(items, axis)


def _has_element(call: Call) -> Value:
    return constant(np.array(bool(call.inputs) and call.inputs[0] is not None))


def _get_element(call: Call) -> list[Item]:
    if call.inputs[0] is None:
        raise UnsupportedWorkload("what is optional is left out")
    return [call.inputs[0]]


CONTROL_FLOW: Mapping[str, Operator] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceConstruct": lambda call: [tuple(call.tensors)],
    "SequenceEmpty": lambda call: [()],
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceLength": lambda call: vector(len(call.sequence(0))),
    "SplitToSequence": _to_sequence,
    "ConcatFromSequence": _from_sequence,
    "Optional": lambda call: [call.inputs[0] if call.inputs else None],
    "OptionalHasElement": _has_element,
    "OptionalGetElement": _get_element,
}
