"""Operators that are compared here and have no builder, beside those that have one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    transform,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, attention
from autotune.plugins.importer import Importer
from autotune.plugins.workload_names import make_workload

F32 = "float32"


class RowImporter(Importer):
    """Reads an operator of this module: its name and sizes, such as ``argmax m=64 n=32``."""

    def read(self, program: object) -> list[Workload]:
        """The operator."""
        name, *sizes = str(program).split()
        if name not in OPERATORS:
            raise InvalidValueError(f"{name!r} is not one of {', '.join(OPERATORS)}")
        given = {key: int(size) for key, _, size in (text.partition("=") for text in sizes)}
        return [OPERATORS[name](**given)]


def layer_norm(*, m: int, n: int) -> Workload:
    """Rows minus their mean, over their standard deviation, with a scale and a shift."""
    rows, columns, reduced = Axis("i", m), Axis("j", n), Axis("k", n, "reduce")
    size = Constant(n, F32)
    mean = Binary("div", _load("S", "i"), size)
    centred = Binary("sub", _load("X", "i", "k"), mean)
    variance = Binary("div", _load("V", "i"), size)
    root = Unary("rsqrt", Binary("add", variance, Constant(1e-5, F32)))
    normal = Binary("mul", Binary("sub", _load("X", "i", "j"), mean), root)
    scaled = Binary("add", Binary("mul", normal, _load("G", "j")), _load("B", "j"))
    stages = (
        Stage(Tensor("S", (m,), F32), (rows, reduced), _load("X", "i", "k"), "add"),
        Stage(Tensor("V", (m,), F32), (rows, reduced), Binary("mul", centred, centred), "add"),
        Stage(Tensor("Y", (m, n), F32), (rows, columns), scaled),
    )
    inputs = (Tensor("X", (m, n), F32), Tensor("G", (n,), F32), Tensor("B", (n,), F32))
    return Workload("layer_norm", inputs, stages, ("Y",), {"m": m, "n": n})


def rms_norm(*, m: int, n: int) -> Workload:
    """Rows over the root of the mean of their squares, with a scale."""
    rows, columns, reduced = Axis("i", m), Axis("j", n), Axis("k", n, "reduce")
    square = Binary("mul", _load("X", "i", "k"), _load("X", "i", "k"))
    mean = Binary("div", _load("S", "i"), Constant(n, F32))
    root = Unary("rsqrt", Binary("add", mean, Constant(1e-5, F32)))
    scaled = Binary("mul", Binary("mul", _load("X", "i", "j"), root), _load("G", "j"))
    stages = (
        Stage(Tensor("S", (m,), F32), (rows, reduced), square, "add"),
        Stage(Tensor("Y", (m, n), F32), (rows, columns), scaled),
    )
    inputs = (Tensor("X", (m, n), F32), Tensor("G", (n,), F32))
    return Workload("rms_norm", inputs, stages, ("Y",), {"m": m, "n": n})


def argmax(*, m: int, n: int) -> Workload:
    """The place of the largest number of each row, the first of equal ones."""
    axes = (Axis("i", m), Axis("k", n, "reduce"))
    is_largest = Binary("eq", _load("X", "i", "k"), _load("M", "i"))
    place = Select(is_largest, Cast("int32", IndexValue(var("k"))), Constant(n - 1, "int32"))
    stages = (
        Stage(Tensor("M", (m,), F32), axes, _load("X", "i", "k"), "max"),
        Stage(Tensor("I", (m,), "int32"), axes, place, "min"),
    )
    return Workload("argmax", (Tensor("X", (m, n), F32),), stages, ("I",), {"m": m, "n": n})


def concat_transpose(*, m: int, n: int) -> Workload:
    """Two matrices beside each other, transposed."""
    is_second = Binary("ge", IndexValue(var("j")), IndexValue(const(n)))
    chosen = Select(is_second, Load("B", (var("i"), var("j") - n)), _load("A", "i", "j"))
    stages = (
        Stage(Tensor("C", (m, 2 * n), F32), (Axis("i", m), Axis("j", 2 * n)), chosen),
        Stage(
            Tensor("Y", (2 * n, m), F32), (Axis("i", 2 * n), Axis("j", m)), _load("C", "j", "i")
        ),
    )
    inputs = (Tensor("A", (m, n), F32), Tensor("B", (m, n), F32))
    return Workload("concat_transpose", inputs, stages, ("Y",), {"m": m, "n": n})


def grouped_conv2d(*, h: int, w: int, g: int, ci: int, co: int, kernel: int = 3) -> Workload:
    """A convolution within each of ``g`` groups, of ``ci`` to ``co`` channels, stride 1.

    Data is ``[h, w, g, channels]``, padded by half of the kernel, and weights are
    ``[kernel, kernel, g, ci, co]``.
    """
    pad = kernel // 2
    y, x = var("y"), var("x")
    inside = _inside((y, pad, h + pad), (x, pad, w + pad))
    shifted = Load("X", (y - pad, x - pad, var("g"), var("c")))
    padded = (Axis("y", h + 2 * pad), Axis("x", w + 2 * pad), Axis("g", g), Axis("c", ci))
    axes = (
        *(Axis("y", h), Axis("x", w), Axis("g", g), Axis("o", co)),
        *(Axis("ky", kernel, "reduce"), Axis("kx", kernel, "reduce"), Axis("c", ci, "reduce")),
    )
    data = Load("P", (y + var("ky"), x + var("kx"), var("g"), var("c")))
    product = Binary("mul", data, _load("W", "ky", "kx", "g", "c", "o"))
    stages = (
        Stage(
            Tensor("P", tuple(axis.extent for axis in padded), F32),
            padded,
            Select(inside, shifted, Constant(0.0, F32)),
        ),
        Stage(Tensor("Y", (h, w, g, co), F32), axes, product, "add"),
    )
    inputs = (Tensor("X", (h, w, g, ci), F32), Tensor("W", (kernel, kernel, g, ci, co), F32))
    sizes = {"h": h, "w": w, "g": g, "ci": ci, "co": co, "kernel": kernel}
    return Workload("grouped_conv2d", inputs, stages, ("Y",), sizes)


def transposed_conv2d(*, h: int, w: int, ci: int, co: int, kernel: int = 4) -> Workload:
    """A transposed convolution of stride 2 and padding 1, which doubles rows and columns.

    Data, ``[h, w, ci]``, is spread with zeros between and around its elements; then it is a
    convolution with weights ``[kernel, kernel, ci, co]``.
    """
    stride, pad = 2, kernel - 2
    height, width = stride * (h - 1) + 1 + 2 * pad, stride * (w - 1) + 1 + 2 * pad
    y, x = var("y"), var("x")
    inside: ScalarExpr = _inside((y, pad, height - pad), (x, pad, width - pad))
    for place in (y, x):
        between = IndexValue((place - pad) % stride)
        inside = Binary("and", inside, Binary("eq", between, Constant(0, "int32")))
    spread = Load("X", ((y - pad) // stride, (x - pad) // stride, var("c")))
    padded = (Axis("y", height), Axis("x", width), Axis("c", ci))
    out = (height - kernel + 1, width - kernel + 1)
    axes = (
        *(Axis("y", out[0]), Axis("x", out[1]), Axis("o", co)),
        *(Axis("ky", kernel, "reduce"), Axis("kx", kernel, "reduce"), Axis("c", ci, "reduce")),
    )
    data = Load("P", (y + var("ky"), x + var("kx"), var("c")))
    product = Binary("mul", data, _load("W", "ky", "kx", "c", "o"))
    stages = (
        Stage(
            Tensor("P", (height, width, ci), F32),
            padded,
            Select(inside, spread, Constant(0.0, F32)),
        ),
        Stage(Tensor("Y", (*out, co), F32), axes, product, "add"),
    )
    inputs = (Tensor("X", (h, w, ci), F32), Tensor("W", (kernel, kernel, ci, co), F32))
    sizes = {"h": h, "w": w, "ci": ci, "co": co, "kernel": kernel}
    return Workload("transposed_conv2d", inputs, stages, ("Y",), sizes)


def shared_attention(*, h: int, g: int, n: int, d: int) -> Workload:
    """Attention of ``h`` heads of queries, of which ``g`` neighbours share keys and values."""
    whole = attention(h=h, n=n, d=d)

    def shared(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Load) or node.tensor not in ("K", "V"):
            return None
        head, *others = node.indices
        return Load(node.tensor, (head // g, *others))

    stages = tuple(evolve(it, body=transform(it.body, shared)) for it in whole.stages)
    inputs = tuple(
        evolve(it, shape=(h // g, *it.shape[1:])) if it.name in ("K", "V") else it
        for it in whole.inputs
    )
    sizes = {"h": h, "g": g, "n": n, "d": d}
    return Workload("shared_attention", inputs, stages, whole.outputs, sizes)


def embedding_bag(*, bags: int, most: int, words: int, width: int) -> Workload:
    """Weighted sums of ``most`` rows of a table of ``words``, which indices choose."""
    axes = (Axis("i", bags), Axis("j", width), Axis("k", most, "reduce"))
    row = Gather("T", (_load("I", "i", "k"), IndexValue(var("j"))))
    product = Binary("mul", row, _load("W", "i", "k"))
    stages = (Stage(Tensor("Y", (bags, width), F32), axes, product, "add"),)
    inputs = (
        Tensor("T", (words, width), F32),
        Tensor("I", (bags, most), "int32"),
        Tensor("W", (bags, most), F32),
    )
    sizes = {"bags": bags, "most": most, "words": words, "width": width}
    return Workload("embedding_bag", inputs, stages, ("Y",), sizes)


OPERATORS: Mapping[str, Callable[..., Workload]] = MappingProxyType(
    {
        "argmax": argmax,
        "concat_transpose": concat_transpose,
        "embedding_bag": embedding_bag,
        "grouped_conv2d": grouped_conv2d,
        "layer_norm": layer_norm,
        "rms_norm": rms_norm,
        "shared_attention": shared_attention,
        "transposed_conv2d": transposed_conv2d,
    }
)
"""By the name that rows have for them."""


def made(name: str, shape: Mapping[str, int], dtype: str | None = None) -> Workload:
    """A workload of this module, or of a builder.

    Args:
        name: Of the operator or builder.
        shape: Its arguments.
        dtype: Of the factors, where it is a builder; None for the builder's own.
    """
    if name in OPERATORS:
        return OPERATORS[name](**shape)
    return make_workload(name, shape, dtype)


def tuned(
    name: str, shape: Mapping[str, int], dtype: str | None = None
) -> tuple[str, Mapping[str, int], tuple[str, ...]]:
    """The workload, shape and further arguments of ``autotune tune`` for what :func:`made` is."""
    if name in OPERATORS:
        sizes = " ".join(f"{key}={size}" for key, size in shape.items())
        return f"{name} {sizes}", {}, ("--importer", "support.backend_workloads:RowImporter")
    return name, shape, ("--dtype", dtype) if dtype else ()


def _load(tensor: str, *axes: str) -> Load:
    return Load(tensor, tuple(map(var, axes)))


def _inside(*bounds: tuple[IntExpr, int, int]) -> ScalarExpr:
    """Tell whether positions are at least the first number and less than the second."""
    conditions: list[ScalarExpr] = []
    for place, low, high in bounds:
        conditions.append(Binary("ge", IndexValue(place), IndexValue(const(low))))
        conditions.append(Binary("lt", IndexValue(place), IndexValue(const(high))))
    found, *rest = conditions
    for condition in rest:
        found = Binary("and", found, condition)
    return found
