"""Machine of an RPC server, as the probe on it reads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from attrs import asdict, frozen

from autotune.ir.converter import JsonForm
from autotune_tvm.rpc.session import ProgramFailed, Session

__all__ = ["RemoteMachine", "ask_machine", "described_machine", "use_threads"]

_BYTES = 1 << 16
_MAY_VARY = frozenset({"server", "clocks", "reference_seconds", "boot", "host"})
# Those of x86 and ARM that code is made for.
_FEATURES = (
    *("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni"),
    *("amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"),
)
# Of the modes of TVM's pool.
_ALL_CORES = 0
_UNKNOWN = "unknown"


@frozen
class RemoteMachine(JsonForm):
    """A server, and the machine that it runs on.

    Attributes:
        server: Its address, as the tracker gives it.
        device: Model of the CPU, with the features that code is made for.
        cores: That are online.
        kernel: Release of the operating system's kernel.
        architecture: Of its instructions, such as ``x86_64``.
        runtime: Versions that the server's TVM says of itself.
        host: Name of the host.
        boot: Identifies the running host: servers that share it share what they run on.
        reference_seconds: What a fixed chain of operations takes.
        clocks: Clock rates in MHz that the kernel says.
    """

    server: str
    device: str
    cores: int
    kernel: str
    architecture: str
    runtime: str
    host: str
    boot: str
    reference_seconds: float
    clocks: str = ""

    def differences(self, other: RemoteMachine) -> list[str]:
        """Describe what makes latencies incomparable, for people: ``device 'a', not 'b'``."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{name} {mine[name]!r}, not {theirs[name]!r}"
            for name in mine
            if name not in _MAY_VARY and mine[name] != theirs[name]
        ]

    @property
    def lease_group(self) -> str:
        """Group that servers of one host have in common."""
        return self.boot or self.host or self.server


def ask_machine(session: Session) -> RemoteMachine:
    """Ask the server of an open session.

    Raises:
        ProgramFailed: it cannot load the probe: programs are made for another machine.
        ServerLost: the connection has ended.
    """
    try:
        probe = session.probe()
    except ProgramFailed as error:
        raise ProgramFailed(
            f"RPC server {session.server} cannot load programs of the compiler that option cc "
            f"names ({' '.join(session.toolchain.check())}): {error}"
        ) from error
    room = session.empty((_BYTES,), "uint8")
    with session.talking():
        size = int(probe["autotune_machine"](room))
        text = bytes(room.numpy()[:size]).decode(errors="replace")
        seconds = float(probe["autotune_reference"]())
    llvm = _llvm_version(session)
    return described_machine(text, session.server, seconds, llvm)


def use_threads(session: Session, threads: int) -> None:
    """Have programs of a session run on so many threads.

    Raises:
        ProgramFailed: the server has fewer; says how to give it more.
        ServerLost: the connection has ended.
    """
    found = int(session.call("runtime.NumThreads"))
    if found != threads:
        session.call("runtime.config_threadpool", _ALL_CORES, threads)
        found = int(session.call("runtime.NumThreads"))
    if found != threads:
        raise ProgramFailed(
            f"RPC server {session.server} runs programs on {found} threads, and {threads} are "
            f"asked for: start it with TVM_NUM_THREADS={threads}, or ask for {found} (--threads)"
        )


def _llvm_version(session: Session) -> str:
    """Of a server that has a compiler beside the runtime."""
    try:
        return f"llvm {int(session.call('target.llvm_version_major'))}"
    except (ProgramFailed, AttributeError):
        return ""


def described_machine(
    text: str, server: str, reference_seconds: float, llvm: str = ""
) -> RemoteMachine:
    """From what the probe reads: lines ``name: value``, of which the first of a name counts.

    Args:
        text: The lines, those of ``/proc/cpuinfo`` last.
        server: Address of the server.
        reference_seconds: What the fixed chain of operations took.
        llvm: Version of the server's compiler, if it has one.
    """
    found: dict[str, str] = {}
    clocks = []
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip().lower(), value.strip())
            if name.strip().lower() == "cpu mhz":
                clocks.append(value.strip())
    cores = found.get("cores", "")
    ffi = found.get("ffi", "")
    return RemoteMachine(
        server,
        _device(found),
        int(cores) if cores.isdigit() and int(cores) > 0 else 1,
        found.get("kernel", ""),
        found.get("architecture", _UNKNOWN),
        ", ".join(filter(None, [f"ffi {ffi}" if ffi else "", llvm])),
        found.get("host", ""),
        found.get("boot", ""),
        reference_seconds,
        " ".join(dict.fromkeys(clocks)),
    )


def _device(found: Mapping[str, str]) -> str:
    """Model and features of a CPU; of one without a model's name, the numbers of its maker."""
    numbers = ("vendor_id", "cpu family", "model", "stepping")
    arm = ("cpu implementer", "cpu architecture", "cpu variant", "cpu part")
    name = found.get("model name") or found.get("hardware") or ""
    parts = [found[key] for key in (*numbers, *arm) if key in found]
    listed = set((found.get("flags") or found.get("features") or "").split())
    features = [feature for feature in _FEATURES if feature in listed]
    # All of them count, few of them are worth reading.
    digest = hashlib.sha256(" ".join(sorted(listed)).encode()).hexdigest()[:6] if listed else ""
    text = " ".join(filter(None, [name, "/".join(parts), *features, digest]))
    return re.sub(r"\s+", " ", text).strip() or _UNKNOWN
