"""One kernel of a module: its functions inlined, or called where they were compiled before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune_mlir import bindings
from autotune_mlir.emit import quoted
from autotune_mlir.importing.operations import decompose
from autotune_mlir.importing.untuned import Call, caller_text
from autotune_mlir.networks.function import ModuleFunction, TensorType
from autotune_mlir.parsing import new_context
from autotune_mlir.traversal import operations_in

__all__ = ["kernel_text", "unit_symbol"]

# Names of a module's own functions may be those of functions that the code calls.
_PREFIX = "network."
_INLINE = "builtin.module(inline,symbol-dce,convert-elementwise-to-linalg)"


def unit_symbol(number: int) -> str:
    """What a kernel calls the function ``int f(void **arrays)`` that was compiled before."""
    return f"{_PREFIX}unit.{number}"


def kernel_text(
    module: str,
    entries: Sequence[ModuleFunction],
    units: Mapping[str, tuple[ModuleFunction, int]],
) -> str:
    """A module with one function ``@kernel`` that runs functions of a module.

    Its arguments are buffers: the inputs of all entries, and then their outputs.

    Args:
        module: Text of the module.
        entries: What is run, in order.
        units: Functions that were compiled before, by name, and the numbers of their symbols.

    Raises:
        MLIRError: the module cannot be linked.
    """
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        linked = mlir.ir.Module.parse(module)
        for view in list(linked.body.operations):
            operation = view.operation
            if operation.name == "func.func":
                _hide(mlir.ir, operation)
                if str(operation.attributes["sym_name"].value).removeprefix(_PREFIX) in units:
                    operation.erase()
        texts = [_unit_text(function, number) for function, number in units.values()]
        for text in (*texts, caller_text(list(map(_call, entries)))):
            added = mlir.ir.Module.parse(text)  # kept: it owns what is not moved yet
            for view in list(added.body.operations):
                if view.operation.name != "func.func" or len(view.operation.regions[0].blocks):
                    linked.body.append(view)
        mlir.passmanager.PassManager.parse(_INLINE).run(linked.operation)
        decompose(mlir, linked)
        return str(linked)


def _hide(ir: Any, function: Any) -> None:
    """Make a function private under a name that is the module's own, and so what it calls."""
    prefixed = f"{_PREFIX}{function.attributes['sym_name'].value}"
    function.attributes["sym_name"] = ir.StringAttr.get(prefixed)
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    for operation in operations_in(function):
        if operation.name == "func.call":
            called = operation.attributes["callee"].value
            renamed = ir.FlatSymbolRefAttr.get(f"{_PREFIX}{called}")
            operation.attributes["callee"] = renamed


def _call(function: ModuleFunction) -> Call:
    inputs, outputs = (
        tuple(kind.tensor for kind in kinds) for kinds in (function.inputs, function.outputs)
    )
    return Call(f"{_PREFIX}{function.name}", inputs, outputs)


def _unit_text(function: ModuleFunction, number: int) -> str:
    """A function on tensors that calls the compiled one, and what that is called by."""
    name, adapter = quoted(f"{_PREFIX}{function.name}"), quoted(f"{_PREFIX}call.{number}")
    kinds = [*function.inputs, *function.outputs]
    count = len(function.inputs)
    parameters = ", ".join(f"%t{i}: {kind.tensor}" for i, kind in enumerate(function.inputs))
    results = ", ".join(kind.tensor for kind in function.outputs)
    lines = [
        f"%b{i} = bufferization.to_buffer %t{i} read_only : {kind.tensor} to {kind.buffer}"
        if i < count
        else f"%b{i} = memref.alloc() : {kind.buffer}"
        for i, kind in enumerate(kinds)
    ]
    given = ", ".join(f"%b{i}" for i in range(len(kinds)))
    types = ", ".join(kind.buffer for kind in kinds)
    lines.append(f"func.call @{adapter}({given}) : ({types}) -> ()")
    for i, kind in enumerate(function.outputs, count):
        lines.append(
            f"%t{i} = bufferization.to_tensor %b{i} restrict writable "
            f": {kind.buffer} to {kind.tensor}"
        )
    returned = ", ".join(f"%t{i}" for i in range(count, len(kinds)))
    body = "\n".join([*lines, f"return {returned} : {results}" if returned else "return"])
    head = f"func.func private @{name}({parameters}) -> ({results}) {{\n{body}\n}}"
    return f"{head}\n{_adapter_text(adapter, kinds, number)}"


def _adapter_text(adapter: str, kinds: Sequence[TensorType], number: int) -> str:
    """A function on buffers that hands their addresses to the compiled one.

    It stays a function: what it puts on the stack is gone when it returns.
    """
    symbol = quoted(unit_symbol(number))
    parameters = ", ".join(f"%b{i}: {kind.buffer}" for i, kind in enumerate(kinds))
    lines = [
        f"%count = llvm.mlir.constant({max(1, len(kinds))} : i64) : i64",
        "%arrays = llvm.alloca %count x !llvm.ptr : (i64) -> !llvm.ptr",
    ]
    for i, kind in enumerate(kinds):
        lines += [
            f"%x{i} = memref.extract_aligned_pointer_as_index %b{i} : {kind.buffer} -> index",
            f"%n{i} = arith.index_cast %x{i} : index to i64",
            f"%a{i} = llvm.inttoptr %n{i} : i64 to !llvm.ptr",
            f"%s{i} = llvm.getelementptr %arrays[{i}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr",
            f"llvm.store %a{i}, %s{i} : !llvm.ptr, !llvm.ptr",
        ]
    lines.append(f"%status = llvm.call @{symbol}(%arrays) : (!llvm.ptr) -> i32")
    body = "\n".join([*lines, "return"])
    return (
        f"func.func private @{adapter}({parameters}) attributes {{no_inline}} {{\n{body}\n}}\n"
        f"llvm.func @{symbol}(!llvm.ptr) -> i32"
    )
