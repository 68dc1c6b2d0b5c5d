"""The rows of `cuda_device.py`: what is tuned on a CUDA device, and what it is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import UnknownNameError

# Sets of rows, each with bars of its own but the last; `--rows` takes them, too.
FP32, HALF, MEMORY, OTHER = "fp32", "half", "memory", "other"
SETS = (FP32, HALF, MEMORY, OTHER)


@dataclass(frozen=True)
class Case:
    """A workload, its type, and the target that it is tuned for.

    Attributes:
        name: Of the row, for people and for ``--rows``.
        workload: Name of its builder, or of an operator of `backend_workloads.py`.
        shape: Its arguments.
        sets: Whose bars it counts for.
        dtype: Of the factors; norms have theirs.
        target: ``cuda``, or ``cuda-tf32``.
        quick: Whether it is in the reduced set.
        metaschedule: Whether MetaSchedule tunes it where nobody asks for other rows.
    """

    name: str
    workload: str
    shape: Mapping[str, int]
    sets: tuple[str, ...]
    dtype: str | None = "float32"
    target: str = "cuda"
    quick: bool = False
    metaschedule: bool = False

    def made(self) -> Any:
        """The workload."""
        from support.backend_workloads import made

        return made(self.workload, self.shape, self.dtype)

    def tuned(self) -> tuple[str, Mapping[str, int], tuple[str, ...]]:
        """The workload, shape and further arguments of ``autotune tune``."""
        from support.backend_workloads import tuned

        name, shape, arguments = tuned(self.workload, self.shape, self.dtype)
        return name, shape, ("--target", self.target, *arguments)

    @property
    def is_compiled(self) -> bool:
        """Tell whether it is compared with ``torch.compile``."""
        return MEMORY in self.sets

    @property
    def has_builder(self) -> bool:
        """Tell whether torch's routines are the core's: it is none of `backend_workloads.py`."""
        from support.backend_workloads import OPERATORS

        return self.workload not in OPERATORS


def _sizes(m: int, n: int, k: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k}


def _image(size: int, channels: int, n: int = 1) -> dict[str, int]:
    return {"n": n, "h": size, "w": size, "ci": channels, "co": channels, "pad": 1}


def _product(sizes: tuple[int, int, int], suffix: str, dtype: str, *, quick: bool = False) -> Case:
    m, n, k = sizes
    name = f"{m}" if m == n == k else f"{m}x{n}x{k}"
    return Case(f"gemm-{name}-{suffix}", "gemm", _sizes(*sizes), (HALF,), dtype, quick=quick)


def _halves(suffix: str, dtype: str) -> list[Case]:
    """Rows of both types of two bytes: products that are square, tall and batched, images."""
    extents = (512, 1024, 2048, 4096, 8192) if suffix == "fp16" else (512, 1024, 4096, 8192)
    tall = (8192, 512, 1024) if suffix == "fp16" else (8192, 1024, 512)
    batch = (
        {"b": 12, **_sizes(128, 128, 64)}
        if suffix == "fp16"
        else {"b": 64, **_sizes(512, 512, 64)}
    )
    return [
        *(
            _product((it, it, it), suffix, dtype, quick=suffix == "fp16" and it == 1024)
            for it in extents
        ),
        _product(tall, suffix, dtype),
        Case(
            "bmm-{b}x{m}x{n}x{k}-{suffix}".format(**batch, suffix=suffix),
            *("batch_matmul", batch, (HALF,), dtype),
        ),
        Case(f"conv-56x64-{suffix}", "conv2d", _image(56, 64), (HALF,), dtype),
        Case(f"conv-14x256-{suffix}", "conv2d", _image(14, 256), (HALF,), dtype),
    ]


_DENSE = _sizes(128, 768, 3072)
_GEMV = _sizes(1, 4096, 4096)
CASES = (
    Case(
        "gemm-1024-fp32", "gemm", _sizes(1024, 1024, 1024), (FP32,), quick=True, metaschedule=True
    ),
    Case("gemm-4096x4096x1024-fp32", "gemm", _sizes(4096, 4096, 1024), (FP32,)),
    Case("dense-128x768x3072-fp32", "dense", _DENSE, (FP32,), metaschedule=True),
    Case("gemv-4096-fp32", "gemm", _GEMV, (FP32,)),
    Case("bmm-12x128x128x64-fp32", "batch_matmul", {"b": 12, **_sizes(128, 128, 64)}, (FP32,)),
    Case("conv-14x256-fp32", "conv2d", _image(14, 256), (FP32,), quick=True, metaschedule=True),
    Case("conv-56x64-fp32", "conv2d", _image(56, 64), (FP32,)),
    Case(
        "depthwise-112x32-fp32",
        "depthwise_conv2d",
        {"h": 112, "w": 112, "c": 32, "pad": 1},
        (FP32,),
    ),
    Case("softmax-512x4096-fp32", "softmax", {"m": 512, "n": 4096}, (FP32, MEMORY), quick=True),
    Case("softmax-4096x1024-fp32", "softmax", {"m": 4096, "n": 1024}, (FP32, MEMORY)),
    Case("layer-norm-4096x1024-fp32", "layer_norm", {"m": 4096, "n": 1024}, (FP32, MEMORY), None),
    *_halves("fp16", "float16"),
    Case("dense-128x768x3072-fp16", "dense", _DENSE, (HALF,), "float16"),
    Case("gemv-4096-fp16", "gemm", _GEMV, (HALF,), "float16"),
    Case("conv-28x128-batch-8-fp16", "conv2d", _image(28, 128, n=8), (HALF,), "float16"),
    *_halves("bf16", "bfloat16"),
    Case("rms-norm-4096x1024-fp32", "rms_norm", {"m": 4096, "n": 1024}, (MEMORY,), None),
    Case(
        "attention-12x512x64-fp16", "attention", {"h": 12, "n": 512, "d": 64}, (MEMORY,), "float16"
    ),
    Case(
        *("attention-16x1024x64-causal-fp16", "attention"),
        *({"h": 16, "n": 1024, "d": 64, "causal": 1}, (MEMORY,), "float16"),
    ),
    Case("gemm-4096-tf32", "gemm", _sizes(4096, 4096, 4096), (OTHER,), target="cuda-tf32"),
    Case("conv-56x64-tf32", "conv2d", _image(56, 64), (OTHER,), target="cuda-tf32"),
    Case("gemm-4096-int8", "gemm", _sizes(4096, 4096, 4096), (OTHER,), "int8"),
    Case("elementwise-4096x4096-fp32", "elementwise", {"m": 4096, "n": 4096}, (OTHER,)),
)


def chosen(names: Iterable[str]) -> list[Case]:
    """The rows of these names, and of sets that are named, each once, in the order of the table.

    Raises:
        UnknownNameError: there is neither a row nor a set of such a name.
    """
    known = [case.name for case in CASES]
    wanted = set(names)
    for name in wanted:
        if name not in (*SETS, *known):
            raise UnknownNameError("row", name, (*SETS, *known))
    return [case for case in CASES if case.name in wanted or not wanted.isdisjoint(case.sets)]
