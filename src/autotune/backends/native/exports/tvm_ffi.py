"""The functions of a kernel for TVM-FFI: what checks tensors, and calls them.

The text needs no header of TVM-FFI: ``ffi_tensors.c`` declares its binary interface. The one
function of its library that is called makes an error, and is looked up then: a program that
calls this library by TVM-FFI has it. Where TVM's runtime loads the library, it fills in the
function that starts tasks on its threads, which stays null elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources

from attrs import frozen

from autotune.backends.native.exports.c_interface import header
from autotune.backends.native.exports.kernel import Argument, Call, Kernel, Size

__all__ = ["Entry", "Taken", "ffi_file", "ffi_network"]

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
