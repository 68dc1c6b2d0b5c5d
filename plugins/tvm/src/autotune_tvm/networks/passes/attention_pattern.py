"""Attention, found in a graph of operators.

What exporters write is a product of queries and transposed keys, scaled before or after, masks
that are added or select, a softmax, which may give zeros to queries that are shown nothing, and a
product with the values; with casts and other shapes between.
"""

from __future__ import annotations

from itertools import dropwhile, takewhile
from math import inf, prod
from typing import Any

from attrs import frozen
from tvm import relax
from tvm.ir import GenericConst

from autotune_tvm.networks.graph import Graph, array_of, dtype_of, operator_of, shape_of
from autotune_tvm.networks.passes.attention_masks import Sides, is_same_shape, may_hide_all
from autotune_tvm.networks.passes.attention_program import Attention, ScoreStep, Step
from autotune_tvm.networks.passes.merge_views import merged, permuted_axes, reshaped

__all__ = ["FoundAttention", "find_attention"]

Shape = tuple[int, ...]

_VIEWS = ("reshape", "expand_dims", "squeeze", "broadcast_to")


@frozen(eq=False)
class FoundAttention:
    """An attention in a graph.

    Attributes:
        attention: What it computes.
        operands: Queries, keys and values, and what else its program reads.
        shapes: Of queries, keys and values with one axis of heads, or with one of groups, and
            another one of their heads in queries.
        result: Shape of the result.
    """

    attention: Attention
    operands: tuple[Any, ...]
    shapes: tuple[Shape, ...]
    result: Shape

    @property
    def types(self) -> tuple[tuple[Shape, str], ...]:
        """Shapes and element types of the program's arguments."""
        shapes = [*self.shapes, *(shape_of(it) or () for it in self.operands[3:])]
        return tuple(
            (shape, dtype_of(it)) for shape, it in zip(shapes, self.operands, strict=True)
        )

    def emitted(self, graph: Graph, name: str) -> Any:
        """The call of the program, in the shape of the result."""
        views = [
            graph.emit(reshaped(it, shape, graph))
            for it, shape in zip(self.operands, self.shapes, strict=False)
        ]
        arguments = (*views, *self.operands[3:])
        mixed = graph.builder.call_te(self.attention.program, *arguments, primfunc_name_hint=name)
        return relax.op.reshape(graph.emit(mixed), self.result)


def find_attention(call: Any, graph: Graph) -> FoundAttention | None:
    """The attention whose last product a call is; None where it is none.

    None, too, where its scores or weights are used elsewhere, or have no fixed shape.
    """
    if operator_of(call) != "matmul":
        return None
    weights, casts = _behind_casts(call.args[0], graph)
    softmax, is_guarded = _softmax(weights, graph)
    square = None if softmax is None else shape_of(softmax.args[0])
    result, values = shape_of(graph.builder.normalize(call)), shape_of(call.args[1])
    if softmax is None or square is None or result is None or values is None:
        return None
    scores = softmax.args[0]
    if int(softmax.attrs.axis) % len(square) != len(square) - 1 or len(values) < 2:
        return None
    sides = Sides(graph)
    found = _scores(scores, 1 + is_guarded, sides)
    if found is None:
        return None
    product, steps = found
    heads, rows, columns = prod(square[:-2]), square[-2], square[-1]
    if prod(result[:-2]) != heads or not _is_batch(call) or values[-2] != columns:
        return None
    dtype = dtype_of(graph.builder.normalize(product))
    queries, first = _unscaled(product.args[0], dtype, graph)
    keys, second, is_transposed = _keys(product.args[1], dtype, graph)
    pair = _without_copies(keys, _flat(call.args[1], graph), graph)
    if pair is None:
        return None
    keys, held = pair
    if is_transposed:
        keys, third, is_transposed = _keys(keys, dtype, graph)
        second *= third
    groups = prod((shape_of(held) or ())[:-2])
    width = (shape_of(queries) or ())[-1]
    attention = Attention(
        is_transposed=is_transposed,
        scale=first * second,
        steps=steps,
        is_guarded=is_guarded and any(map(may_hide_all, steps)),
        dtype=dtype,
        weights_dtype=dtype_of(scores),
        casts=casts,
        result_dtype=dtype_of(graph.builder.normalize(call)),
    )
    batch = (heads,) if groups == heads else (groups, heads // groups)
    keys_shape = (width, columns) if is_transposed else (columns, width)
    shapes = ((*batch, rows, width), (batch[0], *keys_shape), (batch[0], columns, values[-1]))
    operands = (queries, keys, held, *sides.operands)
    return FoundAttention(attention, operands, shapes, result)


def _without_copies(keys: Any, values: Any, graph: Graph) -> tuple[Any, Any] | None:
    """Keys and values before each head was copied for several of queries.

    None where products broadcast them by different numbers of heads.
    """
    for pair in ((_uncopied(keys, graph), _uncopied(values, graph)), (keys, values)):
        if prod((shape_of(pair[0]) or ())[:-2]) == prod((shape_of(pair[1]) or ())[:-2]):
            return pair
    return None


def _uncopied(value: Any, graph: Graph) -> Any:
    """Matrices before each was repeated so many times, next to one another."""
    value = _flat(value, graph)
    call, after = graph.source(value), shape_of(value)
    if after is None or len(after) < 3:
        return value
    if operator_of(call) == "permute_dims":
        return _uncopied_before(call, len(after), graph)
    before = shape_of(call.args[0]) if operator_of(call) in ("broadcast_to", "repeat") else None
    if before is None:
        return value
    copied = [1] * (len(after) - len(before)) + list(before)
    if operator_of(call) == "broadcast_to" and copied[-3] != 1:
        return value
    copied[-3] = after[-3]
    return _flat(call.args[0], graph) if tuple(copied) == after else value


def _uncopied_before(turned: Any, rank: int, graph: Graph) -> Any:
    """As :func:`_uncopied`, of a permutation of what has another axis after that of heads."""
    value, axes = turned.args[0], permuted_axes(turned, rank)
    spread, after = graph.source(value), shape_of(value) or ()
    if operator_of(spread) == "reshape":
        spread = graph.source(spread.args[0])
    before = shape_of(spread.args[0]) if operator_of(spread) == "broadcast_to" else None
    heads = axes[-3]
    copies = 1 if before is None or len(before) != rank + 1 else after[heads] // before[heads]
    if before is None or copies == 1 or before[heads + 1] != 1:
        return turned
    held = (*before[: heads + 1], *before[heads + 2 :])
    wanted = (*before[: heads + 1], copies, *before[heads + 2 :])
    made = (*held[:heads], held[heads] * copies, *held[heads + 1 :])
    if (made, wanted) != (after, shape_of(spread)):
        return turned
    return graph.emit(
        relax.op.permute_dims(graph.emit(reshaped(spread.args[0], held, graph)), axes)
    )


def _behind_casts(value: Any, graph: Graph) -> tuple[Any, tuple[str, ...]]:
    """What becomes a value by casts and other shapes, and the casts in order."""
    casts: list[str] = []
    while graph.used_once(value):
        call = graph.source(value)
        if operator_of(call) == "astype" and _is_float(str(call.attrs.dtype)):
            casts.insert(0, str(call.attrs.dtype))
        elif not _is_view(call, value):
            break
        value = call.args[0]
    return value, tuple(casts)


def _is_view(call: Any, value: Any) -> bool:
    """Whether a call keeps the last two axes, and the elements and their order."""
    if operator_of(call) not in _VIEWS:
        return False
    before, after = shape_of(call.args[0]), shape_of(value)
    if before is None or after is None or len(before) < 2:
        return False
    return before[-2:] == after[-2:] and prod(before) == prod(after)


def _softmax(weights: Any, graph: Graph) -> tuple[Any, bool]:
    """The softmax that weights are, and whether queries that are shown nothing have zeros."""
    call = graph.source(weights)
    if not graph.used_once(weights):
        return None, False
    if operator_of(call) == "nn.softmax":
        return call, False
    if operator_of(call) != "where":
        return None, False
    condition, zero, softmax = call.args
    number, inner = array_of(zero), graph.source(softmax)
    if number is None or number.any() or not graph.used_once(softmax):
        return None, False
    if operator_of(inner) != "nn.softmax" or not _finds_hidden(condition, inner.args[0], graph):
        return None, False
    return inner, True


def _finds_hidden(condition: Any, scores: Any, graph: Graph) -> bool:
    """Whether a condition holds where all scores of a query are minus infinity."""
    wanted = ["not", "max", "not", "equal"]
    while wanted and graph.used_once(condition):
        call = graph.source(condition)
        operator = operator_of(call).removeprefix("logical_").removeprefix("bitwise_")
        if operator == wanted[0]:
            wanted.pop(0)
        elif operator != "astype":
            return False
        if operator == "max" and not _keeps_rows(call):
            return False
        if not wanted:
            lowest = array_of(call.args[1])
            is_lowest = lowest is not None and bool((lowest == -inf).all())
            return is_lowest and bool(call.args[0].same_as(scores))
        condition = call.args[0]
    return False


def _keeps_rows(call: Any) -> bool:
    """Whether a maximum is that of the last axis, which is kept with one element."""
    shape = shape_of(call.args[0])
    if shape is None or call.attrs.axis is None or not call.attrs.keepdims:
        return False
    return [int(axis) % len(shape) for axis in call.attrs.axis] == [len(shape) - 1]


def _scores(value: Any, uses: int, sides: Sides) -> tuple[Any, tuple[Step, ...]] | None:
    """The product that scores are computed of, and what is done to it, in order.

    Args:
        value: The scores.
        uses: How often they are used by what is replaced.
        sides: Reads what else they are computed of.
    """
    graph = sides.graph
    call, shape, dtype = graph.source(value), shape_of(value), dtype_of(value)
    if shape is None or len(shape) < 2 or graph.uses[value] != uses or not _is_float(dtype):
        return None
    operator = operator_of(call)
    if not operator:
        return None
    if operator == "matmul":
        return (call, ()) if _is_batch(call) else None
    if _is_view(call, value):
        return _scores(call.args[0], 1, sides)
    if operator == "astype":
        found = _scores(call.args[0], 1, sides)
        return None if found is None else (found[0], (*found[1], ScoreStep("astype", dtype)))
    for inner in call.args:
        if isinstance(inner, GenericConst) or not is_same_shape(inner, value):
            continue
        known = len(sides.operands)
        found = _scores(inner, 1, sides)
        step = None if found is None else sides.step(call, inner, shape, dtype)
        if found is not None and step is not None:
            return found[0], (*found[1], step)
        del sides.operands[known:]
    return None


def _is_batch(call: Any) -> bool:
    """Whether each matrix on the left of a product has one on the right.

    Several that are next to one another may share theirs, which the product broadcasts.
    """
    shapes = [shape_of(factor) for factor in call.args]
    if any(shape is None or len(shape) < 2 for shape in shapes):
        return False
    left, right = ([*dropwhile((1).__eq__, shape[:-2])] for shape in shapes if shape is not None)
    right = [1] * (len(left) - len(right)) + right
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    rest = len(list(shared))
    return len(left) == len(right) and all(extent == 1 for extent in right[rest:])


def _flat(value: Any, graph: Graph) -> Any:
    """A value before its batch got other axes."""
    while _is_view(call := graph.source(value), value):
        value = call.args[0]
    return value


def _unscaled(
    value: Any, dtype: str, graph: Graph, keeps_shape: bool = False
) -> tuple[Any, float]:
    """A factor of a product without what scales it or, if allowed, gives its batch other axes."""
    scale = 1.0
    while True:
        value = value if keeps_shape else _flat(value, graph)
        scaled = _number(graph.source(value), dtype)
        if scaled is None:
            return value, scale
        value, factor = scaled
        scale *= factor


def _number(call: Any, dtype: str) -> tuple[Any, float] | None:
    """What a call multiplies by a number, and the number; None where it does something else.

    In types of less precision a product of what is not scaled may overflow.
    """
    operator = operator_of(call)
    if operator not in ("multiply", "divide") or dtype not in ("float32", "float64"):
        return None
    left, right = call.args
    if operator == "multiply" and isinstance(left, GenericConst):
        left, right = right, left
    array = array_of(right)
    if array is None or array.size != 1 or isinstance(left, GenericConst):
        return None
    if len(array.shape) > len(shape_of(left) or ()) or dtype_of(left) != dtype:
        return None
    number = float(array.reshape(()))
    return left, number if operator == "multiply" else 1 / number


def _keys(value: Any, dtype: str, graph: Graph) -> tuple[Any, float, bool]:
    """Keys, by what they are scaled, and whether their width is the axis before the keys."""
    value, scale = _unscaled(value, dtype, graph)
    call = graph.source(value)
    if operator_of(call) != "permute_dims":
        return value, scale, True
    axes = permuted_axes(call, len(shape_of(value) or ()))
    if axes[-2] < axes[-1]:
        return value, scale, True
    axes[-2:] = axes[-1], axes[-2]
    keys, more = _unscaled(call.args[0], dtype, graph, keeps_shape=True)
    if axes != sorted(axes):
        turned = relax.op.permute_dims(keys, axes)
        better = merged(turned, graph)
        keys = graph.emit(turned if better is None else better)
    return keys, scale * more, False


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))
