"""Runs CUDA source on the CPU, so that generated kernels can be checked without a device.

The threads of a block take turns (``cuda_fibers.hpp``); shared memory, barriers and shuffles are
those of ``cuda_threads.hpp``, halves and the matrix instructions of warps those of
``cuda_warps.hpp``. The address sanitizer watches every array, and misaligned vectors end the
program, as do threads that wait for one another.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.backends import TensorMap
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Tensor, Workload
from autotune.lower.cuda import identifier
from autotune.sketches import partial_name

Array = NDArray[Any]

_SHIMS = [
    Path(__file__).with_name(f"cuda_{name}.hpp")
    for name in ("fibers", "threads", "warps", "warpgroups", "bulk")
]
_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "bfloat16": "nv_bfloat16",
    "int32": "int",
    "int64": "int64_t",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}
# Where what the kernels call begins: TVM's own preamble is left out.
_CALLED = "#ifndef AUTOTUNE_"
_DECLARED = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?(\w+)\(([^)]*)\)(?:;| \{)'
)
# Shared memory that is asked for when a kernel is launched.
_DYNAMIC = re.compile(r"extern __shared__ [^;]*buf_dyn_shmem_ptr\[\];")
# Guards of what each program defines by itself.
_OWN = ("EXTREMES", "PRELUDE", "HALVES", "SWIZZLED")
_ALIGNED, _DYNAMIC_BYTES = "__attribute__((aligned(1024)))", 227 * 1024
_SECONDS = 300
_FLAGS = (
    *("-std=c++20", "-O0", "-w"),
    *("-fsanitize=address,alignment,bounds", "-fno-sanitize-recover=all"),
)


@frozen(eq=False)
class Program:
    """CUDA source with what it computes.

    Attributes:
        source: Kernels in the order in which they are launched; a parameter ``NAME_ptr`` is the
            tensor ``NAME`` of the workload, ``NAME_rf_ptr`` the partial results of ``NAME``.
        launches: Blocks and threads per block of each kernel; extents of up to two dimensions.
        workload: Names, shapes and types of the tensors, partial results included.
        inputs: The workload's inputs by name.
        maps: Descriptors of tensors that each kernel takes behind its pointers; none where that is
            empty.
    """

    source: str
    launches: tuple[tuple[int, ...], ...]
    workload: Workload
    inputs: Mapping[str, Array]
    maps: tuple[tuple[TensorMap, ...], ...] = ()


def run_all(programs: Sequence[Program], folder: Path) -> list[dict[str, Array]]:
    """The outputs of every program, by name; all of them are compiled together in ``folder``.

    Raises:
        RuntimeError: the compiler rejects the source, or a kernel touches what is not its own.
    """
    binary = _built(programs, folder)
    _run([str(binary)])
    return [_outputs(program, f"p{n}", folder) for n, program in enumerate(programs)]


def run_each(programs: Sequence[Program], folder: Path) -> list[dict[str, Array] | int]:
    """Run as :func:`run_all`, each in a process of its own: the outputs, or its exit code."""
    binary = _built(programs, folder)
    found: list[dict[str, Array] | int] = []
    for n, program in enumerate(programs):
        done = _ended([str(binary), str(n)])
        found.append(done.returncode or _outputs(program, f"p{n}", folder))
    return found


def _built(programs: Sequence[Program], folder: Path) -> Path:
    """A binary that runs one of the programs, or without an argument all."""
    headers = _compiled_headers(folder)
    parts = [f'#include "{_SHIMS[-1].name}"']
    parts += [_unit(program, f"p{n}", folder) for n, program in enumerate(programs)]
    calls = " ".join(f"if (one < 0 || one == {n}) p{n}::run();" for n in range(len(programs)))
    chosen = "const int one = count > 1 ? std::atoi(given[1]) : -1;"
    parts.append(f"int main(int count, char** given) {{ {chosen} {calls} }}")
    code, binary = folder / "programs.cpp", folder / "programs"
    code.write_text("\n".join(parts))
    _run(["g++", *_FLAGS, f"-I{headers}", "-o", str(binary), str(code)])
    return binary


def _compiled_headers(folder: Path) -> Path:
    """The folder of the headers, most of a compiler's time, which the first use compiles.

    Args:
        folder: Of a test; all workers of a session share the headers.
    """
    own = folder.parent
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "cuda-threads"
    shared.mkdir(exist_ok=True)
    header, done = shared / _SHIMS[-1].name, shared / "done"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            for shim in _SHIMS:
                shutil.copy(shim, shared)
            _run(["g++", *_FLAGS, "-x", "c++-header", str(header)])
            done.touch()
    return shared


def _unit(program: Program, name: str, folder: Path) -> str:
    """A namespace with the kernels and a function that launches them."""
    first = program.source.find(_CALLED)
    body = program.source[first if first >= 0 else program.source.index('extern "C"') :]
    body = _DYNAMIC.sub(f"static {_ALIGNED} uchar buf_dyn_shmem_ptr[{_DYNAMIC_BYTES}];", body)
    # A kernel may be declared before it is defined.
    kernels = [*dict.fromkeys(_DECLARED.findall(body))]
    if len(kernels) != len(program.launches):
        raise RuntimeError(f"{len(kernels)} kernels for {len(program.launches)} launches")
    pointers = dict.fromkeys(
        parameter.split()[-1]
        for _, parameters in kernels
        for parameter in parameters.split(",")
        if not _is_map(parameter)
    )
    lines = []
    for pointer in pointers:
        tensor = _tensor(program.workload, pointer)
        given = program.inputs.get(tensor.name)
        path = folder / f"{name}.{tensor.name}.in"
        if given is not None:
            np.ascontiguousarray(given).tofile(path)
        element = _TYPES[tensor.dtype]
        lines.append(f'auto* {pointer} = load<{element}>("{path}", {tensor.elements});')
    maps = iter(program.maps)
    for (kernel, parameters), extents in zip(kernels, program.launches, strict=True):
        arguments = ", ".join(map(_argument, parameters.split(",")))
        given = [parameter for parameter in parameters.split(",") if _is_map(parameter)]
        for parameter, known in zip(given, next(maps, ()), strict=True):
            lines.append(_described(parameter.split()[-1], known))
        size = ", ".join(map(str, extents))
        lines.append(f"launch({size}, [=] {{ {kernel}({arguments}); }});")
    for output in program.workload.outputs:
        elements = program.workload.tensors[output].elements
        lines.append(f'save("{folder}/{name}.{output}.out", {output}_ptr, {elements});')
    lines += [f"free({pointer});" for pointer in pointers]
    launcher = "void run() {\n" + "\n".join(lines) + "\n}"
    plain = body.replace('extern "C" ', "")
    # The guard against a second declaration is for one source; here each program is a namespace.
    undefined = "\n".join(
        f"#undef AUTOTUNE_{it}" for it in ("EXTREMES", "PRELUDE", "HALVES", "SWIZZLED")
    )
    return f"{undefined}\nnamespace {name} {{\n{plain}\n{launcher}\n}}"


def _is_map(parameter: str) -> bool:
    return "CUtensorMap" in parameter


def _described(name: str, known: TensorMap) -> str:
    """A variable with a descriptor, whose extents are those of the innermost dimension first."""
    size = element_type(known.dtype).bytes
    shape, box = (", ".join(map(str, reversed(it))) for it in (known.shape, known.box))
    given = f"{known.buffer}_ptr, {len(known.shape)}, {size}, {{{shape}}}, {{{box}}}"
    return f"const CUtensorMap {name} = bulk::describe({given});"


def _argument(parameter: str) -> str:
    """Argument of a call; the pointer of an intermediate result may be one to vectors."""
    if _is_map(parameter):
        return parameter.split()[-1]
    *qualified, name = parameter.split()
    kind = " ".join(word for word in qualified if word != "__restrict__")
    return f"reinterpret_cast<{kind}>({name})"


def _tensor(workload: Workload, pointer: str) -> Tensor:
    """The tensor that a parameter points to."""
    name = pointer.removesuffix("_ptr")
    if name.endswith("_rf"):
        # Those of a product of matrices are of a copy of its result.
        name = partial_name(name.removesuffix("_rf").removesuffix("_global"))
    return next(it for it in workload.tensors.values() if identifier(it.name) == name)


def _outputs(program: Program, name: str, folder: Path) -> dict[str, Array]:
    found = {}
    for output in program.workload.outputs:
        tensor = program.workload.tensors[output]
        array: Array = np.fromfile(folder / f"{name}.{output}.out", dtype=tensor.element.storage)
        found[output] = array.reshape(tensor.shape)
    return found


def _ended(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS, env=environment, check=False
    )


def _run(command: list[str]) -> None:
    done = _ended(command)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[:2000]}")
