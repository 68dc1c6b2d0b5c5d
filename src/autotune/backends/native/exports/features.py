"""Extensions and machines: what a program asks the processor and its system for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources

from attrs import frozen

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedTarget
from autotune.sketches.intrinsics.tile_registers import REQUEST
from autotune.targets import Target, preset
from autotune.targets.processors import PROCESSORS

__all__ = [
    "ARM_PROCESSORS",
    "CODE_FEATURES",
    "TILES",
    "Machine",
    "detector",
    "is_triple",
    "machine_of",
    "machine_of_triple",
    "plain",
]


@frozen
class _Bit:
    """The bit by which the processor says that it has an extension.

    Attributes:
        leaf: Where the answer of CPUID begins among all.
        register: Number of the register of the answer, in the order a, b, c, d.
        bit: Number of the bit.
        state: Bits of XCR0: registers that the system has to keep.
    """

    leaf: int
    register: int
    bit: int
    state: int = 0


_YMM, _ZMM, _TILES = 0x6, 0xE6, 0x60000
_BASIC, _MORE, _MOST, _OTHER = range(0, 16, 4)
_STATE = 16
"""Offset of CPUID's answers, and of that on registers that are kept: as of ``processor.ll``."""

_BITS: Mapping[str, _Bit] = {
    "sse2": _Bit(_BASIC, 3, 26),
    "sse4.1": _Bit(_BASIC, 2, 19),
    "sse4.2": _Bit(_BASIC, 2, 20),
    "popcnt": _Bit(_BASIC, 2, 23),
    "movbe": _Bit(_BASIC, 2, 22),
    "avx": _Bit(_BASIC, 2, 28, _YMM),
    "f16c": _Bit(_BASIC, 2, 29, _YMM),
    "fma": _Bit(_BASIC, 2, 12, _YMM),
    "lzcnt": _Bit(_OTHER, 2, 5),
    "bmi": _Bit(_MORE, 1, 3),
    "bmi2": _Bit(_MORE, 1, 8),
    "avx2": _Bit(_MORE, 1, 5, _YMM),
    "gfni": _Bit(_MORE, 2, 8),
    "avxvnni": _Bit(_MOST, 0, 4, _YMM),
    "avx512f": _Bit(_MORE, 1, 16, _ZMM),
    "avx512dq": _Bit(_MORE, 1, 17, _ZMM),
    "avx512ifma": _Bit(_MORE, 1, 21, _ZMM),
    "avx512cd": _Bit(_MORE, 1, 28, _ZMM),
    "avx512bw": _Bit(_MORE, 1, 30, _ZMM),
    "avx512vl": _Bit(_MORE, 1, 31, _ZMM),
    "avx512vbmi": _Bit(_MORE, 2, 1, _ZMM),
    "avx512vbmi2": _Bit(_MORE, 2, 6, _ZMM),
    "avx512vnni": _Bit(_MORE, 2, 11, _ZMM),
    "avx512bitalg": _Bit(_MORE, 2, 12, _ZMM),
    "avx512vpopcntdq": _Bit(_MORE, 2, 14, _ZMM),
    "avx512fp16": _Bit(_MORE, 3, 23, _ZMM),
    "avx512bf16": _Bit(_MOST, 0, 5, _ZMM),
    "amx-tile": _Bit(_MORE, 3, 24, _TILES),
    "amx-int8": _Bit(_MORE, 3, 25, _TILES),
    "amx-bf16": _Bit(_MORE, 3, 22, _TILES),
    "amx-fp16": _Bit(_MOST, 0, 21, _TILES),
}

TILES = frozenset(name for name in _BITS if name.startswith("amx"))
"""Features of tile registers, which a process has to ask Linux for."""

CODE_FEATURES = tuple(_BITS)
"""Features that compilers use by themselves, and instructions of candidates; by LLVM's names."""

# Registers that a system call overwrites are named; what it returns is 0 where tiles are given.
_ASK_FOR_TILES = (
    'call i64 asm sideeffect "syscall", '
    '"={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"'
    f"(i64 {REQUEST[0]}, i64 {REQUEST[1]}, i64 {REQUEST[2]})"
)


def detector(name: str, wanted: Sequence[Sequence[str]]) -> str:
    """LLVM IR of ``i32 NAME()``: which of several lists of extensions are all here.

    Args:
        name: The function's name.
        wanted: The lists, the best first.

    Returns:
        A function that returns the number of the first, -1 where there is none. The processor is
        asked once.
    """
    lines = [
        resources.files(__package__).joinpath("processor.ll").read_text(encoding="utf-8"),
        f"@{name}.known = internal global i32 -2",
        f"define internal i32 @{name}() {{",
        f"  %known = load atomic i32, ptr @{name}.known monotonic, align 4",
        "  %fresh = icmp eq i32 %known, -2",
        "  br i1 %fresh, label %ask, label %told",
        "told:",
        "  ret i32 %known",
        "ask:",
        f"  %answers = alloca [{_STATE + 1} x i32]",
        "  call void @processor_answers(ptr %answers)",
    ]
    if any(TILES & {*names} for names in wanted):
        lines += [f"  %answer = {_ASK_FOR_TILES}", "  %tiles = icmp eq i64 %answer, 0"]
    chosen = "-1"
    for number in reversed(range(len(wanted))):
        found, more = _all_here(wanted[number], f"w{number}")
        lines += [*more, f"  %c{number} = select i1 {found}, i32 {number}, i32 {chosen}"]
        chosen = f"%c{number}"
    lines += [
        f"  store atomic i32 {chosen}, ptr @{name}.known monotonic, align 4",
        f"  ret i32 {chosen}",
        "}",
    ]
    return "\n".join(lines)


def _all_here(names: Sequence[str], prefix: str) -> tuple[str, list[str]]:
    """Tell whether all bits of some extensions are set, and what computes it."""
    masks: dict[int, int] = {}
    for bit in (_BITS[name] for name in names):
        key = bit.leaf + bit.register
        masks[key] = masks.get(key, 0) | 1 << bit.bit
        if bit.state:
            masks[_STATE] = masks.get(_STATE, 0) | bit.state
    found, lines = "%tiles" if TILES & {*names} else "true", []
    for number, (key, mask) in enumerate(masks.items()):
        own = f"%{prefix}.{number}"
        signed = mask - (1 << 32) if mask >> 31 else mask
        lines += [
            f"  {own}.at = getelementptr i32, ptr %answers, i64 {key}",
            f"  {own}.told = load i32, ptr {own}.at",
            f"  {own}.bits = and i32 {own}.told, {signed}",
            f"  {own}.all = icmp eq i32 {own}.bits, {signed}",
            f"  {own} = and i1 {found}, {own}.all",
        ]
        found = own
    return found, lines


X86_64, AARCH64 = "x86_64", "aarch64"
SYSTEMS = ("linux-gnu", "linux-musl", "linux-android")

ARM_PROCESSORS = (
    *("generic", "cortex-a53", "cortex-a55", "cortex-a57", "cortex-a72", "cortex-a73"),
    *("cortex-a75", "cortex-a76", "cortex-a77", "cortex-a78", "cortex-x1", "neoverse-n1"),
    *("neoverse-n2", "neoverse-v1", "neoverse-v2", "ampere1", "a64fx"),
)
"""Processors of AArch64 by LLVM's names, of which code for any runs on those that have it all."""

# Which GCC and Clang know by these names in all of their versions.
_IN_C = (
    *("avx", "avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    *("avx512vnni", "avx512bf16"),
)
_NEON_BYTES, _NEON_REGISTERS = 16, 32
_TRIPLE = re.compile(r"(?P<arch>\w+?)-(?:(?!linux-)\w+-)?(?P<system>linux-\w+|\w+)")


def plain(text: str) -> str:
    """Text that stands in comments and strings of any language."""
    return re.sub(r"[^\w.+: -]", "_", text, flags=re.ASCII)


@frozen
class Machine:
    """A processor and a system.

    Attributes:
        triple: As LLVM and compilers name both, such as ``"x86_64-unknown-linux-gnu"``.
        target: The processor.
    """

    triple: str
    target: Target

    @property
    def name(self) -> str:
        """The name that people call it by, without signs that mean something in programs."""
        return plain(self.target.name)

    @property
    def architecture(self) -> str:
        """The first part of the triple."""
        return self.triple.split("-")[0]

    @property
    def is_x86(self) -> bool:
        """Tell whether it is an x86-64 processor, which can be asked what it has."""
        return self.architecture == X86_64

    @property
    def features(self) -> tuple[str, ...]:
        """Extensions that code may use, and that are asked for before it runs; of x86-64 only."""
        found = set(self.target.features) if self.is_x86 else set()
        return tuple(name for name in CODE_FEATURES if name in found)

    @property
    def c_features(self) -> tuple[str, ...]:
        """Extensions that C asks compilers and the processor for."""
        return tuple(name for name in self.features if name in _IN_C)

    @property
    def tuned_for(self) -> str:
        """The processor, by LLVM's name, for which instructions are chosen and ordered."""
        known = (*(it.name for it in PROCESSORS), *ARM_PROCESSORS)
        return self.target.processor if self.target.processor in known else "generic"

    @property
    def width(self) -> int:
        """Lanes of a vector register, of numbers of single precision."""
        return max(1, self.target.vector_bytes // 4)


def machine_of(target: Target) -> Machine:
    """The machine with Linux that a target describes.

    Raises:
        UnsupportedTarget: it is no CPU of x86-64 or AArch64.
    """
    if target.kind != "cpu":
        raise UnsupportedTarget(
            f"kernels are exported for CPUs; target {target.name!r} is of kind {target.kind!r}"
        )
    is_arm = "neon" in target.features or target.processor in ARM_PROCESSORS[1:]
    architecture = AARCH64 if is_arm else X86_64
    is_x86 = target.processor.startswith("x86-64") or set(target.features) & set(CODE_FEATURES)
    if not is_arm and not is_x86:
        raise UnsupportedTarget(
            f"kernels are exported for x86-64 and AArch64; target {target.name!r} has processor "
            f"{target.processor!r} and no feature of either"
        )
    return Machine(f"{architecture}-unknown-linux-gnu", target)


def is_triple(text: str) -> bool:
    """Tell whether a text is meant as a triple of architecture, vendor and system."""
    system = text.partition(":")[0].split("-")[1:]
    names = ("linux", "windows", "darwin", "macos", "freebsd", "none", "apple", "unknown", "pc")
    return any(part.startswith(names) for part in system)


def machine_of_triple(text: str) -> Machine:
    """The machine of ``TRIPLE`` or ``TRIPLE:PROCESSOR``, as in ``aarch64-linux-gnu:cortex-a76``.

    Raises:
        UnsupportedTarget: nothing is exported for such an architecture or system.
        UnknownNameError: there is no such processor.
        InvalidValueError: nothing is named after the colon.
    """
    triple, colon, processor = text.partition(":")
    match = _TRIPLE.fullmatch(triple)
    arch, system = (match["arch"], match["system"]) if match else ("", "")
    if arch not in (X86_64, AARCH64) or system not in SYSTEMS:
        allowed = ", ".join(f"{arch}-{SYSTEMS[0]}" for arch in (X86_64, AARCH64))
        raise UnsupportedTarget(
            f"nothing is exported for target triple {triple!r}; supported: {allowed}, and the "
            f"same with {' or '.join(it.removeprefix('linux-') for it in SYSTEMS[1:])} for gnu"
        )
    if colon and not processor:
        raise InvalidValueError(f"target {text!r} names no processor after the colon")
    whole = f"{arch}-unknown-{system}"
    if arch == X86_64:
        return Machine(whole, preset(processor or "x86-64"))
    if processor and processor not in ARM_PROCESSORS:
        raise UnknownNameError("processor of AArch64", processor, ARM_PROCESSORS)
    target = Target(
        kind="cpu",
        name=text,
        cores=1,
        vector_bytes=_NEON_BYTES,
        vector_registers=_NEON_REGISTERS,
        features=("neon",),
        processor=processor or ARM_PROCESSORS[0],
    )
    return Machine(whole, target)
