"""NVRTC as wheels of PyPI have it, with a library of ours in place of NVIDIA's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WHEEL = "nvidia_cuda_nvrtc-13.0.88.dist-info"
LIBRARIES = "nvidia/cu13/lib"
NVRTC = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
static const char* said = "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.";
int nvrtcVersion(int* major, int* minor) { *major = 13; *minor = 0; return 0; }
int nvrtcCreateProgram(void** program, const char* source, const char* name, int count,
                       const char** headers, const char** names) {
  *program = (void*)source;
  return 0;
}
int nvrtcDestroyProgram(void** program) { return 0; }
int nvrtcCompileProgram(void* program, int count, const char** options) {
  return dlopen("libnvrtc-builtins.so.13.0", RTLD_NOW) == NULL ? 7 : 0;
}
int nvrtcGetCUBINSize(void* program, size_t* size) { *size = 4; return 0; }
int nvrtcGetCUBIN(void* program, char* cubin) { memcpy(cubin, "\177ELF", 4); return 0; }
int nvrtcGetProgramLogSize(void* program, size_t* size) { *size = strlen(said) + 1; return 0; }
int nvrtcGetProgramLog(void* program, char* log) { strcpy(log, said); return 0; }
"""
COMPILES = """
from autotune.backends import find_cuda_compiler
compiler = find_cuda_compiler()
print(compiler.described, compiler.compile("", "sm_90a", ()))
"""


def built(folder: Path, name: str, code: str) -> None:
    command = ["gcc", "-x", "c", "-", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-w", "-ldl"]
    subprocess.run([*command, "-o", str(folder / name)], input=code.encode(), check=True)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_what_nvrtc_opens_when_it_compiles_is_found_beside_it(tmp_path: Path) -> None:
    """Where it is not on the loader's path, and the library does not say where it is."""
    folder, about = tmp_path / LIBRARIES, tmp_path / WHEEL
    folder.mkdir(parents=True)
    about.mkdir()
    built(folder, "libnvrtc.so.13", NVRTC)
    built(folder, "libnvrtc-builtins.so.13.0", "")
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nvidia-cuda-nvrtc\nVersion: 13\n"
    )
    names = ("libnvrtc-builtins.so.13.0", "libnvrtc.so.13")
    (about / "RECORD").write_text("".join(f"{LIBRARIES}/{name},,\n" for name in names))
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", COMPILES],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "AUTOTUNE_CUDA_COMPILER": "nvrtc"},
        check=False,
    )
    assert done.stdout.split() == ["nvrtc", "13.0", "b'\\x7fELF'"], done.stderr
