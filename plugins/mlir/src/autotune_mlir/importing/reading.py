"""From the text of a program on tensors to a workload, in the process that calls."""

from __future__ import annotations

from typing import Any

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune_mlir import bindings
from autotune_mlir.emit import ENTRY
from autotune_mlir.importing.locations import diagnostic_text
from autotune_mlir.importing.normal_form import bring_into_form, check_operations, simplify
from autotune_mlir.importing.payload_import import input_name, read_program, tensor_of
from autotune_mlir.importing.scalar_import import Unsupported
from autotune_mlir.importing.scalars import is_number, lift_arguments, number_tensor
from autotune_mlir.importing.scans import load_scans
from autotune_mlir.importing.truth_values import store_as_bytes
from autotune_mlir.parsing import new_context

__all__ = ["check_argument", "import_function", "name_of", "parse_text", "read_text"]


def read_text(text: str, file: str, function: str | None = None) -> tuple[Workload, str]:
    """The workload of a program, and the program in normal form.

    That form is described in :func:`autotune_mlir.emit.payload`; the result of the program's
    operations on the way in :mod:`autotune_mlir.importing.normal_form`.

    Args:
        text: Of a module, or of a function.
        file: What to call the text in messages.
        function: The function that is meant; by default the only one that is not private.

    Raises:
        UnsupportedWorkload: the text does not parse, or an operation cannot be expressed; says
            where and why.
        UnknownNameError: there is no such function.
        InvalidValueError: it is not clear which function is meant.
        BindingsMissing: MLIR is not installed.
    """
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        module = parse_text(mlir, text, file)
        name = name_of(_choose(mlir, module, function, file))
        return import_function(mlir, module, name, file, numbers=True)[:2]


def parse_text(mlir: bindings.Bindings, text: str, file: str) -> Any:
    """The ``ir.Module`` of a text, in the current context.

    Raises:
        UnsupportedWorkload: it does not parse; says where.
    """
    try:
        load_scans(mlir, text)
        return mlir.ir.Module.parse(text)
    except mlir.ir.MLIRError as error:
        raise UnsupportedWorkload(f"not MLIR: {diagnostic_text(error, file)}") from None


def import_function(
    mlir: bindings.Bindings, module: Any, name: str, file: str, *, numbers: bool = False
) -> tuple[Workload, str, str]:
    """The workload of a function, its program in normal form, and that form on tensors.

    Args:
        mlir: The bindings; the context of the module is the current one.
        module: Changed, and not to be used any more.
        name: Of its one function that is not private.
        file: What to call the text in messages.
        numbers: Whether arguments may be numbers; the workload has tensors of rank 0 for them.

    Raises:
        UnsupportedWorkload: an operation cannot be expressed; says where and why.
    """
    (function,) = (
        view.operation
        for view in module.body.operations
        if view.operation.name == "func.func" and name_of(view.operation) == name
    )
    kind = function.attributes["function_type"].value
    for noun, types in (("argument", kind.inputs), ("result", kind.results)):
        for position, item in enumerate(types):
            takes_number = numbers and noun == "argument" and is_number(mlir.ir, item)
            tensor = number_tensor(mlir.ir, item) if takes_number else item
            check_argument(mlir, tensor, f"{noun} {position} of function @{name}")
    try:
        simplify(mlir, module)
        function, block = _only_block(module, name)
        lift_arguments(mlir, function)
        check_operations(mlir, block, file)
        taken = {input_name(position) for position in range(len(block.arguments))}
        bring_into_form(mlir, module, block, taken, file)
        on_tensors = str(function)
        wrapped = _wrap(mlir, block)
        kernel = wrapped.body.operations[0].operation
        workload = read_program(kernel, name, file)
        store_as_bytes(mlir, kernel)
        wrapped.operation.verify()
        return workload, str(wrapped), on_tensors
    except mlir.ir.MLIRError as error:
        raise UnsupportedWorkload(
            f"function @{name} cannot be brought into form: {diagnostic_text(error, file)}"
        ) from None


def name_of(function: Any) -> str:
    """Name of a function."""
    return str(function.attributes["sym_name"].value)


def check_argument(mlir: bindings.Bindings, kind: Any, what: str) -> None:
    """Check that an argument or a result is a tensor that a workload can have.

    Raises:
        UnsupportedWorkload: it is not.
    """
    if isinstance(kind, mlir.ir.MemRefType):
        raise UnsupportedWorkload(
            f"{what} is a buffer, {kind}: give the program as it is before bufferization, "
            "on tensors"
        )
    if not isinstance(kind, mlir.ir.RankedTensorType):
        raise UnsupportedWorkload(f"{what} is of type {kind}, not a tensor")
    if not kind.has_static_shape:
        raise UnsupportedWorkload(f"{what} has the dynamic shape {kind}; shapes must be known")
    try:
        tensor_of("argument", kind)
    except Unsupported as reason:
        raise UnsupportedWorkload(f"{what}: {reason}") from None


def _choose(mlir: bindings.Bindings, module: Any, wanted: str | None, file: str) -> Any:
    """The function that is meant; others become private, so that they are inlined or dropped.

    Raises:
        UnknownNameError: the file has no such function.
        InvalidValueError: it is not clear which function is meant.
        UnsupportedWorkload: there is no function.
    """
    functions = {
        name_of(view.operation): view.operation
        for view in module.body.operations
        if view.operation.name == "func.func" and len(view.operation.regions[0].blocks) > 0
    }
    if not functions:
        raise UnsupportedWorkload(f"{file} has no function (func.func)")
    if wanted is not None and wanted not in functions:
        raise UnknownNameError(f"function of {file}", wanted, functions)
    public = [name for name, found in functions.items() if not _is_private(found)]
    candidates = [wanted] if wanted is not None else public if len(functions) > 1 else [*functions]
    if len(candidates) != 1:
        listed = ", ".join(candidates or functions)
        raise InvalidValueError(
            f"{file} has {len(functions)} functions ({listed}); say which one is meant: "
            "--function NAME, or in Python ProgramFile(..., function=NAME) or the FuncOp itself"
        )
    for name, found in functions.items():
        visibility = "public" if name == candidates[0] else "private"
        found.attributes["sym_visibility"] = mlir.ir.StringAttr.get(visibility)
    return functions[candidates[0]]


def _is_private(function: Any) -> bool:
    attributes = function.attributes
    return "sym_visibility" in attributes and attributes["sym_visibility"].value == "private"


def _only_block(module: Any, name: str) -> tuple[Any, Any]:
    """The function called ``name`` and its body.

    Raises:
        UnsupportedWorkload: it branches.
    """
    for view in module.body.operations:
        operation = view.operation
        if operation.name == "func.func" and name_of(operation) == name:
            blocks = list(operation.regions[0].blocks)
            if len(blocks) != 1:
                raise UnsupportedWorkload(
                    f"function @{name} branches: it has {len(blocks)} blocks"
                )
            return operation, blocks[0]
    raise UnsupportedWorkload(f"function @{name} is gone after inlining")


def _wrap(mlir: bindings.Bindings, block: Any) -> Any:
    """A module whose one function, on buffers, holds the operations of ``block``."""
    ir = mlir.ir
    *computing, last = [view.operation for view in block.operations]
    inputs = [value.type for value in block.arguments]
    outputs = [value.type for value in last.operands]
    parameters = ", ".join(
        f"%p{position}: {_buffer(kind)}" for position, kind in enumerate([*inputs, *outputs])
    )
    reads = "\n".join(
        f"%t{position} = bufferization.to_tensor %p{position} restrict : {_buffer(kind)} to {kind}"
        for position, kind in enumerate(inputs)
    )
    module = ir.Module.parse(
        f"func.func @{ENTRY}({parameters}) attributes {{llvm.emit_c_interface}} "
        f"{{\n{reads}\nreturn\n}}"
    )
    body = module.body.operations[0].operation.regions[0].blocks[0]
    *tensors, end = [view.operation for view in body.operations]
    for value, tensor in zip(list(block.arguments), tensors, strict=True):
        value.replace_all_uses_with(tensor.results[0])
    for operation in computing:
        operation.move_before(end)
    marks = {"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()}
    with ir.InsertionPoint(end), last.location:
        for position, value in enumerate(last.operands, len(inputs)):
            ir.Operation.create(
                "bufferization.materialize_in_destination",
                operands=[value, body.arguments[position]],
                attributes=marks,
            )
    last.erase()
    return module


def _buffer(kind: Any) -> str:
    return f"memref<{'x'.join([*map(str, kind.shape), str(kind.element_type)])}>"
