"""The program that a function is by itself: what is run where nothing is tuned."""

from __future__ import annotations

from typing import Any

from autotune_mlir.bindings import Bindings
from autotune_mlir.emit import ENTRY

__all__ = ["program_text"]

_FUNCTION = "program"
_INLINE = "builtin.module(inline,symbol-dce)"


def program_text(mlir: Bindings, function: Any) -> str:
    """A module whose one function, on buffers, computes what a function on tensors does.

    Args:
        mlir: The bindings.
        function: The operation ``func.func``; its arguments may be numbers, which buffers of rank
            0 hold, an index as ``i64``.
    """
    ir = mlir.ir
    kind = function.attributes["function_type"].value
    module = ir.Module.parse(_caller_text(list(kind.inputs), list(kind.results)))
    *_, declared = [view.operation for view in module.body.operations]
    declared.erase()
    copy = function.clone()
    copy.attributes["sym_name"] = ir.StringAttr.get(_FUNCTION)
    copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
    module.body.append(copy)
    mlir.passmanager.PassManager.parse(_INLINE).run(module.operation)
    return str(module)


def _caller_text(inputs: list[Any], outputs: list[Any]) -> str:
    """The function on buffers, which calls the one on tensors, and what declares that."""
    buffers = [_buffer(kind) for kind in (*inputs, *outputs)]
    parameters = ", ".join(f"%p{position}: {kind}" for position, kind in enumerate(buffers))
    lines = []
    for position, kind in enumerate(inputs):
        value, place, buffer = f"%t{position}", f"%p{position}", buffers[position]
        if hasattr(kind, "shape"):
            lines.append(
                f"{value} = bufferization.to_tensor {place} restrict : {buffer} to {kind}"
            )
        elif str(kind) == "index":
            lines.append(f"%n{position} = memref.load {place}[] : {buffer}")
            lines.append(f"{value} = arith.index_cast %n{position} : i64 to index")
        else:
            lines.append(f"{value} = memref.load {place}[] : {buffer}")
    signature = f"({', '.join(map(str, inputs))}) -> ({', '.join(map(str, outputs))})"
    given = ", ".join(f"%t{position}" for position in range(len(inputs)))
    results = f"%r:{len(outputs)} = " if outputs else ""
    lines.append(f"{results}func.call @{_FUNCTION}({given}) : {signature}")
    lines += [
        f"bufferization.materialize_in_destination %r#{position} in restrict writable "
        f"%p{len(inputs) + position} : ({kind}, {buffers[len(inputs) + position]}) -> ()"
        for position, kind in enumerate(outputs)
    ]
    body = "\n".join([*lines, "return"])
    return (
        f"func.func @{ENTRY}({parameters}) attributes {{llvm.emit_c_interface}} {{\n{body}\n}}\n"
        f"func.func private @{_FUNCTION}{signature}\n"
    )


def _buffer(kind: Any) -> str:
    """The type of the buffer for a tensor or a number."""
    shape = [*map(str, getattr(kind, "shape", ()))]
    element = getattr(kind, "element_type", "i64" if str(kind) == "index" else kind)
    return f"memref<{'x'.join([*shape, str(element)])}>"
