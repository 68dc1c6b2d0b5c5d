"""Operators on permuted tensors: what they compute of what is stored.

Axis ``i`` of a tensor in the order of the model is axis ``order[i]`` of what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import frozen
from tvm import relax
from tvm.ir import Call, make_node

from autotune.ir.rewrites.permuted import Order, inverse
from autotune_tvm.networks.graph import shape_of
from autotune_tvm.networks.passes.sink_views import ELEMENTWISE

__all__ = [
    "OPERATORS",
    "Permuted",
    "with_attributes",
]

op = relax.op


@frozen(eq=False)
class Permuted:
    """A tensor that is stored in another order than the model's.

    Attributes:
        stored: What is stored.
        order: By axis of the model, the axis of ``stored``.
    """

    stored: Any
    order: Order

    @property
    def is_channels_last(self) -> bool:
        """Whether the second axis of the model is stored last, and the others are in order."""
        rank = len(self.order)
        return self.order == (0, rank - 1, *range(1, rank - 1))


Compute = Callable[[Any, list[Permuted], Order], tuple[Any, Order] | None]
"""From a call in the order of the model and its operands as they are stored, all in one order: the
call on what is stored, and the order of its result. None where it cannot be computed so."""


def with_attributes(call: Any, arguments: Sequence[Any], **changed: Any) -> Any:
    """The same operator on other operands, with some attributes changed."""
    kind = type(call.attrs).__tvm_ffi_type_info__
    values = {one.name: getattr(call.attrs, one.name) for one in kind.fields} | changed
    return Call(call.op, arguments, make_node(kind.type_key, **values), call.ty_args)


def _elementwise(call: Any, operands: list[Permuted], order: Order) -> tuple[Any, Order]:
    given = iter(operands)
    arguments = [
        argument if _is_number(argument) else next(given).stored for argument in call.args
    ]
    return Call(call.op, arguments, call.attrs, call.ty_args), order


def _is_number(argument: Any) -> bool:
    return not shape_of(argument)


def _pool(call: Any, operands: list[Permuted], order: Order) -> tuple[Any, Order] | None:
    (data,) = operands
    model = str(call.attrs.layout)
    if not data.is_channels_last or not model.startswith("NC") or "c" in model:
        return None
    layout = f"N{model[2:]}C"
    return with_attributes(call, [data.stored], layout=layout, out_layout=layout), order


def _resize(call: Any, operands: list[Permuted], order: Order) -> tuple[Any, Order] | None:
    (data,) = operands
    if not data.is_channels_last or str(call.attrs.layout) != "NCHW":
        return None
    return with_attributes(call, [data.stored, call.args[1]], layout="NHWC"), order


def _reduction(call: Any, operands: list[Permuted], order: Order) -> tuple[Any, Order] | None:
    rank = len(order)
    if call.attrs.axis is None:
        return None
    axes = {int(axis) % rank for axis in call.attrs.axis}
    stored = sorted(order[axis] for axis in axes)
    changed = with_attributes(call, [operands[0].stored], axis=stored)
    if call.attrs.keepdims:
        return changed, order
    left = sorted(order[axis] for axis in range(rank) if axis not in axes)
    return changed, tuple(left.index(order[axis]) for axis in range(rank) if axis not in axes)


def _along_one_axis(call: Any, operands: list[Permuted], order: Order) -> tuple[Any, Order]:
    axis = order[int(call.attrs.axis) % len(order)]
    return with_attributes(call, [operands[0].stored], axis=axis), order


def _concat(call: Any, operands: list[Permuted], order: Order) -> tuple[Any, Order]:
    axis = order[int(call.attrs.axis or 0) % len(order)]
    return op.concat([operand.stored for operand in operands], axis), order


def _pad(call: Any, operands: list[Permuted], order: Order) -> tuple[Any, Order]:
    widths = [int(width) for width in call.attrs.pad_width]
    axes = inverse(order)
    stored = [width for axis in axes for width in widths[2 * axis : 2 * axis + 2]]
    return with_attributes(call, [operands[0].stored], pad_width=stored), order


def _strided_slice(call: Any, operands: list[Permuted], order: Order) -> tuple[Any, Order]:
    axes = [order[int(axis) % len(order)] for axis in call.args[1].fields]
    rest = call.args[2:]
    return op.strided_slice(operands[0].stored, axes, *rest), order


OPERATORS: Mapping[str, Compute] = MappingProxyType(
    {
        **dict.fromkeys(sorted(ELEMENTWISE), _elementwise),
        **dict.fromkeys(
            [
                f"nn.{kind}_pool{rank}d"
                for kind in ("max", "avg", "adaptive_avg")
                for rank in (1, 2, 3)
            ],
            _pool,
        ),
        **dict.fromkeys(["max", "mean", "min", "prod", "std", "sum", "variance"], _reduction),
        **dict.fromkeys(["nn.softmax", "nn.log_softmax", "split"], _along_one_axis),
        "concat": _concat,
        "image.resize2d": _resize,
        "nn.pad": _pad,
        "strided_slice": _strided_slice,
    }
)
"""Operators that are computed on permuted operands, by name."""
