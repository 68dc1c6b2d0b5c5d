"""Stands in for nvcc: makes a shared library of CUDA source that ``fake_cuda.cpp`` loads.

Each kernel becomes a function that runs its blocks one after the other, whose threads take turns.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CALLED, WARPS = "#ifndef AUTOTUNE_", "cuda_warps.hpp"
FLAGS = ("-std=c++20", "-O0", "-w", "-fPIC")
KERNEL = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?(\w+)\(([^)]*)\)\s*([;{])'
)
# An array in shared memory: its type, and how many elements it has.
SHARED = re.compile(r"__shared__ (?:(?:__align__|alignas)\(\d+\) )?([\w ]+?) \w+\[([^\]]+)\];")
QUALIFIERS = "#define __device__\n#define __grid_constant__"
CONVERSIONS = """
#define CUDART_INF_F __builtin_inff()
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
"""


def main(headers: str, arguments: list[str]) -> int:
    """Act as nvcc with ``--version`` or ``-cubin ... -o OUT IN``.

    Args:
        headers: Folder with the compiled ``cuda_threads.hpp``, and ``cuda_warps.hpp``.
        arguments: Of the command.
    """
    if arguments == ["--version"]:
        sys.stdout.write("Cuda compilation tools, release 13.0, V13.0.88\n")
        return 0
    out, source = Path(arguments[arguments.index("-o") + 1]), Path(arguments[-1])
    text = source.read_text()
    # What one test has had compiled is not compiled for the next.
    kept = Path(headers) / hashlib.sha256(text.encode()).hexdigest()
    if kept.exists():
        shutil.copy(kept, out)
        return 0
    status = _compile(text, out, headers)
    if status == 0:
        fresh = kept.with_suffix(f".{os.getpid()}")
        shutil.copy(out, fresh)
        fresh.replace(kept)
    return status


def _compile(text: str, out: Path, headers: str) -> int:
    """Make a shared library of CUDA source; the status of the compiler, whose errors are said."""
    of_warps = CALLED in text
    if "__CUDACC_RTC__" in text:
        # TVM's preamble includes headers of CUDA's.
        text = (
            "\n#define uchar unsigned char\n#define ushort unsigned short\n"
            + text[text.index(CALLED if of_warps else 'extern "C"') :]
        )
    code = out.with_suffix(".cpp")
    code.write_text(text)
    # What the header defines in place of what is written in PTX.
    defined = re.findall(r"#define (AUTOTUNE_\w+)", (Path(headers) / WARPS).read_text())
    command = ["g++", "-E", "-P", *(f"-D{name}" for name in defined), str(code)]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    if plain.returncode != 0:
        sys.stderr.write(plain.stderr)
        return 1
    # That header has the types of halves, too.
    needed = of_warps or re.search(r"\b(half|nv_bfloat16)\b", plain.stdout) is not None
    warps = f'#include "{WARPS}"' if needed else ""
    parts = ['#include "cuda_threads.hpp"', warps, QUALIFIERS, CONVERSIONS, plain.stdout]
    for name, parameters, end in KERNEL.findall(plain.stdout):
        if f"run_{name}(" in "".join(parts) or (end == "{" and f"{name}(" not in plain.stdout):
            continue
        parts.append(_entry(name, [each.strip() for each in parameters.split(",")]))
        parts.append(_static_shared(name, plain.stdout))
    code.write_text("\n".join(parts))
    command = ["g++", *FLAGS, "-shared", f"-I{headers}", "-o", str(out), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        return 1
    # The driver is given no length: it stands in the padding of the header.
    image = bytearray(out.read_bytes())
    image[9:16] = len(image).to_bytes(7, "little")
    out.write_bytes(image)
    return 0


def _entry(name: str, parameters: list[str]) -> str:
    """Entry of a kernel, as the driver calls it with pointers to its arguments."""
    types = [re.sub(r"\s*__restrict__", "", each) for each in parameters]
    # Without the names, which some of TVM's declarations and none of ours leave out.
    types = [re.sub(r"(?<=[\w*&])\s+\w+$", "", each) for each in types]
    values = ", ".join(f"*({kind}*)values[{at}]" for at, kind in enumerate(types))
    sizes = "".join(f"{kind}, " for kind in (f"sizeof({it})" for it in types))
    return (
        f'extern "C" int parameters_of_{name} = {len(types)};\n'
        f'extern "C" size_t sizes_of_{name}[] = {{{sizes}0}};\n'
        f'extern "C" void run_{name}(const unsigned* grid, const unsigned* block, void** values)'
        f" {{ launch_grid(grid, block, [=] {{ {name}({values}); }}); }}"
    )


def _static_shared(kernel: str, text: str) -> str:
    """Bytes of a kernel's shared memory that it has without asking."""
    body = rf"(?ms)__global__[^;{{]*\b{kernel}\([^;{{]*{{(.*?)^}}"
    found = re.search(body, text)
    arrays = SHARED.findall(found.group(1)) if found else []
    size = " + ".join(["0", *(f"sizeof({kind}) * ({count})" for kind, count in arrays)])
    return f'extern "C" int static_shared_of_{kernel} = {size};'


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
