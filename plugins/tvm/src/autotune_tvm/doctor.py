"""Findings of `autotune doctor` on this installation of TVM."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from importlib import metadata, util

from autotune.backends import cubin_architecture, find_cuda_compiler, header_folders
from autotune.backends.cuda import measuring
from autotune.errors import AutotuneError, UnsupportedTarget
from autotune.targets import cuda_devices, load_driver, version_text

__all__ = ["KNOWN_GOOD", "cuda_findings", "findings", "known_bad_pairs"]

Finding = tuple[str, str, str]
"""Label, status (``ok``, ``warning`` or ``error``), message."""

KNOWN_GOOD = ("0.27.0.post1", "0.1.14.post0")
"""The versions of apache-tvm and apache-tvm-ffi that this plugin is made for."""

# What happens with other versions of the FFI layer, where it is known.
_BAD_FFI = {
    "0.1.15.post2": "the process crashes as soon as tensor intrinsics are registered",
}

_PROBE = """
import tvm
from tvm.target import codegen
print("llvm", codegen.llvm_version_major())
print("cpu", codegen.llvm_get_system_cpu())
print("threads", tvm.get_global_func("runtime.NumThreads")())
"""
_PROBE_SECONDS = 60
_NO_HEADERS = (
    "there is no cuda_fp16.h, so programs of float16 and bfloat16 cannot be compiled: pip install "
    "nvidia-cuda-runtime, or set CUDA_HOME to a toolkit"
)
# What TVM's own CUDA runtime is linked to; tuning does without it.
_KERNEL = 'extern "C" __global__ void kernel(float* out) { *out = 0; }'
_CUDART = ("libcudart.so.13", "libcudart.so.12")


def findings() -> list[Finding]:
    """Every finding; TVM is tried in a process of its own, so that a crash is one of them."""
    if _version("apache-tvm") is None:
        return [("versions", "error", "apache-tvm is not installed")]
    return [known_bad_pairs(_version("apache-tvm"), _version("apache-tvm-ffi")), *_tried()]


def known_bad_pairs(tvm: str | None, ffi: str | None) -> Finding:
    """Return whether these versions of TVM and of its FFI layer work together."""
    advice = f"install apache-tvm=={KNOWN_GOOD[0]} with apache-tvm-ffi=={KNOWN_GOOD[1]}"
    installed = f"apache-tvm {tvm} with apache-tvm-ffi {ffi}"
    if ffi is None:
        return ("versions", "error", f"apache-tvm-ffi is not installed; {advice}")
    if ffi in _BAD_FFI:
        return ("versions", "error", f"{installed}: {_BAD_FFI[ffi]}; {advice}")
    if (tvm, ffi) != KNOWN_GOOD:
        return ("versions", "warning", f"{installed} was not tested; {advice}")
    return ("versions", "ok", installed)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _tried() -> list[Finding]:
    environment = {**os.environ, "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [("import", "error", f"trying it failed: {error}")]
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        return [
            ("import", "error", f"importing it fails with exit status {done.returncode}: {last}")
        ]
    lines = (line.split(maxsplit=1) for line in done.stdout.splitlines())
    found = {line[0]: line[1] for line in lines if len(line) == 2}
    llvm = f"LLVM {found.get('llvm')}, which takes this processor for {found.get('cpu')}"
    return [
        ("code generator", "ok", llvm),
        _threads(found.get("threads", "")),
        *_imports(),
        *cuda_findings(),
    ]


def cuda_findings() -> list[Finding]:
    """Needs of ``--target cuda``; nothing is wrong with a machine that has no such device."""
    label = "cuda"
    try:
        driver = load_driver()
        version, devices = driver.version(), cuda_devices(driver)
    except UnsupportedTarget as error:
        status = "warning" if "too old" in str(error) else "ok"
        return [(label, status, f"{error}; only --target cuda needs one")]
    except AutotuneError as error:
        return [(label, "error", str(error))]
    found: list[Finding] = [(label, "ok", f"driver for CUDA {version_text(version)}")]
    for device in devices:
        about = f"{device.name}, {device.target.processor}, {device.memory_bytes / 2**30:.0f} GiB"
        if device.prohibited:
            found.append((f"cuda:{device.index}", "warning", f"{about}; it allows no computing"))
        else:
            found.append((f"cuda:{device.index}", "ok", f"{about}: target {device.target.name!r}"))
    try:
        compiler = measuring.compiler_described()
        measuring.check_versions(find_cuda_compiler(), version)
        # It may lack a library, or not know an architecture, which only compiling tells.
        for processor in dict.fromkeys(device.target.processor for device in devices):
            find_cuda_compiler().compile(_KERNEL, cubin_architecture(processor), ())
        found.append((f"{label} compiler", "ok", compiler))
        if find_cuda_compiler().name == "nvrtc" and not header_folders():
            found.append((f"{label} headers", "warning", _NO_HEADERS))
    except AutotuneError as error:
        found.append((f"{label} compiler", "error", str(error)))
    if not any(map(_can_load, _CUDART)):
        why = "programs of your own on TVM's runtime find no device, and TVM does not say why"
        found.append((f"{label} runtime", "warning", f"libcudart cannot be loaded: {why}"))
    return found


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _threads(found: str) -> Finding:
    label = "threads"
    available = len(os.sched_getaffinity(0))
    configured = os.environ.get("TVM_NUM_THREADS")
    if configured is not None and configured != str(available):
        return (
            label,
            "warning",
            f"TVM_NUM_THREADS={configured} while {available} CPUs are available; tuning sets it "
            "for its workers, programs of yours run with that number",
        )
    if found.isdigit() and int(found) < available:
        return (
            label,
            "warning",
            f"a program of yours runs on {found} of {available} CPUs unless TVM_NUM_THREADS is "
            "set before TVM is imported; tuning sets it for its workers",
        )
    return (label, "ok", f"{found} threads for {available} CPUs")


def _imports() -> list[Finding]:
    if util.find_spec("torch") is None:
        return []
    return [
        (
            "torch",
            "ok",
            "torch is installed: workers import TVM without it and never register tensor "
            "intrinsics, which would take 40 s",
        )
    ]
