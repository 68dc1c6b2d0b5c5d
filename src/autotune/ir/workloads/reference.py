"""Reference semantics: a workload evaluated in numpy.

The evaluator knows bodies, not operators. Floating-point stages are computed in double
precision and rounded when stored, so that the reference is at least as exact as any candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    gathers,
)
from autotune.ir.expressions.integer import evaluate
from autotune.ir.expressions.scalar import children
from autotune.ir.workloads.tensor import Tensor
from autotune.ir.workloads.workload import Stage, Workload

Array = NDArray[Any]

# Points evaluated at once when a stage has to be broadcast: bounds memory, not results.
_CHUNK_POINTS = 1 << 22
_ROUNDED_ONCE = ("add", "sub", "mul", "div")
# An axis of a view: as long as the iteration space, or broadcast along it.
_PLACED = {True: slice(None), False: None}
# Integers below are floats of double precision.
_EXACT_DOUBLE = 1 << 53


def reference_outputs(workload: Workload, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The workload's outputs for ``inputs``, which maps every input's name to its array.

    Raises:
        InvalidValueError: an input is missing or has another shape.
    """
    arrays: dict[str, Array] = {}
    for tensor in workload.inputs:
        if tensor.name not in inputs:
            raise InvalidValueError(f"no array for input {tensor.name!r}")
        if inputs[tensor.name].shape != tensor.shape:
            raise InvalidValueError(
                f"input {tensor.name!r} has shape {inputs[tensor.name].shape}, "
                f"expected {tensor.shape}"
            )
        arrays[tensor.name] = inputs[tensor.name]
    if _is_exact_as_stored(workload):
        (stage,) = workload.stages
        arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        return {stage.name: _evaluated(stage, arrays, stage.output.element.dtype)}
    arrays = {it.name: widened(it, arrays[it.name]) for it in workload.inputs}
    for stage in workload.stages:
        arrays[stage.name] = evaluate_stage(stage, arrays)
    elements = {stage.name: stage.output.element for stage in workload.stages}
    return {name: elements[name].stored(arrays[name]) for name in workload.outputs}


def _is_exact_as_stored(workload: Workload) -> bool:
    """Return whether each result is an element, or one operation on two that is rounded once.

    Such an operation on numbers of single precision gives the same when it is computed in double
    precision and rounded then, which has more than twice as many digits and two.
    """
    if len(workload.stages) > 1:
        return False
    (stage,) = workload.stages
    body, output = stage.body, stage.output
    types = {workload.tensors[it.tensor].dtype for it in stage.loads}
    if stage.combiner is not None or types != {output.dtype}:
        return False
    if isinstance(body, Load):
        return True
    if output.dtype != "float32" or not isinstance(body, Binary) or body.op not in _ROUNDED_ONCE:
        return False
    return isinstance(body.left, Load) and isinstance(body.right, Load)


def widened(tensor: Tensor, array: Array) -> Array:
    """The numbers of a tensor in a contiguous array, of double precision where they are floats."""
    element = tensor.element
    numbers = element.numbers(array)
    return np.asarray(numbers, dtype=np.float64 if element.is_float else None, order="C")


def evaluate_stage(stage: Stage, arrays: Mapping[str, Array]) -> Array:
    """Evaluate a stage from arrays as :func:`widened` makes them."""
    dtype = _result_dtype(stage)
    if stage.combiner == "add" and stage.scan_axis is None:
        contracted = _contract(stage, arrays)
        if contracted is not None:
            # What is made by a product of matrices may be transposed in memory.
            return contracted.astype(dtype, order="C")
    return _evaluated(stage, arrays, dtype)


def _evaluated(stage: Stage, arrays: Mapping[str, Array], dtype: np.dtype[Any]) -> Array:
    """Values that a stage writes, as numbers of a type, part after part."""
    result = np.empty(stage.output.shape, dtype=dtype)
    extent = stage.spatial_axes[0].extent if stage.spatial_axes else 1
    step = max(1, _CHUNK_POINTS * extent // max(stage.points, 1))
    if stage.scan_axis is not None and stage.scan_axis is stage.spatial_axes[0]:
        step = extent
    for start in range(0, extent, step):
        stop = min(extent, start + step)
        target = result[start:stop] if stage.spatial_axes else result
        target[...] = _evaluate_chunk(stage, arrays, start, stop)
    return result


def _evaluate_chunk(stage: Stage, arrays: Mapping[str, Array], start: int, stop: int) -> Array:
    """The stage for the first spatial axis in ``range(start, stop)``."""
    grid = stage_grid(stage, start, stop)
    shape = np.broadcast_shapes(*(values.shape for values in grid.values()))
    views = _views(stage, arrays, start, stop)
    value = np.broadcast_to(evaluate_body(stage.body, grid, arrays, views), shape)
    if stage.combiner is None:
        return value
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    if stage.scan_axis is not None:
        return np.asarray(
            combine[stage.combiner].accumulate(
                value.astype(_result_dtype(stage), copy=False),
                axis=stage.axes.index(stage.scan_axis),
                dtype=_result_dtype(stage),
            )
        )
    reduced = tuple(p for p, axis in enumerate(stage.axes) if axis.kind == "reduce")
    return np.asarray(combine[stage.combiner].reduce(value, axis=reduced))


def _result_dtype(stage: Stage) -> np.dtype[Any]:
    """Type that the numbers of the stage's result are computed in."""
    element = stage.output.element
    return np.dtype(np.float64) if element.is_float else np.dtype(element.dtype)


def stage_grid(stage: Stage, start: int = 0, stop: int | None = None) -> dict[str, Array]:
    """Values of every axis, which broadcast together to the iteration space.

    Those of the first spatial axis are in ``range(start, stop)``.
    """
    first = next(iter(stage.spatial_axes), None)
    rank = len(stage.axes)
    grid: dict[str, Array] = {}
    for position, axis in enumerate(stage.axes):
        whole = axis is not first or stop is None
        values = np.arange(axis.extent) if whole else np.arange(start, stop)
        grid[axis.name] = values.reshape([-1 if p == position else 1 for p in range(rank)])
    return grid


def _contract(stage: Stage, arrays: Mapping[str, Array]) -> Array | None:
    """A sum of a product of two in-bounds loads, as a contraction of strided views."""
    product = stage.body
    if not isinstance(product, Binary) or product.op != "mul":
        return None
    operands = []
    for side in (product.left, product.right):
        load = side.operand if isinstance(side, Cast) else side
        if not isinstance(load, Load):
            return None
        array = arrays[load.tensor]
        if isinstance(side, Cast):
            array = _cast(array, side.dtype)
        view = _strided_view(stage, load, array)
        if view is None:
            return None
        operands.append(view)
    indexed = {*operands[0][1], *operands[1][1]}
    if any(axis.extent > 1 and axis.name not in indexed for axis in stage.axes):
        return None
    output = [axis.name for axis in stage.spatial_axes if axis.name in indexed]
    return _product(stage, operands, output).reshape(stage.output.shape)


def _product(
    stage: Stage, operands: Sequence[tuple[Array, tuple[str, ...]]], output: Sequence[str]
) -> Array:
    """The sum of products of views over all axes that are not in ``output``, as matrices.

    Integers are multiplied as floats of double precision where these hold every sum exactly.
    """
    element, extents = stage.output.element, stage.extents
    summed = [axis.name for axis in stage.reduce_axes]
    views = [view for view, _ in operands]
    kind: np.dtype[Any] = np.dtype(np.float64)
    if not element.is_float and all(view.dtype.kind in "biu" for view in views):
        length = math.prod(extents[name] for name in summed)
        is_exact = length * math.prod(map(_largest, views)) < _EXACT_DOUBLE
        kind = np.dtype(np.int64) if is_exact else element.dtype
        views = [view.astype(np.float64 if is_exact else element.dtype) for view in views]
    (left, right), (first, second) = views, [names for _, names in operands]
    groups = (
        [it for it in output if it in first and it in second],
        [it for it in output if it not in second],
        [it for it in output if it not in first],
    )
    # What only one factor depends on is summed before they are multiplied.
    left = left.sum(
        axis=tuple(at for at, it in enumerate(first) if it in summed and it not in second)
    )
    right = right.sum(
        axis=tuple(at for at, it in enumerate(second) if it in summed and it not in first)
    )
    first = tuple(it for it in first if it in second or it in output)
    second = tuple(it for it in second if it in first or it in output)
    inner = [it for it in summed if it in first]
    sizes = [math.prod(extents[it] for it in part) for part in (*groups, inner)]
    batch, rows, columns, depth = sizes
    order = [first.index(it) for it in (*groups[0], *groups[1], *inner)]
    matrix = left.transpose(order).reshape(batch, rows, depth)
    order = [second.index(it) for it in (*groups[0], *inner, *groups[2])]
    other = right.transpose(order).reshape(batch, depth, columns)
    names = [*groups[0], *groups[1], *groups[2]]
    made = np.matmul(matrix, other).astype(kind, copy=False)
    made = made.reshape([extents[it] for it in names])
    return np.asarray(made.transpose([names.index(it) for it in output]))


def _largest(array: Array) -> int:
    return max(abs(int(array.max())), abs(int(array.min())))


def _strided_view(stage: Stage, load: Load, array: Array) -> tuple[Array, tuple[str, ...]] | None:
    """``load`` over the axes it depends on, as a view; None when it may leave the array.

    None also where an index is not affine.
    """
    strides: dict[str, int] = {}
    offset = 0
    for form, extent, stride in zip(stage.forms(load), array.shape, array.strides, strict=True):
        if form.terms:
            return None
        low, high = form.bounds(stage.extents)
        if low < 0 or high >= extent:
            return None
        offset += form.constant * stride
        for axis, coefficient in form.coefficients.items():
            strides[axis] = strides.get(axis, 0) + coefficient * stride
    names = tuple(axis.name for axis in stage.axes if axis.name in strides)
    flat = np.ndarray((), dtype=array.dtype, buffer=array, offset=offset)
    view = np.lib.stride_tricks.as_strided(
        flat,
        shape=[stage.extents[name] for name in names],
        strides=[strides[name] for name in names],
        writeable=False,
    )
    return view, names


def _views(stage: Stage, arrays: Mapping[str, Array], start: int, stop: int) -> dict[Load, Array]:
    """Views of what is loaded in bounds, by load, which broadcast as :func:`stage_grid` does."""
    first = next(iter(stage.spatial_axes), None)
    found: dict[Load, Array] = {}
    for load in {*stage.loads}:
        strided = _strided_view(stage, load, arrays[load.tensor])
        if strided is not None:
            view, names = strided
            if first is not None and first.name in names:
                view = view[(slice(None),) * names.index(first.name) + (slice(start, stop),)]
            found[load] = view[tuple(_PLACED[axis.name in names] for axis in stage.axes)]
    return found


def evaluate_body(
    body: ScalarExpr,
    grid: Mapping[str, Array],
    arrays: Mapping[str, Array],
    views: Mapping[Load, Array] | None = None,
) -> Any:
    """A body's value where the axes have the values in ``grid``, which broadcast together.

    Loads outside an array give its nearest element: a predicate is expected to discard them. Where
    an index is computed from floats, what is computed from axes alone keeps its own precision:
    rounded to a whole number, 2.5 and its neighbour are different elements.

    Args:
        body: What is computed.
        grid: By axis.
        arrays: By tensor.
        views: What some of its loads give, where that is known.
    """
    own = _from_axes(body) if gathers(body) else frozenset()
    return _evaluate(body, grid, arrays, own, views or {})


def _from_axes(body: ScalarExpr) -> frozenset[int]:
    """Identities of the parts of ``body`` that read nothing."""
    found: set[int] = set()

    def visit(node: ScalarExpr) -> bool:
        parts = [visit(part) for part in children(node)]
        alone = all(parts) and not isinstance(node, (Load, Gather))
        if alone:
            found.add(id(node))
        return alone

    visit(body)
    return frozenset(found)


def _evaluate(
    body: ScalarExpr,
    grid: Mapping[str, Array],
    arrays: Mapping[str, Array],
    own: frozenset[int],
    views: Mapping[Load, Array],
) -> Any:
    """Evaluate as :func:`evaluate_body`; ``own`` are the parts that keep their precision."""

    def part(node: ScalarExpr) -> Any:
        return _evaluate(node, grid, arrays, own, views)

    if isinstance(body, Constant):
        element = element_type(body.dtype)
        kept = _own_dtype(body) if id(body) in own else None
        return np.asarray(body.value, dtype=kept if element.is_float else element.dtype)
    if isinstance(body, IndexValue):
        return np.asarray(evaluate(body.index, grid))
    if isinstance(body, Load):
        if body in views:
            return views[body]
        array = arrays[body.tensor]
        # A load that a predicate guards may point outside; any element will do there.
        indices = tuple(
            np.clip(evaluate(index, grid), 0, extent - 1)
            for index, extent in zip(body.indices, array.shape, strict=True)
        )
        return array[indices]
    if isinstance(body, Gather):
        array = arrays[body.tensor]
        values = (np.asarray(part(index)) for index in body.indices)
        return array[
            tuple(
                np.clip(value, 0, extent - 1).astype(np.int64)
                for value, extent in zip(values, array.shape, strict=True)
            )
        ]
    if isinstance(body, Cast):
        value = _cast(part(body.operand), body.dtype)
        return value.astype(_own_dtype(body) or value.dtype) if id(body) in own else value
    if isinstance(body, Unary):
        return _unary(body.op, part(body.operand))
    if isinstance(body, Select):
        return np.where(part(body.condition), part(body.on_true), part(body.on_false))
    return _binary(body.op, part(body.left), part(body.right))


def _own_dtype(node: Constant | Cast) -> np.dtype[Any] | None:
    """The type of a value of single precision; None of others."""
    return np.dtype(np.float32) if node.dtype == "float32" else None


def _cast(value: Array, dtype: str) -> Array:
    """Floats keep double precision, which integers get: they would be multiplied as such."""
    element = element_type(dtype)
    if not element.is_float:
        return value.astype(element.dtype)
    return value if value.dtype.kind == "f" else value.astype(np.float64)


def _unary(op: str, value: Array) -> Array:
    if op == "rsqrt":
        return np.asarray(1.0 / np.sqrt(value))
    if op == "sigmoid":
        return np.asarray(1.0 / (1.0 + np.exp(-value)))
    if op == "erf":
        return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(value))
    names = {"neg": "negative", "not": "logical_not", "round": "rint"}
    return np.asarray(getattr(np, names.get(op, op))(value))


def _binary(op: str, left: Array, right: Array) -> Array:
    left, right = _of_one_kind(np.asarray(left), np.asarray(right))
    if op == "div" and left.dtype.kind in "iu" and right.dtype.kind in "iu":
        # Towards zero; what numpy's division of integers rounds down.
        quotient, rest = np.divmod(left, right)
        return np.asarray(quotient + ((rest != 0) & ((left < 0) != (right < 0))))
    names = {
        "sub": "subtract",
        "mul": "multiply",
        "div": "divide",
        "max": "maximum",
        "min": "minimum",
        "pow": "power",
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "eq": "equal",
        "ne": "not_equal",
        "and": "logical_and",
        "or": "logical_or",
    }
    return np.asarray(getattr(np, names.get(op, op))(left, right))


def _of_one_kind(left: Array, right: Array) -> tuple[Array, Array]:
    """Integers of two types in the wider one, as programs combine them: numpy makes floats."""
    kinds = {left.dtype.kind, right.dtype.kind}
    if kinds != {"i", "u"}:
        return left, right
    common = max(left.dtype, right.dtype, key=lambda it: (it.itemsize, it.name))
    return left.astype(common), right.astype(common)
