"""Functions on buffers that call functions on tensors.

One that calls a function that is read is its baseline: what is run where nothing is tuned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from autotune_mlir.bindings import Bindings
from autotune_mlir.emit import quoted
from autotune_mlir.entry import KERNEL

__all__ = ["Call", "caller_text", "program_text"]

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
