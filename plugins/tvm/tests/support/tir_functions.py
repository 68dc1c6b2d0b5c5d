"""TIR functions from the lines of their bodies, for tests of what is imported."""

from __future__ import annotations

from typing import Any

import tvm

__all__ = ["COPY", "function"]


def function(body: str, signature: str = "A: B((4, 6)), C: B((4, 6))") -> Any:
    """A TIR function from the lines of its body; ``B(shape)`` is a float32 buffer."""
    typed = signature.replace("B((", "T.Buffer((").replace("))", '), "float32")')
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return tvm.script.from_source(f"@T.prim_func(s_tir=True)\ndef f({typed}):\n{lines}\n")


COPY = """
for i, j in T.grid(4, 6):
    with T.sblock("copy"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = {}
"""
