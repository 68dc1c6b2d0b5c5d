"""Programs that are given packed constants: what packs is a program of its own.

A schedule copies an operand into the order in which its loops read it. Where the operand is the
same in all calls and the schedule says so (:class:`~autotune.sketches.Prepack`), the loops that
copy leave the scheduled program, which takes the packed operand in the operand's place.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from autotune.backends import InvalidSchedule
from autotune_mlir.entry import KERNEL
from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.traversal import ancestors, with_inner

__all__ = ["ALLOCATIONS", "VIEWS", "Packing", "origin", "split_packing", "written_buffers"]

VIEWS = frozenset(
    {
        "memref.cast",
        "memref.collapse_shape",
        "memref.expand_shape",
        "memref.reinterpret_cast",
        "memref.subview",
        "memref.transpose",
    }
)
"""Operations that make another view of a buffer, their first operand."""

ALLOCATIONS = frozenset({"memref.alloc", "memref.alloca"})
"""Operations that make a buffer."""

# Which operand of an operation is the buffer that it writes.
_WRITES = {
    "linalg.broadcast": 1,
    "linalg.transpose": 1,
    "memref.copy": 1,
    "memref.store": 1,
    "vector.maskedstore": 0,
    "vector.store": 1,
    "vector.transfer_write": 1,
}


@frozen(eq=False)
class Packing:
    """What packs an operand.

    Attributes:
        position: Of the operand among the arguments of the program, which takes it packed.
        shape: Extents of what is packed.
        module: A program that takes the operand, and writes what is packed.
    """

    position: int
    shape: tuple[int, ...]
    module: Any


def split_packing(ir: Any, module: Any, position: int) -> Packing:
    """Take the loops that pack an operand out of a scheduled program.

    Args:
        ir: The ``ir`` module of the bindings; the context of ``module`` is the current one.
        module: The program, on buffers; it takes the packed operand then.
        position: Of the operand among its arguments.

    Raises:
        InvalidSchedule: there are no loops that do nothing but pack the whole operand.
    """
    alone = ir.Module.parse(str(module))
    parts = _Parts(ir, _body(module), position)
    parts.divide()
    kind = _body(module).operations[parts.packed].operation.results[0].type
    _keep_kernel(_body(module), parts, position)
    _keep_packing(ir, _body(alone), parts, position)
    for changed in (module, alone):
        function = _function(changed)
        kinds = [argument.type for argument in function.regions[0].blocks[0].arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, []))
    return Packing(position, tuple(int(extent) for extent in kind.shape), alone)


def origin(buffer: Any) -> Any:
    """What a buffer is a view of."""
    while (producer := defining(buffer)) is not None and producer.name in VIEWS:
        buffer = producer.operands[0]
    return buffer


def written_buffers(operation: Any) -> list[Any]:
    """The buffers that an operation writes, without those that it contains."""
    if operation.name in _WRITES:
        return [operation.operands[_WRITES[operation.name]]]
    structured = operation.name.startswith("linalg.")
    if not structured or operation.name in ("linalg.yield", "linalg.index"):
        return []
    inputs = list(operation.attributes["operandSegmentSizes"])[0]
    return list(operation.operands)[inputs:]


def _function(module: Any) -> Any:
    for view in module.body.operations:
        attributes = view.operation.attributes
        if "sym_name" in attributes and attributes["sym_name"].value == KERNEL:
            return view.operation
    raise InvalidSchedule(f"the program has no function @{KERNEL}")


def _body(module: Any) -> Any:
    return _function(module).regions[0].blocks[0]


class _Parts:
    """Which operations of a function pack an operand.

    Args:
        ir: The ``ir`` module of the bindings.
        block: The body of the function.
        position: Of the operand among its arguments.

    Attributes:
        packing: Numbers of the operations that pack, and that free what only they use.
        packed: Number of the operation that allocates what the others read.
    """

    def __init__(self, ir: Any, block: Any, position: int) -> None:
        self._ir = ir
        self._operations = [view.operation for view in block.operations]
        self._arguments = list(block.arguments)
        self._operand = ~position
        self.packing: set[int] = set()
        self.packed = -1

    def divide(self) -> None:
        """Find them.

        Raises:
            InvalidSchedule: as :func:`split_packing`.
        """
        touched = {
            number: roots
            for number, operation in enumerate(self._operations)
            if (roots := self._roots(operation)) and operation.name not in VIEWS
        }
        freeing = {it for it in touched if self._operations[it].name == "memref.dealloc"}
        made = {self._operand}
        others = {~number for number in range(len(self._arguments))} - made
        alone: set[int] = set()
        for number, roots in touched.items():
            if number in freeing:
                continue
            if roots & made and not roots & others:
                self.packing.add(number)
                made |= roots
            elif roots & others or self._operand in roots:
                others |= roots - made
            else:
                alone.add(number)  # it begins a buffer, and what continues says whose
        self.packing |= {number for number in alone if touched[number] <= made}
        for number in sorted(self.packing, reverse=True):
            if not self._serves_packing(self._operations[number]):
                self.packing.remove(number)
        computing = touched.keys() - self.packing - freeing
        read = {root for number in computing for root in touched[number] if root in made}
        if not self.packing or len(read) != 1 or self._operand in read:
            raise InvalidSchedule(
                f"nothing packs all of argument {~self._operand} alone, to be done before the "
                "program runs"
            )
        (self.packed,) = read
        if any(self._writes(self._operations[number], self.packed) for number in computing):
            raise InvalidSchedule(f"the packed argument {~self._operand} is written again")
        own = made - read
        self.packing |= {number for number in freeing if touched[number] <= own}

    def _serves_packing(self, operation: Any) -> bool:
        """Whether all that uses the results of an operation packs."""
        return all(self._packs(user) for user in self._users(operation))

    def _packs(self, operation: Any) -> bool:
        """Whether an operation packs, or makes values for what does, and has a use at all."""
        if operation.name not in VIEWS and self._roots(operation):
            number = self._operations.index(operation)
            return number in self.packing or operation.name == "memref.dealloc"
        return bool(self._users(operation)) and self._serves_packing(operation)

    def _users(self, operation: Any) -> list[Any]:
        """What uses the results of an operation, or is around that."""
        users = [use.owner for result in operation.results for use in result.uses]
        around = [ancestors(getattr(user, "operation", user)) for user in users]
        return [next(it for it in found if it in self._operations) for found in around]

    def _root(self, value: Any) -> int | None:
        """What a buffer is a part of: ~N for argument N, or the number of what allocates it.

        None is of what an operation allocates for itself.
        """
        producer = defining(value)
        if producer is None:
            return next((~n for n, it in enumerate(self._arguments) if it == value), None)
        if producer.name in VIEWS:
            return self._root(producer.operands[0])
        return next((n for n, it in enumerate(self._operations) if it == producer), None)

    def _roots(self, operation: Any) -> set[int]:
        """The buffers that an operation, or one inside it, uses."""
        used = (value for inner in with_inner(operation) for value in inner.operands)
        roots = {self._root(it) for it in used if isinstance(it.type, self._ir.MemRefType)}
        return {root for root in roots if root is not None}

    def _writes(self, operation: Any, buffer: int) -> bool:
        """Whether an operation, or one inside it, writes to a buffer."""
        written = (it for inner in with_inner(operation) for it in written_buffers(inner))
        return any(self._root(value) == buffer for value in written)


def _is_unused(operation: Any) -> bool:
    return not any(True for result in operation.results for _ in result.uses)


def _keep_kernel(block: Any, parts: _Parts, position: int) -> None:
    """Leave what computes, which takes what is packed as an argument."""
    operations = [view.operation for view in block.operations]
    packed, argument = operations[parts.packed].results[0], block.arguments[position]
    for number, operation in reversed(list(enumerate(operations))):
        frees = operation.name == "memref.dealloc" and operation.operands[0] == packed
        is_buffer = operation.name in VIEWS or operation.name in ALLOCATIONS
        left = is_buffer and number != parts.packed and _is_unused(operation)
        if number in parts.packing or frees or left:
            operation.erase()
    argument.set_type(packed.type)
    packed.replace_all_uses_with(argument)
    operations[parts.packed].erase()


def _keep_packing(ir: Any, block: Any, parts: _Parts, position: int) -> None:
    """Leave what packs, which takes the operand and what is packed as arguments."""
    *operations, _ = [view.operation for view in block.operations]
    packed = operations[parts.packed].results[0]
    for number, operation in reversed(list(enumerate(operations))):
        if number not in parts.packing and number != parts.packed and _is_unused(operation):
            operation.erase()
    for number in reversed(range(len(block.arguments))):
        if number != position:
            block.erase_argument(number)
    argument = block.add_argument(packed.type, ir.Location.unknown())
    packed.replace_all_uses_with(argument)
    operations[parts.packed].erase()
