"""Inline assembly of warpgroups in CUDA source, read and replaced by calls that run on a CPU.

What the instructions are, and which registers they are given in which order, is what the source
says; ``cuda_warpgroups.hpp`` and ``cuda_bulk.hpp`` say what they do.
"""

from __future__ import annotations

import re

_STATEMENT = re.compile(r"asm volatile\((.*?)\);", re.DOTALL)
_GUARD = re.compile(r"#define (AUTOTUNE_(?:WGMMA|BULK)\w*)")
_OPERAND = re.compile(r'"([+=]?\w)"\(([^()]*)\)')
_PRODUCT = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)"
    r"(k16\.f32\.b?f16|k8\.f32\.tf32|k32\.s32\.s8)\.(\w+) "
    r"\{(%\d+(?:, %\d+)*)\}, %(\d+), %(\d+), 1(, 1, 1)?(?:, ([01]), ([01]))?;"
)
_COPY = re.compile(
    r"cp\.async\.bulk\.tensor\.(\d)d\.shared::cluster\.global\.tile"
    r"\.mbarrier::complete_tx::bytes \[%0\], \[%1, \{(%\d(?:, %\d)*)\}\], \[%2\];"
)
_BARRIERS = {
    "mbarrier.init.shared::cta.b64 [%0], %1;": "bulk::init({0}, {1});",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;": "bulk::expect({0}, {1});",
    "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
    "selp.u32 %0, 1, 0, p; }": "{0} = bulk::try_wait({1}, {2});",
}
_OTHERS = {
    "fence.mbarrier_init.release.cluster;": "bulk::fence_init();",
    "": ";",
    "fence.proxy.async.shared::cta;": "warpgroup::fence_proxy();",
    "wgmma.fence.sync.aligned;": "warpgroup::self().fenced = true;",
    "wgmma.commit_group.sync.aligned;": "warpgroup::commit();",
    "wgmma.wait_group.sync.aligned 0;": "warpgroup::wait(0);",
}
# What takes an element from its bits, and the letter of the sums' registers.
_KINDS = {
    "k16.f32.f16": ("Half", "+f"),
    "k16.f32.bf16": ("Leading", "+f"),
    "k8.f32.tf32": ("Rounded", "+f"),
    "k32.s32.s8": ("Byte", "+r"),
}


def on_cpus(source: str) -> str:
    """The source with every statement of assembly replaced, to be one of several in a file.

    Raises:
        ValueError: a statement is none of those that are known.
    """
    ended = [f"#undef {name}" for name in dict.fromkeys(_GUARD.findall(source))]
    return "\n".join([_STATEMENT.sub(lambda found: _replaced(found.group(1)), source), *ended])


def _replaced(statement: str) -> str:
    code, _, operands = statement.partition(":")
    while operands and code.count('"') % 2:
        more, _, operands = operands.partition(":")
        code += ":" + more
    text = "".join(re.findall(r'"([^"]*)"', code))
    if text in _OTHERS:
        return _OTHERS[text]
    given = [value for _, value in _OPERAND.findall(operands)]
    if text in _BARRIERS:
        return _BARRIERS[text].format(*given)
    copy = _COPY.fullmatch(text)
    if copy is not None:
        rank, numbers = copy.groups()
        corner = ", ".join(given[int(number)] for number in re.findall(r"\d+", numbers))
        return f"bulk::copy({rank}, {given[0]}, {given[1]}, {given[2]}, {{{corner}}});"
    if text.startswith(("cp.async.", "cvt.rna.", "ldmatrix.", "mma.sync.")):
        # Of functions that are left out, for ``cuda_warps.hpp`` has others.
        return f"asm volatile({statement});"
    product = _PRODUCT.fullmatch(text)
    if product is None:
        raise ValueError(f"unknown assembly: {text!r}")
    columns, kind, other, registers, left, right, signed, *turned = product.groups()
    element, letter = _KINDS[kind]
    has_turned = element in ("Half", "Leading")
    if not kind.endswith(f".{other}") or has_turned != (turned[0] is not None):
        raise ValueError(f"unknown assembly: {text!r}")
    if (element == "Byte") != (signed is None):
        raise ValueError(f"unknown assembly: {text!r}")
    typed = _OPERAND.findall(operands)
    sums = [typed[int(register)] for register in re.findall(r"\d+", registers)]
    matrices = [typed[int(number)] for number in (left, right)]
    if {it for it, _ in sums} != {letter} or {it for it, _ in matrices} != {"l"}:
        raise ValueError(f"operands of other kinds: {operands!r}")
    if len(sums) != int(columns) // 2:
        raise ValueError(f"{len(sums)} registers for {columns} columns")
    places = ", ".join(f"&{value}" for _, value in sums)
    first, second = (value for _, value in matrices)
    flags = ", ".join("true" if it == "1" else "false" for it in turned)
    return (
        f"warpgroup::begin<warpgroup::{element}>("
        f"{{{places}}}, {columns}, {first}, {second}, {flags});"
    )
