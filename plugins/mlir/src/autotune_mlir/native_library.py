"""Machine code in files: object files and shared libraries that know nothing of MLIR."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from autotune.backends import ALIGNMENT, BuildFailed
from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune_mlir import bindings, openmp
from autotune_mlir.compiler import Lowered, needs_openmp
from autotune_mlir.entry import ADDRESS
from autotune_mlir.parsing import brief
from autotune_mlir.versions import opt_level

__all__ = [
    "CompilerMissing",
    "NativeFunction",
    "header_opening",
    "header_text",
    "link_library",
    "link_object",
    "native_function",
]

_C_TYPES = {
    "bool": "uint8_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}
_LINK_SECONDS = 60
# Of the functions by which C calls those that take memrefs.
_WRAPPER = "_mlir_ciface_"


class CompilerMissing(AutotuneError):
    """There is no C compiler, which links functions into one file."""


@frozen
class NativeFunction:
    """A program as a function of C.

    Attributes:
        name: Of the function.
        code: The object file.
        workload: What it computes.
        parallel: Whether it calls the OpenMP runtime.
        comment: A remark for readers.
    """

    name: str
    code: bytes
    workload: Workload
    parallel: bool
    comment: str


def native_function(
    lowered: Lowered, name: str, workload: Workload, comment: str
) -> NativeFunction:
    """Compile a program into a function of its own name: ``int name(void **arrays)``.

    Args:
        lowered: The program; not to be used any more afterwards.
        name: Of the function.
        workload: What it computes.
        comment: A remark for readers.

    Raises:
        BuildFailed: LLVM rejected it.
        OpenMPMissing: it is parallel, and there is no OpenMP runtime.
    """
    loaded = bindings.load()
    parallel = needs_openmp(lowered)
    _rename_entry(lowered.module, lowered.entries[-1], name)
    libraries = [openmp.library()] if parallel else []
    try:
        engine = loaded.execution_engine.ExecutionEngine(
            lowered.module, opt_level=opt_level(), shared_libs=libraries, enable_pic=True
        )
        engine.raw_lookup(name)  # compiles
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "code.o"
            engine.dump_to_object_file(str(path))
            code = path.read_bytes()
    except RuntimeError as error:
        raise BuildFailed(brief(error)) from error
    return NativeFunction(name, code, workload, parallel, comment)


def _rename_entry(module: Any, entry: str, name: str) -> None:
    """Call the entry ``name``, and keep all other functions to the file.

    What only a JIT compiler needs goes.
    """
    ir = bindings.load().ir
    with module.context:
        internal = ir.Attribute.parse("#llvm.linkage<internal>")
        for operation in list(module.body.operations):
            if operation.operation.name != "llvm.func":
                continue
            old = str(operation.attributes["sym_name"]).strip('"')
            if old.endswith(ADDRESS) or old.startswith(_WRAPPER):
                operation.operation.erase()
            elif old == entry:
                ir.SymbolTable.replace_all_symbol_uses(old, name, module.operation)
                operation.attributes["sym_name"] = ir.StringAttr.get(name)
            elif len(operation.regions[0].blocks):
                operation.attributes["linkage"] = internal


def link_object(functions: Sequence[NativeFunction]) -> bytes:
    """An object file with these functions.

    Raises:
        BuildFailed: the linker rejected the functions.
        CompilerMissing: there are several functions, and no C compiler to join them.
    """
    if len(functions) == 1:
        return functions[0].code
    return _linked(functions, "-r", "-nostdlib")


def link_library(functions: Sequence[NativeFunction]) -> bytes:
    """A shared library with these functions, and no other names.

    Raises:
        BuildFailed: the linker rejected the functions.
        CompilerMissing: there is no C compiler.
        OpenMPMissing: a function is parallel, and there is no OpenMP runtime.
    """
    exported = "; ".join(function.name for function in functions)
    with tempfile.NamedTemporaryFile("w", suffix=".map", encoding="ascii") as names:
        names.write(f"{{ global: {exported}; local: *; }};\n")
        names.flush()
        options = ["-shared", f"-Wl,--version-script={names.name}", "-Wl,-z,defs"]
        return _linked(functions, *options, libraries=_libraries(functions))


def _linked(
    functions: Sequence[NativeFunction], *options: str, libraries: Sequence[str] = ()
) -> bytes:
    compiler = _c_compiler()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        objects = [folder / f"{number}.o" for number in range(len(functions))]
        for path, function in zip(objects, functions, strict=True):
            path.write_bytes(function.code)
        result = folder / "result"
        _run([*compiler, *options, "-o", str(result), *map(str, objects), *libraries])
        return result.read_bytes()


def _libraries(functions: Sequence[NativeFunction]) -> list[str]:
    if not any(function.parallel for function in functions):
        return ["-lm"]
    runtime = openmp.library()
    return [runtime, f"-Wl,-rpath,{Path(runtime).parent}", "-lm"]


def _c_compiler() -> list[str]:
    """The compiler that ``CC`` names, as a command, or ``cc``.

    Raises:
        CompilerMissing: there is no such program.
    """
    command = os.environ.get("CC", "").split() or ["cc"]
    if shutil.which(command[0]) is None:
        raise CompilerMissing(
            f"functions are linked by a C compiler, and there is no {command[0]!r}: install "
            "one (on Debian: apt install gcc), or name it in the environment variable CC; "
            "an object file of one function needs none"
        )
    return command


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LINK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{command[0]} took more than {_LINK_SECONDS} s") from error
    if done.returncode != 0:
        raise BuildFailed(f"{command[0]} failed: {done.stderr.strip()[:480]}")


def header_opening(library: str) -> str:
    """The first line of the header of a file: what tells it from the headers of others."""
    return f"/* Functions that autotune exported to {_harmless(library)}.\n"


def header_text(functions: Sequence[NativeFunction], library: str, guard: str) -> str:
    """The header of C and C++ for functions.

    Args:
        functions: They have names of their own.
        library: Name of the file that holds them.
        guard: The macro against reading it twice.
    """
    head = f"""\
{header_opening(library)}   Each takes the addresses of its arrays, in the order of its
   description, and returns 0, or 1 if Linux refuses tile registers (AMX) that it was built for.
   Arrays are contiguous and in row-major order, begin at multiples of {ALIGNMENT} bytes, and do
   not overlap. Inputs are not written to. NAME_call does the same with an argument for each
   array. */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif
"""
    tail = f"""\
#ifdef __cplusplus
}}
#endif

#endif /* {guard} */
"""
    return "\n".join([head, *map(_declaration, functions), tail])


def _declaration(function: NativeFunction) -> str:
    workload = function.workload
    tensors = workload.tensors
    inputs = [tensor.name for tensor in workload.inputs]
    rows = []
    parameters = []
    for position, name in enumerate((*inputs, *workload.outputs)):
        tensor = tensors[name]
        role = "input" if position < len(inputs) else "output"
        shape = "".join(f"[{extent}]" for extent in tensor.shape)
        rows.append(f"   {role} {position}: {_harmless(name)}, {tensor.dtype}{shape}")
        constant = "const " if role == "input" else ""
        parameters.append(f"{constant}{_C_TYPES[tensor.dtype]} *array{position}")
    values = ", ".join(f"(void *)array{position}" for position in range(len(rows)))
    about = "\n".join(f"   {_harmless(line)}" for line in function.comment.splitlines())
    threads = "\n   It calls LLVM's OpenMP runtime." if function.parallel else ""
    return "\n".join(
        [
            f"/* {about.strip()}{threads}",
            *rows[:-1],
            f"{rows[-1]} */",
            f"int {function.name}(void **arrays);",
            f"static inline int {function.name}_call({', '.join(parameters)}) {{",
            f"    void *arrays[] = {{{values}}};",
            f"    return {function.name}(arrays);",
            "}",
            "",
        ]
    )


def _harmless(text: str) -> str:
    """Text that ends no comment, whatever users call things."""
    return re.sub(r"\s", " ", text).replace("*/", "* /").replace("/*", "/ *")
