"""Operands that are copied as a whole with another dimension innermost are transposed before.

A tile reads slices of what is packed, which keeps the order of dimensions. So the program gets a
stage that transposes the operand, and what that makes is packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen

from autotune.ir.expressions import Load, ScalarExpr, transform, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches import Candidate
from autotune.sketches.steps import Pack
from autotune_mlir import bindings
from autotune_mlir.building import Builder, stage_operation
from autotune_mlir.operands import operands_of
from autotune_mlir.parsing import parse_payload

__all__ = ["TransposedOperand", "transpose_program", "transposed_operands", "with_transposed"]


@frozen
class TransposedOperand:
    """An operand that is transposed before a stage reads it.

    Attributes:
        stage: The stage.
        operand: The operand.
        innermost: Its dimension that becomes the last one; the others keep their order.
    """

    stage: str
    operand: str
    innermost: int

    @property
    def name(self) -> str:
        """The stage that transposes, and its tensor."""
        return f"{self.stage}.{self.operand}.transposed"

    def order(self, rank: int) -> list[int]:
        """The operand's dimension that each one of the transposed tensor is."""
        return [*(it for it in range(rank) if it != self.innermost), self.innermost]


def transposed_operands(
    candidate: Candidate | None, workload: Workload
) -> tuple[TransposedOperand, ...]:
    """Those that a candidate asks for.

    Args:
        candidate: The steps; None is the untuned program.
        workload: What is computed.
    """
    steps = () if candidate is None else candidate.sketch.core_steps
    return tuple(
        TransposedOperand(step.stage, step.operand, step.block_dim)
        for step in steps
        if isinstance(step, Pack)
        and step.at is None
        and step.block_dim is not None
        and step.block_dim != len(workload.tensors[step.operand].shape) - 1
    )


def with_transposed(workload: Workload, operands: Sequence[TransposedOperand]) -> Workload:
    """A workload in which stages read transposed operands, each made by a stage of its own."""
    for operand in operands:
        workload = _with_one(workload, operand)
    return workload


def _with_one(workload: Workload, operand: TransposedOperand) -> Workload:
    source = workload.tensors[operand.operand]
    rank = len(source.shape)
    order = operand.order(rank)
    extents = [source.shape[dimension] for dimension in order]
    axes = tuple(
        Axis(f"d{place}", extent, "spatial") for place, extent in zip(order, extents, strict=True)
    )
    body = Load(operand.operand, tuple(var(f"d{dimension}") for dimension in range(rank)))
    made = Stage(Tensor(operand.name, tuple(extents), source.dtype), axes, body)

    def read_transposed(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Load) or node.tensor != operand.operand:
            return None
        return Load(operand.name, tuple(node.indices[dimension] for dimension in order))

    stages: list[Stage] = []
    for stage in workload.stages:
        if stage.name == operand.stage:
            stages += [made, evolve(stage, body=transform(stage.body, read_transposed))]
        else:
            stages.append(stage)
    return evolve(workload, stages=tuple(stages))


def transpose_program(
    program: str, workload: Workload, operands: Sequence[TransposedOperand]
) -> str:
    """An imported program in which stages read transposed operands.

    Args:
        program: The text of a program with attributes for stages.
        workload: What it computes.
        operands: What is transposed.
    """
    if not operands:
        return program
    names = operands_of(workload, program)
    mlir = bindings.load()
    module = parse_payload(program)
    with module.context, mlir.ir.Location.unknown():
        for operand in operands:
            place = names[operand.stage].index(operand.operand)
            _transpose(mlir, stage_operation(module, operand.stage), place, operand)
    return str(module)


def _transpose(
    mlir: bindings.Bindings, reader: Any, place: int, operand: TransposedOperand
) -> None:
    """Have an operation read one of its operands transposed."""
    ir = mlir.ir
    source = reader.operands[place]
    shape = list(source.type.shape)
    order = operand.order(len(shape))
    element = source.type.element_type
    kind = ir.RankedTensorType.get([shape[dimension] for dimension in order], element)
    build = Builder(mlir)
    inverse = [order.index(dimension) for dimension in range(len(shape))]
    maps = [ir.AffineMap.get_permutation(inverse), ir.AffineMap.get_identity(len(shape))]
    with ir.InsertionPoint(reader), reader.location:
        made = build.generic(operand.name, [source], maps, build.empty(kind))
        body = made.regions[0].blocks.append(element, element)
        with ir.InsertionPoint(body):
            ir.Operation.create("linalg.yield", operands=[body.arguments[0]])
    reader.operands[place] = made.results[0]
    read = [item.value for item in reader.attributes["indexing_maps"]]
    old = read[place]
    results = list(old.results)
    read[place] = ir.AffineMap.get(old.n_dims, 0, [results[dimension] for dimension in order])
    reader.attributes["indexing_maps"] = ir.ArrayAttr.get(
        [ir.AffineMapAttr.get(item) for item in read]
    )
