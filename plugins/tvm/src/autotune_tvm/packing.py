"""Programs that are given packed constants: what packs is a function of its own.

A schedule copies an operand into the order in which its loops read it. Where the operand is the
same in all calls and the schedule says so (:class:`~autotune.sketches.Prepack`), the statement
that copies leaves the scheduled function, which takes the packed operand instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlock, SBlockRealize

from autotune.backends import InvalidSchedule
from autotune_tvm.emit import ENTRY
from autotune_tvm.executable import PackedOperand, packer_name
from autotune_tvm.passes.statements import inside

__all__ = ["split_module", "split_packing"]


def split_module(
    module: IRModule, positions: Iterable[int]
) -> tuple[IRModule, tuple[PackedOperand, ...]]:
    """A module whose ``main`` takes packed parameters, with the functions that pack them.

    Args:
        module: One scheduled function ``main``.
        positions: Of parameters that it is to take packed.

    Raises:
        InvalidSchedule: as :func:`split_packing`.
    """
    function, packers = split_packing(module[ENTRY], positions)
    operands = []
    functions = {ENTRY: function}
    for position, packer in packers.items():
        kind = packer.params[1].ty
        operands.append(PackedOperand(position, tuple(map(int, kind.shape))))
        functions[packer_name(position)] = packer
    return IRModule(functions, attrs=module.attrs), tuple(operands)


def split_packing(function: Any, positions: Iterable[int]) -> tuple[Any, Mapping[int, Any]]:
    """Take the packing of some parameters out of a scheduled function.

    Args:
        function: A scheduled ``PrimFunc``.
        positions: Of the parameters.

    Returns:
        The function, which takes packed parameters in their places, and by position the function
        that packs: from the parameter to the packed one.

    Raises:
        InvalidSchedule: there is no statement that does nothing but pack a whole parameter.
    """
    packers: dict[int, Any] = {}
    for position in sorted(positions):
        function, packers[position] = _split(function, position)
    return function, packers


def _split(function: Any, position: int) -> tuple[Any, Any]:
    parameter = function.params[position]
    root = function.body.block
    whole = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    packing = [statement for statement in whole if parameter in _read(statement)]
    written = _written(packing[0]) if packing else []
    if len(packing) != 1 or len(written) != 1 or set(_read(packing[0])) - {parameter, *written}:
        raise InvalidSchedule(
            f"nothing packs all of {parameter.name!r} alone, to be done before the program runs"
        )
    (packed,) = written
    rest = [statement for statement in whole if not statement.same_as(packing[0])]
    is_own = any(packed.same_as(buffer) for buffer in root.alloc_buffers)
    if not is_own or not rest or any(packed in _written(statement) for statement in rest):
        raise InvalidSchedule(f"the packed {parameter.name!r} is more than a copy of it")
    kept = [buffer for buffer in root.alloc_buffers if not buffer.same_as(packed)]
    parameters = list(function.params)
    parameters[position] = packed
    body = tirx.SeqStmt(rest) if len(rest) > 1 else rest[0]
    block = SBlock(
        [], root.reads, root.writes, root.name_hint, body, root.init, kept, [], root.annotations
    )
    kernel = tirx.PrimFunc(
        parameters, SBlockRealize([], True, block), function.ret_type, attrs=function.attrs
    )
    alone = SBlockRealize([], True, SBlock([], [], [], "root", packing[0]))
    packer = tirx.PrimFunc([parameter, packed], alone)
    named = packer.with_attr("global_symbol", packer_name(position))
    return kernel, named.with_attr("tirx.noalias", True)


def _read(statement: Any) -> list[Any]:
    return [region.source for block in _blocks(statement) for region in block.reads]


def _written(statement: Any) -> list[Any]:
    found = [region.source for block in _blocks(statement) for region in block.writes]
    return list(dict.fromkeys(found))


def _blocks(statement: Any) -> list[Any]:
    """All blocks in a statement, those in branches included."""
    found = [statement] if isinstance(statement, SBlock) else []
    inner = inside(statement)
    if isinstance(statement, tirx.IfThenElse):
        inner = [it for it in (statement.then_case, statement.else_case) if it is not None]
    return found + [block for each in inner for block in _blocks(each)]
