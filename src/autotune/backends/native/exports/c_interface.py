"""The functions of a kernel in C: their header, and their text around a printed program."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from autotune.backends.arrays import ALIGNMENT
from autotune.backends.native.exports.features import plain
from autotune.backends.native.exports.kernel import (
    MOST_THREADS,
    Argument,
    Call,
    Kernel,
    Size,
    Variant,
)
from autotune.lower import c_type

__all__ = ["c_file", "header"]

_NOTES = """\
   Arrays are contiguous and in row-major order; they begin at multiples of 64 bytes and do not
   overlap. Scratch memory, too, begins there; it may be used again for the next call, and is not
   shared by calls that run at once. A null launch runs everything on the calling thread.
"""

_NARROW: Mapping[str, str] = {
    "float16": "16-bit floats as their bits",
    "bfloat16": "bfloat16 numbers as their bits",
    "bool": "truth values, 0 or 1",
}


def header(kernel: Kernel) -> str:
    """The header of a kernel, for C and C++."""
    guard = f"AUTOTUNE_{kernel.name.upper()}_H"
    made = ", ".join(variant.machine.name for variant in kernel.variants)
    arrays = "".join(f"     {_about(it)}\n" for it in kernel.calls[-1].arguments)
    functions = "\n".join(
        [
            *(f"{_declared_size(size)};" for size in kernel.sizes),
            *(f"{_declared(call)};" for call in kernel.calls),
        ]
    )
    return (
        f"/* {kernel.name}: {plain(kernel.workload.name)}, tuned by autotune, for {made}.\n\n"
        f"{arrays}\n"
        f"{_NOTES}*/\n#ifndef {guard}\n#define {guard}\n\n{_common()}\n"
        '#ifdef __cplusplus\nextern "C" {\n#endif\n\n'
        f"/* The target whose code runs on this processor; null where there is none. */\n"
        f"const char *{kernel.name}_variant(void);\n\n{functions}\n\n"
        "#ifdef __cplusplus\n}\n#endif\n#endif\n"
    )


def _common() -> str:
    """Text that all headers have in common."""
    return resources.files(__package__).joinpath("kernel.h").read_text(encoding="utf-8")


def _about(argument: Argument) -> str:
    if not argument.dtype:
        return (
            f"{argument.name}: {argument.shape[0]} bytes, a constant as {argument.name} packs it"
        )
    extents = "".join(f"[{extent}]" for extent in argument.shape)
    role = "output" if argument.is_output else "input"
    more = f" ({_NARROW[argument.dtype]})" if argument.dtype in _NARROW else ""
    return f"{argument.name}{extents}: {role}, {argument.dtype}{more}"


def _parameter(argument: Argument) -> str:
    const = "" if argument.is_output else "const "
    kind = c_type(argument.dtype) if argument.dtype else "void"
    return f"{const}{kind} *AUTOTUNE_RESTRICT {argument.name}"


def _declared(call: Call) -> str:
    parameters = [_parameter(argument) for argument in call.arguments]
    if call.scratch is not None:
        parameters += ["void *AUTOTUNE_RESTRICT scratch", "size_t scratch_bytes"]
        parameters += ["int64_t threads", "autotune_launch *launch", "void *pool"]
    return f"int {call.name}({', '.join(parameters)})"


def _declared_size(size: Size) -> str:
    return f"size_t {size.name}({'void' if size.each is None else 'int64_t threads'})"


def c_file(kernel: Kernel, header_name: str) -> str:
    """The only source file of a kernel with one variant, which includes its header."""
    (variant,) = kernel.variants
    prefix = f"{kernel.name}_own"
    functions = [_defined_size(size) for size in variant.sizes]
    functions += [_defined(call, variant, prefix) for call in variant.calls]
    return (
        f"/* {kernel.name}: {plain(kernel.workload.name)}, tuned by autotune, for "
        f"{variant.machine.name}.\n\n     cc -O2 -fno-math-errno -c FILE\n\n"
        "   GCC 12, Clang 12, or later; with -ffp-contract=fast where -std= is given, and never\n"
        "   with -ffast-math. Some functions of the C library's mathematics may be needed (-lm).\n"
        f'*/\n#include "{header_name}"\n\n{variant.printed_as_c(prefix)}\n'
        f"{_asked(kernel.name, variant)}\n" + "\n".join(functions)
    )


def _asked(name: str, variant: Variant) -> str:
    """Functions that say which processor the code is for, and whether it runs here."""
    asked = (f'__builtin_cpu_supports("{it}")' for it in variant.machine.c_features)
    tests = "\n    && ".join(asked) or "1"
    return (
        f"static int {name}_runs(void) {{\n  return {tests};\n}}\n\n"
        f"const char *{name}_variant(void) {{\n"
        f'  return {name}_runs() ? "{variant.machine.name}" : 0;\n}}\n'
    )


def _defined_size(size: Size) -> str:
    more = f" + (size_t)threads * {size.each}" if size.each else ""
    unused = "" if size.each or size.each is None else "  (void)threads;\n"
    return f"{_declared_size(size)} {{\n{unused}  return {size.fixed}{more};\n}}\n"


def _defined(call: Call, variant: Variant, prefix: str) -> str:
    name = variant.calls[-1].name
    lines = [f"  if (!{name}_runs()) return AUTOTUNE_NO_PROCESSOR;"]
    for number, argument in enumerate(call.arguments, 1):
        at = argument.name
        lines.append(f"  if (!{at} || (uintptr_t){at} % {ALIGNMENT}) return {number};")
    lines.append(f"  void *arrays[{variant.arrays}] = {{0}};")
    for argument, position in zip(call.arguments, call.positions, strict=True):
        lines.append(f"  arrays[{position}] = (void *){argument.name};")
    given = "0, 0"
    if call.scratch is not None:
        parts, size = call.scratch
        lines.append(f"  if (threads < 1 || threads > {MOST_THREADS}) return AUTOTUNE_NO_SCRATCH;")
        lines += _scratch_lines(size) if parts else ["  (void)scratch; (void)scratch_bytes;"]
        for part in parts:
            more = f" + threads * {part.each}" if part.each else ""
            lines.append(f"  arrays[{part.position}] = (char *)scratch + {part.fixed}{more};")
        given = "launch, pool"
    lines.append(f"  {prefix}_{call.entry}(arrays, {given});")
    body = "\n".join(lines)
    return f"{_declared(call)} {{\n{body}\n  return AUTOTUNE_OK;\n}}\n"


def _scratch_lines(size: Size) -> list[str]:
    return [
        f"  if (!scratch || (uintptr_t)scratch % {ALIGNMENT} || scratch_bytes < "
        f"{size.name}(threads))",
        "    return AUTOTUNE_NO_SCRATCH;",
    ]
