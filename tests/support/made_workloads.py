"""Workloads for tests of several packages."""

from __future__ import annotations

from attrs import evolve
from hypothesis import strategies as st
from split_reductions import reduction
from written import written

from autotune.ir.workloads import (
    Workload,
    attention,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)

SMALL_WORKLOADS = {
    "gemm": gemm(m=17, n=33, k=29),
    "gemm-one": gemm(m=1, n=1, k=1),
    "gemm-f64": gemm(m=5, n=7, k=11, dtype="float64"),
    "gemm-int8": gemm(m=13, n=31, k=37, dtype="int8"),
    "gemm-int32": gemm(m=3, n=5, k=7, dtype="int32"),
    "batch-matmul": batch_matmul(b=3, m=5, n=7, k=11),
    "batch-matmul-int8": batch_matmul(b=2, m=3, n=5, k=4, dtype="int8"),
    "dense": dense(m=5, n=11, k=13),
    "dense-plain": dense(m=5, n=11, k=13, bias=0, relu=0),
    "conv2d": conv2d(h=9, w=7, ci=3, co=5),
    "conv2d-padded": conv2d(n=2, h=9, w=7, ci=3, co=5, pad=1, bias=1, relu=1),
    "conv2d-strided": conv2d(h=11, w=13, ci=3, co=4, stride=2, pad=1),
    "conv2d-dilated": conv2d(h=11, w=13, ci=2, co=3, dilation=2, pad=2, kh=3, kw=2),
    "conv2d-both": conv2d(h=17, w=13, ci=2, co=3, stride=3, dilation=2, pad=1, relu=1),
    "conv2d-1x1": conv2d(h=5, w=5, ci=7, co=3, kh=1, kw=1),
    "conv2d-1x1-strided": conv2d(h=6, w=5, ci=7, co=3, kh=1, kw=1, stride=2),
    "conv2d-f64": conv2d(h=5, w=5, ci=2, co=3, pad=1, dtype="float64"),
    "depthwise": depthwise_conv2d(h=9, w=7, c=5, pad=1),
    "depthwise-strided": depthwise_conv2d(h=9, w=8, c=3, pad=2, stride=2, dilation=2),
    "softmax": softmax(m=5, n=17),
    "softmax-f64": softmax(m=1, n=3, dtype="float64"),
    "attention": attention(h=2, n=5, m=7, d=3),
    "attention-causal": attention(h=1, n=6, d=4, causal=1),
    "elementwise": elementwise(m=5, n=17),
}
"""Every builder, with sizes that nothing divides, in types that it allows."""


def two_products(rows: int, depth: int) -> Workload:
    """Two matrix products that read, and may pack, the same left operand of [rows, depth]."""
    return written(
        "A[i, k], B[k, 16], E[k, 32]",
        "C[i, j:16; k] += A[i, k] * B[k, j]",
        "D[i, j:32; k] += A[i, k] * E[k, j]",
        name="two",
        outputs="C D",
        i=rows,
        k=depth,
    )


def root_mean_square(rows: int, columns: int) -> Workload:
    """Rows of [rows, columns] over their root mean square, times a doubled weight of a column."""
    return written(
        "X[i, j], W[j]",
        "S[i; k] += X[i, k] * X[i, k]",
        "R[i] = rsqrt(S[i] / n)",
        "V[j] = W[j] + W[j]",
        "Y[i, j] = X[i, j] * R[i] * V[j]",
        name="root_mean_square",
        i=rows,
        j=columns,
        k=columns,
        n=columns,
    )


def sum_of_halves(rows: int, columns: int) -> Workload:
    """The left half of a matrix of [rows, 2 * columns] plus the right half: two apart reads."""
    return written(
        "X[i, 2 * j]",
        "Y[i, j] = X[i, j] + X[i, j + n]",
        name="halves",
        i=rows,
        j=columns,
        n=columns,
    )


def gram(rows: int, depth: int) -> Workload:
    """Products of all pairs of rows of one tensor, after its negative elements are gone."""
    return written(
        "A[i, k]",
        "R[i, k] = max(A[i, k], 0.0)",
        "G[i, j; k] += R[i, k] * R[j, k]",
        name="gram",
        i=rows,
        j=rows,
        k=depth,
    )


VARIED_WORKLOADS = (
    gemm(m=64, n=64, k=64),
    gemm(m=37, n=53, k=29),
    gemm(m=31, n=8, k=16),
    gemm(m=1, n=7, k=3),
    gemm(m=32, n=32, k=32, dtype="int8"),
    gemm(m=13, n=24, k=20, dtype="float64"),
    batch_matmul(b=2, m=3, n=4, k=5),
    batch_matmul(b=3, m=33, n=40, k=50),
    dense(m=8, n=9, k=64),
    dense(m=33, n=64, k=64, bias=0),
    conv2d(h=14, w=14, ci=16, co=32, pad=1),
    conv2d(h=13, w=11, ci=3, co=17, pad=1, stride=2, bias=1, relu=1),
    conv2d(h=15, w=15, ci=8, co=16, kh=5, kw=3, dilation=2, stride=3),
    conv2d(n=2, h=7, w=9, ci=5, co=7, kh=1, kw=1, relu=1),
    depthwise_conv2d(h=14, w=14, c=32, pad=1),
    depthwise_conv2d(h=15, w=14, c=19, pad=1, stride=2, dilation=2),
    depthwise_conv2d(n=2, h=8, w=5, c=12, kh=4, kw=4, pad=2),
    softmax(m=5, n=7),
    softmax(m=64, n=64),
    softmax(m=12, n=256),
    softmax(m=6, n=31),
    softmax(m=2, n=100, dtype="float64"),
    attention(h=2, n=8, d=16, m=64),
    attention(h=1, n=12, d=8, causal=1),
    root_mean_square(6, 48),
    elementwise(m=4, n=6),
    elementwise(m=7, n=48),
    two_products(12, 6),
)
"""Every builder, of sizes that vectors and tiles divide, and of others; and a shared operand."""

TINY_WORKLOADS = (
    gemm(m=5, n=17, k=6),
    gemm(m=1, n=7, k=3),
    gemm(m=4, n=6, k=20, dtype="int8"),
    conv2d(h=5, w=6, ci=2, co=5, kh=2, kw=3, pad=1, stride=2, bias=1, relu=1),
    conv2d(h=6, w=7, ci=2, co=4, kh=2, kw=2, dilation=2),
    conv2d(h=9, w=7, ci=1, co=3, stride=3),
    depthwise_conv2d(h=5, w=4, c=5, pad=1),
    dense(m=3, n=5, k=16),
    batch_matmul(b=2, m=3, n=4, k=16),
    softmax(m=4, n=6),
    softmax(m=2, n=32),
    elementwise(m=4, n=6),
    sum_of_halves(4, 6),
)
"""Every builder, so small that a walk goes through all executions of its nests."""

_FEW, _FLAG = st.integers(1, 7), st.integers(0, 1)
_CONV2D = {"h": st.integers(5, 7), "w": st.integers(5, 6), "ci": st.just(2), "kw": st.just(2)}
_WINDOW = {"stride": st.integers(1, 3), "pad": _FLAG}
DRAWN_WORKLOADS = st.one_of(
    st.builds(
        gemm, m=_FEW, n=st.integers(1, 20), k=_FEW, dtype=st.sampled_from(["float32", "int8"])
    ),
    st.builds(
        conv2d,
        **_CONV2D,
        **_WINDOW,
        co=st.sampled_from([1, 3, 8]),
        kh=st.integers(1, 3),
        dilation=st.integers(1, 2),
        bias=_FLAG,
        relu=_FLAG,
    ),
    st.builds(depthwise_conv2d, h=st.integers(3, 7), w=st.just(5), c=st.just(3), **_WINDOW),
    st.builds(softmax, m=_FEW, n=st.sampled_from([3, 8, 16, 32])),
    st.builds(elementwise, m=_FEW, n=st.integers(1, 20)),
    st.builds(batch_matmul, b=st.integers(1, 3), m=_FEW, n=_FEW, k=_FEW),
)
"""Every builder, as small, at random lengths."""

TILED_WORKLOADS = (
    gemm(m=64, n=64, k=64),
    gemm(m=37, n=53, k=29),
    gemm(m=1, n=1, k=1),
    gemm(m=24, n=24, k=24, dtype="int8"),
    gemm(m=2, n=64, k=256),
    batch_matmul(b=2, m=33, n=40, k=50),
    dense(m=13, n=31, k=17),
    conv2d(h=13, w=11, ci=3, co=17, pad=1, stride=2, bias=1, relu=1),
    conv2d(h=9, w=9, ci=2, co=6, dilation=2, stride=3),
    depthwise_conv2d(h=15, w=14, c=19, pad=1, stride=2),
    softmax(m=5, n=7),
    softmax(m=16, n=512),
    elementwise(m=4, n=6),
    elementwise(m=3, n=101),
)
"""Every builder, of which some have room for tiles of all levels and others for none."""

ROUND_TRIPS = {
    "gemm": gemm(m=7, n=1, k=5),
    "gemm-int8": gemm(m=13, n=31, k=37, dtype="int8"),
    "batch-matmul": batch_matmul(b=2, m=3, n=4, k=5, dtype="float64"),
    "dense": dense(m=2, n=3, k=4),
    "conv2d": conv2d(h=9, w=7, ci=3, co=5, pad=1, stride=2, bias=1, relu=1),
    "conv2d-dilated": conv2d(n=2, h=11, w=13, ci=2, co=3, dilation=2),
    "depthwise": depthwise_conv2d(h=8, w=8, c=3, pad=2, dilation=2, stride=2),
    "softmax": softmax(m=3, n=5),
    "elementwise": elementwise(m=3, n=4),
}
"""Every builder, small: programs that compilers write and read."""


def _reduced_first(workload: Workload) -> Workload:
    """The same, with reduced axes before all others."""
    return evolve(
        workload,
        stages=tuple(
            evolve(stage, axes=(*stage.reduce_axes, *stage.spatial_axes))
            for stage in workload.stages
        ),
    )


REDUCED_FIRST = tuple(
    map(
        _reduced_first,
        (
            reduction((6, 500), (1,), last="sqrt"),
            softmax(m=6, n=64),
            conv2d(h=8, w=8, ci=4, co=16, pad=1, relu=1),
            reduction((512, 24), (0,)),
            gemm(m=16, n=32, k=24),
        ),
    )
)
"""Stages that list reduced axes before those of the result, as nothing says that they must not."""
