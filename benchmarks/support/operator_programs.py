"""The operators of `operator_rows.py` as TVM's users have them: its suite, and its library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx, topi
from tvm.s_tir.meta_schedule.testing import te_workload

from support.operator_rows import SUITE, Row

EPSILON = 1e-5


def program_of(row: Row) -> Any:
    """The ``PrimFunc`` of a row; nobody has scheduled it."""
    if row.group in SUITE:
        tensors: Sequence[Any] = te_workload.CONFIGS[row.group][0](*row.arguments)
    else:
        tensors = _BUILDERS[row.kind](*row.arguments)
    return te.create_prim_func(list(tensors))


def _input(name: str, *shape: int, dtype: str = "float32") -> Any:
    return te.placeholder(shape, dtype, name)


def _norm(b: int, m: int, n: int) -> Sequence[Any]:
    return list(te_workload.norm_bmn(b, m, n))


def _softmax(m: int, n: int) -> Sequence[Any]:
    return list(te_workload.softmax_mn(m, n))


def _layer_norm(m: int, n: int) -> Sequence[Any]:
    x, scale, shift = _input("x", m, n), _input("scale", n), _input("shift", n)
    return [x, scale, shift, topi.nn.layer_norm(x, scale, shift, [1], EPSILON)]


def _rms_norm(m: int, n: int) -> Sequence[Any]:
    x, scale = _input("x", m, n), _input("scale", n)
    return [x, scale, topi.nn.rms_norm(x, scale, [1], EPSILON)]


def _attention(heads: int, tokens: int, width: int, causal: int) -> Sequence[Any]:
    q, k, v = (_input(name, heads, tokens, width) for name in "qkv")
    products = topi.nn.batch_matmul(q, k)
    factor = tirx.const(1 / math.sqrt(width), "float32")

    def score(h: Any, i: Any, j: Any) -> Any:
        scaled = products[h, i, j] * factor
        lowest = tirx.min_value("float32")
        return tirx.Select(j <= i, scaled, lowest) if causal else scaled

    scores = te.compute((heads, tokens, tokens), score, name="scores")
    shares = topi.nn.softmax(scores, axis=2)
    return [q, k, v, topi.nn.batch_matmul(shares, v, transpose_b=False)]


def _gelu_mlp(tokens: int, width: int, inner: int) -> Sequence[Any]:
    x = _input("x", tokens, width)
    up, up_bias = _input("up", inner, width), _input("up_bias", inner)
    down, down_bias = _input("down", width, inner), _input("down_bias", width)
    hidden = topi.nn.dense(x, up, up_bias)
    root = tirx.const(math.sqrt(0.5), "float32")
    half, one = tirx.const(0.5, "float32"), tirx.const(1.0, "float32")
    gelu = te.compute(
        (tokens, inner),
        lambda i, j: hidden[i, j] * half * (one + tirx.erf(hidden[i, j] * root)),
        name="gelu",
    )
    return [x, up, up_bias, down, down_bias, topi.nn.dense(gelu, down, down_bias)]


def _pool(kind: str) -> Callable[..., Sequence[Any]]:
    def made(n: int, h: int, w: int, c: int, kernel: int, stride: int, pad: int) -> Sequence[Any]:
        x = _input("x", n, h, w, c)
        window, strides = [kernel] * 2, [stride] * 2
        y = topi.nn.pool2d(x, window, strides, [1, 1], [pad] * 4, kind, layout="NHWC")
        return [x, y]

    return made


def _argmax(m: int, n: int) -> Sequence[Any]:
    x = _input("x", m, n)
    return [x, topi.argmax(x, axis=1)]


def _concat_transpose(m: int, n: int) -> Sequence[Any]:
    a, b = _input("a", m, n), _input("b", m, n)
    return [a, b, topi.transpose(topi.concatenate([a, b], axis=1))]


def _embedding(words: int, width: int, tokens: int) -> Sequence[Any]:
    table, indices = _input("table", words, width), _input("indices", tokens, dtype="int32")
    return [table, indices, topi.take(table, indices, axis=0, mode="fast")]


def _resize(n: int, h: int, w: int, c: int) -> Sequence[Any]:
    x = _input("x", n, h, w, c)
    y = topi.image.resize2d(x, [0.0] * 4, [2 * h, 2 * w], "NHWC", "linear", "half_pixel")
    return [x, y]


def _conv2d_nchw(
    n: int, h: int, w: int, ci: int, co: int, kernel: int, stride: int, pad: int
) -> Sequence[Any]:
    x, weights = _input("x", n, ci, h, w), _input("weights", co, ci, kernel, kernel)
    return [x, weights, topi.nn.conv2d(x, weights, stride, pad, 1, "NCHW")]


def _gemm_bf16(m: int, n: int, k: int) -> Sequence[Any]:
    """Sums in float32, rounded once, as every library does it."""
    a, b = _input("a", m, k, dtype="bfloat16"), _input("b", k, n, dtype="bfloat16")
    sums = _product(a, b, "float32")
    return [a, b, topi.cast(sums, "bfloat16")]


def _gemm_int8(m: int, n: int, k: int) -> Sequence[Any]:
    a, b = _input("a", m, k, dtype="int8"), _input("b", k, n, dtype="int8")
    return [a, b, _product(a, b, "int32")]


def _product(a: Any, b: Any, dtype: str) -> Any:
    k = te.reduce_axis((0, int(a.shape[1])), name="k")
    return te.compute(
        (int(a.shape[0]), int(b.shape[1])),
        lambda i, j: te.sum(a[i, k].astype(dtype) * b[k, j].astype(dtype), axis=k),
        name="sums",
    )


_BUILDERS: dict[str, Callable[..., Sequence[Any]]] = {
    "norm": _norm,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "attention": _attention,
    "gelu_mlp": _gelu_mlp,
    "max_pool": _pool("max"),
    "average_pool": _pool("avg"),
    "argmax": _argmax,
    "concat_transpose": _concat_transpose,
    "embedding": _embedding,
    "resize": _resize,
    "conv2d_nchw": _conv2d_nchw,
    "gemm_bf16": _gemm_bf16,
    "gemm_int8": _gemm_int8,
}
