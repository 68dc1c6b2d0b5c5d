"""NVRTC as wheels of PyPI have it, with a library of ours in place of NVIDIA's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.backends.cuda_compilers import with_registers

NVRTC = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
static const char* said = "nvrtc: error: failed to open libnvrtc-builtins.so.MAJOR.0.";
int nvrtcVersion(int* major, int* minor) { *major = MAJOR; *minor = 0; return 0; }
int nvrtcCreateProgram(void** program, const char* source, const char* name, int count,
                       const char** headers, const char** names) {
  *program = (void*)source;
  return 0;
}
int nvrtcDestroyProgram(void** program) { return 0; }
int nvrtcCompileProgram(void* program, int count, const char** options) {
  return dlopen("libnvrtc-builtins.so.MAJOR.0", RTLD_NOW) == NULL ? 7 : 0;
}
int nvrtcGetCUBINSize(void* program, size_t* size) { *size = 4; return 0; }
int nvrtcGetCUBIN(void* program, char* cubin) { memcpy(cubin, "\177ELF", 4); return 0; }
int nvrtcGetProgramLogSize(void* program, size_t* size) { *size = strlen(said) + 1; return 0; }
int nvrtcGetProgramLog(void* program, char* log) { strcpy(log, said); return 0; }
"""
DRIVER = "int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }"
COMPILES = """
from autotune.backends import find_cuda_compiler
compiler = find_cuda_compiler()
print(compiler.described, compiler.compile("", "sm_90a", ()))
"""


def built(path: Path, code: str) -> None:
    command = ["gcc", "-x", "c", "-", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", "-w", "-ldl"]
    subprocess.run([*command, "-o", str(path)], input=code.encode(), check=True)


def wheel(root: Path, major: int, suffix: str) -> None:
    """An NVRTC of a major version, and what it opens, as PyPI's wheel of a name has them."""
    folder = root / f"nvidia/cu{major}/lib"
    about = root / f"nvidia_cuda_nvrtc{suffix.replace('-', '_')}-{major}.0.dist-info"
    names = (f"libnvrtc-builtins.so.{major}.0", f"libnvrtc.so.{major}")
    folder.mkdir(parents=True)
    about.mkdir()
    for name, code in zip(names, ("", NVRTC.replace("MAJOR", str(major))), strict=True):
        built(folder / name, code)
    metadata = f"Metadata-Version: 2.1\nName: nvidia-cuda-nvrtc{suffix}\nVersion: {major}.0\n"
    (about / "METADATA").write_text(metadata)
    (about / "RECORD").write_text("".join(f"{folder / name},,\n" for name in names))


def compiled(root: Path, **environment: str) -> list[str]:
    """Ask a process that has these wheels."""
    path = os.pathsep.join([str(root), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", COMPILES],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "AUTOTUNE_CUDA_COMPILER": "nvrtc", **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_what_nvrtc_opens_when_it_compiles_is_found_beside_it(tmp_path: Path) -> None:
    """Such a file is not on the loader's path, and the library does not say where it is."""
    wheel(tmp_path, 13, "")
    assert compiled(tmp_path) == ["nvrtc", "13.0", r"b'\x7fELF'"]


def test_of_two_nvrtcs_one_makes_what_the_driver_loads(tmp_path: Path) -> None:
    """Torch may have brought one, and the package another."""
    wheel(tmp_path, 13, "")
    wheel(tmp_path, 12, "-cu12")
    driver = tmp_path / "libcuda.so.1"
    for version, wanted in ((12040, "12.0"), (13010, "13.0"), (11080, "13.0")):
        built(driver, DRIVER.replace("VERSION", str(version)))
        assert compiled(tmp_path, AUTOTUNE_LIBCUDA=str(driver))[1] == wanted
    assert compiled(tmp_path, AUTOTUNE_LIBCUDA="/nonexistent")[1] == "13.0"


@pytest.mark.parametrize(
    ("registers", "spilled", "bounds"),
    [(32, 24, "896, 1"), (32, 0, "896"), (72, 24, "896"), (64, 8, "896, 1")],
)
def test_what_is_spilled_for_other_blocks_is_compiled_for_one(
    registers: int, spilled: int, bounds: str
) -> None:
    source = "".join(
        f'extern "C" __global__ void __launch_bounds__({threads}) {name}(float *A) {{}}'
        for name, threads in (("first", "896"), ("second", "896, 2"))
    )
    report = "".join(
        f"ptxas info    : Compiling entry function '{name}' for 'sm_80'\n"
        f"    24 bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used 1 barriers, 64 bytes smem\n"
        for name in ("first", "second")
    )
    wanted = source.replace("(896) first", f"({bounds}) first")
    assert with_registers(source, report) == wanted
