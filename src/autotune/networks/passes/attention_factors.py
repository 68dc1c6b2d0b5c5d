"""Queries, keys and values of an attention, before they were moved, copied and scaled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from autotune.ir.expressions import IntExpr, const, var
from autotune.ir.expressions.bounds import simplify_index
from autotune.networks.graph import Value
from autotune.networks.passes.attention_program import Factor
from autotune.networks.passes.index_maps import flat_index, reshaped_indices
from autotune.networks.passes.workload_forms import is_reshape, scaled_read

__all__ = ["factors_of"]

Indices = tuple[IntExpr, ...]
Read = tuple[Value, Indices]


def factors_of(
    queries: Read, keys: Read, values: Read, extents: Mapping[str, int]
) -> tuple[Factor, Factor, Factor] | None:
    """Places of the matrices of each; None if there are none for each head, or for each group.

    Args:
        queries: What is read of them over ``h``, ``i`` and ``k``.
        keys: What is read of them over ``h``, ``j`` and ``k``.
        values: What is read of them over ``h``, ``j`` and ``c``.
        extents: Of these axes.
    """
    first = [it for it in _found(queries, "ik", extents) if it.copies == 1]
    pairs = [list(_found(read, order, extents)) for read, order in ((keys, "jk"), (values, "jc"))]
    shared = {it.copies for it in pairs[0]} & {it.copies for it in pairs[1]}
    if not first or not shared:
        return None
    # Before all that moved it nothing was scaled, and one move does what several did.
    second, third = ([it for it in found if it.copies == max(shared)] for found in pairs)
    return first[-1], second[-1], third[-1]


def _found(read: Read, axes: str, extents: Mapping[str, int]) -> Iterator[Factor]:
    """The places where a factor is, the latest first."""
    for value, indices, scale in _before(read, extents):
        found = _matrices(value, indices, axes, extents)
        if found is not None:
            order, copies, turned = found
            yield Factor(value, order, copies, scale, turned)


def _before(read: Read, extents: Mapping[str, int]) -> Iterator[tuple[Value, Indices, float]]:
    """A tensor, and what it was before it was moved, copied and scaled by numbers."""
    value, indices = read
    scale = 1.0
    while True:
        yield value, indices, scale
        node = value.node
        if node is None:
            return
        if is_reshape(node):
            before = node.operands[0]
            indices = reshaped_indices(indices, value.shape, before.shape, extents)
        else:
            found = scaled_read(node)
            # In types of less precision a product of what is not scaled may overflow.
            if found is None or (found.factor != 1 and value.dtype not in ("float32", "float64")):
                return
            bound = dict(zip((it.name for it in found.stage.axes), indices, strict=True))
            indices = tuple(
                simplify_index(it.substitute(bound), extents) for it in found.load.indices
            )
            before, scale = found.value, scale * found.factor
        value = before


def _matrices(
    value: Value, indices: Indices, axes: str, extents: Mapping[str, int]
) -> tuple[tuple[int, ...], int, bool] | None:
    """The order of axes that makes a matrix for each head, or for several, of a tensor.

    Args:
        value: The tensor.
        indices: What is read of it.
        axes: The two of matrices.
        extents: Of all axes.

    Returns:
        The order of all axes of more than one element, how many heads share a matrix, and whether
        matrices have their axes the other way round.
    """
    places: dict[str, int] = {}
    batch: list[int] = []
    for at, (index, extent) in enumerate(zip(indices, value.shape, strict=True)):
        own = next((name for name in axes if index == var(name)), None)
        if extent == 1:
            continue
        if own is not None and own not in places and extents[own] == extent:
            places[own] = at
        elif index.variables == {"h"}:
            batch.append(at)
        else:
            return None
    if any(name not in places and extents[name] > 1 for name in axes):
        return None
    number = flat_index([indices[at] for at in batch], [value.shape[at] for at in batch])
    copies = _copies(number, prod(value.shape[at] for at in batch), extents["h"])
    if copies is None:
        return None
    pair = [places[name] for name in axes if name in places]
    turned = len(pair) == 2 and pair[0] > pair[1] and axes == "jk"
    return (*batch, *(sorted(pair) if turned else pair)), copies, turned


def _copies(number: IntExpr, matrices: int, heads: int) -> int | None:
    """Number of heads that share a matrix, which is that of the head at ``number``."""
    if heads % matrices:
        return None
    copies = heads // matrices
    wanted = const(0) if matrices == 1 else var("h") // copies
    return copies if number == wanted else None
