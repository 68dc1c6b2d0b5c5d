"""Shapes are changed after what is elementwise, not before."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from autotune_tvm.networks.graph import (
    Graph,
    array_of,
    constant,
    operator_of,
    rewrite,
    shape_of,
)
from autotune_tvm.networks.passes.merge_views import merged, reshaped

__all__ = ["ELEMENTWISE", "sink_views"]

Shape = tuple[int, ...]

ELEMENTWISE = frozenset(
    [
        "abs",
        "add",
        "astype",
        "bitwise_and",
        "bitwise_not",
        "bitwise_or",
        "bitwise_xor",
        "ceil",
        "clip",
        "cos",
        "divide",
        "equal",
        "erf",
        "exp",
        "floor",
        "floor_divide",
        "floor_mod",
        "greater",
        "greater_equal",
        "isfinite",
        "isinf",
        "isnan",
        "less",
        "less_equal",
        "log",
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "maximum",
        "minimum",
        "multiply",
        "negative",
        "nn.gelu",
        "nn.gelu_tanh",
        "nn.leakyrelu",
        "nn.relu",
        "nn.silu",
        "nn.softplus",
        "not_equal",
        "power",
        "round",
        "rsqrt",
        "sigmoid",
        "sign",
        "sin",
        "sqrt",
        "square",
        "subtract",
        "tanh",
        "trunc",
        "where",
    ]
)
"""Operators whose every output is computed of one element of each operand."""
_ALONG_ONE_AXIS = frozenset(["nn.softmax", "nn.log_softmax"])
_ALONG_AXES = frozenset(
    ["nn.layer_norm", "nn.rms_norm", "max", "mean", "min", "prod", "sum", "variance"]
)


def sink_views(module: IRModule) -> tuple[IRModule, str]:
    """Move reshapes behind elementwise operators, and behind those along the last axes.

    ``relu(reshape(y))`` becomes ``reshape(relu(y))``, which is then computed where ``y`` is: an
    epilogue. Exported networks have reshapes around every product of matrices, and around those
    that follow a reshape there is no fusion. Other operands are given the new shape, too, which
    costs nothing when it runs.
    """
    sunk = 0

    def sink(call: Any, graph: Graph) -> Any:
        nonlocal sunk
        found = merged(call, graph)
        if found is None:
            found = _sunk(call, graph)
            sunk += found is not None
        return found

    changed = relax.transform.DeadCodeElimination()(rewrite(module, sink))
    return changed, f"{sunk} operators" if sunk else ""


def _sunk(call: Any, graph: Graph) -> Any:
    operator = operator_of(call)
    if operator not in ELEMENTWISE | _ALONG_ONE_AXIS | _ALONG_AXES:
        return None
    after = shape_of(graph.builder.normalize(call))
    if after is None:
        return None
    elementwise = operator in ELEMENTWISE
    for argument in call.args if elementwise else call.args[:1]:
        inner = graph.source(argument)
        if operator_of(inner) != "reshape":
            continue
        shape, before = shape_of(argument), shape_of(inner.args[0])
        if shape is None or before is None:
            continue
        if elementwise:
            found = _elementwise(call, graph, before, after) if shape == after else None
        else:
            found = _along_axes(call, inner.args[0], before, shape, after)
        if found is not None:
            return relax.op.reshape(graph.emit(found), after)
    return None


def _common_suffix(before: Shape, after: Shape) -> int:
    """How many of the last axes two shapes share."""
    count = 0
    while count < min(len(before), len(after)) and before[-1 - count] == after[-1 - count]:
        count += 1
    return count


def _elementwise(call: Any, graph: Graph, before: Shape, after: Shape) -> Any:
    """The call on tensors that are broadcast to ``before`` instead of ``after``."""
    arguments = []
    for argument in call.args:
        shape = shape_of(argument)
        if shape is None:
            arguments.append(argument)  # a number
            continue
        wanted = _broadcast_shape(shape, before, after)
        if wanted is None:
            return None
        arguments.append(_as_shape(argument, wanted, graph))
    return Call(call.op, arguments, call.attrs, call.ty_args)


def _broadcast_shape(shape: Shape, before: Shape, after: Shape) -> Shape | None:
    """The shape of an operand of ``after``, when it is broadcast to ``before`` instead.

    None where that is no shape: it is broadcast along a part of the axes that the reshape mixes.
    """
    if all(extent == 1 for extent in shape):
        return ()
    whole = (1,) * (len(after) - len(shape)) + shape
    common = _common_suffix(before, after)
    cut = len(after) - common
    leading, trailing = whole[:cut], whole[cut:]
    if leading == after[:cut]:
        return before[: len(before) - common] + trailing
    if all(extent == 1 for extent in leading):
        return trailing
    return None


def _as_shape(argument: Any, shape: Shape, graph: Graph) -> Any:
    if shape_of(argument) == shape:
        return argument
    if isinstance(argument, GenericConst):
        array = array_of(argument)
        assert array is not None  # it is a constant
        return constant(array.reshape(shape))
    return graph.emit(reshaped(argument, shape, graph))


def _along_axes(call: Any, source: Any, before: Shape, shape: Shape, after: Shape) -> Any:
    """A call along axes that a reshape leaves as they are, on what was reshaped."""
    attributes = call.attrs
    if operator_of(call) in _ALONG_ONE_AXIS:
        axes = [int(attributes.axis)]
    elif hasattr(attributes, "axes"):
        axes = [int(axis) for axis in attributes.axes]
    else:
        if attributes.axis is None or not attributes.keepdims:
            return None
        axes = [int(axis) for axis in attributes.axis]
    from_end = sorted((axis % len(shape)) - len(shape) for axis in axes)
    if not from_end or -from_end[0] > _common_suffix(before, shape):
        return None
    return _with_axes(call, source, from_end)


def _with_axes(call: Any, source: Any, axes: list[int]) -> Any:
    operator = operator_of(call)
    op = relax.op
    if operator in _ALONG_ONE_AXIS:
        return getattr(op.nn, operator.removeprefix("nn."))(source, axes[0])
    if operator == "nn.layer_norm":
        attributes = call.attrs
        rest = (float(attributes.epsilon), bool(attributes.center), bool(attributes.scale))
        return op.nn.layer_norm(source, *call.args[1:], axes, *rest)
    if operator == "nn.rms_norm":
        return op.nn.rms_norm(source, call.args[1], axes, float(call.attrs.epsilon))
    return getattr(op, operator)(source, axes, True)
