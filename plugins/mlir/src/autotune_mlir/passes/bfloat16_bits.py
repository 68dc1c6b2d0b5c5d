"""Numbers of bfloat16 as bits, in programs of LLVM's dialect.

LLVM ends the process where vectors of them are masked or taken apart and the processor has no
arithmetic of that type. MLIR's passes leave nothing but moves and casts to bits of them
(:mod:`autotune_mlir.lowering`), which integers of 16 bits do as well.
"""

from __future__ import annotations

import re

import numpy as np

from autotune.ir.bfloat16 import bfloat16_bits

__all__ = ["as_bits"]

# Its value; a type such as vector<10xbf16> has what looks like digits.
_CONSTANT = re.compile(r"(?<=llvm\.mlir\.constant\()[^\n]*?(?= : (?:vector<[0-9x]+x)?bf16>?\))")
# A number; one in hexadecimal digits is the bits.
_NUMBER = re.compile(r"(0x[0-9A-F]{4})|[-+]?[0-9]+\.[0-9]+(?:e[-+]?[0-9]+)?", re.IGNORECASE)


def as_bits(text: str) -> str:
    """A module of LLVM's dialect, as text, with ``i16`` for ``bf16``."""
    whole = _CONSTANT.sub(lambda found: _NUMBER.sub(_integer, found.group()), text)
    return re.sub(r"\b([0-9x]*)bf16\b", r"\1i16", whole)


def _integer(number: re.Match[str]) -> str:
    if number.group(1):
        bits = int(number.group(), 16)
    else:
        bits = int(bfloat16_bits(np.asarray(float(number.group()))))
    return str(bits - (1 << 16) if bits >> 15 else bits)
