"""Tensors of truth values in memory: a byte for each, as callers pass them.

Vectors of ``i1`` would be stored as bits.
"""

from __future__ import annotations

from typing import Any

from autotune_mlir.bindings import Bindings
from autotune_mlir.emit import INIT
from autotune_mlir.importing.scalar_import import defining

__all__ = ["store_as_bytes"]

_TRUTH = "i1"


def store_as_bytes(mlir: Bindings, function: Any) -> None:
    """Give all tensors of truth values the element type ``i8``; bodies compute with ``i1``.

    Args:
        mlir: The bindings.
        function: The operation ``func.func``, on buffers, in normal form.
    """
    block = function.regions[0].blocks[0]
    converter = _Converter(mlir.ir)
    if not converter.is_needed(block):
        return
    for argument in block.arguments:
        converter.retype(argument)
    ir = mlir.ir
    kinds = [argument.type for argument in block.arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, []))
    for view in list(block.operations):
        converter.convert(view.operation)


class _Converter:
    """Converts the operations of a block, in order.

    Args:
        ir: The bindings of the IR.
    """

    def __init__(self, ir: Any) -> None:
        self._ir = ir
        self._byte = ir.IntegerType.get_signless(8)
        self._truth = ir.IntegerType.get_signless(1)

    def is_needed(self, block: Any) -> bool:
        """Whether a value on tensors or buffers holds truth values."""
        results = [value for view in block.operations for value in view.operation.results]
        return any(self._holds_truth(value) for value in (*block.arguments, *results))

    def retype(self, value: Any) -> None:
        """Make a tensor or a buffer of truth values one of bytes."""
        if self._holds_truth(value):
            kind = type(value.type)
            value.set_type(kind.get(list(value.type.shape), self._byte))

    def convert(self, operation: Any) -> None:
        """Convert one operation whose operands are converted."""
        stores_truth = any(self._holds_truth(value) for value in operation.results)
        for result in operation.results:
            self.retype(result)
        if operation.name == "linalg.generic":
            self._convert_body(operation)
        elif stores_truth and operation.name in ("linalg.fill", "tensor.pad"):
            self._convert_constant(operation)

    def _holds_truth(self, value: Any) -> bool:
        kinds = (self._ir.RankedTensorType, self._ir.MemRefType)
        return isinstance(value.type, kinds) and str(value.type.element_type) == _TRUTH

    def _convert_constant(self, operation: Any) -> None:
        """Of what fills a tensor, or surrounds it, with one truth value."""
        body = operation.regions[0].blocks[0]
        end = list(body.operations)[-1].operation
        given = operation if INIT in operation.attributes else end
        with self._ir.InsertionPoint(given), operation.location:
            given.operands[0] = self._as_byte(given.operands[0])
        if given is operation:
            for argument in body.arguments:
                argument.set_type(self._byte)

    def _convert_body(self, operation: Any) -> None:
        body = operation.regions[0].blocks[0]
        end = list(body.operations)[-1].operation
        reduces = any("reduction" in str(kind) for kind in operation.attributes["iterator_types"])
        accumulator = list(body.arguments)[-1]
        with operation.location:
            if reduces and str(accumulator.type) == _TRUTH:
                self._accumulate_bytes(end, accumulator)
            elif str(end.operands[0].type) == _TRUTH:
                with self._ir.InsertionPoint(end):
                    end.operands[0] = self._as_byte(end.operands[0])
            operations = list(body.operations)
            for view, following in zip(operations, operations[1:], strict=False):
                result = view.operation.results[0]
                if view.operation.name == "tensor.extract" and str(result.type) == _TRUTH:
                    self._read_byte(result, self._ir.InsertionPoint(following))
            for argument in body.arguments:
                if str(argument.type) == _TRUTH:
                    self._read_byte(argument, self._ir.InsertionPoint.at_block_begin(body))

    def _accumulate_bytes(self, end: Any, accumulator: Any) -> None:
        """Combine what memory holds: vectors are made of reductions that are one operation."""
        combining = defining(end.operands[0])
        assert combining is not None  # it is a reduction
        other = combining.operands[1 if combining.operands[0] == accumulator else 0]
        accumulator.set_type(self._byte)
        with self._ir.InsertionPoint(end):
            result = self._ir.Operation.create(
                combining.name,
                results=[self._byte],
                operands=[accumulator, self._as_byte(other)],
            ).results[0]
        end.operands[0] = result
        combining.erase()

    def _read_byte(self, value: Any, place: Any) -> None:
        """Have a body go on with the truth value of a byte that is read."""
        uses = [(use.owner.operation, use.operand_number) for use in value.uses]
        value.set_type(self._byte)
        if not uses:
            return
        with place:
            zero = self._constant(0)
            unequal = self._ir.IntegerAttr.get(self._ir.IntegerType.get_signless(64), 1)
            truth = self._ir.Operation.create(
                "arith.cmpi",
                results=[self._truth],
                operands=[value, zero],
                attributes={"predicate": unequal},
            ).results[0]
        for user, number in uses:
            user.operands[number] = truth

    def _as_byte(self, truth: Any) -> Any:
        """A truth value as a byte, at the current insertion point."""
        producer = defining(truth)
        if producer is not None and producer.name == "arith.constant":
            return self._constant(int(bool(producer.attributes["value"].value)))
        create = self._ir.Operation.create
        return create("arith.extui", results=[self._byte], operands=[truth]).results[0]

    def _constant(self, number: int) -> Any:
        value = self._ir.IntegerAttr.get(self._byte, number)
        create = self._ir.Operation.create
        return create("arith.constant", results=[self._byte], attributes={"value": value}).results[
            0
        ]
