"""Reductions at quotients: convolutions in groups or with fractional strides, adaptive pooling,
products whose batches share a factor."""

from __future__ import annotations

from collections.abc import Sequence

from written import written

from autotune.ir.workloads import Workload


def grouped_convolution(
    extent: int = 6, groups: int = 2, inside: int = 3, out: int = 16, stride: int = 1
) -> Workload:
    """Channels last: ``groups`` of ``inside`` channels each, ``out`` results for each group."""
    return written(
        "X[size, size, groups * k], W[3, 3, k, groups * out]",
        "Y[h:e, w:e, c:groups * out; a:3, b:3, k]"
        " += X[h * stride + a, w * stride + b, c // out * inside + k] * W[a, b, k, c]",
        name="grouped",
        size=(extent - 1) * stride + 3,
        groups=groups,
        k=inside,
        inside=inside,
        e=extent,
        out=out,
        stride=stride,
    )


def multiplied_channels(extent: int = 6, channels: int = 4, multiplier: int = 2) -> Workload:
    """A depthwise convolution with several results for each channel, which come first."""
    return written(
        "X[channels, e + 2, e + 2], W[channels, m, 3, 3]",
        "Y[c:channels * m, h:e, w:e; a:3, b:3]"
        " += X[c // m, h + a, w + b] * W[c // m, c % m, a, b]",
        name="multiplied channels",
        channels=channels,
        e=extent,
        m=multiplier,
    )


def fractional_convolution(
    extents: Sequence[int] = (8, 6),
    strides: Sequence[int] = (2, 2),
    taps: Sequence[int] = (4, 3),
    channels: int = 5,
    out: int = 16,
) -> Workload:
    """Channels last: what lies between the rows and columns of the data is zero."""
    (h, w), (down, along), (a, b) = extents, strides, taps
    return written(
        "X[(h + a - 2) // down + 1, (w + b - 2) // along + 1, k], W[a, b, k, c]",
        "Y[h, w, c; a, b, k] += (X[(h + a) // down, (w + b) // along, k]"
        " if (h + a) % down == 0 and (w + b) % along == 0 else 0.0)"
        " * W[last_a - a, last_b - b, k, c]",
        name="fractional",
        h=h,
        w=w,
        a=a,
        b=b,
        c=out,
        k=channels,
        down=down,
        along=along,
        last_a=a - 1,
        last_b=b - 1,
    )


def adaptive_pooling(extent: int = 13, out: int = 5, channels: int = 16) -> Workload:
    """Channels last: sums over windows of which the largest bounds the reduce axes."""
    most = max(-(-(at + 1) * extent // out) - at * extent // out for at in range(out))
    inside = "{1} < ({0} * e + e + out - 1) // out - {0} * e // out"
    return written(
        "X[e, e, c]",
        "Y[h:out, w:out, c; a:most, b:most] += X[h * e // out + a, w * e // out + b, c]"
        f" if {inside.format('h', 'a')} and {inside.format('w', 'b')} else 0.0",
        name="adaptive",
        e=extent,
        out=out,
        c=channels,
        most=most,
    )


def shared_factor(
    batches: int = 6,
    copies: int = 3,
    rows: int = 5,
    columns: int = 23,
    depth: int = 16,
    first: int = 0,
) -> Workload:
    """A batch of products with the transposes of matrices that ``copies`` neighbours share.

    They are ``first`` fewer that share the first one.
    """
    return written(
        "Q[b, i, k], K[(b - 1 + first) // copies + 1, j, k]",
        "Y[b, i, j; k] += Q[b, i, k] * K[(b + first) // copies, j, k]",
        name="shared factor",
        b=batches,
        copies=copies,
        i=rows,
        j=columns,
        k=depth,
        first=first,
    )
