"""Stages put into a program: the operations of one that computes only them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from autotune.ir.workloads import Stage, Tensor, Workload
from autotune_mlir import bindings
from autotune_mlir.building import stage_operation
from autotune_mlir.emit import payload
from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.traversal import users_of

__all__ = ["MATERIALIZE", "Inside", "erase_unused", "users"]

MATERIALIZE = "bufferization.materialize_in_destination"
"""The operation that writes an output."""

_BEGIN = "bufferization.to_tensor"


@frozen(eq=False)
class Inside:
    """A program that gets stages.

    Attributes:
        mlir: The bindings; the context of the module is the current one.
        module: The program, with attributes for stages.
        inputs: Its first arguments.
        known: Values of tensors that no operation with an attribute makes.
    """

    mlir: bindings.Bindings
    module: Any
    inputs: Sequence[Tensor]
    known: Mapping[str, Any]

    def insert(self, stages: Sequence[Stage], tensors: Mapping[str, Tensor], before: Any) -> None:
        """Put stages before an operation; the last one is read by what is not inserted.

        Args:
            stages: What to compute, each after what it reads.
            tensors: What they read beside one another.
            before: The operation.
        """
        own = {stage.name for stage in stages}
        names = dict.fromkeys(name for stage in stages for name in stage.reads if name not in own)
        inputs = tuple(tensors[name] for name in names)
        text = payload(Workload("inserted", inputs, tuple(stages), (stages[-1].name,)))
        other = self.mlir.ir.Module.parse(text)
        block = _body(other)
        for argument, name in zip(block.arguments, names, strict=False):
            for begun in users(argument, _BEGIN):
                begun.results[0].replace_all_uses_with(self.value(name))
        for operation in [view.operation for view in block.operations]:
            if operation.name not in (_BEGIN, MATERIALIZE, "func.return"):
                operation.move_before(before)

    def value(self, name: str) -> Any:
        """A tensor of the program."""
        if name in self.known:
            return self.known[name]
        inputs = [tensor.name for tensor in self.inputs]
        if name not in inputs:
            return stage_operation(self.module, name).results[-1]
        argument = _body(self.module).arguments[inputs.index(name)]
        return users(argument, _BEGIN)[0].results[0]


def _body(module: Any) -> Any:
    return module.body.operations[0].regions[0].blocks[0]


def users(value: Any, kind: str) -> list[Any]:
    """Operations of a kind that read a value."""
    return [user for user in users_of(value) if user.name == kind]


def erase_unused(operation: Any) -> None:
    """Erase an operation that nothing reads, and what nothing else reads."""
    operands = list(operation.operands)
    operation.erase()
    for value in operands:
        producer = defining(value)
        if producer is not None and not any(list(it.uses) for it in producer.results):
            erase_unused(producer)
