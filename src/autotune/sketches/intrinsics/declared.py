"""The instructions that are declared here, and finding those that others declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from attrs import evolve

from autotune.errors import PluginError, UnknownNameError
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Axis
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part
from autotune.sketches.intrinsics.intrinsic import (
    Intrinsic,
    IntrinsicOperand,
    accumulator_fragment,
    factor_fragments,
    warpgroup_accumulator_fragment,
)

__all__ = ["INTRINSICS", "PAIR_PRODUCTS", "find_intrinsic"]


# All processors with the second have the first, by which the right factor is packed.
_VNNI = ("avx512bw", "avx512vnni")
_GROUP_BYTES = 4
# Backends that print nests.
_PRINTERS = ("native", "tvm", "mlir")
_LOWERED = "autotune.lower.instructions"
_UNSIGNED = ("uint8", "int8", "int32")
_SIGNED = ("int8", "int8", "int32")
_BFLOAT16 = ("bfloat16", "bfloat16", "float32")
_FLOATS = ("float32", "float32")
_FRAGMENTS = ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")
_REGISTERS = ("mma.matrix_a", "mma.matrix_b", "mma.accumulator")
_VTA = ("vta.input", "vta.weight", "vta.accumulator")


def _dot(
    name: str,
    lanes: int,
    dtypes: tuple[str, str, str],
    features: tuple[str, ...],
    implementation: str,
    printers: Sequence[str] = _PRINTERS,
) -> Intrinsic:
    """A vector of sums of products of 32 bits of either factor, the left one broadcast.

    ``dtypes``: of the left factor, of the right one and of the sums.
    """
    left, right, total = dtypes
    group = _GROUP_BYTES // element_type(left).bytes
    return Intrinsic(
        name,
        f"{lanes} {total} sums of {group} {left} * {right} products, "
        "one left factor for all lanes",
        (Axis("k", group, "reduce"), Axis("j", lanes)),
        IntrinsicOperand("data", left, (("k", group),)),
        IntrinsicOperand("weights", right, (("j", lanes), ("k", group))),
        IntrinsicOperand("sums", total, (("j", lanes),)),
        features=features,
        implementations=dict.fromkeys(printers, f"{_LOWERED}.products:{implementation}"),
        # One of the factors of VNNI's instructions is unsigned.
        corrected=left == "int8" and implementation.startswith("vnni"),
    )


def _pairs(lanes: int, suffix: str, left: str, right: str) -> Intrinsic:
    """Four products of bytes of any kind, in two instructions that multiply words."""
    feature = {8: "avx2", 16: "avx512bw"}[lanes]
    dtypes, bits = (left, right, "int32"), 32 * lanes
    return _dot(f"madd-{lanes}x4{suffix}", lanes, dtypes, (feature,), f"pairs_{bits}", ("native",))


def _product(
    name: str,
    description: str,
    extents: tuple[int, int, int],
    dtypes: tuple[str, str],
    scopes: tuple[str, str, str],
    *,
    kind: str = "cuda",
    capacities: Mapping[str, int] = MappingProxyType({}),
    transposed: bool = False,
    architecture: int = 0,
) -> Intrinsic:
    """A product of two small matrices, the second one possibly transposed."""
    rows, columns, depth = extents
    factor, result = dtypes
    weights: tuple[tuple[str, int], ...] = (("k", depth), ("j", columns))
    if transposed:
        weights = (("j", columns), ("k", depth))
    return Intrinsic(
        name,
        description,
        (Axis("i", rows), Axis("k", depth, "reduce"), Axis("j", columns)),
        IntrinsicOperand("data", factor, (("i", rows), ("k", depth)), scopes[0], row_stride=True),
        IntrinsicOperand("weights", factor, weights, scopes[1], row_stride=True),
        IntrinsicOperand(
            "sums", result, (("i", rows), ("j", columns)), scopes[2], row_stride=True
        ),
        kind=kind,
        capacities=capacities,
        architecture=architecture,
    )


def _mma(suffix: str, description: str, depth: int, dtypes: tuple[str, str]) -> Intrinsic:
    """``mma.sync.aligned.m16n8kDEPTH.row.col``: a warp's product, in registers all over."""
    declared = _product(
        f"mma-m16n8k{depth}{suffix}",
        f"a warp's product of 16x{depth} and {depth}x8 {description}",
        (16, 8, depth),
        dtypes,
        _REGISTERS,
        transposed=True,
        architecture=80,
    )
    left, right = factor_fragments(depth, dtypes[0])
    return evolve(
        declared,
        left=evolve(declared.left, fragment=left),
        right=evolve(declared.right, fragment=right),
        result=evolve(declared.result, fragment=accumulator_fragment()),
    )


def _wgmma(suffix: str, description: str, depth: int, dtypes: tuple[str, str]) -> Intrinsic:
    """Eight columns of ``wgmma.mma_async.sync.aligned.m64nNkDEPTH``: a warpgroup's product.

    Both factors are read from shared memory, in core matrices: eight rows of 16 bytes that lie
    together (PTX ISA, "Shared Memory Matrix Layout"). Declared is the one without swizzling whose
    rows lie along the reduction; those of two-byte elements may lie along results. Only compute
    capability 9.0 has the instruction.
    """
    factor, result = dtypes
    row = 16 // element_type(factor).bytes
    left = (("k", depth // row), ("i", 64), ("k", row))
    right = (("k", depth // row), ("j", 8), ("k", row))
    return Intrinsic(
        f"wgmma-m64n8k{depth}{suffix}",
        f"a warpgroup's product of 64x{depth} and {depth}x8 {description}",
        (Axis("i", 64), Axis("k", depth, "reduce"), Axis("j", 8)),
        IntrinsicOperand("data", factor, left, "shared", row_stride=True),
        IntrinsicOperand("weights", factor, right, "shared", row_stride=True),
        IntrinsicOperand(
            "sums",
            result,
            (("i", 64), ("j", 8)),
            _REGISTERS[2],
            fragment=warpgroup_accumulator_fragment(),
        ),
        kind="cuda",
        architecture=90,
        last_architecture=90,
    )


def _tiles(
    rows: int, row_bytes: int, dtypes: tuple[str, str, str], suffix: str, feature: str
) -> Intrinsic:
    """Sums of products of rows of so many bytes in tile registers: two tiles of sums, or four.

    ``dtypes``: of the left factor, of the right one and of the sums.
    """
    left, right, total = dtypes
    size = element_type(left).bytes
    depth, group = row_bytes // size, _GROUP_BYTES // size
    return Intrinsic(
        f"amx-{rows}x32x{depth}{suffix}",
        f"a product of {rows}x{depth} and {depth}x32, {left} * {right}, in tile registers",
        (Axis("i", rows), Axis("k", depth, "reduce"), Axis("j", 32)),
        IntrinsicOperand("data", left, (("i", rows), ("k", depth)), row_stride=True),
        IntrinsicOperand(
            "weights", right, (("k", depth // group), ("j", 32), ("k", group)), row_stride=True
        ),
        IntrinsicOperand("sums", total, (("i", rows), ("j", 32)), row_stride=True),
        # All processors with AMX have the last one, by which bytes of the right factor are packed.
        features=(feature, "amx-tile", "avx512vbmi"),
        implementations=dict.fromkeys(_PRINTERS, f"{_LOWERED}.products:tiles"),
    )


PAIR_PRODUCTS: Mapping[str, Intrinsic] = MappingProxyType(
    {
        it.name: it
        for it in (
            _pairs(lanes, suffix, left, right)
            for lanes in (16, 8)
            for suffix, left, right in (
                ("", "uint8", "int8"),
                ("-signed", "int8", "int8"),
                ("-unsigned", "uint8", "uint8"),
            )
        )
    }
)
"""Products of bytes for processors without VNNI, and of those that VNNI does not multiply."""

INTRINSICS: Mapping[str, Intrinsic] = MappingProxyType(
    {
        intrinsic.name: intrinsic
        for intrinsic in (
            *(
                _tiles(rows, row_bytes, dtypes, suffix, feature)
                for dtypes, suffix, feature in (
                    (_UNSIGNED, "", "amx-int8"),
                    (_SIGNED, "-signed", "amx-int8"),
                    (_BFLOAT16, "-bf16", "amx-bf16"),
                )
                # Rows of images are multiples of 14 or of 7 more often than of 32.
                for rows in (32, 28, 16, 14, 7)
                for row_bytes in (256, 128, 64)
            ),
            _dot("vnni-16x4", 16, _UNSIGNED, _VNNI, "vnni_512"),
            _dot("vnni-16x4-signed", 16, _SIGNED, _VNNI, "vnni_512"),
            _dot("vnni-8x4", 8, _UNSIGNED, ("avxvnni",), "vnni_256"),
            _dot("vnni-8x4-signed", 8, _SIGNED, ("avxvnni",), "vnni_256"),
            *PAIR_PRODUCTS.values(),
            _dot("bf16-16x2", 16, _BFLOAT16, ("avx512bf16",), "bfloat16_512"),
            _dot("bf16-8x2", 8, _BFLOAT16, ("avx512bf16", "avx512vl"), "bfloat16_256"),
            _product(
                "wmma-16x16x16",
                "a warp's product of 16x16 matrices of halves, accumulated in floats",
                (16, 16, 16),
                ("float16", "float32"),
                _FRAGMENTS,
                architecture=70,
            ),
            _mma("", "halves in registers", 16, ("float16", "float32")),
            _mma("-bf16", "bfloat16 in registers", 16, ("bfloat16", "float32")),
            evolve(
                _mma("-tf32", "floats, rounded to TF32, in registers", 8, _FLOATS),
                features=("tf32",),
            ),
            _mma("-int8", "signed bytes in registers", 32, ("int8", "int32")),
            _wgmma("", "halves in shared memory", 16, ("float16", "float32")),
            _wgmma("-bf16", "bfloat16 in shared memory", 16, ("bfloat16", "float32")),
            evolve(
                _wgmma("-tf32", "floats, rounded to TF32, in shared memory", 8, _FLOATS),
                features=("tf32",),
            ),
            _wgmma("-int8", "signed bytes in shared memory", 32, ("int8", "int32")),
            _product(
                "vta-1x16x16",
                "VTA's product of a row and a 16x16 block of bytes, from its three buffers",
                (1, 16, 16),
                ("int8", "int32"),
                _VTA,
                kind="vta",
                transposed=True,
                capacities={
                    "vta.input": 1 << 15,
                    "vta.weight": 1 << 18,
                    "vta.accumulator": 1 << 17,
                },
            ),
        )
    }
)
"""Declared instructions by name; rules ask them in this order.

Those without an implementation describe spaces only.
"""


def find_intrinsic(name: str) -> Intrinsic:
    """The declaration of an instruction.

    Args:
        name: One of :data:`INTRINSICS`, or what a plugin registers as kind ``intrinsic``.

    Raises:
        UnknownNameError: there is no such instruction.
        PluginError: its plugin makes something else.
    """
    if name in INTRINSICS:
        return INTRINSICS[name]
    # What a record holds is only looked up: an import string is no name.
    registered = manager().names("intrinsic")
    if name not in registered:
        raise UnknownNameError(
            "intrinsic", name, (*INTRINSICS, *registered), "Sketches name registered ones only."
        )
    found: Intrinsic = create_part("intrinsic", name)
    if found.name != name:
        raise PluginError(f"intrinsic {name!r} calls itself {found.name!r}")
    return found
