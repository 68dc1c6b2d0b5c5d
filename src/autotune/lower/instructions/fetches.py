"""Copies from global to shared memory that a thread begins, as functions in CUDA C++.

Since sm_80 a thread can have up to 16 bytes copied past its registers (``cp.async``), ask for the
end of a group of copies, and wait until at most so many of its groups are on their way. From sm_90
on one thread of a block asks the copy engine (TMA) for boxes of a tensor. A barrier in shared
memory (``mbarrier``) counts the bytes that arrive: threads wait for its phase, whose parity
alternates with the rounds of stages. What the engine writes and ``wgmma`` reads, both do by the
asynchronous proxy, so no thread fences it; only barriers that have just been made are.
"""

from __future__ import annotations

from autotune.sketches.copy_engine import MOST_DIMENSIONS

__all__ = [
    "BULK_COPIES",
    "COPIED_BYTES",
    "COPIES",
    "MOST_STAGES",
    "ROUNDING_COPIES",
    "waiting",
]

MOST_STAGES = 8
"""Stages for which there are functions that wait; what more of them would hide is not seen."""

COPIED_BYTES = (4, 8, 16)
"""Sizes of what a thread copies at once."""

_BULK_COPY = "autotune_bulk_copy"
# Sixteen bytes pass the first cache, too; fewer cannot.
_CACHES = {4: "ca", 8: "ca", 16: "cg"}
_WORDS = {4: "unsigned", 8: "uint2", 16: "uint4"}
_WAITS = range(MOST_STAGES - 1)


def waiting(on_their_way: int) -> str:
    """Name of the function that waits until at most so many groups are on their way."""
    return f"autotune_wait_copies_{on_their_way}"


def _functions() -> str:
    """All functions, whichever of them is called."""
    lines = [
        "static __device__ __forceinline__ void autotune_end_copies() {",
        '  asm volatile("cp.async.commit_group;" ::: "memory");',
        "}",
    ]
    for depth in _WAITS:
        lines += [
            f"static __device__ __forceinline__ void {waiting(depth)}() {{",
            f'  asm volatile("cp.async.wait_group {depth};" ::: "memory");',
            "}",
        ]
    for width in COPIED_BYTES:
        copy = f'"cp.async.{_CACHES[width]}.shared.global [%0], [%1], {width}'
        place = "  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));"
        lines += [
            "static __device__ __forceinline__ void "
            f"autotune_copy_{width}(void* to, const void* from) {{",
            place,
            f'  asm volatile({copy};" :: "r"(at), "l"(from) : "memory");',
            "}",
            "static __device__ __forceinline__ void "
            f"autotune_copy_{width}_if(void* to, const void* from, int valid) {{",
            place,
            f'  asm volatile({copy}, %2;" :: "r"(at), "l"(from), "r"(valid ? {width} : 0)'
            ' : "memory");',
            "}",
            f"static __device__ __forceinline__ void autotune_zero_{width}(void* to) {{",
            f"  *static_cast<{_WORDS[width]}*>(to) = {_WORDS[width]}();",
            "}",
        ]
    return "\n".join(lines)


def _rounding_functions() -> str:
    """Copies of floats that are rounded to TF32: to nearest, NaNs stay NaNs."""
    lines = [
        "static __device__ __forceinline__ float autotune_rounded(float value) {",
        "  unsigned bits;",
        '  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));',
        "  return __uint_as_float(bits);",
        "}",
    ]
    for width in COPIED_BYTES:
        floats = width // 4
        kind = "float" if floats == 1 else f"float{floats}"
        parts = [""] if floats == 1 else [f".{part}" for part in "xyzw"[:floats]]
        rounds = [f"  value{part} = autotune_rounded(value{part});" for part in parts]
        for suffix, more in (("", ""), ("_if", ", int valid")):
            loaded = f"*static_cast<const {kind}*>(from)"
            given = f"valid ? {loaded} : {kind}()" if more else loaded
            lines += [
                "static __device__ __forceinline__ void "
                f"autotune_round_{width}{suffix}(void* to, const void* from{more}) {{",
                f"  {kind} value = {given};",
                *rounds,
                f"  *static_cast<{kind}*>(to) = value;",
                "}",
            ]
    return "\n".join(lines)


def _copy_function(dimensions: int) -> str:
    """A request for a box of a tensor of so many dimensions; the innermost comes first."""
    names = [f"c{number}" for number in range(dimensions)]
    places = ", ".join(f"%{number}" for number in range(3, dimensions + 3))
    given = ", ".join(f'"r"({name})' for name in names)
    return f"""static __device__ __forceinline__ void {_BULK_COPY}_{dimensions}(
    void* to, unsigned long long map, int stage, int alignment,
    {", ".join(f"int {name}" for name in names)}) {{
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const unsigned full = autotune_bulk_full(stage);
  if (at % alignment != 0) __trap();
  asm volatile("cp.async.bulk.tensor.{dimensions}d.shared::cluster.global.tile"
               ".mbarrier::complete_tx::bytes [%0], [%1, {{{places}}}], [%2];"
               :: "r"(at), "l"(map), "r"(full), {given} : "memory");
}}"""


# NVRTC has no header with the type of descriptors. The engine exchanges 16 bytes of a row by bits
# of the address, so buffers begin where these are zero.
_BULK_FUNCTIONS = f"""#ifdef __CUDACC_RTC__
struct alignas(64) CUtensorMap {{ unsigned long long opaque[16]; }};
#endif
static __device__ __forceinline__ unsigned autotune_bulk_full(int stage) {{
  __shared__ unsigned long long full[{MOST_STAGES}];
  return static_cast<unsigned>(__cvta_generic_to_shared(full + stage));
}}
static __device__ __forceinline__ void autotune_bulk_begin(int stages, int copies) {{
  if (threadIdx.x == 0) {{
    for (int stage = 0; stage < stages; ++stage) {{
      const unsigned full = autotune_bulk_full(stage);
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(full), "r"(copies) : "memory");
    }}
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }}
}}
static __device__ __forceinline__ void autotune_bulk_expect(int stage, int bytes) {{
  const unsigned full = autotune_bulk_full(stage);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(full), "r"(bytes) : "memory");
}}
static __device__ __forceinline__ void autotune_bulk_wait(int stage, int parity) {{
  const unsigned full = autotune_bulk_full(stage);
  unsigned done;
  do {{
    asm volatile("{{ .reg .pred p; "
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p; }}"
                 : "=r"(done) : "r"(full), "r"(parity) : "memory");
  }} while (done == 0);
}}
"""
_BULK_REQUESTS = "\n".join(map(_copy_function, range(2, MOST_DIMENSIONS + 1)))


def _once(name: str, text: str) -> str:
    """A text that a file has once."""
    return f"#ifndef AUTOTUNE_{name}\n#define AUTOTUNE_{name}\n{text}\n#endif\n"


COPIES = _once("COPIES", _functions())
"""Functions that begin copies, end groups of them, and wait for these."""

ROUNDING_COPIES = _once("ROUNDING", _rounding_functions())
"""Functions that copy floats, rounded to TF32, and are done when they return."""

BULK_COPIES = _once("BULK", f"{_BULK_FUNCTIONS}{_BULK_REQUESTS}")
"""Functions that make barriers, ask the engine for boxes, and wait for what is asked for."""
