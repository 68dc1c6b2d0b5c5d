"""From the text of a module to its functions, in the process that calls."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import AutotuneError, UnsupportedWorkload
from autotune.ir.converter import to_json
from autotune.ir.workloads import Workload
from autotune.process import Message
from autotune.process.channel import ATTACHMENTS
from autotune_mlir import bindings
from autotune_mlir.importing.reading import (
    at,
    check_argument,
    import_function,
    name_of,
    parse_text,
)
from autotune_mlir.importing.scalar_import import dtype_of
from autotune_mlir.parsing import (
    clone_before,
    new_context,
    operation_named,
    operations_in,
    parent_of,
)

__all__ = ["Block", "ModuleFunction", "Step", "TensorType", "answer"]


@frozen
class TensorType:
    """A tensor of static shape, in the words of MLIR and of numpy.

    Attributes:
        element: Name of the element type in MLIR.
        shape: Extents.
        dtype: Name of the numpy type.
    """

    element: str
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, kind: Any) -> TensorType:
        """That of a type of MLIR."""
        return cls(str(kind.element_type), tuple(kind.shape), dtype_of(kind.element_type))

    @property
    def tensor(self) -> str:
        """The type of the tensor."""
        return f"tensor<{'x'.join([*map(str, self.shape), self.element])}>"


@frozen(eq=False)
class Step:
    """A step: of a workload, of a call, of a loop, or of none, which gives a tensor another shape.

    Attributes:
        operands: Values that it reads.
        results: Values that it makes, by number, each with its type.
        workload: The workload.
        call: Name of the function that is called.
        trips: How often a loop runs.
        body: What it runs, on the values that it returned.
    """

    operands: tuple[int, ...]
    results: tuple[tuple[int, TensorType], ...]
    workload: Workload | None = None
    call: str = ""
    trips: int = 0
    body: Block | None = None


@frozen(eq=False)
class Block:
    """Steps in order. Values have numbers.

    Attributes:
        arguments: Values that are given.
        steps: The steps.
        returned: Values that are handed back.
    """

    arguments: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()
    returned: tuple[int, ...] = ()

    @property
    def reads(self) -> set[int]:
        """Values from around it that it reads."""
        inner = [it.body.reads for it in self.steps if it.body is not None]
        read = {*self.returned, *(number for it in self.steps for number in it.operands)}
        made = {number for it in self.steps for number, _ in it.results}
        return read.union(*inner) - made - {*self.arguments}

    @property
    def calls(self) -> Iterator[str]:
        """Names of what it calls, in order."""
        for step in self.steps:
            if step.call:
                yield step.call
            elif step.body is not None:
                yield from step.body.calls


@frozen(eq=False)
class ModuleConstant:
    """A value of a function that is the same in every call.

    Attributes:
        number: Of the value.
        place: Of its content among what is sent along.
        dtype: Name of the numpy type.
        shape: Extents.
    """

    number: int
    place: int
    dtype: str
    shape: tuple[int, ...]


@frozen(eq=False)
class ModuleFunction:
    """A function of a module.

    Attributes:
        name: Its name.
        kind: Its type, as MLIR writes it.
        inputs: Of its arguments; () where one is no tensor of static shape.
        outputs: Of its results, likewise.
        constants: Its constants.
        arrays: Contents of constants, which are sent along.
        body: What it computes.
        problem: Why it cannot be read; "" where it was.
    """

    name: str
    kind: str = ""
    inputs: tuple[TensorType, ...] = ()
    outputs: tuple[TensorType, ...] = ()
    constants: tuple[ModuleConstant, ...] = ()
    arrays: tuple[bytes, ...] = ()
    body: Block = Block()
    problem: str = ""

    @property
    def values(self) -> dict[int, NDArray[Any]]:
        """Its constants by the numbers of their values."""
        return {
            it.number: np.frombuffer(self.arrays[it.place], it.dtype).reshape(it.shape)
            for it in self.constants
        }

    @property
    def calls(self) -> tuple[str, ...]:
        """Names of what it calls, in order."""
        return tuple(self.body.calls)

    @property
    def workload(self) -> Workload | None:
        """The workload that it is as a whole; None where it is anything else."""
        if len(self.body.steps) != 1 or self.constants:
            return None
        (step,) = self.body.steps
        whole = step.operands == self.body.arguments and self.body.returned == tuple(
            number for number, _ in step.results
        )
        return step.workload if whole else None


_CALL, _LOOP, _VIEW, _CONSTANT = "func.call", "scf.for", "tensor.reshape", "arith.constant"
_APART = (_CALL, _LOOP, _VIEW)
"""Calls, loops and views, which are no part of a workload."""
_ASSERTED = "cf.assert"
_RETURNS = ("func.return", "scf.yield")
# Each part of a function that needs one has its own.
_COPIED = (_CONSTANT, "tensor.empty", "tensor.splat", "linalg.fill")


def answer(question: Message) -> Message:
    """Answer what the host asks of a module.

    Args:
        question: ``text`` of the module and ``file``, what to call it in messages; ``function``,
            the one that is asked for, or None for all; ``facts``, whether to look into them.

    Returns:
        ``module`` is the module's text, ``functions`` lists the names of those with a body, and
        ``facts`` has the form of each :class:`ModuleFunction`.

    Raises:
        UnsupportedWorkload: the text does not parse; says where.
        BindingsMissing: MLIR is not installed.
    """
    text, file, only = question["text"], question["file"], question["function"]
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        module = parse_text(mlir, text, file)
        names = [name_of(it) for it in _functions(module)]
        found: Message = {"module": str(module), "functions": names}
    arrays: list[bytes] = []
    wanted = [only] if only is not None else names
    if question["facts"]:
        found["facts"] = [to_json(_read(text, file, name, arrays)) for name in wanted]
        found[ATTACHMENTS] = arrays
    return found


def _read(text: str, file: str, name: str, arrays: list[bytes]) -> ModuleFunction:
    """A function with a body; the module is parsed again, for reading changes it."""
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        module = parse_text(mlir, text, file)
        function: Any = operation_named(module, name)
        kind = function.attributes["function_type"].value
        try:
            inputs = _types(mlir, kind.inputs, f"argument {{}} of function @{name}")
            outputs = _types(mlir, kind.results, f"result {{}} of function @{name}")
            reader = _FunctionReader(mlir, module, name, file, arrays)
            body = reader.read(function)
        except AutotuneError as error:
            return ModuleFunction(name, str(kind), problem=str(error))
        constants = tuple(reader.constants)
        return ModuleFunction(name, str(kind), inputs, outputs, constants, body=body)


def _functions(module: Any) -> list[Any]:
    operations = (view.operation for view in module.body.operations)
    return [it for it in operations if it.name == "func.func" and len(it.regions[0].blocks)]


def _types(mlir: bindings.Bindings, types: Any, what: str) -> tuple[TensorType, ...]:
    for position, item in enumerate(types):
        check_argument(mlir, item, what.format(position))
    return tuple(map(TensorType.of, types))


class _FunctionReader:
    """Reads a function as steps.

    What lies between its calls, loops and changes of shape becomes functions of their own, which
    are read as workloads; a function that has none of them is one.

    Args:
        mlir: The bindings.
        module: Where the function is; changed.
        name: Of the function.
        file: What to call the text in messages.
        arrays: Takes the content of constants.

    Attributes:
        constants: Those that were read, whose content is in ``arrays``.
    """

    def __init__(
        self, mlir: bindings.Bindings, module: Any, name: str, file: str, arrays: list[bytes]
    ) -> None:
        self.constants: list[ModuleConstant] = []
        self._mlir = mlir
        self._module = module
        self._name = name
        self._file = file
        self._arrays = arrays
        self._numbers: dict[Any, int] = {}
        self._count = 0
        self._parts = 0

    def read(self, function: Any) -> Block:
        """The block of the function.

        Raises:
            UnsupportedWorkload: it cannot be expressed; says where and why.
        """
        blocks = list(function.regions[0].blocks)
        if len(blocks) != 1:
            raise UnsupportedWorkload(
                f"function @{self._name} branches: it has {len(blocks)} blocks"
            )
        if any(it.name in _APART or _is_weight(it) for it in operations_in(function)):
            return self._block(blocks[0], list(blocks[0].arguments))
        kind = function.attributes["function_type"].value
        arguments = tuple(self._number(it) for it in blocks[0].arguments)
        results = tuple((self._new(), TensorType.of(it)) for it in kind.results)
        for other in _functions(self._module):
            visibility = "public" if name_of(other) == self._name else "private"
            other.attributes["sym_visibility"] = self._mlir.ir.StringAttr.get(visibility)
        workload, _ = import_function(self._mlir, self._module, self._name, self._file)
        step = Step(arguments, results, workload)
        return Block(arguments, (step,), tuple(number for number, _ in results))

    def _block(self, block: Any, arguments: list[Any]) -> Block:
        numbers = tuple(self._number(it) for it in arguments)
        steps: list[Step] = []
        part: list[Any] = []
        returned: list[int] = []
        for view in block.operations:
            operation = view.operation
            if operation.name == _LOOP:
                self._trips(operation)  # before what computes its bounds is read
            if operation.name in (*_APART, *_RETURNS):
                steps += self._computed(part)
                part = []
            if operation.name in _RETURNS:
                returned = [self._operand(it, steps) for it in operation.operands]
            elif operation.name in _APART:
                steps.append(self._apart(operation, steps))
            elif not operation.results and operation.name != _ASSERTED:
                raise UnsupportedWorkload(
                    f"operation {operation.name}{at(operation, self._file)} is not supported: it "
                    "has no result, and a network is what its results are"
                )
            elif not (_is_copied(operation) or _is_weight(operation)):
                part.append(operation)
        return Block(numbers, tuple(steps), tuple(returned))

    def _apart(self, operation: Any, steps: list[Step]) -> Step:
        """A call, a loop, or another shape."""
        more: dict[str, Any] = {}
        given = [operation.operands[0]] if operation.name == _VIEW else list(operation.operands)
        if operation.name == _LOOP:
            more, given = self._loop(operation), given[3:]
        elif operation.name == _CALL:
            more = {"call": str(operation.attributes["callee"].value)}
        for result in operation.results:
            check_argument(self._mlir, result.type, f"a result of {operation.name}")
        operands = tuple(self._operand(it, steps) for it in given)
        return Step(operands, self._results(operation.results), **more)

    def _loop(self, operation: Any) -> dict[str, Any]:
        block = operation.regions[0].blocks[0]
        index, *states = block.arguments
        if list(index.uses):
            raise UnsupportedWorkload(
                f"operation {operation.name}{at(operation, self._file)} uses its index; a loop of "
                "a network runs the same on what the iteration before left"
            )
        return {"trips": self._trips(operation), "body": self._block(block, states)}

    def _trips(self, operation: Any) -> int:
        low, high, step = (self._index(it, operation) for it in list(operation.operands)[:3])
        trips = ceil((high - low) / step)
        if trips < 1:
            raise UnsupportedWorkload(
                f"operation {operation.name}{at(operation, self._file)} runs no iteration"
            )
        return trips

    def _index(self, value: Any, operation: Any) -> int:
        owner = _owner(value)
        if getattr(owner, "name", "") != _CONSTANT:
            raise UnsupportedWorkload(
                f"operation {operation.name}{at(operation, self._file)} has bounds that are known "
                "only when it runs; bounds of loops are constants"
            )
        return int(owner.attributes["value"].value)

    def _computed(self, part: list[Any]) -> list[Step]:
        """The step that computes operations; none where nothing uses their results."""
        made = [it for operation in part for it in operation.results]
        results = [it for it in made if any(_outside(use.owner, part) for use in it.uses)]
        if not results:
            return []
        self._parts += 1
        name = f"{self._name}_{self._parts}"
        alone, given = _outlined(self._mlir, name, part, results)
        workload, _ = import_function(self._mlir, alone, name, self._file)
        steps: list[Step] = []
        operands = tuple(self._operand(it, steps) for it in given)
        return [*steps, Step(operands, self._results(results), workload)]

    def _operand(self, value: Any, steps: list[Step]) -> int:
        """The number of a value; one that each part has for itself becomes a constant or step."""
        if value in self._numbers:
            return self._numbers[value]
        operation, is_tensor = _owner(value), hasattr(value.type, "shape")
        if is_tensor and getattr(operation, "name", "") == _CONSTANT:
            return self._constant(value, operation)
        if not (is_tensor and _is_copied(operation)):
            raise UnsupportedWorkload(
                f"function @{self._name} hands on {value.type}, which is no tensor"
            )
        steps += self._computed([operation])
        # Not for other blocks, in which it would have to be known.
        return self._numbers.pop(value)

    def _constant(self, value: Any, operation: Any) -> int:
        try:
            array = np.ascontiguousarray(np.array(operation.attributes["value"]))
        except (TypeError, ValueError):
            array = np.array(None)
        dtype = dtype_of(value.type.element_type)
        if array.dtype.name != dtype:
            raise UnsupportedWorkload(
                f"operation {operation.name}{at(operation, self._file)} is a constant of "
                f"{value.type} whose numbers cannot be read; write them as dense<...>, of "
                "another type than bf16"
            )
        number = self._number(value)
        self.constants.append(ModuleConstant(number, len(self._arrays), dtype, array.shape))
        self._arrays.append(array.tobytes())
        return number

    def _results(self, values: Any) -> tuple[tuple[int, TensorType], ...]:
        return tuple((self._number(it), TensorType.of(it.type)) for it in values)

    def _number(self, value: Any) -> int:
        self._numbers[value] = self._new()
        return self._numbers[value]

    def _new(self) -> int:
        self._count += 1
        return self._count - 1


def _outside(operation: Any, part: list[Any]) -> bool:
    """Tell whether an operation is none of these, and in none of them."""
    around: Any = getattr(operation, "operation", operation)
    while around is not None:
        if around in part:
            return False
        around = parent_of(around)
    return True


def _outlined(
    mlir: bindings.Bindings, name: str, part: list[Any], results: list[Any]
) -> tuple[Any, list[Any]]:
    """A module whose one function computes these operations, and what it has to be given."""
    copied: list[Any] = []
    given: dict[Any, None] = {}
    for operation in part:
        _gather(operation, part, copied, given)
    ir = mlir.ir
    kind = ir.FunctionType.get([it.type for it in given], [it.type for it in results])
    attributes = {"sym_name": ir.StringAttr.get(name), "function_type": ir.TypeAttr.get(kind)}
    function = ir.Operation.create("func.func", attributes=attributes, regions=1)
    block = function.regions[0].blocks.append(*(it.type for it in given))
    known = dict(zip(given, block.arguments, strict=True))
    for operation in (*copied, *(it for it in part if it not in copied)):
        clone_before(ir.InsertionPoint(block), operation, known)
    with ir.InsertionPoint(block):
        ir.Operation.create("func.return", operands=[known[it] for it in results])
    module = ir.Module.create()
    module.body.append(function)
    return module, list(given)


def _gather(operation: Any, part: list[Any], copied: list[Any], given: dict[Any, None]) -> None:
    """Add what an operation needs: what each part has for itself, in order, and other values."""
    inside = [operation, *operations_in(operation)]
    blocks = [block for it in inside for region in it.regions for block in region.blocks]
    own = {value for it in inside for value in it.results}
    own |= {value for block in blocks for value in block.arguments}
    for operand in (value for it in inside for value in it.operands):
        owner = _owner(operand)
        if operand in own or owner in part or owner in copied:
            continue
        if _is_copied(owner):
            _gather(owner, part, copied, given)
            copied.append(owner)
        else:
            given[operand] = None


def _owner(value: Any) -> Any:
    """The operation that a value is of, or the block."""
    return getattr(value.owner, "operation", value.owner)


def _is_copied(operation: Any) -> bool:
    """Tell whether each part that needs an operation has one for itself."""
    if getattr(operation, "name", "") not in _COPIED or _is_weight(operation):
        return False
    return all(_is_copied(_owner(it)) for it in operation.operands)


def _is_weight(operation: Any) -> bool:
    """Tell whether an operation is a constant tensor of several numbers."""
    if operation.name != _CONSTANT:
        return False
    value = operation.attributes["value"]
    return not getattr(value, "is_splat", not hasattr(operation.results[0].type, "shape"))
