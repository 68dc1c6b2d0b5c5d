"""Poolings whose windows reach into a margin of zeros."""

from __future__ import annotations

from written import written

from autotune.ir.workloads import Workload


def average_pooling(
    extent: int = 9,
    channels: int = 16,
    kernel: int = 3,
    stride: int = 2,
    pad: int = 1,
    margin: int = 0,
    images: int = 1,
) -> Workload:
    """Channels last: means of what of a window lies inside the image.

    Args:
        extent: Rows and columns of the image.
        channels: Of the image.
        kernel: Rows and columns of a window.
        stride: From window to window.
        pad: Rows and columns of zeros around the image.
        margin: Channels of zeros in front of the image's.
        images: How many there are.
    """
    count = "(min({0} * s - pad + t, e) - max({0} * s - pad, 0))"
    inside = " and ".join(
        f"({name} >= {low} and {name} < {low} + {extent})"
        for name, low, extent in (("h", "pad", "e"), ("w", "pad", "e"), ("c", "margin", "k"))
    )
    return written(
        "X[n, e, e, k]",
        f"P[n, h:r, w:r, c] = X[n, h - pad, w - pad, c - margin] if {inside} else 0.0",
        "S[n, h:o, w:o, c; a:t, b:t] += P[n, h * s + a, w * s + b, c]",
        f"Y[n, h:o, w:o, c] = S[n, h, w, c] / float32({count.format('h')} * {count.format('w')})",
        name="average pooling",
        n=images,
        e=extent,
        k=channels,
        c=channels + margin,
        margin=margin,
        t=kernel,
        s=stride,
        pad=pad,
        r=extent + 2 * pad,
        o=(extent + 2 * pad - kernel) // stride + 1,
    )
