"""From the text of a module to its functions, in the process that calls."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from autotune.errors import AutotuneError, UnsupportedWorkload
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
from autotune_mlir.parsing import clone_before, new_context, operations_in, parent_of

__all__ = ["answer"]

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
        ``facts`` has what
        :meth:`autotune_mlir.networks.module_library.ModuleFunction.from_json` reads.

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
        found["facts"] = [_function_facts(text, file, name, arrays) for name in wanted]
        found[ATTACHMENTS] = arrays
    return found


def _function_facts(text: str, file: str, name: str, arrays: list[bytes]) -> Message:
    """Facts on a function with a body; the module is parsed again, for reading changes it."""
    mlir = bindings.load()
    facts: Message = {"name": name, "inputs": [], "outputs": [], "constants": [], "problem": ""}
    facts["body"] = {"arguments": [], "steps": [], "returned": []}
    with new_context(), mlir.ir.Location.unknown():
        module = parse_text(mlir, text, file)
        (function,) = (it for it in _functions(module) if name_of(it) == name)
        kind = function.attributes["function_type"].value
        facts["kind"] = str(kind)
        try:
            facts["inputs"] = _types(mlir, kind.inputs, f"argument {{}} of function @{name}")
            facts["outputs"] = _types(mlir, kind.results, f"result {{}} of function @{name}")
            reader = _FunctionReader(mlir, module, name, file, arrays)
            facts["body"] = reader.read(function)
            facts["constants"] = reader.constants
        except AutotuneError as error:
            facts["problem"] = str(error)
    return facts


def _functions(module: Any) -> list[Any]:
    operations = (view.operation for view in module.body.operations)
    return [it for it in operations if it.name == "func.func" and len(it.regions[0].blocks)]


def _types(mlir: bindings.Bindings, types: Any, what: str) -> list[list[Any]]:
    for position, item in enumerate(types):
        check_argument(mlir, item, what.format(position))
    return [_type(item) for item in types]


def _type(kind: Any) -> list[Any]:
    return [str(kind.element_type), list(kind.shape), dtype_of(kind.element_type)]


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
        constants: Number, place in ``arrays``, type and shape of each.
    """

    def __init__(
        self, mlir: bindings.Bindings, module: Any, name: str, file: str, arrays: list[bytes]
    ) -> None:
        self.constants: list[list[Any]] = []
        self._mlir = mlir
        self._module = module
        self._name = name
        self._file = file
        self._arrays = arrays
        self._numbers: dict[Any, int] = {}
        self._count = 0
        self._parts = 0

    def read(self, function: Any) -> Message:
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
        arguments = [self._number(it) for it in blocks[0].arguments]
        results = [[self._new(), _type(it)] for it in kind.results]
        for other in _functions(self._module):
            visibility = "public" if name_of(other) == self._name else "private"
            other.attributes["sym_visibility"] = self._mlir.ir.StringAttr.get(visibility)
        workload, _ = import_function(self._mlir, self._module, self._name, self._file)
        step = {"workload": workload.to_json(), "operands": arguments, "results": results}
        returned = [number for number, _ in results]
        return {"arguments": arguments, "steps": [step], "returned": returned}

    def _block(self, block: Any, arguments: list[Any]) -> Message:
        numbers = [self._number(it) for it in arguments]
        steps: list[Message] = []
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
        return {"arguments": numbers, "steps": steps, "returned": returned}

    def _apart(self, operation: Any, steps: list[Message]) -> Message:
        """A call, a loop, or another shape."""
        if operation.name == _LOOP:
            first, *given = self._loop(operation), *list(operation.operands)[3:]
        elif operation.name == _CALL:
            first, given = {"call": str(operation.attributes["callee"].value)}, operation.operands
        else:
            first, given = {}, [operation.operands[0]]
        for result in operation.results:
            check_argument(self._mlir, result.type, f"a result of {operation.name}")
        operands = [self._operand(it, steps) for it in given]
        return {**first, "operands": operands, "results": self._results(operation.results)}

    def _loop(self, operation: Any) -> Message:
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

    def _computed(self, part: list[Any]) -> list[Message]:
        """The step that computes operations; none where nothing uses their results."""
        made = [it for operation in part for it in operation.results]
        results = [it for it in made if any(_outside(use.owner, part) for use in it.uses)]
        if not results:
            return []
        self._parts += 1
        name = f"{self._name}_{self._parts}"
        alone, given = _outlined(self._mlir, name, part, results)
        workload, _ = import_function(self._mlir, alone, name, self._file)
        steps: list[Message] = []
        operands = [self._operand(it, steps) for it in given]
        done = {"workload": workload.to_json(), "operands": operands}
        return [*steps, {**done, "results": self._results(results)}]

    def _operand(self, value: Any, steps: list[Message]) -> int:
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
        self.constants.append([number, len(self._arrays), dtype, list(array.shape)])
        self._arrays.append(array.tobytes())
        return number

    def _results(self, values: Any) -> list[list[Any]]:
        return [[self._number(it), _type(it.type)] for it in values]

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
