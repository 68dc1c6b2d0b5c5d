"""Random inputs of a workload: what candidates are validated with.

What is used as an index has to be in the range of what it indexes, for compiled programs do not
check. Such inputs are drawn from the indices of the shortest dimension that they reach, then from
half of them and so on, until no read that is executed leaves its tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Binary, Gather, Load, ScalarExpr, Select
from autotune.ir.expressions.scalar import children, walk
from autotune.ir.workloads.reference import (
    evaluate_body,
    evaluate_stage,
    reference_outputs,
    stage_grid,
    widened,
)
from autotune.ir.workloads.tensor import Tensor
from autotune.ir.workloads.workload import Stage, Workload

__all__ = ["draw_example", "index_inputs", "random_inputs"]

Array = NDArray[Any]

# Bounds of random numbers, the upper one excluded.
_INTEGERS = {"bool": (0, 2), "uint8": (0, 256), "int8": (-128, 128)}
_INTEGERS |= {f"uint{bits}": (0, 16) for bits in (16, 32, 64)}


def draw_example(
    workload: Workload, rng: np.random.Generator
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Random inputs, and the outputs that the workload has of them.

    Inputs are as of :func:`random_inputs`. Where some make NaN on the way, as roots, logarithms
    and powers of negative numbers do, floats are taken without their signs, unless these do so,
    too: a sum with one NaN says nothing of its other terms, and maxima with NaN are not the same
    everywhere.

    Raises:
        UnsupportedWorkload: a read leaves its tensor whatever was drawn.
    """
    arrays = random_inputs(workload, rng)
    outputs, is_valid = _evaluate_watched(workload, arrays)
    if not is_valid:
        unsigned = {it.name: _without_signs(it, arrays[it.name]) for it in workload.inputs}
        others, is_valid = _evaluate_watched(workload, unsigned)
        if is_valid:
            return unsigned, others
    return arrays, outputs


def _evaluate_watched(
    workload: Workload, arrays: Mapping[str, Array]
) -> tuple[dict[str, Array], bool]:
    """The outputs, and whether no operation was given numbers for which it is not defined."""
    found: list[str] = []
    with np.errstate(invalid="call", call=lambda kind, _: found.append(kind)):
        return reference_outputs(workload, arrays), not found


def _without_signs(tensor: Tensor, array: Array) -> Array:
    if not tensor.element.is_float:
        return array
    return np.asarray(tensor.element.stored(np.abs(tensor.element.numbers(array))), order="C")


def random_inputs(workload: Workload, rng: np.random.Generator) -> dict[str, Array]:
    """Draw a random array per input: uniform in [-1, 1) for floats, and for bytes over all values.

    Other integers are small, so that sums of products do not overflow. Instructions for products
    of bytes may saturate, which only large bytes show. What is used as an index is in range, and
    no integer is zero by which something is divided.

    Raises:
        UnsupportedWorkload: a read leaves its tensor whatever was drawn.
    """
    drawn = index_inputs(workload, rng)
    arrays: dict[str, Array] = {}
    divisors = set(_divisors(workload))
    for tensor in workload.inputs:
        array = drawn[tensor.name] if tensor.name in drawn else _draw(tensor, rng)
        if tensor.name in divisors and not tensor.element.is_float:
            array[array == 0] = 1
        arrays[tensor.name] = array
    return arrays


def _divisors(workload: Workload) -> Iterator[str]:
    """The tensors of which elements are divisors, converted or not."""
    for stage in workload.stages:
        for node in walk(stage.body):
            if isinstance(node, Binary) and node.op in ("div", "mod"):
                yield from _tensors_of(node.right)


def index_inputs(workload: Workload, rng: np.random.Generator) -> dict[str, Array]:
    """Random arrays for the inputs on which indices depend; none where no index depends on data.

    Raises:
        UnsupportedWorkload: a read leaves its tensor whatever was drawn.
    """
    extents = _indexed_extents(workload)
    inputs = [tensor for tensor in workload.inputs if tensor.name in extents]
    while True:
        arrays = {tensor.name: _draw(tensor, rng, (0, extents[tensor.name])) for tensor in inputs}
        leaving = _leaving(workload, arrays, set(extents))
        if leaving is None:
            return arrays
        stage, tensor = leaving
        if all(extent == 1 for extent in extents.values()):
            raise UnsupportedWorkload(
                f"stage {stage!r} reads beside {tensor!r}, also where all indices given are 0"
            )
        extents = {name: max(1, extent // 2) for name, extent in extents.items()}


def _draw(
    tensor: Tensor, rng: np.random.Generator, bounds: tuple[int, int] | None = None
) -> Array:
    values: Array
    storage = tensor.element.storage
    if tensor.element.is_float:
        values = rng.random(tensor.shape, dtype=np.float64) * 2 - 1
    else:
        low, high = _INTEGERS.get(storage, (-8, 8))
        if bounds is not None and storage != "bool":
            low, high = bounds[0], min(bounds[1], np.iinfo(storage).max)
        values = rng.integers(low, high, tensor.shape)
    # Not by `ascontiguousarray`, which makes a vector of a single number.
    return np.asarray(tensor.element.stored(values), order="C")


def _indexed_extents(workload: Workload) -> dict[str, int]:
    """The shortest dimension that each tensor reaches as an index, by way of stages too."""
    found: dict[str, int] = {}

    def reaches(tensor: str, extent: int) -> None:
        found[tensor] = min(found.get(tensor, extent), extent)

    for stage in reversed(workload.stages):
        if stage.name in found:
            for tensor in stage.reads:
                reaches(tensor, found[stage.name])
        for gather in stage.gathers:
            shape = workload.tensors[gather.tensor].shape
            for index, extent in zip(gather.indices, shape, strict=True):
                for tensor in _tensors_of(index):
                    reaches(tensor, extent)
    return found


def _tensors_of(body: ScalarExpr) -> Iterator[str]:
    return (node.tensor for node in walk(body) if isinstance(node, (Load, Gather)))


def _leaving(
    workload: Workload, inputs: Mapping[str, Array], wanted: set[str]
) -> tuple[str, str] | None:
    """A stage and a tensor that it reads out of range; None if there is none."""
    arrays = {name: widened(workload.tensors[name], array) for name, array in inputs.items()}
    for stage in workload.stages:
        left = _left(workload, stage, arrays) if stage.gathers else None
        if left is not None:
            return stage.name, left
        if stage.name in wanted:
            arrays[stage.name] = evaluate_stage(stage, arrays)
    return None


def _left(workload: Workload, stage: Stage, arrays: Mapping[str, Array]) -> str | None:
    """The tensor beside which a stage reads where its conditions let it."""
    grid = stage_grid(stage)

    def visit(body: ScalarExpr, where: Any) -> str | None:
        if isinstance(body, Select) and set(_tensors_of(body.condition)) <= set(arrays):
            taken = np.asarray(evaluate_body(body.condition, grid, arrays), dtype=np.bool_)
            parts = [
                (body.condition, where),
                (body.on_true, where & taken),
                (body.on_false, where & ~taken),
            ]
        else:
            parts = [(child, where) for child in children(body)]
        for child, there in parts:
            left = visit(child, there)
            if left is not None:
                return left
        if not isinstance(body, Gather):
            return None
        for index, extent in zip(body.indices, workload.tensors[body.tensor].shape, strict=True):
            value = np.asarray(evaluate_body(index, grid, arrays))
            if np.any(where & ((value < 0) | (value >= extent))):
                return body.tensor
        return None

    return visit(stage.body, np.asarray(True))
