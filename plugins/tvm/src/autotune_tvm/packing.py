"""Programs that are given packed constants: what packs is a function of its own.

A schedule copies an operand into the order in which its loops read it. Where the operand is the
same in all calls and the schedule says so (:class:`~autotune.sketches.Prepack`), the statement
that copies leaves the scheduled function, which takes the packed operand instead. So do those
behind it that need nothing but what is packed, such as sums of its columns: the function takes
their results, too, as the parameters that follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlock, SBlockRealize

from autotune.backends import InvalidSchedule
from autotune_tvm.emit import ENTRY
from autotune_tvm.executable import PackedArray, PackedOperand, packer_name
from autotune_tvm.passes.statements import buffers_read, buffers_written, with_fields

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
        kinds = [parameter.ty for parameter in packer.params[1:]]
        arrays = (PackedArray(tuple(map(int, it.shape)), str(it.dtype)) for it in kinds)
        operands.append(PackedOperand(position, tuple(arrays)))
        functions[packer_name(position)] = packer
    return IRModule(functions, attrs=module.attrs), tuple(operands)


def split_packing(function: Any, positions: Iterable[int]) -> tuple[Any, Mapping[int, Any]]:
    """Take the packing of some parameters out of a scheduled function.

    Args:
        function: A scheduled ``PrimFunc``.
        positions: Of the parameters.

    Returns:
        The function, which takes what is packed in their places, and by position in ``function``
        the function that packs: from the parameter to the packed ones.

    Raises:
        InvalidSchedule: there is no statement that does nothing but pack a whole parameter.
    """
    packers: dict[int, Any] = {}
    # From the last one on: more parameters in the place of one change the positions behind it.
    for position in sorted(positions, reverse=True):
        function, packers[position] = _split(function, position)
    return function, dict(sorted(packers.items()))


def _split(function: Any, position: int) -> tuple[Any, Any]:
    parameter = function.params[position]
    root = function.body.block
    whole = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    packing, packed = _packing(whole, parameter)
    if not packing:
        raise InvalidSchedule(
            f"nothing packs all of {parameter.name!r} alone, to be done before the program runs"
        )
    rest = [it for it in whole if not any(it.same_as(other) for other in packing)]
    own = [buffer for buffer in root.alloc_buffers if buffer not in packed]
    is_own = len(own) + len(packed) == len(root.alloc_buffers)
    changed = {buffer for statement in rest for buffer in buffers_written(statement)}
    if not is_own or not rest or changed & set(packed):
        raise InvalidSchedule(f"the packed {parameter.name!r} is more than a copy of it")
    parameters = list(function.params)
    parameters[position : position + 1] = packed
    block = with_fields(root, body=_sequence(rest), alloc_buffers=own)
    kernel = tirx.PrimFunc(
        parameters, SBlockRealize([], True, block), function.ret_type, attrs=function.attrs
    )
    alone = SBlockRealize([], True, SBlock([], [], [], "root", _sequence(packing)))
    packer = tirx.PrimFunc([parameter, *packed], alone)
    named = packer.with_attr("global_symbol", packer_name(position))
    return kernel, named.with_attr("tirx.noalias", True)


def _packing(whole: Sequence[Any], parameter: Any) -> tuple[list[Any], list[Any]]:
    """The statements that need nothing but the parameter and each other, and what they write.

    Neither where another statement needs the parameter, too.
    """
    packing: list[Any] = []
    packed: list[Any] = []
    for statement in whole:
        needed = set(buffers_read(statement)) - set(buffers_written(statement))
        if needed and needed <= {parameter, *packed}:
            packing.append(statement)
            packed += [buffer for buffer in buffers_written(statement) if buffer not in packed]
        elif parameter in needed:
            return [], []
    return packing, packed


def _sequence(statements: Sequence[Any]) -> Any:
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]
