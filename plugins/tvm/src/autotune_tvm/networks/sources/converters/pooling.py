"""Pooling that says where the largest elements were."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune_tvm.networks.sources.converters.emission import (
    Converter,
    argument,
    as_type,
    emit,
    own_converter,
)

__all__ = ["POOLING"]


def _max_pool(node: Any, translator: Any) -> Any:
    """Largest elements of windows, and their places in the image where something reads these."""
    import operator

    from tvm import relax

    places_are_read = any(
        user.target is operator.getitem and user.args[1] == 1 and user.users for user in node.users
    )
    if not places_are_read:
        return own_converter(translator, node)
    data = translator.env[node.args[0]]
    windows = _Windows.of(node)
    padded = windows.padded(translator, data, str(node.args[0].meta["val"].dtype))
    parts = [windows.part(translator, padded, taps) for taps in windows.taps]
    stacked = emit(translator, relax.op.stack(parts, axis=-1))
    largest = emit(translator, relax.op.max(stacked, axis=-1))
    which = as_type(translator, emit(translator, relax.op.argmax(stacked, axis=-1)), "int64")
    table = relax.const(windows.places().reshape(-1), "int64")
    start = relax.const(
        (np.arange(windows.positions) * len(windows.taps)).reshape(windows.output), "int64"
    )
    found = emit(translator, relax.op.add(which, start))
    places = emit(translator, relax.op.take(table, found, axis=0))
    return emit(translator, relax.Tuple([largest, places]))


@frozen
class _Windows:
    """The windows of a pooling, a number for each dimension of space.

    Attributes:
        size: Of the image.
        kernel, stride, padding, dilation: Of the pooling.
        output: Windows.
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output: tuple[int, ...]

    @staticmethod
    def of(node: Any) -> _Windows:
        count = 3 if "3d" in node.target.__name__ else 2

        def numbers(position: int, name: str, default: Any) -> tuple[int, ...]:
            given = argument(node, position, name, default) or default
            values = [given] if isinstance(given, int) else list(given)
            return tuple(values * count if len(values) == 1 else values)

        kernel = numbers(1, "kernel_size", None)
        return _Windows(
            tuple(int(it) for it in node.args[0].meta["val"].shape[-count:]),
            kernel,
            numbers(2, "stride", kernel),
            numbers(3, "padding", 0),
            numbers(4, "dilation", 1),
            tuple(int(it) for it in node.meta["val"][0].shape[-count:]),
        )

    @property
    def taps(self) -> list[tuple[int, ...]]:
        """The elements of a window, row by row."""
        return list(product(*map(range, self.kernel)))

    @property
    def positions(self) -> int:
        """How many windows there are."""
        return int(np.prod(self.output))

    def padded(self, translator: Any, data: Any, dtype: str) -> Any:
        """The image with the least number around it, as far as the windows reach."""
        from tvm import relax

        count = len(self.size)
        widths = [0, 0] * (len(data.ty.shape.values) - count)
        for i in range(count):
            reach = (self.output[i] - 1) * self.stride[i] + (self.kernel[i] - 1) * self.dilation[i]
            after = max(0, reach + 1 - self.size[i] - self.padding[i])
            widths += [self.padding[i], after]
        if not any(widths):
            return data
        kind = dtype.removeprefix("torch.")
        least = -np.inf if "float" in kind else np.iinfo(kind).min
        return emit(translator, relax.op.nn.pad(data, widths, pad_value=least))

    def part(self, translator: Any, padded: Any, taps: tuple[int, ...]) -> Any:
        """One element of every window."""
        from tvm import relax

        count = len(self.size)
        rank = len(padded.ty.shape.values)
        starts = [tap * by for tap, by in zip(taps, self.dilation, strict=True)]
        ends = [
            start + (number - 1) * by + 1
            for start, number, by in zip(starts, self.output, self.stride, strict=True)
        ]
        axes = list(range(rank - count, rank))
        cut = relax.op.strided_slice(padded, axes, starts, ends, list(self.stride))
        return emit(translator, cut)

    def places(self) -> NDArray[Any]:
        """The place in the image of each element of each window, as int64 [windows, elements]."""
        place = np.zeros((self.positions, len(self.taps)), np.int64)
        windows = np.indices(self.output).reshape(len(self.size), -1, 1)
        taps = np.array(self.taps, np.int64).T[:, None, :]
        for i, extent in enumerate(self.size):
            at = windows[i] * self.stride[i] - self.padding[i] + taps[i] * self.dilation[i]
            place = place * extent + at
        return place


POOLING: Mapping[str, Converter] = MappingProxyType(
    {
        "max_pool2d_with_indices.default": _max_pool,
        "max_pool3d_with_indices.default": _max_pool,
    }
)
"""Pooling by name of the operator."""
