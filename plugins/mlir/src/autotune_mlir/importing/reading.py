"""From the text of a program on tensors to a workload, in the process that calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir.rewrites.zero_points import infer_unsigned, split_zero_points
from autotune.ir.workloads import Workload
from autotune.ir.workloads.inputs import index_inputs
from autotune_mlir import bindings
from autotune_mlir.bindings import Bindings
from autotune_mlir.emit import STAGE, payload, quoted
from autotune_mlir.entry import KERNEL
from autotune_mlir.importing.function_reader import RESHAPES, FunctionReader, is_number, tensor_of
from autotune_mlir.importing.generic_form import SCANS, load_scans
from autotune_mlir.importing.scalar_import import BODY_OPERATIONS, Unsupported
from autotune_mlir.importing.tensor_values import JOINS
from autotune_mlir.parsing import new_context, operation_named

__all__ = [
    "BESIDE_LINALG",
    "Call",
    "at",
    "caller_text",
    "check_argument",
    "decompose",
    "import_function",
    "name_of",
    "parse_text",
    "read_text",
]


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
    function: Any = operation_named(module, name)
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
    function = operation_named(module, name)
    if function is None:
        raise UnsupportedWorkload(f"function @{name} is gone after inlining")
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        raise UnsupportedWorkload(f"function @{name} branches: it has {len(blocks)} blocks")
    return function, blocks[0]


_FUNCTION = "program"
_INLINE = "builtin.module(inline,symbol-dce)"


@frozen
class Call:
    """A call of a function.

    Attributes:
        name: The function.
        inputs: Types of its arguments: tensors and numbers.
        outputs: Types of its results, tensors.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def signature(self) -> str:
        """The type of the function."""
        return f"({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})"


def caller_text(calls: Sequence[Call]) -> str:
    """A function ``@kernel`` on buffers that calls others, which it declares.

    Its arguments are the inputs of all calls, and then their outputs. A number is in a buffer of
    rank 0, an index as one of ``i64``.
    """
    inputs = [kind for call in calls for kind in call.inputs]
    outputs = [kind for call in calls for kind in call.outputs]
    buffers = [_buffer(kind) for kind in (*inputs, *outputs)]
    parameters = ", ".join(f"%p{position}: {kind}" for position, kind in enumerate(buffers))
    lines = [line for position, kind in enumerate(inputs) for line in _read(position, kind)]
    taken, place = 0, len(inputs)
    for number, call in enumerate(calls):
        given = ", ".join(f"%t{taken + position}" for position in range(len(call.inputs)))
        taken += len(call.inputs)
        results = f"%r{number}:{len(call.outputs)} = " if call.outputs else ""
        lines.append(f"{results}func.call @{quoted(call.name)}({given}) : {call.signature}")
        for position, kind in enumerate(call.outputs):
            lines.append(
                f"bufferization.materialize_in_destination %r{number}#{position} in restrict "
                f"writable %p{place} : ({kind}, {buffers[place]}) -> ()"
            )
            place += 1
    # A text has to declare what it calls.
    declared = [f"func.func private @{quoted(call.name)}{call.signature}" for call in calls]
    head = f"func.func @{KERNEL}({parameters}) {{"
    return "\n".join([*declared, head, *lines, "return", "}"])


def _read(position: int, kind: str) -> list[str]:
    """The lines that read an argument."""
    value, place, buffer = f"%t{position}", f"%p{position}", _buffer(kind)
    if kind.startswith("tensor"):
        return [f"{value} = bufferization.to_tensor {place} restrict : {buffer} to {kind}"]
    if kind != "index":
        return [f"{value} = memref.load {place}[] : {buffer}"]
    number = f"%n{position}"
    return [
        f"{number} = memref.load {place}[] : {buffer}",
        f"{value} = arith.index_cast {number} : i64 to index",
    ]


def _buffer(kind: str) -> str:
    """The type of the buffer for a tensor or a number."""
    if kind.startswith("tensor"):
        return f"memref{kind.removeprefix('tensor')}"
    return f"memref<{'i64' if kind == 'index' else kind}>"


def program_text(mlir: Bindings, function: Any) -> str:
    """A module whose one function, ``@kernel`` on buffers, is a function on tensors.

    Args:
        mlir: The bindings.
        function: The operation ``func.func``; its arguments may be numbers.
    """
    ir = mlir.ir
    kind = function.attributes["function_type"].value
    call = Call(_FUNCTION, tuple(map(str, kind.inputs)), tuple(map(str, kind.results)))
    module = ir.Module.parse(caller_text([call]))
    module.body.operations[0].operation.erase()
    copy = function.clone()
    copy.attributes["sym_name"] = ir.StringAttr.get(_FUNCTION)
    copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
    module.body.append(copy)
    mlir.passmanager.PassManager.parse(_INLINE).run(module.operation)
    return str(module)


_PLACE = re.compile(r'"(?:[^"\\]|\\.)*":(\d+):(\d+)')
_POSITION = re.compile(r"loc\(" + _PLACE.pattern)


def _position(location: Any) -> str:
    """``LINE:COLUMN`` of a location, or nothing where it has none."""
    found = _POSITION.search(str(location))
    return f"{found[1]}:{found[2]}" if found else ""


def at(operation: Any, file: str) -> str:
    """`` at FILE:LINE:COLUMN`` for an operation, or nothing where that is not known.

    Args:
        operation: An operation of a parsed module.
        file: What to call the text.
    """
    position = _position(operation.location)
    return f" at {file}:{position}" if position else ""


def diagnostic_text(error: Exception, file: str) -> str:
    """An MLIR failure in one line: ``FILE:LINE:COLUMN: message``.

    Args:
        error: An ``MLIRError``.
        file: What to call the text.
    """
    diagnostics = getattr(error, "error_diagnostics", None) or []
    if not diagnostics:
        return f"{file}: {_one_line(str(error))}"
    first = diagnostics[0]
    place = ":".join(filter(None, [file, _position(first.location)]))
    return f"{place}: {_one_line(first.message)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


_SIMPLIFY = "builtin.module(inline,symbol-dce,convert-elementwise-to-linalg,canonicalize)"
_GENERALIZE = "builtin.module(linalg-generalize-named-ops)"
_DECOMPOSE = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %found = transform.structured.match ops{["linalg.softmax"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %parts = transform.structured.decompose_interface %found
        : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""
BESIDE_LINALG = (
    "arith.constant",
    "tensor.empty",
    "tensor.extract_slice",
    "tensor.splat",
    *JOINS,
    *RESHAPES,
    "tensor.pad",
    *SCANS,
    "func.return",
)
"""Operations that may stand in a function beside those of linalg."""


def simplify(mlir: Bindings, module: Any) -> None:
    """Inline calls, drop what is not used, and turn arithmetic on tensors into linalg.

    Softmax becomes the operations that it consists of.
    """
    mlir.passmanager.PassManager.parse(_SIMPLIFY).run(module.operation)
    decompose(mlir, module)
    mlir.passmanager.PassManager.parse("builtin.module(canonicalize)").run(module.operation)


def decompose(mlir: Bindings, module: Any) -> None:
    """Take softmax apart, for which MLIR has no loops."""
    schedule = mlir.ir.Module.parse(_DECOMPOSE)
    mlir.interpreter.apply_named_sequence(module, schedule.body.operations[0], schedule)


def generalize(mlir: Bindings, module: Any) -> None:
    """Write the named operations of linalg as ``linalg.generic``."""
    mlir.passmanager.PassManager.parse(_GENERALIZE).run(module.operation)


def has_scans(block: Any) -> bool:
    """Return whether a function has scans of torch-mlir, for which MLIR has no loops."""
    return any(view.operation.name in SCANS for view in block.operations)


def check_operations(mlir: Bindings, block: Any, file: str) -> None:
    """Check that all operations of a function are of known kinds and have known shapes.

    Raises:
        UnsupportedWorkload: one is not, or has not; says where it stands.
    """
    computing = 0
    for view in block.operations:
        operation = view.operation
        known = operation.name in BESIDE_LINALG or operation.name.startswith("linalg.")
        if not known and not _computes_number(operation):
            raise UnsupportedWorkload(
                f"operation {operation.name} is not supported{at(operation, file)}; supported are "
                "those of linalg on tensors, arithmetic on tensors and on numbers, "
                f"{', '.join(BESIDE_LINALG)}"
            )
        for result in operation.results:
            if isinstance(result.type, mlir.ir.RankedTensorType):
                _check_static(operation, result.type, file)
        computing += operation.name.startswith(
            ("linalg.", "tensor.pad", "tensor.splat", *JOINS, *RESHAPES, *SCANS)
        ) or (operation.name == "tensor.extract_slice" and len(operation.operands) > 1)
    if not computing:
        raise UnsupportedWorkload("the function has no linalg operation: nothing can be tuned")


def _computes_number(operation: Any) -> bool:
    """Return whether an operation of a function is one that bodies have, too."""
    numbers = [is_number(result.type) for result in operation.results]
    return operation.name in BODY_OPERATIONS and all(numbers)


def _check_static(operation: Any, kind: Any, file: str) -> None:
    if not kind.has_static_shape:
        raise UnsupportedWorkload(
            f"operation {operation.name}{at(operation, file)} has the dynamic shape {kind}; "
            "shapes must be known"
        )
