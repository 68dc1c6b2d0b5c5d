"""From a TIR function to a workload.

What is accepted is what TVM's operator library produces before it is scheduled; everything else
is refused with the block's name and the reason.
"""

from __future__ import annotations

from typing import Any

from tvm import IRModule, tirx
from tvm.ir import load_json, save_json
from tvm.s_tir import SBlock, SBlockRealize

from autotune.errors import UnsupportedWorkload
from autotune.workloads import Workload
from autotune_tvm.blocks import nests_of, read_function
from autotune_tvm.emit import ENTRY

__all__ = [
    "argument_names",
    "block_names",
    "import_module",
    "loop_axes",
    "module_from_text",
    "module_of",
    "text_of",
]


def import_module(program: object) -> tuple[Workload, IRModule]:
    """What ``program`` computes, and the module it is, its function renamed to ``main``.

    Stages and inputs are called after their buffers (made unique), axes after their loops.

    Args:
        program: A ``PrimFunc``, or an ``IRModule`` with one.

    Raises:
        UnsupportedWorkload: names the block that cannot be expressed, and why.
    """
    module, name = module_of(program)
    reading = read_function(module[ENTRY])
    written = {block.stage.name for block in reading.blocks}
    inputs = tuple(tensor for tensor in reading.parameters if tensor.name not in written)
    outputs = tuple(tensor.name for tensor in reading.parameters if tensor.name in written)
    if not outputs:
        raise UnsupportedWorkload(f"function {name!r} writes none of its parameters")
    stages = tuple(block.stage for block in reading.blocks)
    return Workload(name, inputs, stages, outputs), module


def block_names(module: IRModule) -> dict[str, str]:
    """The name of the block that computes each stage of the workload that ``module`` is."""
    return {block.stage.name: block.name for block in read_function(module[ENTRY]).blocks}


def loop_axes(module: IRModule) -> dict[str, tuple[str, ...]]:
    """The axes of each stage in the order of the loops around its block, outermost first."""
    return {block.stage.name: block.loop_axes for block in read_function(module[ENTRY]).blocks}


def argument_names(module: IRModule) -> tuple[str, ...]:
    """The tensors that the function takes, in its own order."""
    return tuple(tensor.name for tensor in read_function(module[ENTRY]).parameters)


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


def module_of(program: object) -> tuple[IRModule, str]:
    """``program`` as a module with one function called ``main``, and the function's own name.

    Blocks that share a name are renamed: schedules find blocks by name.

    Raises:
        UnsupportedWorkload: it is no ``PrimFunc`` and no module with just one, or it holds
            something else than loop nests with one block each.
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
    renamed = _with_unique_block_names(function).with_attr("global_symbol", ENTRY)
    return IRModule({ENTRY: renamed}), name


def _function_names(module: IRModule) -> list[str]:
    return [str(variable.name_hint) for variable, _ in module.functions_items()]


def _with_unique_block_names(function: tirx.PrimFunc) -> tirx.PrimFunc:
    names = [nest.name for nest in nests_of(function)]
    taken = set(names)
    if len(taken) == len(names):
        return function
    seen: set[str] = set()
    fresh = []
    for name in names:
        unique, count = name, 1
        while unique in seen or (unique != name and unique in taken):
            unique, count = f"{name}_{count}", count + 1
        seen.add(unique)
        fresh.append(unique)
    root = function.body
    statements = [
        _rebuilt(nest.loops, nest.realize, name)
        for nest, name in zip(nests_of(function), fresh, strict=True)
    ]
    body = _realize_with(root, root.block.name_hint, tirx.SeqStmt(statements))
    return function.with_body(body)


def _rebuilt(loops: tuple[Any, ...], realize: Any, name: str) -> Any:
    """The nest again, its block called ``name``."""
    statement = _realize_with(realize, name, realize.block.body)
    for loop in reversed(loops):
        statement = tirx.For(
            loop.loop_var,
            loop.min,
            loop.extent,
            loop.kind,
            statement,
            loop.thread_binding,
            loop.annotations,
            loop.step,
        )
    return statement


def _realize_with(realize: Any, name: str, body: Any) -> Any:
    block = realize.block
    changed = SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        name,
        body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )
    return SBlockRealize(realize.iter_values, realize.predicate, changed)
