"""Writes ``digests.json`` and ``spellings.json``: ``python make_golden.py``.

A digest that changes orphans every record of its workload, and a spelling every run, so this is
not run lightly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autotune.ir import workloads

# Builder and arguments; together they use every argument of every builder.
EXAMPLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gemm", {"m": 37, "n": 53, "k": 29}),
    ("gemm", {"m": 8, "n": 16, "k": 4, "dtype": "int8"}),
    ("gemm", {"m": 8, "n": 16, "k": 4, "dtype": "int32"}),
    ("gemm", {"m": 8, "n": 16, "k": 4, "dtype": "float64"}),
    ("batch_matmul", {"b": 2, "m": 3, "n": 4, "k": 5}),
    ("batch_matmul", {"b": 3, "m": 2, "n": 5, "k": 4, "dtype": "int8"}),
    ("dense", {"m": 5, "n": 7, "k": 11}),
    ("dense", {"m": 5, "n": 7, "k": 11, "bias": 0, "relu": 0}),
    ("dense", {"m": 5, "n": 7, "k": 11, "bias": 0, "relu": 1}),
    ("conv2d", {"h": 9, "w": 7, "ci": 3, "co": 5}),
    ("conv2d", {"n": 2, "h": 8, "w": 7, "ci": 3, "co": 5, "pad": 1, "bias": 1, "relu": 1}),
    ("conv2d", {"h": 11, "w": 9, "ci": 2, "co": 3, "kh": 5, "kw": 1, "stride": 2, "pad": 2}),
    ("conv2d", {"h": 12, "w": 10, "ci": 2, "co": 3, "dilation": 2, "stride": 3, "relu": 1}),
    ("gemm", {"m": 8, "n": 16, "k": 4, "dtype": "u8s8s32", "requantize": 8}),
    ("conv1d", {"n": 2, "w": 9, "ci": 3, "co": 5, "kw": 2, "stride": 2, "pad": 1}),
    ("conv1d", {"w": 9, "ci": 3, "co": 5, "dilation": 2, "dtype": "u8s8s32"}),
    ("conv2d", {"h": 5, "w": 5, "ci": 2, "co": 3, "requantize": 7, "dtype": "int8"}),
    ("conv3d", {"n": 2, "d": 4, "h": 5, "w": 6, "ci": 2, "co": 3, "stride": 2, "pad": 1}),
    ("conv3d", {"d": 5, "h": 5, "w": 5, "ci": 2, "co": 3, "kd": 1, "kh": 2, "kw": 3}),
    ("conv3d", {"d": 5, "h": 5, "w": 5, "ci": 2, "co": 3, "dilation": 2, "dtype": "int8"}),
    ("depthwise_conv2d", {"h": 9, "w": 8, "c": 5}),
    ("depthwise_conv2d", {"n": 2, "h": 9, "w": 8, "c": 5, "kw": 2, "stride": 2, "pad": 1}),
    ("depthwise_conv2d", {"h": 9, "w": 8, "c": 5, "dilation": 2, "dtype": "float64"}),
    ("softmax", {"m": 5, "n": 7}),
    ("attention", {"h": 2, "n": 5, "d": 3}),
    ("attention", {"h": 2, "n": 5, "d": 3, "m": 7}),
    ("attention", {"h": 1, "n": 4, "d": 3, "causal": 1, "dtype": "float64"}),
    ("elementwise", {"m": 5, "n": 7}),
    ("cumsum", {"m": 5, "n": 7}),
    ("cumsum", {"m": 5, "n": 7, "axis": 0, "exclusive": 1, "dtype": "int32"}),
)


def label(builder: str, arguments: dict[str, Any]) -> str:
    return f"{builder}({', '.join(f'{key}={value}' for key, value in arguments.items())})"


if __name__ == "__main__":
    for kind in ("digest", "spelling"):
        found = {label(b, a): getattr(getattr(workloads, b)(**a), kind) for b, a in EXAMPLES}
        path = Path(__file__).parent / f"{kind}s.json"
        path.write_text(json.dumps(found, indent=1) + "\n")
