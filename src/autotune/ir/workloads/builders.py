"""Builders of common operators.

Every builder takes keyword arguments only; those annotated ``int`` are its shape. The result
is an ordinary :class:`~autotune.ir.workloads.Workload`: nothing downstream knows which builder
made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.errors import InvalidValueError, UnknownNameError, did_you_mean, near_matches
from autotune.ir.element_types import ELEMENT_TYPES, element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    var,
)
from autotune.ir.workloads.halves import HALF_DTYPES, also_in_halves
from autotune.ir.workloads.tensor import Tensor
from autotune.ir.workloads.workload import Axis, Stage, Workload

FLOAT_DTYPES = ("float32", "float64")
# In place of a masked score: its exponential is 0 beside that of any other.
_UNSEEN = -1e30
# By the name of a kind of product: types of the left factor, of the right one and of the sum.
_PRODUCTS = {
    "float32": ("float32", "float32", "float32"),
    "float64": ("float64", "float64", "float64"),
    "int8": ("int8", "int8", "int32"),
    "u8s8s32": ("uint8", "int8", "int32"),
    "int32": ("int32", "int32", "int32"),
}
BYTE_DTYPES = ("int8", "u8s8s32")


@also_in_halves
def gemm(*, m: int, n: int, k: int, requantize: int = 0, dtype: str = "float32") -> Workload:
    """``C[m, n] = sum over k of A[m, k] * B[k, n]``.

    With ``dtype="int8"`` both factors are int8 and C is int32; with ``"u8s8s32"`` A is uint8. Sums
    of bytes become unsigned bytes again with ``requantize``: what is negative becomes 0, the rest
    is divided by 2 to the power of ``requantize`` and is at most 255. With ``"float16"`` and
    ``"bfloat16"``, which every builder here takes, all inputs and outputs are of that type, and
    what is computed between them is float32.
    """
    parameters = _checked("gemm", {"m": m, "n": n, "k": k}, dtype, tuple(_PRODUCTS))
    left, right, total = _factors(dtype)
    a, b = Tensor("A", (m, k), left), Tensor("B", (k, n), right)
    axes = (Axis("i", m), Axis("j", n), Axis("k", k, "reduce"))
    product = _product(_load("A", "i", "k"), _load("B", "k", "j"), dtype)
    stage = Stage(Tensor("C", (m, n), total), axes, product, "add")
    stages = [stage]
    _append_requantized("gemm", stages, requantize, parameters)
    return Workload("gemm", (a, b), tuple(stages), (stages[-1].name,), parameters)


@also_in_halves
def batch_matmul(*, b: int, m: int, n: int, k: int, dtype: str = "float32") -> Workload:
    """``C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n]``; types as of :func:`gemm`."""
    parameters = _checked(
        "batch_matmul", {"b": b, "m": m, "n": n, "k": k}, dtype, tuple(_PRODUCTS)
    )
    left, right, total = _factors(dtype)
    inputs = (Tensor("A", (b, m, k), left), Tensor("B", (b, k, n), right))
    axes = (Axis("b", b), Axis("i", m), Axis("j", n), Axis("k", k, "reduce"))
    product = _product(_load("A", "b", "i", "k"), _load("B", "b", "k", "j"), dtype)
    stage = Stage(Tensor("C", (b, m, n), total), axes, product, "add")
    return Workload("batch_matmul", inputs, (stage,), ("C",), parameters)


@also_in_halves
def dense(
    *, m: int, n: int, k: int, bias: int = 1, relu: int = 1, dtype: str = "float32"
) -> Workload:
    """``Y[m, n] = relu(sum over k of X[m, k] * W[n, k] + bias[n])``; bias and relu may be 0."""
    parameters = _checked("dense", {"m": m, "n": n, "k": k}, dtype, FLOAT_DTYPES)
    parameters.update(_flags("dense", bias=bias, relu=relu))
    inputs = [Tensor("X", (m, k), dtype), Tensor("W", (n, k), dtype)]
    axes = (Axis("i", m), Axis("j", n), Axis("k", k, "reduce"))
    product = _product(_load("X", "i", "k"), _load("W", "j", "k"), dtype)
    stages = [Stage(Tensor("Y", (m, n), dtype), axes, product, "add")]
    _append_epilogue(inputs, stages, n, bias, relu)
    return Workload("dense", tuple(inputs), tuple(stages), (stages[-1].name,), parameters)


@also_in_halves
def conv1d(
    *,
    n: int = 1,
    w: int,
    ci: int,
    co: int,
    kw: int = 3,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    dtype: str = "float32",
) -> Workload:
    """NWC convolution with WIO weights; types as of :func:`gemm`."""
    shape = {"n": n, "w": w, "ci": ci, "co": co, "kw": kw}
    return _convolution("conv1d", shape, ("w",), _window("conv1d", stride, pad, dilation), dtype)


@also_in_halves
def conv2d(
    *,
    n: int = 1,
    h: int,
    w: int,
    ci: int,
    co: int,
    kh: int = 3,
    kw: int = 3,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    bias: int = 0,
    relu: int = 0,
    requantize: int = 0,
    dtype: str = "float32",
) -> Workload:
    """NHWC convolution with HWIO weights, optionally followed by bias and relu.

    Types as of :func:`gemm`; bias and relu are of the type of the sums. With ``requantize``, sums
    of bytes become unsigned bytes again, as in :func:`gemm`.
    """
    shape = {"n": n, "h": h, "w": w, "ci": ci, "co": co, "kh": kh, "kw": kw}
    window = _window("conv2d", stride, pad, dilation)
    after = _flags("conv2d", bias=bias, relu=relu)
    return _convolution("conv2d", shape, ("h", "w"), window, dtype, after, requantize)


@also_in_halves
def conv3d(
    *,
    n: int = 1,
    d: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kd: int = 3,
    kh: int = 3,
    kw: int = 3,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    dtype: str = "float32",
) -> Workload:
    """NDHWC convolution with DHWIO weights; types as of :func:`gemm`."""
    shape = {"n": n, "d": d, "h": h, "w": w, "ci": ci, "co": co, "kd": kd, "kh": kh, "kw": kw}
    window = _window("conv3d", stride, pad, dilation)
    return _convolution("conv3d", shape, ("d", "h", "w"), window, dtype)


def _convolution(
    name: str,
    shape: dict[str, int],
    dimensions: tuple[str, ...],
    window: dict[str, int],
    dtype: str,
    after: dict[str, int] | None = None,
    requantize: int = 0,
) -> Workload:
    """A convolution over any number of dimensions, channels last; ``after``: bias and relu."""
    parameters = _checked(name, shape, dtype, (*FLOAT_DTYPES, *BYTE_DTYPES))
    parameters.update(window)
    stride, pad, dilation = window["stride"], window["pad"], window["dilation"]
    left, right, total = _factors(dtype)
    n, ci, co = shape["n"], shape["ci"], shape["co"]
    size, kernel = [shape[key] for key in dimensions], [shape[f"k{key}"] for key in dimensions]
    outer = _output_size(name, size, kernel, stride, pad, dilation)
    inputs = [Tensor("X", (n, *size, ci), left), Tensor("W", (*kernel, ci, co), right)]
    stages = _padded_input(inputs[0], pad, dimensions)
    axes = [Axis("n", n)]
    axes += [Axis(f"{key}o", extent) for key, extent in zip(dimensions, outer, strict=True)]
    axes += [Axis("co", co)]
    axes += [Axis(f"k{key}", shape[f"k{key}"], "reduce") for key in dimensions]
    axes += [Axis("ci", ci, "reduce")]
    indices = (*_window_indices(stride, dilation, dimensions), var("ci"))
    data = Load(stages[-1].name if stages else "X", indices)
    product = _product(data, _load("W", *(f"k{key}" for key in dimensions), "ci", "co"), dtype)
    stages.append(Stage(Tensor("Y", (n, *outer, co), total), tuple(axes), product, "add"))
    if after is not None:
        parameters.update(after)
        _append_epilogue(inputs, stages, co, after["bias"], after["relu"])
        _append_requantized(name, stages, requantize, parameters)
    return Workload(name, tuple(inputs), tuple(stages), (stages[-1].name,), parameters)


@also_in_halves
def depthwise_conv2d(
    *,
    n: int = 1,
    h: int,
    w: int,
    c: int,
    kh: int = 3,
    kw: int = 3,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    dtype: str = "float32",
) -> Workload:
    """NHWC depthwise convolution with weights ``[kh, kw, c]``."""
    shape = {"n": n, "h": h, "w": w, "c": c, "kh": kh, "kw": kw}
    parameters = _checked("depthwise_conv2d", shape, dtype, FLOAT_DTYPES)
    parameters.update(_window("depthwise_conv2d", stride, pad, dilation))
    height, width = _output_size("depthwise_conv2d", (h, w), (kh, kw), stride, pad, dilation)
    inputs = (Tensor("X", (n, h, w, c), dtype), Tensor("W", (kh, kw, c), dtype))
    stages = _padded_input(inputs[0], pad, ("h", "w"))
    axes = (
        Axis("n", n),
        Axis("ho", height),
        Axis("wo", width),
        Axis("c", c),
        Axis("kh", kh, "reduce"),
        Axis("kw", kw, "reduce"),
    )
    indices = (*_window_indices(stride, dilation, ("h", "w")), var("c"))
    data = Load(stages[-1].name if stages else "X", indices)
    product = _product(data, _load("W", "kh", "kw", "c"), dtype)
    stages.append(Stage(Tensor("Y", (n, height, width, c), dtype), axes, product, "add"))
    return Workload("depthwise_conv2d", inputs, tuple(stages), ("Y",), parameters)


@also_in_halves
def softmax(*, m: int, n: int, dtype: str = "float32") -> Workload:
    """Row-wise ``exp(X - max) / sum(exp(X - max))`` of an ``[m, n]`` matrix."""
    parameters = _checked("softmax", {"m": m, "n": n}, dtype, FLOAT_DTYPES)
    rows, columns, reduce = Axis("i", m), Axis("j", n), Axis("k", n, "reduce")
    shifted = Binary("sub", _load("X", "i", "j"), _load("M", "i"))
    quotient = Binary("div", _load("E", "i", "j"), _load("S", "i"))
    stages = (
        Stage(Tensor("M", (m,), dtype), (rows, reduce), _load("X", "i", "k"), "max"),
        Stage(Tensor("E", (m, n), dtype), (rows, columns), Unary("exp", shifted)),
        Stage(Tensor("S", (m,), dtype), (rows, reduce), _load("E", "i", "k"), "add"),
        Stage(Tensor("Y", (m, n), dtype), (rows, columns), quotient),
    )
    return Workload("softmax", (Tensor("X", (m, n), dtype),), stages, ("Y",), parameters)


@also_in_halves
def attention(
    *, h: int, n: int, d: int, m: int = 0, causal: int = 0, dtype: str = "float32"
) -> Workload:
    """``softmax(Q K^T / sqrt(d)) V`` of ``h`` heads: ``n`` queries, ``m`` keys of width ``d``.

    Args:
        h: Heads, times sequences.
        n: Queries.
        d: Width of a head.
        m: Keys; 0 for as many as queries.
        causal: 1 where a query is not to see the keys behind it; needs as many keys as queries.
        dtype: Type of all tensors.

    Raises:
        InvalidValueError: a size is not positive, or the keys are not as many as needed.
    """
    m = m or n
    parameters = _checked("attention", {"h": h, "n": n, "m": m, "d": d}, dtype, FLOAT_DTYPES)
    parameters |= _flags("attention", causal=causal)
    if causal and m != n:
        raise InvalidValueError(f"attention: causal needs as many keys as queries, not m={m}")
    rows, keys = (Axis("b", h), Axis("i", n)), Axis("j", m)
    product = Binary("mul", _load("Q", "b", "i", "k"), _load("K", "b", "j", "k"))
    scaled: ScalarExpr = Binary("mul", _load("A", "b", "i", "j"), Constant(d**-0.5, dtype))
    if causal:
        seen = Binary("le", IndexValue(var("j")), IndexValue(var("i")))
        scaled = Select(seen, scaled, Constant(_UNSEEN, dtype))
    shifted = Binary("sub", _load("X", "b", "i", "j"), _load("M", "b", "i"))
    quotient = Binary("div", _load("E", "b", "i", "j"), _load("S", "b", "i"))
    weighted = Binary("mul", _load("R", "b", "i", "j"), _load("V", "b", "j", "d"))
    reduced = Axis("j", m, "reduce")
    square, row = (h, n, m), (h, n)
    stages = (
        Stage(Tensor("A", square, dtype), (*rows, keys, Axis("k", d, "reduce")), product, "add"),
        Stage(Tensor("X", square, dtype), (*rows, keys), scaled),
        Stage(Tensor("M", row, dtype), (*rows, reduced), _load("X", "b", "i", "j"), "max"),
        Stage(Tensor("E", square, dtype), (*rows, keys), Unary("exp", shifted)),
        Stage(Tensor("S", row, dtype), (*rows, reduced), _load("E", "b", "i", "j"), "add"),
        Stage(Tensor("R", square, dtype), (*rows, keys), quotient),
        Stage(Tensor("Y", (h, n, d), dtype), (*rows, Axis("d", d), reduced), weighted, "add"),
    )
    shapes = {"Q": (h, n, d), "K": (h, m, d), "V": (h, m, d)}
    inputs = tuple(Tensor(name, shape, dtype) for name, shape in shapes.items())
    return Workload("attention", inputs, stages, ("Y",), parameters)


@also_in_halves
def elementwise(*, m: int, n: int, dtype: str = "float32") -> Workload:
    """A chain on two ``[m, n]`` matrices: ``relu(X * Z + X) * 0.5``, three stages."""
    parameters = _checked("elementwise", {"m": m, "n": n}, dtype, FLOAT_DTYPES)
    axes = (Axis("i", m), Axis("j", n))
    x, z = _load("X", "i", "j"), _load("Z", "i", "j")
    multiply_add = Binary("add", Binary("mul", x, z), x)
    stages = (
        Stage(Tensor("T", (m, n), dtype), axes, multiply_add),
        Stage(Tensor("R", (m, n), dtype), axes, _relu(_load("T", "i", "j"), dtype)),
        Stage(
            Tensor("Y", (m, n), dtype),
            axes,
            Binary("mul", _load("R", "i", "j"), Constant(0.5, dtype)),
        ),
    )
    inputs = (Tensor("X", (m, n), dtype), Tensor("Z", (m, n), dtype))
    return Workload("elementwise", inputs, stages, ("Y",), parameters)


@also_in_halves
def cumsum(
    *, m: int, n: int, axis: int = 1, exclusive: int = 0, dtype: str = "float32"
) -> Workload:
    """Running sums of ``X[m, n]`` along ``axis``; exclusive ones leave an element itself out."""
    parameters = _checked("cumsum", {"m": m, "n": n}, dtype, (*FLOAT_DTYPES, "int32"))
    parameters.update(_flags("cumsum", axis=axis, exclusive=exclusive))
    extents = {"i": m, "j": n}
    along = list(extents)[axis]
    axes = tuple(
        Axis(name, extent, "scan" if name == along else "spatial")
        for name, extent in extents.items()
    )
    value: ScalarExpr = _load("X", "i", "j")
    if exclusive:
        has_one_before = Binary("ge", IndexValue(var(along)), IndexValue(const(1)))
        before = (var(name) - 1 if name == along else var(name) for name in extents)
        value = Select(has_one_before, Load("X", tuple(before)), _zero(dtype))
    stage = Stage(Tensor("Y", (m, n), dtype), axes, value, "add")
    return Workload("cumsum", (Tensor("X", (m, n), dtype),), (stage,), ("Y",), parameters)


def _load(tensor: str, *axes: str) -> Load:
    return Load(tensor, tuple(var(axis) for axis in axes))


def _factors(dtype: str) -> tuple[str, str, str]:
    return _PRODUCTS.get(dtype, (dtype, dtype, dtype))


def _product(left: ScalarExpr, right: ScalarExpr, dtype: str) -> ScalarExpr:
    left_dtype, right_dtype, total = _factors(dtype)
    if left_dtype != total:
        left = Cast(total, left)
    if right_dtype != total:
        right = Cast(total, right)
    return Binary("mul", left, right)


def _relu(value: ScalarExpr, dtype: str) -> ScalarExpr:
    return Binary("max", value, _zero(dtype))


def _zero(dtype: str) -> Constant:
    return Constant(0.0 if element_type(dtype).is_float else 0, dtype)


def _append_epilogue(
    inputs: list[Tensor], stages: list[Stage], channels: int, bias: int, relu: int
) -> None:
    """Append bias and relu stages over the last stage's output."""
    if bias:
        inputs.append(Tensor("bias", (channels,), stages[-1].output.dtype))
    for wanted, name in ((bias, "Z"), (relu, "R")):
        if not wanted:
            continue
        before = stages[-1]
        axes = before.spatial_axes
        value: ScalarExpr = _load(before.name, *(axis.name for axis in axes))
        if name == "Z":
            value = Binary("add", value, _load("bias", axes[-1].name))
        else:
            value = _relu(value, before.output.dtype)
        stages.append(Stage(Tensor(name, before.output.shape, before.output.dtype), axes, value))


def _append_requantized(
    name: str, stages: list[Stage], shift: int, parameters: dict[str, Any]
) -> None:
    """Append a stage ``Q`` that makes unsigned bytes of sums, where ``shift`` is not 0."""
    if isinstance(shift, bool) or not isinstance(shift, int) or not 0 <= shift <= 30:
        raise InvalidValueError(
            f"{name}: requantize must be an integer from 0 to 30, not {shift!r}"
        )
    if shift == 0:
        return
    parameters["requantize"] = shift
    before = stages[-1]
    if before.output.dtype != "int32" or parameters["dtype"] not in BYTE_DTYPES:
        raise InvalidValueError(
            f"{name}: requantize needs a dtype of {', '.join(BYTE_DTYPES)}, not "
            f"{parameters['dtype']!r}"
        )
    axes = before.spatial_axes
    value: ScalarExpr = Binary("max", _load(before.name, *(a.name for a in axes)), _zero("int32"))
    value = Binary("div", value, Constant(1 << shift, "int32"))
    value = Cast("uint8", Binary("min", value, Constant(255, "int32")))
    stages.append(Stage(Tensor("Q", before.output.shape, "uint8"), axes, value))


def _padded_input(data: Tensor, pad: int, dimensions: tuple[str, ...]) -> list[Stage]:
    """A stage ``P`` that surrounds the dimensions of ``data`` with zeros, or nothing."""
    if pad == 0:
        return []
    n, *size, c = data.shape
    names = [f"{key}p" for key in dimensions]
    grown = [extent + 2 * pad for extent in size]
    middle = [Axis(name, extent) for name, extent in zip(names, grown, strict=True)]
    axes = (Axis("n", n), *middle, Axis("cp", c))
    inside: ScalarExpr | None = None
    for name, extent in zip(names, size, strict=True):
        for bound in (
            Binary("ge", IndexValue(var(name)), IndexValue(const(pad))),
            Binary("lt", IndexValue(var(name)), IndexValue(const(pad + extent))),
        ):
            inside = bound if inside is None else Binary("and", inside, bound)
    if inside is None:
        raise InvalidValueError("padding needs at least one axis")
    value = Load("X", (var("n"), *(var(name) - pad for name in names), var("cp")))
    body = Select(inside, value, _zero(data.dtype))
    return [Stage(Tensor("P", (n, *grown, c), data.dtype), axes, body)]


def _window_indices(
    stride: int, dilation: int, dimensions: tuple[str, ...]
) -> tuple[IntExpr, ...]:
    return (
        var("n"),
        *(var(f"{key}o") * stride + var(f"k{key}") * dilation for key in dimensions),
    )


def _output_size(
    name: str,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: int,
    pad: int,
    dilation: int,
) -> list[int]:
    results = []
    for extent, window in zip(size, kernel, strict=True):
        reach = (window - 1) * dilation + 1
        if extent + 2 * pad < reach:
            raise InvalidValueError(
                f"{name}: a window that spans {reach} does not fit {extent} with padding {pad}"
            )
        results.append((extent + 2 * pad - reach) // stride + 1)
    return results


def _checked(
    name: str, shape: dict[str, int], dtype: str, dtypes: tuple[str, ...]
) -> dict[str, Any]:
    """Validate a shape and a type; returns them as the workload's parameters."""
    for key, value in shape.items():
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise InvalidValueError(f"{name}: {key} must be a positive integer, not {value!r}")
    if dtype not in dtypes and not _stands_for_one(dtype, dtypes):
        names = (*dtypes, *HALF_DTYPES)
        hint = did_you_mean(near_matches(dtype, names))
        raise InvalidValueError(
            f"{name}: unknown dtype {dtype!r}; allowed: {', '.join(names)}{hint and '.' + hint}"
        )
    return {**shape, "dtype": dtype}


def _stands_for_one(dtype: str, dtypes: tuple[str, ...]) -> bool:
    """Return whether a plugin's type can be where float32 or int32 can."""
    try:
        found = element_type(dtype)
    except UnknownNameError:
        return False
    return dtype not in ELEMENT_TYPES and ("float32" if found.is_float else "int32") in dtypes


def _window(name: str, stride: int, pad: int, dilation: int) -> dict[str, int]:
    for key, value, low in (("stride", stride, 1), ("pad", pad, 0), ("dilation", dilation, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise InvalidValueError(
                f"{name}: {key} must be an integer of at least {low}, not {value!r}"
            )
    return {"stride": stride, "pad": pad, "dilation": dilation}


def _flags(name: str, **flags: int) -> dict[str, int]:
    for key, value in flags.items():
        if value not in (0, 1):
            raise InvalidValueError(f"{name}: {key} must be 0 or 1, not {value!r}")
    return {key: int(value) for key, value in flags.items()}
