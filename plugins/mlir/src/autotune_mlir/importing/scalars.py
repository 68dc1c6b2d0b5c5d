"""Numbers that a function takes or computes, as tensors of rank 0 and parts of bodies."""

from __future__ import annotations

from typing import Any

from autotune_mlir.bindings import Bindings
from autotune_mlir.building import Builder
from autotune_mlir.emit import STAGE
from autotune_mlir.importing.scalar_import import BODY_OPERATIONS, Unsupported, defining

__all__ = [
    "is_number",
    "lift_arguments",
    "number_tensor",
    "replace_splats",
    "sink_numbers",
]


def is_number(ir: Any, kind: Any) -> bool:
    """Whether a type is one of numbers, such as ``f32`` and ``index``."""
    return isinstance(kind, (ir.IntegerType, ir.IndexType, ir.FloatType))


def number_tensor(ir: Any, kind: Any) -> Any:
    """The type of the tensor that is in the place of a number; that of an index is of ``i64``."""
    is_index = isinstance(kind, ir.IndexType)
    element = ir.IntegerType.get_signless(64) if is_index else kind
    return ir.RankedTensorType.get([], element)


def lift_arguments(mlir: Bindings, function: Any) -> None:
    """Have a function take tensors of rank 0 in the place of numbers; an index is one of ``i64``.

    Args:
        mlir: The bindings.
        function: The operation ``func.func``; it has one block.
    """
    ir = mlir.ir
    block = function.regions[0].blocks[0]
    for argument in block.arguments:
        kind = argument.type
        if not is_number(ir, kind):
            continue
        uses = [(use.owner.operation, use.operand_number) for use in argument.uses]
        argument.set_type(number_tensor(ir, kind))
        element = argument.type.element_type
        create = ir.Operation.create
        with ir.InsertionPoint.at_block_begin(block), function.location:
            value = create("tensor.extract", results=[element], operands=[argument]).results[0]
            if element != kind:
                value = create("arith.index_cast", results=[kind], operands=[value]).results[0]
        for user, number in uses:
            user.operands[number] = value
    kinds = [argument.type for argument in block.arguments]
    results = function.attributes["function_type"].value.results
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, results))


def replace_splats(mlir: Bindings, block: Any) -> None:
    """Replace each ``tensor.splat`` of a block by a generic operation that yields the number."""
    build = Builder(mlir)
    for view in list(block.operations):
        operation = view.operation
        if operation.name == "tensor.splat":
            result = operation.results[0]
            name = "splat"
            if STAGE in operation.attributes:
                name = str(operation.attributes[STAGE].value)
            with mlir.ir.InsertionPoint(operation), operation.location:
                made = build.pointwise(name, list(operation.operands), result.type, None)
            result.replace_all_uses_with(made)
            operation.erase()


def sink_numbers(mlir: Bindings, operation: Any) -> Any:
    """Have the body of an operation compute by itself what numbers of the function it uses.

    An element of a tensor of rank 0 becomes an operand, and one of another tensor is extracted.
    Constants stay where they are.

    Args:
        mlir: The bindings.
        operation: A ``linalg.generic`` in the body of a function.

    Returns:
        The operation that is in its place.

    Raises:
        Unsupported: a number is computed by an operation that bodies do not have.
    """
    return _Sinker(mlir.ir, operation).sink()


class _Sinker:
    """Moves numbers into the body of one generic operation."""

    def __init__(self, ir: Any, operation: Any) -> None:
        self._ir = ir
        self._operation = operation
        self._body = operation.regions[0].blocks[0]
        self._first = list(self._body.operations)[0].operation
        # Numbers of the function, and the values of the body in their places.
        self._known: list[tuple[Any, Any]] = []
        self._added: list[Any] = []

    def sink(self) -> Any:
        """See :func:`sink_numbers`."""
        operation, body = self._operation, self._body
        inside = [view.operation for view in body.operations]
        inputs = list(operation.attributes["operandSegmentSizes"])[0]
        arguments = list(body.arguments)
        for value, argument in list(zip(operation.operands, arguments, strict=True))[:inputs]:
            if self._is_computed(value) and any(True for _ in argument.uses):
                argument.replace_all_uses_with(self._inside(value))
        for inner in inside:
            for number, value in enumerate(list(inner.operands)):
                if self._is_computed(value):
                    inner.operands[number] = self._inside(value)
        return self._with_operands() if self._added else operation

    def _is_computed(self, value: Any) -> bool:
        """Whether a value is a number that the function computes, and is no constant."""
        producer = defining(value)
        if producer is None or producer.block == self._body or not is_number(self._ir, value.type):
            return False
        return bool(producer.name != "arith.constant")

    def _inside(self, value: Any) -> Any:
        """A number of the function as a value of the body."""
        for outside, known in self._known:
            if outside == value:
                return known
        producer = defining(value)
        if producer is None or producer.name not in BODY_OPERATIONS:
            raise Unsupported("it uses a number that no operation on numbers computes")
        operands = list(producer.operands)
        if producer.name == "tensor.extract" and len(operands) == 1:
            found = self._operand(operands[0])
        else:
            operands = [self._inside(it) if self._is_computed(it) else it for it in operands]
            copy = producer.clone(ip=self._ir.InsertionPoint(self._first)).operation
            for number, operand in enumerate(operands):
                copy.operands[number] = operand
            found = copy.results[0]
        self._known.append((value, found))
        return found

    def _operand(self, tensor: Any) -> Any:
        """The argument of the body for a tensor of rank 0, which becomes the last input."""
        self._added.append(tensor)
        written = list(self._body.arguments)[-1]
        moved = self._body.add_argument(written.type, self._operation.location)
        written.replace_all_uses_with(moved)
        written.set_type(tensor.type.element_type)
        return written

    def _with_operands(self) -> Any:
        ir, old = self._ir, self._operation
        inputs, outputs = list(old.attributes["operandSegmentSizes"])
        maps = [item.value for item in old.attributes["indexing_maps"]]
        added = [ir.AffineMap.get(maps[0].n_dims, 0, [])] * len(self._added)
        maps[inputs:inputs] = added
        operands = list(old.operands)
        operands[inputs:inputs] = self._added
        sizes = ir.DenseI32ArrayAttr.get([inputs + len(added), outputs])
        attributes = {
            **{
                getattr(it, "name", it): old.attributes[getattr(it, "name", it)]
                for it in old.attributes
            },
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(item) for item in maps]),
            "operandSegmentSizes": sizes,
        }
        kinds = [result.type for result in old.results]
        with ir.InsertionPoint(old), old.location:
            new = ir.Operation.create("linalg.generic", kinds, operands, attributes, regions=1)
        self._body.append_to(new.regions[0])
        for before, after in zip(old.results, new.results, strict=True):
            before.replace_all_uses_with(after)
        old.erase()
        return new
