"""From the text of a program on tensors to a workload, in the process that calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir.rewrites.unsigned_bytes import infer_unsigned
from autotune.ir.rewrites.zero_points import split_zero_points
from autotune.ir.workloads import Workload
from autotune.ir.workloads.inputs import index_inputs
from autotune_mlir import bindings
from autotune_mlir.emit import STAGE, payload
from autotune_mlir.importing.function_reader import FunctionReader, tensor_of
from autotune_mlir.importing.locations import at, diagnostic_text
from autotune_mlir.importing.operations import (
    check_operations,
    generalize,
    has_scans,
    simplify,
)
from autotune_mlir.importing.scalar_import import Unsupported
from autotune_mlir.importing.scans import load_scans
from autotune_mlir.importing.untuned import program_text
from autotune_mlir.parsing import new_context

__all__ = ["check_argument", "import_function", "name_of", "parse_text", "read_text"]


def read_text(text: str, file: str, function: str | None = None) -> tuple[Workload, str]:
    """The workload of a program, and the program by itself, as :func:`import_function`.

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
        return import_function(mlir, module, name, file, numbers=True)


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
) -> tuple[Workload, str]:
    """The workload of a function, and the program that it is by itself.

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
            what = f"{noun} {position} of function @{name}"
            check_argument(mlir, item, what, numbers=numbers and noun == "argument")
    try:
        simplify(mlir, module)
        function, block = _only_block(module, name)
        check_operations(mlir, block, file)
        has_loops = not has_scans(block)
        program = program_text(mlir, function) if has_loops else None
        workload = read_workload(mlir, module, block, name, file)
        # What MLIR's own passes have no loops for is computed as the workload says.
        return workload, payload(workload) if program is None else program
    except mlir.ir.MLIRError as error:
        raise UnsupportedWorkload(
            f"function @{name} cannot be brought into form: {diagnostic_text(error, file)}"
        ) from None


def read_workload(
    mlir: bindings.Bindings, module: Any, block: Any, name: str, file: str
) -> Workload:
    """Read the computation of a function.

    Args:
        mlir: The bindings.
        module: Simplified; its named operations become generic ones.
        block: The body of its function, of operations that are known.
        name: What to call the workload.
        file: What to call the text in messages.

    Raises:
        UnsupportedWorkload: an operation cannot be expressed; says where and why.
    """
    names = [_name_of(found) for found in _computing(block)]
    generalize(mlir, module)
    reader = FunctionReader(list(block.arguments))
    # Generalised operations stand where the named ones stood.
    named = iter(names)
    outputs: tuple[str, ...] = ()
    for view in block.operations:
        operation = view.operation
        try:
            if operation.name == "func.return":
                outputs = reader.returned(list(operation.operands))
            else:
                is_named = _is_computing(operation)
                reader.read(operation, next(named) if is_named else _mark(operation))
        except Unsupported as reason:
            where = at(operation, file)
            raise UnsupportedWorkload(f"operation {operation.name}{where}: {reason}") from None
    read = Workload(name, tuple(reader.inputs), tuple(reader.stages), outputs)
    made = split_zero_points(infer_unsigned(read))
    # Says whether there are inputs by which candidates can be validated.
    index_inputs(made, np.random.default_rng(0))
    return made


def _computing(block: Any) -> list[Any]:
    """The operations of a function that compute something by themselves, in order."""
    return [view.operation for view in block.operations if _is_computing(view.operation)]


def _is_computing(operation: Any) -> bool:
    return operation.name == "tensor.pad" or bool(operation.name.startswith("linalg."))


def _name_of(operation: Any) -> str:
    """The name of the stage of an operation, which generic ones do not have."""
    own = "" if operation.name == "linalg.generic" else str(operation.name.rpartition(".")[2])
    return _mark(operation) or own


def _mark(operation: Any) -> str:
    """The name that a program says an operation's stage has."""
    attributes = operation.attributes
    return str(attributes[STAGE].value) if STAGE in attributes else ""


def name_of(function: Any) -> str:
    """Name of a function."""
    return str(function.attributes["sym_name"].value)


def check_argument(
    mlir: bindings.Bindings, kind: Any, what: str, *, numbers: bool = False
) -> None:
    """Check that an argument or a result is a tensor that a workload can have.

    Args:
        mlir: The bindings.
        kind: Its type.
        what: What to call it.
        numbers: Whether it may be a number.

    Raises:
        UnsupportedWorkload: it is not.
    """
    ir = mlir.ir
    if isinstance(kind, ir.MemRefType):
        raise UnsupportedWorkload(
            f"{what} is a buffer, {kind}: give the program as it is before bufferization, "
            "on tensors"
        )
    is_number = numbers and isinstance(kind, (ir.IntegerType, ir.IndexType, ir.FloatType))
    if not (is_number or isinstance(kind, ir.RankedTensorType)):
        raise UnsupportedWorkload(f"{what} is of type {kind}, not a tensor")
    if not (is_number or kind.has_static_shape):
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
