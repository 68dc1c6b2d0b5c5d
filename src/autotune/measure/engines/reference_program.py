"""The pinned reference program, and what a machine is told apart by."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from autotune.measure.engines.fingerprint import Fingerprint
from autotune.targets import repeat_times

__all__ = ["host_fingerprint", "reference_seconds"]

# Multiplications that wait for one another, about a third of a millisecond: the clock of a core
# decides, and nothing that another version of a compiler could change. Of many repetitions the
# fastest counts, which other programs on the machine hardly change: they are noise, which races
# stand, and no property of the machine. A lowered clock slows down every repetition.
_WORK, _REPEATS = 1_000_000, 60
# What code is made for: machines that differ here run other programs.
_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "fma", "asimd", "sve")


def reference_seconds() -> float:
    """Seconds of the reference program on this machine, as it is now."""
    return min(repeat_times(_REPEATS, _WORK))


def host_fingerprint(
    cores: int, compiler: str, protocol: str, seconds: float, root: Path = Path("/")
) -> Fingerprint:
    """The fingerprint of this machine for programs that run on its CPU.

    Args:
        cores: Threads that programs use.
        compiler: Versions of backend and compiler.
        protocol: Identity of the measuring protocol.
        seconds: What the reference program takes; 0 where times are simulated.
        root: Folder that holds ``proc``.
    """
    facts = _cpu_facts(root)
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    features = [name for name in _FEATURES if name in flags]
    model = facts.get("model name", "") or platform.machine()
    clock = facts.get("cpu MHz", "")
    return Fingerprint(
        device=" ".join([model, *features]),
        cores=cores,
        driver=os.uname().release,
        compiler=compiler,
        protocol=protocol,
        reference_seconds=seconds,
        clocks=f"{clock} MHz" if clock else "",
    )


def _cpu_facts(root: Path) -> dict[str, str]:
    """Facts of the kernel about the first processor."""
    try:
        text = (root / "proc/cpuinfo").read_text()
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
