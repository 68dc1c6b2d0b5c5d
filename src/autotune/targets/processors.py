"""Processor models by LLVM's names, and how to tell them apart."""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from autotune.targets.target import Cache

__all__ = [
    "FEATURE_OF_FLAG",
    "PROCESSORS",
    "Processor",
    "estimate_bandwidth",
    "estimate_flops",
    "identify",
    "masked_bytes_of",
    "missing_features",
    "vector_bytes_of",
    "vector_registers_of",
]

# Linux flag -> LLVM feature, for the features that decide what code is generated.
FEATURE_OF_FLAG = {
    "abm": "lzcnt",
    "adx": "adx",
    "amx_bf16": "amx-bf16",
    "amx_fp16": "amx-fp16",
    "amx_int8": "amx-int8",
    "amx_tile": "amx-tile",
    "avx": "avx",
    "avx2": "avx2",
    "avx512_bf16": "avx512bf16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_vp2intersect": "avx512vp2intersect",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512f": "avx512f",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vl": "avx512vl",
    "avx_vnni": "avxvnni",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "clflushopt": "clflushopt",
    "clwb": "clwb",
    "f16c": "f16c",
    "fma": "fma",
    "gfni": "gfni",
    "movbe": "movbe",
    "popcnt": "popcnt",
    "rdseed": "rdseed",
    "sha_ni": "sha",
    "sse2": "sse2",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
}

# Compilers use it only where a program names it, and Linux hides that of Zen 5.
_NAMED_ONLY = frozenset({"rdseed"})

INTEL = "GenuineIntel"
AMD = "AuthenticAMD"
KIB = 1024
MIB = 1024 * KIB


@frozen
class Processor:
    """A processor model.

    Attributes:
        name: LLVM's `-mcpu` name.
        vendor: As the processor reports it; "" for any.
        generation: Of two that a machine satisfies, the higher one describes it better.
        features: What it has; every one must be there for the name to be safe to compile for.
        models: (family, model) pairs, for telling apart names of one generation.
        fma_units: Full-width multiply-adds per cycle.
        clock: Typical sustained cycles/s.
        caches: Sizes in bytes of the levels; the third is shared.
    """

    name: str
    vendor: str
    generation: int
    features: tuple[str, ...]
    models: tuple[tuple[int, int], ...]
    fma_units: int
    clock: float
    caches: tuple[int, int, int]

    def cache_levels(self) -> tuple[Cache, ...]:
        """Returns the typical caches, for presets and where a machine hides its own."""
        return tuple(
            Cache(level, size, shared=level == 3) for level, size in enumerate(self.caches, 1)
        )


_V1 = ("sse2",)
_V2 = (*_V1, "sse4.1", "sse4.2", "popcnt")
_AVX = (*_V2, "avx")
_V3 = (*_AVX, "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe")
_BROADWELL = (*_V3, "adx", "rdseed")
_SKYLAKE = (*_BROADWELL, "clflushopt")
_512 = ("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")
_V4 = (*_V3, *_512)
_SKX = (*_SKYLAKE, *_512, "clwb")
_CLX = (*_SKX, "avx512vnni")
_ICL = (
    *(feature for feature in _CLX if feature != "clwb"),  # the client parts are without it
    *("avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq"),
    *("gfni", "sha", "vaes", "vpclmulqdq"),
)
_SPR = (*_ICL, "clwb", "avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16")
_ADL = (*_SKYLAKE, "clwb", "avxvnni", "gfni", "sha", "vaes", "vpclmulqdq")
_ZEN1 = (*_SKYLAKE, "sha")
_ZEN2 = (*_ZEN1, "clwb")
_ZEN3 = (*_ZEN2, "vaes", "vpclmulqdq")
_ZEN4 = (*_ICL, "clwb", "avx512bf16")


def _intel(*models: int) -> tuple[tuple[int, int], ...]:
    return tuple((6, model) for model in models)


PROCESSORS = (
    Processor("x86-64", "", 0, _V1, (), 1, 2.5e9, (32 * KIB, 256 * KIB, 4 * MIB)),
    Processor("x86-64-v2", "", 1, _V2, (), 1, 2.5e9, (32 * KIB, 256 * KIB, 8 * MIB)),
    Processor("x86-64-v3", "", 2, _V3, (), 2, 2.5e9, (32 * KIB, 512 * KIB, 16 * MIB)),
    Processor("x86-64-v4", "", 3, _V4, (), 1, 2.5e9, (32 * KIB, 1 * MIB, 16 * MIB)),
    Processor(
        *("sandybridge", INTEL, 10, _AVX, _intel(42, 45)),
        *(1, 3.0e9, (32 * KIB, 256 * KIB, 20 * MIB)),
    ),
    Processor(
        *("haswell", INTEL, 11, _V3, _intel(60, 63, 69, 70)),
        *(2, 2.6e9, (32 * KIB, 256 * KIB, 30 * MIB)),
    ),
    Processor(
        *("broadwell", INTEL, 12, _BROADWELL, _intel(61, 71, 79, 86)),
        *(2, 2.6e9, (32 * KIB, 256 * KIB, 35 * MIB)),
    ),
    Processor(
        *("skylake", INTEL, 13, _SKYLAKE, _intel(78, 94, 142, 158, 165, 166)),
        *(2, 3.5e9, (32 * KIB, 256 * KIB, 8 * MIB)),
    ),
    Processor(
        *("alderlake", INTEL, 14, _ADL, _intel(151, 154, 183, 186, 191)),
        *(2, 3.5e9, (48 * KIB, 1280 * KIB, 30 * MIB)),
    ),
    Processor(
        *("skylake-avx512", INTEL, 15, _SKX, _intel(85)),
        *(2, 2.3e9, (32 * KIB, 1 * MIB, 27 * MIB)),
    ),
    Processor(
        *("cascadelake", INTEL, 16, _CLX, _intel(85)),
        *(2, 2.5e9, (32 * KIB, 1 * MIB, 35 * MIB)),
    ),
    Processor(
        *("icelake-client", INTEL, 17, _ICL, _intel(125, 126)),
        *(1, 3.0e9, (48 * KIB, 512 * KIB, 8 * MIB)),
    ),
    Processor(
        *("rocketlake", INTEL, 17, _ICL, _intel(167)),
        *(1, 4.0e9, (48 * KIB, 512 * KIB, 16 * MIB)),
    ),
    Processor(
        *("icelake-server", INTEL, 18, (*_ICL, "clwb"), _intel(106, 108)),
        *(2, 2.6e9, (48 * KIB, 1280 * KIB, 48 * MIB)),
    ),
    Processor(
        *("tigerlake", INTEL, 18, (*_ICL, "clwb"), _intel(140, 141)),
        *(1, 3.5e9, (48 * KIB, 1280 * KIB, 12 * MIB)),
    ),
    Processor(
        *("sapphirerapids", INTEL, 19, _SPR, _intel(143, 207)),
        *(2, 2.6e9, (48 * KIB, 2 * MIB, 60 * MIB)),
    ),
    Processor(
        *("graniterapids", INTEL, 20, (*_SPR, "amx-fp16"), _intel(173)),
        *(2, 2.6e9, (48 * KIB, 2 * MIB, 96 * MIB)),
    ),
    Processor("znver1", AMD, 10, _ZEN1, (), 1, 2.8e9, (32 * KIB, 512 * KIB, 8 * MIB)),
    Processor("znver2", AMD, 11, _ZEN2, (), 2, 3.0e9, (32 * KIB, 512 * KIB, 16 * MIB)),
    Processor("znver3", AMD, 12, _ZEN3, (), 2, 3.4e9, (32 * KIB, 512 * KIB, 32 * MIB)),
    # Its 512-bit operations take two passes through 256-bit units.
    Processor("znver4", AMD, 13, _ZEN4, (), 1, 3.7e9, (32 * KIB, 1 * MIB, 32 * MIB)),
    Processor(
        *("znver5", AMD, 14, (*_ZEN4, "avxvnni", "avx512vp2intersect"), ()),
        *(2, 3.7e9, (48 * KIB, 1 * MIB, 32 * MIB)),
    ),
)


def identify(
    vendor: str, family: int | None, model: int | None, features: Collection[str]
) -> Processor:
    """Returns the most specific model whose every feature is there.

    Features go first, because code for a name uses all that the name implies: hypervisors mask
    features, and report models older than what they offer. The model number decides between names
    of one generation.
    """
    present = {*features, *_V1}
    possible = [
        processor
        for processor in PROCESSORS
        if processor.vendor in ("", vendor) and not missing_features(processor.features, present)
    ]
    return max(possible, key=lambda found: (found.generation, (family, model) in found.models))


def missing_features(needed: Collection[str], present: Collection[str]) -> list[str]:
    """Returns those of `needed` without which a machine cannot run code that is made for them."""
    return sorted({*needed} - {*present} - _NAMED_ONLY)


def vector_bytes_of(features: Collection[str]) -> int:
    """Returns the width of the widest vector registers."""
    if "avx512f" in features:
        return 64
    return 32 if "avx" in features else 16


def masked_bytes_of(features: Collection[str]) -> int:
    """Returns the width of the registers that one instruction loads under a mask; 0 without one.

    Elements are of 4 or 8 bytes.
    """
    return vector_bytes_of(features) if "avx" in features else 0


def vector_registers_of(features: Collection[str]) -> int:
    """Returns how many vector registers an instruction can name."""
    return 32 if "avx512f" in features else 16


# By feature: the type of the factors, and operations per cycle of a core, of 16 x 16 sums each.
_TILE_FLOP = {
    "amx-int8": ("int8", 2.0 * 16 * 16 * 64 / 16),
    "amx-bf16": ("bfloat16", 2.0 * 16 * 16 * 32 / 16),
}


def estimate_flops(
    features: Collection[str], fma_units: int, cores: int, clock: float
) -> dict[str, float]:
    """Returns flop/s by dtype from widths and clock; a multiply-add counts as two.

    Of bytes and bfloat16 it is the rate of tile registers where there are any: each core has one
    unit for them, and starts a product of 16 rows of 64 bytes by 16 columns every 16 cycles
    (Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter "Intel AMX").
    """
    float32 = 2.0 * fma_units * (vector_bytes_of(features) // 4) * cores * clock
    has_float16 = "avx512fp16" in features
    has_dot = "avx512vnni" in features or "avxvnni" in features
    vectors = {
        "float64": float32 / 2,
        "float32": float32,
        "float16": float32 * (2 if has_float16 else 1),
        "bfloat16": float32 * (2 if "avx512bf16" in features else 1),
        "int8": float32 * (4 if has_dot else 1),
    }
    tiles = {
        dtype: per_cycle * cores * clock
        for feature, (dtype, per_cycle) in _TILE_FLOP.items()
        if feature in features
    }
    return {**vectors, **tiles}


def estimate_bandwidth(cores: int) -> float:
    """Returns bytes/s of memory: what a core can ask for, up to a few channels."""
    return min(12e9 * cores, 100e9)
