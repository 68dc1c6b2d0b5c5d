"""Operands of the operations of an imported program."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from autotune.ir.workloads import Workload
from autotune_mlir import bindings
from autotune_mlir.emit import STAGE
from autotune_mlir.parsing import parse_payload
from autotune_mlir.traversal import operations_in

__all__ = ["operands_of", "tensor_of"]

_KEPT = 32


def operands_of(workload: Workload, program: str) -> dict[str, tuple[str, ...]]:
    """The tensors that the operation of each stage reads, in the order of its operands.

    Args:
        workload: What the program computes; its inputs are the program's first arguments.
        program: The text of a program with attributes for stages.

    Returns:
        As :func:`autotune_mlir.emit.operand_names`: by stage the names of tensors; an empty name
        is of what is no tensor of the workload.
    """
    return dict(_operands(tuple(tensor.name for tensor in workload.inputs), program))


@lru_cache(maxsize=_KEPT)
def _operands(inputs: tuple[str, ...], program: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    module = parse_payload(program)
    found: dict[str, tuple[str, ...]] = {}
    for operation in operations_in(module.operation):
        if STAGE not in operation.attributes:
            continue
        reads = list(operation.operands)
        if operation.name == "linalg.generic":
            reads = reads[: len(reads) - len(operation.results)]
        else:
            reads = reads[:1]
        found[_stage(operation)] = tuple(tensor_of(value, inputs) for value in reads)
    return tuple(found.items())


def _stage(operation: Any) -> str:
    return str(operation.attributes[STAGE].value)


def tensor_of(value: Any, inputs: tuple[str, ...]) -> str:
    """The tensor of the workload that a value is, or is a part of; empty where it is none.

    Args:
        value: A value of a program with attributes for stages.
        inputs: Names of the program's first arguments.
    """
    ir = bindings.load().ir
    while not isinstance(value, ir.BlockArgument):
        producer = value.owner
        if STAGE in producer.attributes:
            return _stage(producer)
        if not len(producer.operands):
            return ""
        value = producer.operands[0]
    number = value.arg_number
    return inputs[number] if number < len(inputs) else ""
