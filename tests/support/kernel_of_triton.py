"""A kernel for Triton, which reads the source of functions from their files."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scale(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    pass
