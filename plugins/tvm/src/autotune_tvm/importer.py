"""From a TIR function to a workload.

What is accepted is what TVM's operator library produces before it is scheduled; everything else
is refused with the block's name and the reason.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from tvm import IRModule, tirx
from tvm.ir import load_json, save_json

from autotune.backends import serial_seconds
from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import Stage, Tensor, Workload
from autotune.ir.workloads.inputs import index_inputs
from autotune_tvm.blocks import Block, identifier, read_function
from autotune_tvm.emit import ENTRY

__all__ = [
    "CONSTANTS",
    "argument_names",
    "blocks_of",
    "callable_module",
    "constants_of",
    "import_module",
    "least_seconds",
    "module_from_text",
    "parameters_of",
    "text_of",
]

CONSTANTS = "autotune.constants"
"""Attribute of a function: positions of its parameters that hold the same in all calls."""
_MOST_REMEMBERED = 256
"""Programs that are not read again; a network has some dozens."""


def import_module(program: object) -> tuple[Workload, IRModule]:
    """Workload of ``program``, and a module with it as its one function, called ``main``.

    The function keeps its attributes, so that other tools recognise it in what is stored;
    :func:`callable_module` prepares it for compiling.

    Stages and inputs are called after their buffers (made unique), axes after their loops.
    Parameters that the attribute :data:`CONSTANTS` names by position are constant inputs; the
    module is without that attribute, which other tools do not know.

    Args:
        program: A ``PrimFunc``, or an ``IRModule`` with one.

    Raises:
        UnsupportedWorkload: names the block that cannot be expressed, and why.
    """
    module, name = _function_of(program)
    return _read(_Program(text_of(module), name, module))


@frozen
class _Program:
    """A module with one function ``main``, known by its text and by the function's own name."""

    text: str
    name: str
    module: IRModule = field(eq=False)


@lru_cache(maxsize=_MOST_REMEMBERED)
def _read(program: _Program) -> tuple[Workload, IRModule]:
    """Read as :func:`import_module`: a network's functions are read to choose its layouts, to find
    those that are equal, and to schedule them."""
    module = _with_unique_names(program.module, program.text)
    constants = constants_of(module[ENTRY])
    module = IRModule({ENTRY: module[ENTRY].without_attr(CONSTANTS)}) if constants else module
    reading = read_function(module[ENTRY])
    written = {stage.name for stage in reading.stages}
    inputs = tuple(
        evolve(tensor, constant=position in constants)
        for position, tensor in enumerate(reading.parameters)
        if tensor.name not in written
    )
    outputs = tuple(tensor.name for tensor in reading.parameters if tensor.name in written)
    if not outputs:
        raise UnsupportedWorkload(f"function {program.name!r} writes none of its parameters")
    workload = Workload(program.name, inputs, reading.stages, outputs)
    # Says whether there are inputs by which candidates can be validated.
    index_inputs(workload, np.random.default_rng(0))
    return workload, module


def constants_of(function: Any) -> frozenset[int]:
    """Positions of the parameters that hold the same in all calls, as far as that is known."""
    known = function.attrs.get(CONSTANTS, ()) if function.attrs is not None else ()
    return frozenset(map(int, known))


def blocks_of(module: IRModule) -> dict[str, Block]:
    """The blocks of those stages of the workload that ``module`` is which are blocks there."""
    return dict(read_function(module[ENTRY]).blocks)


def parameters_of(module: IRModule) -> tuple[Tensor, ...]:
    """The tensors that the function takes, in its own order and with its extents."""
    return read_function(module[ENTRY]).parameters


def argument_names(module: IRModule) -> tuple[str, ...]:
    """Names of the tensors that the function takes, in its own order."""
    return tuple(tensor.name for tensor in parameters_of(module))


def text_of(module: IRModule) -> str:
    """A lossless text form (JSON: reading it back runs nothing)."""
    return str(save_json(module))


def module_from_text(text: str) -> IRModule:
    """Read what :func:`text_of` wrote.

    Raises:
        UnsupportedWorkload: the text is something else.
    """
    try:
        module = load_json(text)
    except Exception as error:  # whatever the reader raises for text that is not its own
        raise UnsupportedWorkload(f"not a TVM program: {str(error)[:200]}") from error
    if not isinstance(module, IRModule) or ENTRY not in _function_names(module):
        raise UnsupportedWorkload(f"not a TVM module with a function {ENTRY!r}")
    return module


def _function_of(program: object) -> tuple[IRModule, str]:
    """``program`` as a module with one function, and the function's own name.

    Raises:
        UnsupportedWorkload: it is no ``PrimFunc`` and no module with just one.
    """
    function: Any = program
    name = ENTRY
    if isinstance(program, IRModule):
        names = _function_names(program)
        if len(names) != 1:
            listed = ", ".join(sorted(names)) or "none"
            raise UnsupportedWorkload(f"the module has {len(names)} functions ({listed}), not one")
        name = names[0]
        function = program[name]
    if not isinstance(function, tirx.PrimFunc):
        kind = f"{type(function).__module__}.{type(function).__qualname__}"
        raise UnsupportedWorkload(f"{kind} is not a TIR function (PrimFunc)")
    if function.attrs is not None and "global_symbol" in function.attrs:
        name = str(function.attrs["global_symbol"])
    return IRModule({ENTRY: function}), name


def callable_module(module: IRModule) -> IRModule:
    """The same function, callable as ``main``, that says that its arguments never overlap.

    Those of a workload do not; the code generator relies on that declaration.
    """
    function = module[ENTRY].with_attr("global_symbol", ENTRY).with_attr("tirx.noalias", True)
    return IRModule({ENTRY: function})


def _function_names(module: IRModule) -> list[str]:
    return [str(variable.name_hint) for variable, _ in module.functions_items()]


def _with_unique_names(module: IRModule, text: str) -> IRModule:
    """The same program with a name of its own for every buffer and every block.

    Buffers are then called as the tensors of the workload are; schedules find blocks by name.

    Names are the only thing that changes; they are changed in the text form, where each object
    stands once.

    Args:
        module: The program.
        text: Its text form.
    """
    data = json.loads(text)
    nodes = data["nodes"]
    changed = False
    for kind, key in (("ir.Var", "name"), ("s_tir.SBlock", "name_hint")):
        taken: set[str] = set()
        for node in list(nodes):
            if node["type"] != kind or (key == "name" and not _is_buffer(node, nodes)):
                continue
            name = nodes[node["data"][key]]["data"]
            stem = identifier(name) if key == "name" else name
            unique, count = stem, 1
            while unique in taken:
                unique, count = f"{stem}_{count}", count + 1
            taken.add(unique)
            if unique != name:
                changed = True
                nodes.append({"type": "ffi.String", "data": unique})
                node["data"][key] = len(nodes) - 1
    return module_from_text(json.dumps(data)) if changed else module


def _is_buffer(node: dict[str, Any], nodes: list[dict[str, Any]]) -> bool:
    return bool(nodes[node["data"]["ty"]]["type"] == "tirx.BufferType")


def least_seconds(function: Any) -> float:
    """Seconds that a call of an unscheduled function takes at least; 0.0 where nothing is known.

    A sum of floats is added in the order in which it stands: TVM gives LLVM no leave to reorder
    it. Where the innermost loops are those of a sum, no addition begins before the last has ended.

    Args:
        function: An unscheduled ``PrimFunc``.
    """
    try:
        workload, module = import_module(function)
    except UnsupportedWorkload:
        return 0.0
    blocks = blocks_of(module)
    others = [it.name for it in workload.stages if not _sums_innermost(it, blocks.get(it.name))]
    return serial_seconds(workload, others)


def _sums_innermost(stage: Stage, block: Block | None) -> bool:
    if block is None:
        return False
    reduced = {axis.name for axis in stage.reduce_axes}
    return set(block.loop_axes[len(block.loop_axes) - len(reduced) :]) == reduced
