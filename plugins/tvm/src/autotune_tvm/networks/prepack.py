"""Weights are packed when a network is built, not each time it runs.

A schedule may copy an operand into the order in which its loops read it. Where that operand is a
constant in every call, the copy is made once: the statement that packs leaves the function, which
takes the packed operand instead.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from attrs import frozen
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, IRModule, Tuple
from tvm.runtime import empty
from tvm.s_tir import SBlock, SBlockRealize

from autotune.targets import Target
from autotune_tvm import compiler
from autotune_tvm.networks.graph import (
    ENTRY,
    Graph,
    Replace,
    array_of,
    operator_of,
    rewrite,
    tensor_calls,
)
from autotune_tvm.passes.statements import inside, rebuilt, statements

__all__ = ["prepack_weights", "split_packing"]


@frozen(eq=False)
class _Packing:
    """A block that does nothing but pack a parameter.

    Attributes:
        position: Of the parameter among those of the function.
        block: The block.
        packed: The buffer that it writes.
    """

    position: int
    block: Any
    packed: Any


@frozen(eq=False)
class _Packer:
    """What packs one operand of a function.

    Attributes:
        function: Compiled: from the operand to the packed one.
        kind: Type of the packed operand.
    """

    function: Any
    kind: Any

    def packed(self, operand: Any) -> Any:
        """The packed constant."""
        array = array_of(operand)
        assert array is not None  # it is a constant
        result = empty([int(extent) for extent in self.kind.shape], str(self.kind.dtype))
        # Elements that no statement writes are read by none that matters, and are no NaN.
        np.from_dlpack(result)[...] = 0
        self.function(operand.value, result)
        return relax.const(result)


def prepack_weights(
    module: IRModule, target: Target, threads: int
) -> tuple[IRModule, dict[str, int]]:
    """Pack constants that scheduled functions pack.

    Args:
        module: A network whose functions are scheduled.
        target: What it runs on.
        threads: How many threads it uses.

    Returns:
        The module, and how many operands of each function are packed now.

    Raises:
        BuildFailed: what packs does not compile.
    """
    packers: dict[tuple[str, int], _Packer] = {}
    functions: dict[str, tuple[Any, Any]] = {}
    for name, positions in _constant_positions(module).items():
        function, packings = split_packing(module[name], positions)
        for position, packing in packings.items():
            compiled = compiler.compile_module(packing, target, threads)[ENTRY]
            packers[name, position] = _Packer(compiled, packing[ENTRY].params[1].ty)
        if packings:
            # A variable of its own: that of a function has its type, with the unpacked operand's.
            functions[name] = relax.BlockBuilder().add_func(function, name), function
    if not functions:
        return module, {}
    changed = rewrite(module, _packed_calls(packers, functions))
    whole = dict(
        functions.get(str(variable.name_hint), (variable, body))
        for variable, body in changed.functions_items()
    )
    return IRModule(whole, attrs=module.attrs), dict(Counter(name for name, _ in packers))


def _packed_calls(
    packers: Mapping[tuple[str, int], _Packer], functions: Mapping[str, tuple[Any, Any]]
) -> Replace:
    """What gives calls the packed constants; each is packed once."""
    packed: dict[tuple[str, int, Any], Any] = {}

    def replace(call: Any, graph: Graph) -> Any:
        name = str(call.args[0].name_hint) if operator_of(call) == "call_tir" else ""
        if name not in functions:
            return None
        arguments = list(call.args[1].fields)
        for position, argument in enumerate(arguments):
            if (name, position) not in packers:
                continue
            key = name, position, argument
            if key not in packed:
                packed[key] = packers[name, position].packed(argument)
            arguments[position] = packed[key]
        rest = [functions[name][0], Tuple(arguments), *call.args[2:]]
        return Call(call.op, rest, call.attrs, call.ty_args)

    return replace


def split_packing(function: Any, positions: Collection[int]) -> tuple[Any, dict[int, IRModule]]:
    """Take the packing of some parameters out of a scheduled function.

    Args:
        function: A scheduled ``PrimFunc``.
        positions: Of parameters that are constants.

    Returns:
        The function, which takes packed parameters in their places, and by position the module
        whose ``main`` packs: from the parameter to the packed one.
    """
    packings = [it for it in _packings(function) if it.position in positions]
    if not packings:
        return function, {}
    root = function.body.block
    gone = [it.block for it in packings]
    body = _without(root.body, gone)
    kept = [it for it in root.alloc_buffers if not any(it.same_as(p.packed) for p in packings)]
    block = SBlock(
        [], root.reads, root.writes, root.name_hint, body, root.init, kept, [], root.annotations
    )
    parameters = list(function.params)
    for packing in packings:
        parameters[packing.position] = packing.packed
    split = tirx.PrimFunc(
        parameters, SBlockRealize([], True, block), function.ret_type, attrs=function.attrs
    )
    return split, {
        it.position: _packing_module(function.params[it.position], it) for it in packings
    }


def _constant_positions(module: IRModule) -> dict[str, set[int]]:
    """By function, the operands that are constants in all calls."""
    found: dict[str, set[int]] = {}
    for name, call in tensor_calls(module):
        fields = call.args[1].fields
        constants = {i for i, field in enumerate(fields) if isinstance(field, GenericConst)}
        found[name] = found.get(name, constants) & constants
    return {name: positions for name, positions in found.items() if positions}


def _packings(function: Any) -> Iterator[_Packing]:
    """Blocks that pack a parameter that nothing else reads into a buffer that only they write."""
    root = function.body.block if isinstance(function.body, SBlockRealize) else None
    if root is None:
        return
    readers: dict[int, list[Any]] = defaultdict(list)
    writers: dict[Any, list[Any]] = defaultdict(list)
    for node in statements(root.body):
        if isinstance(node, SBlock):
            for position, parameter in enumerate(function.params):
                if any(region.source.same_as(parameter) for region in node.reads):
                    readers[position].append(node)
            for region in node.writes:
                writers[region.source].append(node)
    for position, blocks in readers.items():
        block = blocks[0]
        if len(blocks) > 1 or not _only_packs(block) or function.params[position] in writers:
            continue
        packed = block.writes[0].source
        local = any(packed.same_as(buffer) for buffer in root.alloc_buffers)
        if local and len(writers[packed]) == 1 and _moves(root, block):
            yield _Packing(position, block, packed)


def _moves(root: Any, block: Any) -> bool:
    """Whether a packed operand is to be read from memory as it is packed.

    A part that is copied inside of loops in the operand's own order is copied to lie together,
    which the whole operand would not: that stays in the loops.
    """
    if len(block.writes[0].region) > len(block.reads[0].region):
        return True
    whole = root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]
    alone = [[it for it in statements(one) if isinstance(it, SBlock)] for one in whole]
    return any(len(blocks) == 1 and blocks[0].same_as(block) for blocks in alone)


def _only_packs(block: Any) -> bool:
    """Whether a block is one store of what it reads from one buffer, wherever it stands."""
    spatial = tirx.IterVar.DataPar
    return (
        isinstance(block.body, tirx.BufferStore)
        and block.init is None
        and len(block.reads) == len(block.writes) == 1
        and not block.alloc_buffers
        and not block.match_buffers
        and all(axis.iter_type == spatial for axis in block.iter_vars)
    )


def _without(node: Any, gone: list[Any]) -> Any:
    """The statement without some blocks and the loops that hold nothing else; None if all goes."""
    if isinstance(node, SBlockRealize) and any(node.block.same_as(block) for block in gone):
        return None
    before = inside(node)
    after = [_without(statement, gone) for statement in before]
    kept = [statement for statement in after if statement is not None]
    if before and not kept:
        return None
    if len(kept) == len(before) and all(a.same_as(b) for a, b in zip(kept, before, strict=True)):
        return node
    return rebuilt(node, kept)


def _packing_module(parameter: Any, packing: _Packing) -> IRModule:
    """A function that packs: every element of the block, in order."""
    axes = packing.block.iter_vars
    loops = [tirx.Var(f"i{i}", axis.dom.extent.ty.dtype) for i, axis in enumerate(axes)]
    body: Any = SBlockRealize(loops, True, packing.block)
    for loop, axis in reversed(list(zip(loops, axes, strict=True))):
        body = tirx.For(loop, axis.dom.min, axis.dom.extent, tirx.ForKind.SERIAL, body)
    root = SBlockRealize([], True, SBlock([], [], [], "root", body))
    function = tirx.PrimFunc([parameter, packing.packed], root)
    named = function.with_attr("global_symbol", ENTRY).with_attr("tirx.noalias", True)
    return IRModule({ENTRY: named})
