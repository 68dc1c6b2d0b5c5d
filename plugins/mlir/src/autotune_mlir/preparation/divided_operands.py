"""Operands that are read at quotients or remainders, where tiles of these are slices.

The body of a stage extracts such elements. In tiles whose extents divide the divisor, or are
multiples of it, quotients are next to each other and begin with the tile: heads ``h`` of queries
that share the keys ``h // 4`` need one head of keys for a tile of 1, 2 or 4 of them. The program
is then given an operand with a divided map, of which MLIR makes the slices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import AffineForm, Load
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import Candidate
from autotune.sketches.steps import (
    ChunkReduction,
    ChunkScan,
    Pack,
    SplitReduction,
    Tile,
    TileCeil,
)
from autotune_mlir import bindings
from autotune_mlir.building import Builder, stage_operation
from autotune_mlir.operands import tensor_of
from autotune_mlir.parsing import parse_payload
from autotune_mlir.preparation.insertion import erase_unused
from autotune_mlir.traversal import operations_in

__all__ = ["DividedOperand", "divide_program", "divided_operands"]

_EXTRACT = "tensor.extract"


@frozen
class DividedOperand:
    """An operand that is read at quotients or remainders, of which tiles read slices.

    Attributes:
        stage: The stage that reads.
        load: How it does.
    """

    stage: Stage
    load: Load


def divided_operands(
    candidate: Candidate | None, workload: Workload
) -> tuple[DividedOperand, ...]:
    """Those of the program of a candidate.

    Args:
        candidate: The steps; None is the untuned program.
        workload: What is computed.

    Raises:
        InvalidSchedule: one that is packed is no slice for a tile.
    """
    if candidate is None:
        return ()
    return tuple(
        DividedOperand(stage, load)
        for stage in workload.stages
        for load in _sliced_loads(stage, workload, candidate)
    )


def _sliced_loads(stage: Stage, workload: Workload, candidate: Candidate) -> Sequence[Load]:
    """Reads of a stage that become operands: all that divide, or those that are packed."""
    divided = [it for it in dict.fromkeys(stage.loads) if any(f.terms for f in stage.forms(it))]
    if not divided or not stage.reduce_axes:
        return ()
    steps = [step for step in candidate.sketch.core_steps if step.stage == stage.name]
    packed = {step.operand for step in steps if isinstance(step, Pack)}
    problems = {
        load: _problem(stage, load, workload.tensors[load.tensor].shape, candidate)
        for load in divided
    }
    for load, problem in problems.items():
        if problem is not None and load.tensor in packed:
            raise InvalidSchedule(f"packing {load.tensor!r} for {stage.name!r}: {problem}")
    rewritten = any(isinstance(it, (SplitReduction, ChunkReduction, ChunkScan)) for it in steps)
    if rewritten or any(problems.values()):
        # Elements are extracted in any case.
        return [load for load in divided if load.tensor in packed]
    return divided


def _problem(stage: Stage, load: Load, shape: Sequence[int], candidate: Candidate) -> str | None:
    """Why tiles of an operand are no slices; None where they are."""
    if len({other for other in stage.loads if other.tensor == load.tensor}) > 1:
        return "it is read at several places"
    vector = stage.spatial_axes[-1].name
    for form, extent in zip(stage.forms(load), shape, strict=True):
        if not form.terms and not form.constant and list(form.coefficients.values()) == [1]:
            continue
        if (found := form.quotient) is None:
            return "an index is neither an axis nor the quotient or the remainder of one"
        axis, term = found
        if _extent_read(stage, form) > extent:
            return "it is read beyond its end"
        if axis == vector:
            return f"lanes along {axis!r} are at several quotients"
        for tile in _tiles(stage, axis, candidate):
            if tile % term.divisor and term.divisor % tile:
                return (
                    f"tiles of {tile} along {axis!r} are neither multiples nor divisors of "
                    f"{term.divisor}, and what they read is no slice"
                )
    return None


def _extent_read(stage: Stage, form: AffineForm) -> int:
    """How much of a dimension is read at an axis, its quotients or its remainders."""
    found = form.quotient
    if found is None:
        return stage.extents[next(iter(form.coefficients))]
    axis, term = found
    extent = stage.extents[axis]
    return -(-extent // term.divisor) if term.op == "floordiv" else min(extent, term.divisor)


def _tiles(stage: Stage, axis: str, candidate: Candidate) -> Iterator[int]:
    """Extents of an axis inside of each of its loops."""
    for step in candidate.sketch.core_steps:
        if isinstance(step, (Tile, TileCeil)) and (step.stage, step.axis) == (stage.name, axis):
            factors = [int(evaluate(factor, candidate.config)) for factor in step.factors]
            yield from (math.prod(factors[level:]) for level in range(1, len(factors)))


def divide_program(program: str, workload: Workload, operands: Sequence[DividedOperand]) -> str:
    """A program whose operations read operands at quotients and remainders.

    Args:
        program: The text of a program with attributes for stages.
        workload: What it computes.
        operands: What becomes the last operands of their stages, in this order.

    Raises:
        InvalidSchedule: a stage is no operation that extracts an operand's elements.
    """
    if not operands:
        return program
    mlir = bindings.load()
    module = parse_payload(program)
    inputs = tuple(tensor.name for tensor in workload.inputs)
    with module.context, mlir.ir.Location.unknown():
        for operand in operands:
            reader = stage_operation(module, operand.stage.name)
            read = [
                it
                for it in operations_in(reader)
                if it.name == _EXTRACT and tensor_of(it.operands[0], inputs) == operand.load.tensor
            ]
            shape = workload.tensors[operand.load.tensor].shape
            if not read or any(tuple(it.operands[0].type.shape) != shape for it in read):
                raise InvalidSchedule(
                    f"stage {operand.stage.name!r} extracts no elements of {operand.load.tensor!r}"
                )
            _read_operand(mlir, reader, read, operand)
    return str(module)


def _read_operand(
    mlir: bindings.Bindings, reader: Any, extracted: Sequence[Any], operand: DividedOperand
) -> None:
    """Have an operation read an operand where its body extracts elements."""
    ir, stage = mlir.ir, operand.stage
    source = _slice(ir, reader, extracted[0].operands[0], operand)
    *inputs, output = reader.operands
    *maps, written = [item.value for item in reader.attributes["indexing_maps"]]
    axes = [axis.name for axis in (*stage.spatial_axes, *stage.reduce_axes)]
    places = [_place(ir, form, axes) for form in stage.forms(operand.load)]
    maps += [ir.AffineMap.get(len(axes), 0, places), written]
    body = reader.regions[0].blocks[0]
    with ir.InsertionPoint(reader), reader.location:
        made = Builder(mlir).generic(
            stage.name, [*inputs, source], maps, output, len(stage.reduce_axes)
        )
    body.append_to(made.regions[0])
    body = made.regions[0].blocks[0]
    last = len(inputs)
    element = body.add_argument(source.type.element_type, reader.location)
    result = body.add_argument(body.arguments[last].type, reader.location)
    body.arguments[last].replace_all_uses_with(result)
    for operation in extracted:
        operation.results[0].replace_all_uses_with(element)
        erase_unused(operation)
    body.erase_argument(last)
    reader.results[0].replace_all_uses_with(made.results[0])
    reader.erase()


def _slice(ir: Any, reader: Any, value: Any, operand: DividedOperand) -> Any:
    """What is read of a tensor: extents of an operation are those of its operands."""
    shape = [_extent_read(operand.stage, form) for form in operand.stage.forms(operand.load)]
    if shape == list(value.type.shape):
        return value
    kind = ir.RankedTensorType.get(shape, value.type.element_type)
    rank = len(shape)
    attributes = {
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
        "static_offsets": ir.DenseI64ArrayAttr.get([0] * rank),
        "static_sizes": ir.DenseI64ArrayAttr.get(shape),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * rank),
    }
    with ir.InsertionPoint(reader), reader.location:
        made = ir.Operation.create("tensor.extract_slice", [kind], [value], attributes)
    return made.results[0]


def _place(ir: Any, form: AffineForm, axes: Sequence[str]) -> Any:
    """An index as an expression of the iterators."""
    found = form.quotient
    if found is None:
        return ir.AffineExpr.get_dim(axes.index(next(iter(form.coefficients))))
    axis, term = found
    divide = ir.AffineExpr.get_floor_div if term.op == "floordiv" else ir.AffineExpr.get_mod
    return divide(ir.AffineExpr.get_dim(axes.index(axis)), term.divisor)
