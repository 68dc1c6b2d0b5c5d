"""Slices of a tensor that are added to several times, in programs on tensors.

Each addition takes a slice and puts it back. What is put back is handed on to the next one that
takes the same slice, and put back once, after the last: loops can carry what is read and written
once in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune_mlir.traversal import operations_in, users_of

__all__ = ["carry_slices"]

_PUT, _TAKE = "tensor.insert_slice", "tensor.extract_slice"


def carry_slices(ir: Any, kernel: Any) -> None:
    """Put slices back once that are of one extent and lie at constant places.

    Args:
        ir: The ``ir`` module of the bindings.
        kernel: The function.
    """
    puts = [it for it in operations_in(kernel) if it.name == _PUT]
    while puts:
        chain = _chain(puts[0])
        puts = [it for it in puts if it not in chain]
        if len({_place(put) for put in chain}) < len(chain) and _is_regular(chain):
            _carry(ir, chain)


def _chain(first: Any) -> list[Any]:
    """Operations that put slices into what the one before has made, and nothing else does."""
    chain = [first]
    while True:
        users = users_of(chain[-1].results[0])
        result = chain[-1].results[0]
        following = [it for it in users if it.name == _PUT and it.operands[1] == result]
        others = [it for it in users if it not in following and it.name != _TAKE]
        if len(following) != 1 or others or following[0].block != first.block:
            return chain
        chain.append(following[0])


def _place(operation: Any) -> tuple[int, ...]:
    return tuple(operation.attributes["static_offsets"])


def _is_regular(chain: Sequence[Any]) -> bool:
    """Whether any two slices that are put or taken are the same, or have nothing in common."""
    sizes = list(chain[0].attributes["static_sizes"])
    takes = [it for put in chain for it in _takes(put.operands[1])]
    takes += _takes(chain[-1].results[0])
    return all(
        list(it.attributes["static_sizes"]) == sizes
        and all(step == 1 for step in it.attributes["static_strides"])
        and len(it.operands) == (2 if it.name == _PUT else 1)
        and all(at % size == 0 for at, size in zip(_place(it), sizes, strict=True))
        for it in (*chain, *takes)
    )


def _takes(value: Any) -> list[Any]:
    return [it for it in users_of(value) if it.name == _TAKE]


def _carry(ir: Any, chain: Sequence[Any]) -> None:
    root, end = chain[0].operands[1], chain[-1]
    latest: dict[tuple[int, ...], Any] = {}
    for put in chain:
        latest[_place(put)] = put.operands[0]
        for take in _takes(put.results[0]):
            if _place(take) in latest:
                take.results[0].replace_all_uses_with(latest[_place(take)])
                take.erase()
            else:
                take.operands[0] = root
    total = root
    for put in {_place(put): put for put in chain}.values():
        made = put.clone(ir.InsertionPoint(end))
        made.operands[1] = total
        total = made.results[0]
    end.results[0].replace_all_uses_with(total)
    for put in reversed(chain):
        put.erase()
