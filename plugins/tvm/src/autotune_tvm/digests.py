"""Digests of programs: which candidates are one and the same."""

from __future__ import annotations

import hashlib
import re
from typing import Any

__all__ = ["code_digest", "module_digest"]

# What LLVM's text says for debuggers and readers.
_REMARKS = re.compile(
    r"^ *#dbg_.*\n|, !dbg !\d+| +; preds = .*$|^!\d+ = (?:distinct )?!DI.*\n", re.MULTILINE
)
# Numbers of metadata nodes, and the names of nodes that say what may overlap what: TVM writes the
# addresses of its variables there.
_NODES = re.compile(r'!\d+|!"0x[0-9a-f]+')


def module_digest(module: Any) -> str:
    """Digest of a TVM module: its structure, without names.

    Variables that a lowered function uses and never defines, such as those of its buffers, are
    numbered as they appear: their addresses would differ otherwise.
    """
    import tvm_ffi

    return f"{tvm_ffi.structural_hash(module, map_free_vars=True) % (1 << 64):016x}"


def code_digest(text: str) -> str:
    """Digest of a module in LLVM's text form, optimised: what its machine code is made from.

    What is there for debuggers is left out. Names of values are not: programs that differ in
    nothing else count as different, of which there are next to none after :func:`module_digest`.
    """
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        node = match.group()
        return numbers.setdefault(node, f"{node[0]}{len(numbers)}")

    plain = _NODES.sub(numbered, _REMARKS.sub("", text))
    return hashlib.sha256(plain.encode()).hexdigest()[:16]
