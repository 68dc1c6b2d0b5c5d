"""Kernels in files: C, object files, the C compiler that links them, functions of TVM-FFI.

The text of those needs no header of TVM-FFI: ``ffi_tensors.c`` declares its binary interface. The
one function of its library that is called makes an error, and is looked up then: a program that
calls this library by TVM-FFI has it. Where TVM's runtime loads the library, it fills in the
function that starts tasks on its threads, which stays null elsewhere.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from attrs import frozen

from autotune.backends.arrays import ALIGNMENT
from autotune.backends.backend import BuildFailed
from autotune.backends.native.exports.features import Machine, detector, plain
from autotune.backends.native.exports.kernel import (
    MOST_THREADS,
    Argument,
    Call,
    Kernel,
    Size,
    Variant,
)
from autotune.backends.native.machine_code import compile_library
from autotune.errors import InvalidValueError, UnknownNameError, one_line
from autotune.lower import c_type
from autotune.store.jsonl import replacing

__all__ = [
    "Entry",
    "FORMATS",
    "Taken",
    "check_header",
    "combined_object",
    "export_kernel",
    "ffi_file",
    "ffi_network",
    "find_compiler",
    "link_library",
    "object_of",
    "shared_library",
    "with_prefix",
    "write_data_object",
]


_MARK = b"tuned by autotune"
_HEAD_BYTES = 1 << 10
_MESSAGE_LIMIT = 400
_FOR_LIBRARIES = ("-O2", "-fPIC", "-fvisibility=hidden")

Files = Mapping[str, bytes]


def export_kernel(kernel: Kernel, format_name: str, path: Path) -> tuple[Path, ...]:
    """Write a kernel for other programs.

    Args:
        kernel: What is written.
        format_name: One of :data:`FORMATS`.
        path: The file, with the ending of its kind; a header goes beside it, with the ending
            ``.h``.

    Returns:
        The files.

    Raises:
        UnknownNameError: there is no such format.
        InvalidValueError: the format is for one target, the file has another ending or cannot be
            written, or the header would replace one that was written by hand.
        UnsupportedWorkload: the kernel has instructions that are not printed as C.
        BuildFailed: LLVM or the C compiler rejects it, or there is no such compiler.
    """
    if format_name not in FORMATS:
        raise UnknownNameError("export format", format_name, FORMATS)
    _, make = FORMATS[format_name]
    header_path = path.with_suffix(".h")
    files = make(kernel, path.stem)
    ending = next(iter(files))
    if path.suffix != ending:
        raise InvalidValueError(
            f"a file of format {format_name} ends in {ending}, and {str(path)!r} does not"
        )
    written = [header_path if suffix == ".h" else path for suffix in files]
    if header_path in written:
        check_header(header_path)
    for target, data in zip(written, files.values(), strict=True):
        with replacing(target) as stream:
            stream.write(data)
    return tuple(written)


def check_header(path: Path) -> None:
    """Check that there is no header that somebody has written by hand.

    Raises:
        InvalidValueError: there is one.
    """
    if not path.exists():
        return
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if head and _MARK not in head:
        raise InvalidValueError(
            f"{str(path)!r} exists and is no header of an export: it is kept; export to a file of "
            "another name"
        )


def _as_c(kernel: Kernel, stem: str) -> Files:
    if len(kernel.variants) > 1:
        names = ", ".join(variant.machine.name for variant in kernel.variants)
        raise InvalidValueError(f"format c is for one target, not for several ({names})")
    return {".c": c_file(kernel, f"{stem}.h").encode(), ".h": header(kernel).encode()}


def _as_object(kernel: Kernel, _: str) -> Files:
    return {".o": object_of(kernel), ".h": header(kernel).encode()}


def _as_shared(kernel: Kernel, _: str) -> Files:
    return {".so": _linked(kernel, "shared"), ".h": header(kernel).encode()}


def _as_tvm_ffi(kernel: Kernel, _: str) -> Files:
    entries = [Entry.of(kernel, call) for call in kernel.calls]
    entries.append(Entry.of(kernel, kernel.calls[-1], "main"))
    sizes = [size for size in kernel.sizes if size.each is None]
    return {".so": _linked(kernel, "tvm-ffi", ffi_file([kernel], entries, sizes))}


FORMATS: Mapping[str, tuple[str, Callable[[Kernel, str], Files]]] = MappingProxyType(
    {
        "c": ("a source file of C and its header", _as_c),
        "object": ("an object file and its header", _as_object),
        "shared": ("a shared library and its header", _as_shared),
        "tvm-ffi": ("a shared library that TVM-FFI loads", _as_tvm_ffi),
    }
)
"""Formats of a written kernel: their descriptions, and the makers of their files."""


def object_of(kernel: Kernel) -> bytes:
    """The object file of a kernel.

    Raises:
        BuildFailed: LLVM rejects it.
    """
    machine = kernel.variants[0].machine
    texts = [interface(kernel), *(variant.text for variant in kernel.variants)]
    processor = "x86-64" if machine.is_x86 else machine.tuned_for
    return compile_library(texts, machine.triple, processor, exported_names(kernel))


def combined_object(kernels: Sequence[Kernel], source: str, purpose: str) -> bytes:
    """An object file of several kernels and of a source file of C that calls them.

    Args:
        kernels: Kernels for one kind of machine.
        source: The text of that file.
        purpose: What it is for, in messages.

    Raises:
        BuildFailed: LLVM or the C compiler rejects it, or there is no such compiler.
    """
    compiler = find_compiler(kernels[0].variants[0].machine, purpose)
    with tempfile.TemporaryDirectory() as folder:
        result, added = Path(folder, "combined.o"), Path(folder, "added.c")
        added.write_text(source, encoding="utf-8")
        parts = [Path(folder, f"kernel{number}.o") for number in range(len(kernels))]
        for part, kernel in zip(parts, kernels, strict=True):
            part.write_bytes(object_of(kernel))
        options = [*_FOR_LIBRARIES, "-r", "-nostdlib", "-o", str(result)]
        _run([*compiler, *options, str(added), *map(str, parts)])
        return result.read_bytes()


def shared_library(whole: bytes, machine: Machine, purpose: str) -> bytes:
    """A shared library of an object file.

    Args:
        whole: The object file.
        machine: What it is for.
        purpose: What it is for, in messages.

    Raises:
        BuildFailed: the C compiler cannot link it, or there is none.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder, "whole.o"), Path(folder, "library.so")
        given.write_bytes(whole)
        link_library([given], machine, purpose, result)
        return result.read_bytes()


def link_library(parts: Sequence[Path], machine: Machine, purpose: str, result: Path) -> None:
    """Write a shared library.

    Args:
        parts: Object files, and source files of C.
        machine: What it is for.
        purpose: What it is for, in messages.
        result: The library.

    Raises:
        BuildFailed: the C compiler cannot link it, or there is none.
    """
    compiler = find_compiler(machine, purpose)
    options = [*_FOR_LIBRARIES, "-std=gnu11", "-ffp-contract=off", "-pthread", "-shared"]
    # What is not found is an error here, and not where the library is loaded.
    linked = ["-Wl,-z,defs", "-Wl,--as-needed", "-lm", "-ldl"]
    _run([*compiler, *options, "-o", str(result), *map(str, parts), *linked])


def _linked(kernel: Kernel, format_name: str, source: str = "") -> bytes:
    """A shared library of a kernel and what a source file adds to it."""
    purpose = f"format {format_name}"
    whole = combined_object([kernel], source, purpose) if source else object_of(kernel)
    return shared_library(whole, kernel.variants[0].machine, purpose)


def find_compiler(machine: Machine, purpose: str) -> Sequence[str]:
    """The command of a C compiler that links for a machine.

    Args:
        machine: The machine.
        purpose: What it is for, in messages.

    Raises:
        BuildFailed: there is none.
    """
    arch, _, system = machine.triple.split("-", 2)
    here = platform.machine() == machine.architecture and system == "linux-gnu"
    names = ("cc", "gcc", "clang") if here else (f"{arch}-{system}-gcc",)
    command = shlex.split(os.environ.get("CC", "")) or [
        next(filter(shutil.which, names), names[0])
    ]
    if shutil.which(command[0]) is None:
        raise BuildFailed(
            f"{purpose} is linked by a C compiler, and there is no {command[0]!r}: install it, or "
            "name another one by CC"
        )
    return command


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        said = one_line(done.stderr or done.stdout, _MESSAGE_LIMIT)
        raise BuildFailed(f"{command[0]} failed with status {done.returncode}: {said}")


_NO_PROCESSOR = -1


# Every function has a form for each variant. What is exported asks the processor which of them it
# can run, and calls it.
def exported_names(kernel: Kernel) -> frozenset[str]:
    """Functions that others call."""
    calls, sizes = (it.name for it in kernel.calls), (it.name for it in kernel.sizes)
    return frozenset([f"{kernel.name}_variant", *calls, *sizes])


def interface(kernel: Kernel) -> str:
    """LLVM IR of all functions of a kernel but the programs themselves."""
    checks = resources.files(__package__).joinpath("arguments.ll").read_text(encoding="utf-8")
    texts = [checks, _chosen(kernel)]
    for variant in kernel.variants:
        texts += [_size(size, variant.prefix) for size in variant.sizes]
        texts += [_call(call, variant) for call in variant.calls]
    for size in kernel.sizes:
        given = () if size.each is None else ("i64 %threads",)
        texts.append(_dispatched(kernel, size.name, "i64", given, 0))
    for call in kernel.calls:
        texts.append(_dispatched(kernel, call.name, "i32", _parameters(call), _NO_PROCESSOR))
    entries = {
        f"declare i32 @{variant.prefix}{call.entry}(ptr, ptr, ptr)"
        for variant in kernel.variants
        for call in variant.calls
    }
    return "\n\n".join([*texts, *sorted(entries)])


def _chosen(kernel: Kernel) -> str:
    """Print what chooses a variant, and says which."""
    machines = [variant.machine for variant in kernel.variants]
    if machines[0].is_x86:
        chooses = detector("chosen", [variant.features for variant in kernel.variants])
    else:
        chooses = "define internal i32 @chosen() {\n  ret i32 0\n}"
    names = []
    for number, machine in enumerate(machines):
        text = "".join(f"\\{byte:02X}" for byte in machine.name.encode())
        size = len(machine.name.encode()) + 1
        names.append(f'@name{number} = private constant [{size} x i8] c"{text}\\00"')
    found = "null"
    lines = ["  %chosen = call i32 @chosen()"]
    for number in range(len(machines)):
        lines += [
            f"  %is{number} = icmp eq i32 %chosen, {number}",
            f"  %n{number} = select i1 %is{number}, ptr @name{number}, ptr {found}",
        ]
        found = f"%n{number}"
    body = "\n".join(
        [f"define ptr @{kernel.name}_variant() {{", *lines, f"  ret ptr {found}", "}"]
    )
    return "\n".join([*names, chooses, body])


def _dispatched(
    kernel: Kernel, name: str, result: str, parameters: tuple[str, ...], otherwise: int
) -> str:
    """A function that calls the form of a variant that the processor runs."""
    given, count = ", ".join(parameters), len(kernel.variants)
    cases = " ".join(f"i32 {number}, label %v{number}" for number in range(count))
    lines = ["  %chosen = call i32 @chosen()", f"  switch i32 %chosen, label %none [{cases}]"]
    for number, variant in enumerate(kernel.variants):
        call = f"call {result} @{variant.prefix}{name}({given})"
        lines += [f"v{number}:", f"  %r{number} = {call}", f"  ret {result} %r{number}"]
    body = "\n".join([*lines, "none:", f"  ret {result} {otherwise}"])
    return f"define {result} @{name}({given}) {{\n{body}\n}}"


def _parameters(call: Call) -> tuple[str, ...]:
    arrays = [f"ptr %a{number}" for number in range(len(call.arguments))]
    if call.scratch is None:
        return tuple(arrays)
    return (*arrays, "ptr %scratch", "i64 %bytes", "i64 %threads", "ptr %launch", "ptr %pool")


def _size(size: Size, prefix: str) -> str:
    given = "" if size.each is None else "i64 %threads"
    lines: list[str] = []
    result = str(size.fixed)
    if size.each:
        lines = [
            f"  %each = mul i64 %threads, {size.each}",
            f"  %all = add i64 %each, {size.fixed}",
        ]
        result = "%all"
    body = "\n".join([*lines, f"  ret i64 {result}"])
    return f"define internal i64 @{prefix}{size.name}({given}) {{\n{body}\n}}"


def _call(call: Call, variant: Variant) -> str:
    """The form of a function for one variant: it checks what it is given, and runs the program."""
    count, prefix = len(call.arguments), variant.prefix
    lines = [f"  %given = alloca [{count} x ptr]"]
    for index in range(count):
        lines += _placed("given", index, f"%a{index}")
    lines.append(f"  %array = call i32 @wrong_array(ptr %given, i64 {count})")
    memory = "0"
    if call.scratch is not None:
        size, memory = call.scratch[1], "%memory"
        given = "ptr %scratch, i64 %bytes, i64 %threads, i64 %need"
        lines += [
            f"  %need = call i64 @{prefix}{size.name}(i64 %threads)",
            f"  %memory = call i32 @wrong_scratch({given})",
        ]
    lines += [
        "  %apart = icmp ne i32 %array, 0",
        f"  %wrong = select i1 %apart, i32 %array, i32 {memory}",
        "  %bad = icmp ne i32 %wrong, 0",
        "  br i1 %bad, label %refused, label %fine",
        "refused:",
        "  ret i32 %wrong",
        "fine:",
        f"  %table = alloca [{variant.arrays} x ptr]",
        f"  store [{variant.arrays} x ptr] zeroinitializer, ptr %table",
    ]
    for index, position in enumerate(call.positions):
        lines += _placed("table", position, f"%a{index}")
    pool = "ptr null, ptr null"
    if call.scratch is not None:
        pool = "ptr %launch, ptr %pool"
        for part in call.scratch[0]:
            own = f"%part{part.position}"
            lines += [
                f"  {own}.each = mul i64 %threads, {part.each}",
                f"  {own}.at = add i64 {own}.each, {part.fixed}",
                f"  {own} = getelementptr i8, ptr %scratch, i64 {own}.at",
                *_placed("table", part.position, own),
            ]
    lines += [f"  %done = call i32 @{prefix}{call.entry}(ptr %table, {pool})", "  ret i32 %done"]
    body, given = "\n".join(lines), ", ".join(_parameters(call))
    return f"define internal i32 @{prefix}{call.name}({given}) {{\n{body}\n}}"


def _placed(table: str, position: int, value: str) -> list[str]:
    return [
        f"  %{table}{position} = getelementptr ptr, ptr %{table}, i64 {position}",
        f"  store ptr {value}, ptr %{table}{position}",
    ]


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SECTIONS_AT, _SECTION_COUNT_AT = 0x28, 0x3C
_SYMBOLS, _UNDEFINED, _HIDDEN = 2, 0, 2
_HEAD = b"\x7fELF\x02\x01"
_RELOCATABLE, _VERSION = 1, 1
_MACHINES = {"x86_64": 62, "aarch64": 183}
_BITS, _NAMES, _ALLOCATED = 1, 3, 2
_GLOBAL_OBJECT = 0x11
_PAGE = 4096
_SECTION_NAMES = (".autotune_weights", ".note.GNU-stack", ".symtab", ".strtab")


def with_prefix(code: bytes, prefix: str) -> bytes:
    """An object file whose functions have names that begin with ``prefix``.

    A library that it is linked into keeps them to itself.

    Args:
        code: An object file of ELF, of 64 bits and with the least significant byte first.
        prefix: Letters, digits, underscores, dots.

    Raises:
        BuildFailed: it is no such file.
    """
    if not code.startswith(_HEAD):
        raise BuildFailed("the machine code is no object file of ELF with 64 bits")
    whole = bytearray(code)
    (begin,) = struct.unpack_from("<Q", code, _SECTIONS_AT)
    (count,) = struct.unpack_from("<H", code, _SECTION_COUNT_AT)
    heads = [list(_SECTION.unpack_from(code, begin + at * _SECTION.size)) for at in range(count)]
    symbols = next(head for head in heads if head[1] == _SYMBOLS)
    names_at = int(symbols[6])
    names = heads[names_at]
    text = bytearray(code[names[4] : names[4] + names[5]])
    # Local symbols are first, and keep their names.
    for number in range(symbols[7], symbols[5] // _SYMBOL.size):
        at = symbols[4] + number * _SYMBOL.size
        name, kind, other, section, value, size = _SYMBOL.unpack_from(code, at)
        if section == _UNDEFINED:
            continue
        end = text.index(0, name)
        _SYMBOL.pack_into(whole, at, len(text), kind, other | _HIDDEN, section, value, size)
        text += prefix.encode() + text[name:end] + b"\0"
    names[4], names[5] = len(whole), len(text)
    _SECTION.pack_into(whole, begin + names_at * _SECTION.size, *names)
    return bytes(whole + text)


def write_data_object(
    stream: BinaryIO, name: str, parts: Iterable[memoryview], architecture: str
) -> None:
    """Write an object file of data that a library maps where it is first read.

    Args:
        stream: An empty file.
        name: What C calls the data, which begins a page; a library keeps it to itself.
        parts: The bytes, one part behind the other.
        architecture: ``x86_64`` or ``aarch64``.
    """
    stream.write(bytes(_PAGE))
    size = sum(stream.write(part) for part in parts)
    text = b"\0" + b"\0".join(it.encode() for it in (name, *_SECTION_NAMES)) + b"\0"
    names_at = _PAGE + size
    symbols_at = names_at + len(text)
    symbol = text.index(name.encode()), _GLOBAL_OBJECT, _HIDDEN, 1, 0, size
    stream.write(text + bytes(_SYMBOL.size) + _SYMBOL.pack(*symbol))
    data, stack, symbols, names = (text.index(it.encode()) for it in _SECTION_NAMES)
    heads = [
        (0,) * 10,
        (data, _BITS, _ALLOCATED, 0, _PAGE, size, 0, 0, _PAGE, 0),
        # Without it, linkers take the stack for one that code runs on.
        (stack, _BITS, 0, 0, names_at, 0, 0, 0, 1, 0),
        (symbols, _SYMBOLS, 0, 0, symbols_at, 2 * _SYMBOL.size, 4, 1, 8, _SYMBOL.size),
        (names, _NAMES, 0, 0, names_at, len(text), 0, 0, 1, 0),
    ]
    begin = symbols_at + 2 * _SYMBOL.size
    stream.write(b"".join(_SECTION.pack(*head) for head in heads))
    sizes = _HEADER.size, 0, 0, _SECTION.size, len(heads), len(heads) - 1
    machine = _RELOCATABLE, _MACHINES[architecture], _VERSION
    stream.seek(0)
    stream.write(_HEADER.pack(_HEAD + bytes([_VERSION]), *machine, 0, 0, begin, 0, *sizes))


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


# Codes of DLPack.
_KINDS = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


@frozen
class Taken:
    """A tensor that a function of TVM-FFI takes.

    Attributes:
        argument: What it has to be.
        numbers: Which arguments, of the function that is called, it becomes.
    """

    argument: Argument
    numbers: tuple[int, ...]


@frozen(eq=False)
class Entry:
    """A function as TVM-FFI looks it up.

    Attributes:
        name: The name that it is found by.
        kernel: The name of the kernel that it is of.
        call: The function that it calls.
        taken: Its tensors, which become all arguments of that.
    """

    name: str
    kernel: str
    call: Call
    taken: tuple[Taken, ...]

    @staticmethod
    def of(kernel: Kernel, call: Call, name: str = "") -> Entry:
        """A function of a kernel by its own name, or another one, with its own arguments."""
        taken = (Taken(argument, (number,)) for number, argument in enumerate(call.arguments))
        return Entry(name or call.name, kernel.name, call, tuple(taken))


def ffi_file(
    kernels: Sequence[Kernel], entries: Sequence[Entry], sizes: Sequence[Size] = ()
) -> str:
    """A source file of C that defines functions as TVM-FFI looks them up.

    Args:
        kernels: Those of one number of threads, which the file calls.
        entries: Functions that call theirs.
        sizes: What says how much memory packed constants take.
    """
    constants = (
        '#define EXPORTED __attribute__((visibility("default")))\n'
        f"enum {{ THREADS = {kernels[0].threads} }};\n"
    )
    return "\n".join(
        [
            *map(header, kernels),
            constants,
            _source("ffi_tensors.c"),
            _source("ffi_kernels.c"),
            *map(_sized, sizes),
            *map(_called, entries),
        ]
    )


def _source(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _function(name: str, lines: Iterable[str]) -> str:
    parameters = "void *self, const any *given, int32_t count, any *result"
    body = "".join(f"  {line}\n" for line in ("(void)self;", *lines))
    return f"EXPORTED int __tvm_ffi_{name}({parameters}) {{\n{body}}}\n"


def _sized(size: Size) -> str:
    lines = (
        "(void)given;",
        f'if (count) return error("TypeError", "{size.name}: takes no argument");',
        f"return returned(result, INTEGER, (int64_t){size.name}());",
    )
    return _function(size.name, lines)


def _called(entry: Entry) -> str:
    call, name, shapes, wanted = entry.call, entry.name, [], []
    given = [""] * len(call.arguments)
    for number, taken in enumerate(entry.taken):
        argument = taken.argument
        # Memory without an element type is a row of bytes.
        bytes_of = f"(int64_t){entry.kernel}_{argument.name}_bytes()"
        extents = ", ".join(map(str, argument.shape)) if argument.dtype else bytes_of
        shapes.append(f"const int64_t shape{number}[] = {{{extents or '1'}}};")
        rank = len(argument.shape)
        wanted.append((f'"{argument.name}"', argument.dtype or "uint8", rank, f"shape{number}"))
        for at in taken.numbers:
            given[at] = f"arrays[{number}]"
    scratch = []
    if call.scratch is not None:
        _, size = call.scratch
        given += ["scratch", "bytes", "THREADS", "launch", "0"]
        scratch = [
            "autotune_launch *launch = has_threads() ? launched : 0;",
            f"size_t bytes = {size.name}(THREADS);",
            "void *scratch = bytes ? scratch_of(bytes) : 0;",
            f'if (bytes && !scratch) return error("MemoryError", "{name}: %zu bytes of scratch '
            'memory cannot be had", bytes);',
        ]
    lines = (
        *shapes,
        *_taken(name, f"{len(wanted)} tensors", wanted),
        *scratch,
        f"int status = {call.name}({', '.join(given)});",
        "returned(result, NONE, 0);",
        f'return finished("{name}", status);',
    )
    return _function(name, lines)


Told = tuple[str, str, int, str]
"""A tensor: its name as text of C, its element type, how many dimensions it has, and the name of
its shape in C."""


def _taken(function: str, about: str, tensors: Sequence[Told]) -> list[str]:
    """Lines that read all arguments into ``arrays``."""
    rows = []
    for name, dtype, rank, shape in tensors:
        kind = dtype.rstrip("0123456789")
        bits = 8 if dtype == "bool" else int(dtype.removeprefix(kind))
        rows.append(f'    {{{name}, "{dtype}", {rank}, {{{_KINDS[kind]}, {bits}, 1}}, {shape}}},')
    count = len(tensors)
    return [
        "const expected wanted[] = {\n" + "\n".join(rows) + "\n  };",
        f"void *arrays[{count}];",
        f'if (all_taken("{function}", "{about}", given, count, {count}, wanted, arrays))',
        "  return -1;",
    ]


def ffi_network(tensors: Sequence[Told], inputs: int, run: str, error: str) -> str:
    """C that defines the function ``main`` of a network, which takes inputs and then outputs.

    Args:
        tensors: Both.
        inputs: How many are inputs.
        run: The function of C that is called with the arrays of both, and returns 0.
        error: The function that says what was wrong else.
    """
    count = len(tensors)
    about = f"{count} tensors, {inputs} inputs and then {count - inputs} outputs"
    lines = (
        *_taken("main", about, tensors),
        "returned(result, NONE, 0);",
        f"if (!{run}((const void *const *)arrays, arrays + {inputs})) return 0;",
        f'return error("RuntimeError", "main: %s", {error}());',
    )
    return _source("ffi_tensors.c") + _function("main", lines)
