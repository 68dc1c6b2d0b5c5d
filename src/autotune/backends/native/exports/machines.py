"""Machines that kernels are made for: a processor, and the system that runs there."""

from __future__ import annotations

import re

from attrs import frozen

from autotune.backends.native.exports.features import CODE_FEATURES
from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedTarget
from autotune.targets import Target, preset
from autotune.targets.processors import PROCESSORS

__all__ = ["ARM_PROCESSORS", "Machine", "is_triple", "machine_of", "machine_of_triple", "plain"]

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
