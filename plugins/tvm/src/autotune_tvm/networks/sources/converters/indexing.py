"""Indexing by tensors: reads become one ``take``, writes one ``scatter_nd``, of whole rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune_tvm.networks.sources.converters.emission import (
    Converter,
    argument,
    as_type,
    emit,
    own_converter,
)
from autotune_tvm.networks.sources.random_operators import described

__all__ = ["INDEXING"]


@frozen
class _Rows:
    """A tensor whose indexed dimensions were made one, in front of the others.

    Attributes:
        data: The tensor as [rows, the other dimensions...].
        places: The row of each index, as int64 of the shape that all indices together have.
        indexed: The dimensions that are indexed.
        rest: The others.
        shape: Of the tensor as it was.
        shared: Shape of ``places``.
    """

    data: Any
    places: Any
    indexed: tuple[int, ...]
    rest: tuple[int, ...]
    shape: tuple[int, ...]
    shared: tuple[int, ...]

    @property
    def front(self) -> int:
        """Where the dimensions of the indices are in what is read: in place of those indexed
        where these are neighbours, else in front."""
        first, last = self.indexed[0], self.indexed[-1]
        return first if last - first + 1 == len(self.indexed) else 0


def _rows(node: Any, translator: Any) -> _Rows:
    import torch
    from tvm import relax

    given = list(node.args[1])
    indexed = tuple(dim for dim, index in enumerate(given) if index is not None)
    values = [given[dim].meta["val"] for dim in indexed]
    if any(value.dtype in (torch.bool, torch.uint8) for value in values):
        raise UnsupportedWorkload(
            "how much a mask selects is known only when the network runs; choose by torch.where"
        )
    shape = tuple(int(extent) for extent in node.args[0].meta["val"].shape)
    rest = tuple(dim for dim in range(len(shape)) if dim not in indexed)
    shared = tuple(torch.broadcast_shapes(*(value.shape for value in values)))
    places = None
    for dim in indexed:
        index = _counted(translator, translator.env[given[dim]], shape[dim])
        index = emit(translator, relax.op.broadcast_to(index, shared))
        if places is None:
            places = index
            continue
        before = relax.op.multiply(places, relax.const(shape[dim], "int64"))
        places = emit(translator, relax.op.add(emit(translator, before), index))
    data = translator.env[node.args[0]]
    if indexed != tuple(range(len(indexed))):
        data = emit(translator, relax.op.permute_dims(data, [*indexed, *rest]))
    if len(indexed) > 1:
        whole = prod(shape[dim] for dim in indexed)
        data = emit(translator, relax.op.reshape(data, (whole, *(shape[dim] for dim in rest))))
    return _Rows(data, places, indexed, rest, shape, shared)


def _counted(translator: Any, index: Any, extent: int) -> Any:
    """Positions counted from the beginning, as int64."""
    from tvm import relax

    index = as_type(translator, index, "int64")
    below = emit(translator, relax.op.less(index, relax.const(0, "int64")))
    counted = emit(translator, relax.op.add(index, relax.const(extent, "int64")))
    return emit(translator, relax.op.where(below, counted, index))


def _read(node: Any, translator: Any) -> Any:
    """``x[i, :, j]``."""
    from tvm import relax

    rows = _rows(node, translator)
    found = emit(translator, relax.op.take(rows.data, rows.places, axis=0))
    if not rows.front:
        return found
    count = len(rows.shared)
    order = list(range(count, count + rows.front))
    order += [*range(count), *range(count + rows.front, count + len(rows.rest))]
    return emit(translator, relax.op.permute_dims(found, order))


def _write(node: Any, translator: Any) -> Any:
    """``x[i, :, j] = values``, or ``+= values``; and ``x[mask] = value``."""
    from tvm import relax

    if (masked := _masked(node, translator)) is not None:
        return masked
    rows = _rows(node, translator)
    count = len(rows.shared)
    others = [rows.shape[dim] for dim in rows.rest]
    # As torch broadcasts them: to the shape of what would be read.
    wanted = [*others[: rows.front], *rows.shared, *others[rows.front :]]
    values = emit(translator, relax.op.broadcast_to(translator.env[node.args[2]], wanted))
    if rows.front:
        order = [*range(rows.front, rows.front + count), *range(rows.front)]
        order += range(rows.front + count, len(wanted))
        values = emit(translator, relax.op.permute_dims(values, order))
    many = prod(rows.shared)
    values = emit(translator, relax.op.reshape(values, (many, *others)))
    places = emit(translator, relax.op.reshape(rows.places, (many, 1)))
    reduction = "add" if argument(node, 3, "accumulate", False) else "update"
    changed = emit(translator, relax.op.scatter_nd(rows.data, places, values, reduction))
    return _as_it_was(translator, changed, rows)


def _masked(node: Any, translator: Any) -> Any:
    """``x[mask] = value`` of one value; None for all else."""
    import torch
    from tvm import relax

    masks = [it for it in node.args[1] if it is not None]
    mask, value = masks[0].meta["val"], node.args[2].meta["val"]
    is_simple = len(masks) == 1 and node.args[1][0] is not None and value.numel() == 1
    if not is_simple or mask.dtype != torch.bool or argument(node, 3, "accumulate", False):
        return None
    rest = node.args[0].meta["val"].dim() - mask.dim()
    over = relax.op.reshape(translator.env[masks[0]], (*mask.shape, *[1] * rest))
    one = emit(translator, relax.op.reshape(translator.env[node.args[2]], ()))
    chosen = relax.op.where(emit(translator, over), one, translator.env[node.args[0]])
    return emit(translator, chosen)


def _as_it_was(translator: Any, data: Any, rows: _Rows) -> Any:
    from tvm import relax

    order: Sequence[int] = (*rows.indexed, *rows.rest)
    if len(rows.indexed) > 1:
        extents = tuple(rows.shape[dim] for dim in order)
        data = emit(translator, relax.op.reshape(data, extents))
    if list(order) == sorted(order):
        return data
    back = [list(order).index(dim) for dim in range(len(order))]
    return emit(translator, relax.op.permute_dims(data, back))


def _output(node: Any, translator: Any) -> Any:
    """One output of an operator with several.

    TVM's converters of some, such as norms, compute the first one only, and its own converter of
    this takes that for any of them.

    Raises:
        UnsupportedWorkload: it is not computed.
    """
    from tvm import relax

    operator, number = node.args[:2]
    is_alone = isinstance(getattr(translator.env[operator], "ty", None), relax.TensorType)
    if is_alone and isinstance(operator.meta.get("val"), (tuple, list)) and number != 0:
        raise UnsupportedWorkload(
            f"output {number} of node {described(operator)} cannot be imported, only its first"
        )
    return own_converter(translator, node)


INDEXING: Mapping[str, Converter] = MappingProxyType(
    {
        "getitem": _output,
        "index.Tensor": _read,
        "index_put.default": _write,
        "index_put_.default": _write,
    }
)
"""Indexing by name of the operator."""
