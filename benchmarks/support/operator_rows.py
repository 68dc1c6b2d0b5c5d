"""The operators that `operators.py` compares, as data: shapes, arithmetic and inputs.

Nothing but numpy is imported here: interpreters that have only torch read it, too. The operators
themselves are in `operator_programs.py` (TVM) and `operator_torch.py`, by ``kind``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

# Families have bars of their own. A `large` row is one of `memory` whose arrays no cache holds.
PRODUCT, CONVOLUTION, MEMORY, FUSED, LARGE = "product", "convolution", "memory", "fused", "large"

# Number of columns of large rows; there are as many rows as it takes.
COLUMNS = 1024
ROWS_STEP = 64

# Operators on images, which torch has in a channels-last layout, too.
IMAGES = (
    *("conv2d", "conv2d_bn_relu", "conv2d_nchw", "conv3d", "depthwise", "transposed_conv2d"),
    *("capsule_conv2d", "max_pool", "average_pool", "resize"),
)

Arguments = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """An operator with a shape.

    Attributes:
        group: Operator, by the name that TVM's suite has for it where it is from there.
        kind: Name of its builders.
        arguments: Of the builders.
        family: One of those above.
        position: Of this shape among those of the group.
        quick: Whether it is in the reduced set.
    """

    group: str
    kind: str
    arguments: Arguments
    family: str
    position: int
    quick: bool = False

    @property
    def name(self) -> str:
        """Such as ``C2D 1x14x14x256x256x3x1x1``."""
        return f"{self.group} {'x'.join(map(str, self.arguments))}"

    @property
    def flop(self) -> int:
        """Operations of its products alone, two for a multiply-add; 0 where it has none."""
        return _FLOP[self.kind](*self.arguments) if self.kind in _FLOP else 0

    @property
    def dtype(self) -> str:
        """Of the factors."""
        return {"gemm_bf16": "bfloat16", "gemm_int8": "int8"}.get(self.kind, "float32")

    def read_bytes(self, inputs: Sequence[Mapping[str, Any]], written: int) -> int:
        """Bytes of the inputs that have to be read, of a table those of the lines that are used.

        Args:
            inputs: ``shape`` and ``dtype`` of each.
            written: Bytes of the output.
        """
        sizes = [bytes_of(spec) for spec in inputs]
        return written + sizes[1] if self.kind == "embedding" else sum(sizes)

    @property
    def bounds(self) -> Mapping[int, int]:
        """Inputs that are indices, by position, and what they are below."""
        return {1: self.arguments[0]} if self.kind == "embedding" else {}


# Of `tvm.s_tir.meta_schedule.testing.te_workload.CONFIGS`: what TVM 0.27 builds (its Winograd
# convolution is not).
SUITE: Mapping[str, tuple[str, str, tuple[Arguments, ...]]] = MappingProxyType(
    {
        "C1D": (
            "conv1d",
            CONVOLUTION,
            (
                (1, 256, 64, 128, 3, 2, 1),
                (1, 128, 128, 256, 1, 2, 0),
                (1, 64, 256, 256, 5, 1, 2),
                (1, 32, 512, 512, 3, 1, 1),
            ),
        ),
        "C2D": (
            "conv2d",
            CONVOLUTION,
            (
                (1, 224, 224, 3, 64, 7, 2, 3),
                (1, 56, 56, 64, 64, 1, 1, 0),
                (1, 14, 14, 256, 256, 3, 1, 1),
                (1, 7, 7, 512, 512, 3, 1, 1),
            ),
        ),
        "C3D": (
            "conv3d",
            CONVOLUTION,
            (
                (1, 16, 224, 224, 3, 64, 7, 2, 3),
                (1, 16, 56, 56, 64, 64, 1, 1, 0),
                (1, 16, 14, 14, 256, 256, 3, 1, 1),
                (1, 16, 7, 7, 512, 512, 3, 1, 1),
            ),
        ),
        "GMM": (
            "batch_matmul",
            PRODUCT,
            ((1, 128, 128, 128), (1, 512, 32, 512), (1, 512, 512, 512), (1, 1024, 1024, 1024)),
        ),
        "GRP": (
            "conv2d",
            CONVOLUTION,
            (
                (1, 56, 56, 64, 128, 3, 2, 1, 1, 4),
                (1, 56, 56, 64, 64, 1, 1, 0, 1, 4),
                (1, 14, 14, 256, 256, 3, 1, 1, 1, 4),
                (1, 7, 7, 512, 512, 3, 1, 1, 1, 4),
            ),
        ),
        "DIL": (
            "conv2d",
            CONVOLUTION,
            (
                (1, 224, 224, 3, 64, 7, 2, 3, 2),
                (1, 56, 56, 64, 64, 1, 1, 0, 2),
                (1, 14, 14, 256, 256, 3, 1, 1, 2),
                (1, 7, 7, 512, 512, 3, 1, 1, 2),
            ),
        ),
        "DEP": (
            "depthwise",
            CONVOLUTION,
            (
                (1, 112, 112, 32, 3, 1, 1),
                (1, 112, 112, 64, 3, 2, 1),
                (1, 14, 14, 512, 3, 2, 1),
                (1, 7, 7, 1024, 3, 1, 1),
            ),
        ),
        "T2D": (
            "transposed_conv2d",
            CONVOLUTION,
            (
                (1, 4, 4, 512, 256, 4, 2, 1),
                (1, 8, 8, 256, 128, 4, 2, 1),
                (1, 16, 16, 128, 64, 4, 2, 1),
                (1, 32, 32, 64, 3, 4, 2, 1),
            ),
        ),
        "CAP": (
            "capsule_conv2d",
            CONVOLUTION,
            (
                (1, 16, 16, 32, 32, 3, 2, 1),
                (1, 8, 8, 32, 32, 3, 1, 1),
                (1, 16, 16, 8, 16, 3, 2, 1),
                (1, 8, 8, 16, 16, 3, 1, 1),
            ),
        ),
        "NRM": (
            "norm",
            MEMORY,
            ((1, 256, 256), (1, 512, 512), (1, 1024, 1024), (1, 4096, 1024)),
        ),
        "SFM": ("softmax", MEMORY, ((256, 256), (512, 512), (1024, 1024), (2048, 2048))),
        "CBR": (
            "conv2d_bn_relu",
            CONVOLUTION,
            (
                (1, 224, 224, 3, 64, 7, 2, 3),
                (1, 56, 56, 64, 128, 3, 2, 1),
                (1, 28, 28, 128, 256, 1, 2, 0),
                (1, 7, 7, 512, 512, 3, 1, 1),
            ),
        ),
        "TBG": (
            "transposed_matmul",
            PRODUCT,
            ((1, 128, 12, 64), (1, 128, 16, 64), (1, 64, 12, 128), (1, 128, 12, 128)),
        ),
    }
)

OTHERS: Mapping[str, tuple[str, str, tuple[Arguments, ...]]] = MappingProxyType(
    {
        "LayerNorm": ("layer_norm", MEMORY, ((128, 768), (1024, 1024))),
        "RMSNorm": ("rms_norm", MEMORY, ((128, 2048), (1024, 1024))),
        # Heads, tokens, width of a head, whether it is causal.
        "Attention": ("attention", FUSED, ((12, 128, 64, 0), (12, 128, 64, 1))),
        "MLP": ("gelu_mlp", FUSED, ((128, 768, 3072),)),
        # Images are NHWC: size, channels, window, stride, padding.
        "MaxPool": ("max_pool", MEMORY, ((1, 112, 112, 64, 3, 2, 1),)),
        "AvgPool": ("average_pool", MEMORY, ((1, 56, 56, 128, 2, 2, 0),)),
        "ArgMax": ("argmax", MEMORY, ((1024, 1024),)),
        # Two such matrices beside each other, transposed.
        "Concat": ("concat_transpose", MEMORY, ((512, 768),)),
        # Words, width, tokens.
        "Embedding": ("embedding", MEMORY, ((30522, 768, 128),)),
        # Doubles the size of an image, by linear interpolation.
        "Resize": ("resize", MEMORY, ((1, 56, 56, 64),)),
        "C2D-NCHW": ("conv2d_nchw", CONVOLUTION, ((1, 14, 14, 256, 256, 3, 1, 1),)),
        "GEMM-bf16": ("gemm_bf16", PRODUCT, ((512, 512, 512),)),
        "GEMM-int8": ("gemm_int8", PRODUCT, ((512, 512, 512),)),
    }
)

# Kind of each, and the floats that it reads and writes for every one of its input.
IN_MEMORY: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "SFM-memory": ("softmax", 2),
        "NRM-memory": ("norm", 1),
        "LayerNorm-memory": ("layer_norm", 2),
        "RMSNorm-memory": ("rms_norm", 2),
        "Concat-memory": ("concat_transpose", 4),
    }
)

# The shape of a group that the reduced set has, and that MetaSchedule tunes where it tunes one.
ONE_SHAPE = 2
QUICK = ("GMM", "C2D", "DEP", "TBG", "NRM", "SFM", "LayerNorm", "Concat")


def all_rows(memory_bytes: int) -> list[Row]:
    """Every row.

    Args:
        memory_bytes: What arrays of large rows take together at least.
    """
    found = []
    for group, (kind, family, shapes) in {**SUITE, **OTHERS}.items():
        for position, arguments in enumerate(shapes):
            quick = group in QUICK and position == min(ONE_SHAPE, len(shapes) - 1)
            found.append(Row(group, kind, arguments, family, position, quick))
    for group, (kind, floats) in IN_MEMORY.items():
        lines = math.ceil(memory_bytes / (4 * COLUMNS * floats) / ROWS_STEP) * ROWS_STEP
        arguments = (1, lines, COLUMNS) if kind == "norm" else (lines, COLUMNS)
        found.append(Row(group, kind, arguments, LARGE, 0))
    return found


def is_with_metaschedule(row: Row, shapes: str) -> bool:
    """Tell if MetaSchedule tunes a row, for ``one`` shape of an operator, ``all`` or ``none``."""
    if shapes == "one":
        known = SUITE.get(row.group) or OTHERS.get(row.group)
        return known is not None and row.position == min(ONE_SHAPE, len(known[2]) - 1)
    return shapes == "all"


def bytes_of(spec: Mapping[str, Any]) -> int:
    """Bytes of an array of a ``shape`` and ``dtype``."""
    itemsize = 2 if spec["dtype"] == "bfloat16" else np.dtype(spec["dtype"]).itemsize
    return math.prod(spec["shape"]) * itemsize


def draw(specs: Sequence[Mapping[str, Any]], seed: int) -> list[Any]:
    """The same random inputs in every process.

    Floats are uniform in [-1, 1); those of bfloat16 come as float32. Bytes take all values.

    Args:
        specs: ``shape`` and ``dtype`` of each, and ``below`` where it is an index.
        seed: What they depend on.
    """
    rng = np.random.default_rng(seed)
    arrays = []
    for spec in specs:
        dtype, shape = spec["dtype"], tuple(spec["shape"])
        if dtype in ("float32", "bfloat16"):
            arrays.append(rng.random(shape, dtype=np.float32) * 2 - 1)
            continue
        information = np.iinfo(dtype)
        low, high = information.min, information.max + 1
        if "below" in spec:
            low, high = 0, spec["below"]
        arrays.append(rng.integers(low, high, shape).astype(dtype))
    return arrays


def _window(size: int, kernel: int, stride: int, pad: int, dilation: int = 1) -> int:
    """Positions of a window along an axis."""
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1


def _convolution(dimensions: int) -> Callable[..., int]:
    """Of a convolution over so many dimensions of space."""

    def flop(n: int, *rest: int) -> int:
        sizes, (ci, co, kernel, stride, pad) = rest[:dimensions], rest[dimensions:][:5]
        dilation, groups = (*rest[dimensions + 5 :], 1, 1)[:2]
        places = math.prod(_window(size, kernel, stride, pad, dilation) for size in sizes)
        return 2 * n * places * co * (ci // groups) * kernel**dimensions

    return flop


def _depthwise(n: int, h: int, w: int, c: int, kernel: int, stride: int, pad: int) -> int:
    places = _window(h, kernel, stride, pad) * _window(w, kernel, stride, pad)
    return 2 * n * places * c * kernel**2


def _transposed(
    n: int, h: int, w: int, ci: int, co: int, kernel: int, stride: int, pad: int
) -> int:
    """Products with what is put between the pixels do not count."""
    return 2 * n * h * w * ci * co * kernel**2


def _capsule(n: int, h: int, w: int, ci: int, co: int, kernel: int, stride: int, pad: int) -> int:
    return 4**3 * _convolution(2)(n, h, w, ci, co, kernel, stride, pad)


_FLOP: Mapping[str, Callable[..., int]] = {
    "conv1d": _convolution(1),
    "conv2d": _convolution(2),
    "conv2d_nchw": _convolution(2),
    "conv2d_bn_relu": _convolution(2),
    "conv3d": _convolution(3),
    "depthwise": _depthwise,
    "transposed_conv2d": _transposed,
    "capsule_conv2d": _capsule,
    "batch_matmul": lambda b, n, m, k: 2 * b * n * m * k,
    "gemm_bf16": lambda m, n, k: 2 * m * n * k,
    "gemm_int8": lambda m, n, k: 2 * m * n * k,
    "transposed_matmul": lambda b, s, h, d: 2 * b * h * s * s * d,
    "attention": lambda h, s, d, causal: 4 * h * s * s * d,
    "gelu_mlp": lambda m, n, k: 4 * m * n * k,
}
