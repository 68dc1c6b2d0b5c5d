"""Operators that move or choose elements of dequantised bytes: they move the bytes.

They are dequantised behind it, and not at all where the next node quantises them again or
multiplies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from attrs import evolve

from autotune.networks.graph import Value, reshape
from autotune.networks.readers.onnx.call import Call, Dequantised, Item, Operator
from autotune.networks.readers.onnx.operators.byte_products import dequantised

__all__ = ["in_bytes"]


def in_bytes(name: str, operator: Operator) -> Operator:
    """An operator that takes bytes where it can; as it is where it does arithmetic.

    Args:
        name: Of the operator.
        operator: What it computes.
    """
    form = _FORMS.get(name)
    return operator if form is None else partial(_moved, form, operator)


def _moved(form: Callable[[Call], Call | None], operator: Operator, call: Call) -> list[Item]:
    known = _known(call)
    bytes_of = None if known is None else form(call)
    found = operator(call if bytes_of is None else bytes_of)
    items: list[Item] = [*found] if isinstance(found, Sequence) else [found]
    if known is None or bytes_of is None:
        return items
    return [_with_floats(call, known, it) if _is_bytes(it, known) else it for it in items]


def _known(call: Call) -> Dequantised | None:
    """The bytes that the first input was."""
    first = call.inputs[0] if call.inputs else None
    return call.dequantised.get(first.key) if isinstance(first, Value) else None


def _is_bytes(item: Item, known: Dequantised) -> bool:
    return isinstance(item, Value) and item.dtype == known.stored.dtype


def _with_floats(call: Call, known: Dequantised, moved: Item) -> Value:
    """The floats that bytes stand for, known to have been these bytes."""
    assert isinstance(moved, Value)
    axis = known.axis
    if not known.is_by_one:
        axis = call.attribute("perm", [*range(moved.rank)][::-1]).index(axis)
    column = (-1, *[1] * (moved.rank - axis - 1)) if not known.is_by_one else ()
    zero = None if known.zero is None else reshape(known.zero, column)
    found = dequantised(moved, reshape(known.scale, column), zero, "float32")
    call.dequantised[found.key] = evolve(known, value=found, stored=moved, axis=axis)
    return found


def _first(call: Call) -> Call | None:
    """The call on bytes in the place of the first input."""
    known = _known(call)
    if known is None or not known.is_by_one:
        return None
    return evolve(call, inputs=(known.stored, *call.inputs[1:]))


def _chosen(call: Call) -> Call | None:
    """As :func:`_first`, of an operator that compares: a scale below 0 turns the order around."""
    known = _known(call)
    scale = None if known is None else known.scale.constant
    return _first(call) if scale is not None and scale.size and scale.min() > 0 else None


def _turned(call: Call) -> Call | None:
    """A transposition, which may be of several scales, too."""
    known = _known(call)
    return None if known is None else evolve(call, inputs=(known.stored,))


def _joined(call: Call) -> Call | None:
    """A concatenation of bytes of one scale."""
    first, parts = _known(call), list[Value]()
    for item in call.inputs:
        known = call.dequantised.get(item.key) if isinstance(item, Value) else None
        if first is None or known is None or known.stored.dtype != first.stored.dtype:
            return None
        if not known.is_by(first.scale, first.zero):
            return None
        parts.append(known.stored)
    return evolve(call, inputs=tuple(parts))


def _padded(call: Call) -> Call | None:
    """Padding: what stands for 0 is around, unless it is elements of the tensor."""
    found, known = _first(call), _known(call)
    if found is None or known is None or call.attribute("mode", "constant") != "constant":
        return found
    value = call.get(2) if "pads" not in call.attributes else None
    told = call.attribute("value", 0)
    if told or (value is not None and (value.constant is None or value.constant.any())):
        return None
    if known.zero is None:
        return found
    if "pads" in call.attributes:
        return None if known.zero.constant is None or known.zero.constant.any() else found
    inputs = (*found.inputs, *[None] * (3 - len(found.inputs)))
    return evolve(found, inputs=(*inputs[:2], reshape(known.zero, ()), *inputs[3:]))


def _nearest(call: Call) -> Call | None:
    return _first(call) if call.attribute("mode", "nearest") == "nearest" else None


_FORMS: Mapping[str, Callable[[Call], Call | None]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Split"),
                *("Gather", "GatherElements", "GatherND", "Expand", "Tile"),
                *("DepthToSpace", "SpaceToDepth"),
            ),
            _first,
        ),
        **dict.fromkeys(("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin"), _chosen),
        "Transpose": _turned,
        "Concat": _joined,
        "Pad": _padded,
        "Resize": _nearest,
        "Upsample": _nearest,
    }
)
