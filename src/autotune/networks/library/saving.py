"""Writing a network as a shared library: kernels, weights, plan, host operators, threads.

What is compiled here is some C; kernels are the machine code that was measured.

In the process that builds a network its operators of the host stay those of numpy, which are the
reference: C needs a compiler there, and they are a small part of any network.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from math import isinf, isnan
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.backends import ALIGNMENT
from autotune.backends.native.exports import (
    Machine,
    check_header,
    ffi_network,
    find_compiler,
    link_library,
    machine_of,
    with_prefix,
    write_data_object,
)
from autotune.backends.native.exports.features import TILES, detector
from autotune.backends.native.machine_code import compile_library
from autotune.backends.native.printed import PrintedProgram
from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph.making import BITWISE, FUNCTIONS
from autotune.networks.plan.cpu_network import BuiltPlan, written_steps
from autotune.runtime.arrays import NetworkTensor
from autotune.runtime.plan import Check, HostCall, Operand, Plan, leaves
from autotune.store.jsonl import replacing
from autotune.targets import Target

__all__ = [
    "HOST_TYPES",
    "Held",
    "MOST_EMBEDDED",
    "check_saving",
    "host_tables",
    "operators_text",
    "save_library",
    "told_of",
]

Array = NDArray[Any]

MOST_EMBEDDED = (2 << 30) - (64 << 20)
"""Bytes of weights, at most, that code in one library can address; more go in a file beside it."""

_PAGE = 4096
_PURPOSE = "a network as a shared library"
_MARK = "tuned by autotune"
_WEIGHTS = "autotune_network_weights"


@frozen(eq=False)
class Held:
    """Array that a network keeps between calls: the next call reads what the last one wrote.

    Attributes:
        input: Number of the input that is read.
        output: Number of the output that is written.
        begin: What the first call reads, as programs have it.
    """

    input: int
    output: int
    begin: Array


@frozen(eq=False)
class _Signature:
    """Parts of a plan that callers see.

    Attributes:
        inputs: What they give.
        outputs: What they are given.
        held: What the library keeps of the others.
        input_slots: Numbers of ``inputs`` in the plan.
        output_slots: Numbers of ``outputs`` in the plan.
    """

    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    held: tuple[Held, ...]
    input_slots: tuple[int, ...]
    output_slots: tuple[int, ...]

    @classmethod
    def of(cls, plan: Plan[PrintedProgram], held: Sequence[Held]) -> _Signature:
        """Signature of a plan of which some inputs and outputs are kept."""
        kept = {it.input for it in held}, {it.output for it in held}
        ins, outs = (
            tuple(at for at in range(len(tensors)) if at not in own)
            for tensors, own in zip((plan.inputs, plan.outputs), kept, strict=True)
        )
        inputs = tuple(plan.inputs[at] for at in ins)
        return cls(inputs, tuple(plan.outputs[at] for at in outs), tuple(held), ins, outs)


def save_library(
    name: str,
    built: BuiltPlan,
    path: Path,
    most_embedded: int = MOST_EMBEDDED,
    held: Sequence[Held] = (),
) -> tuple[str, ...]:
    """Write a network as a shared library with a header beside it.

    Args:
        name: What people call the network.
        built: The network.
        path: The file, whose name ends in ``.so``.
        most_embedded: Bytes of weights beyond which they go in a file of their own.
        held: What it keeps between calls.

    Returns:
        What a person should know about the files, a line each.

    Raises:
        InvalidValueError: the file has another ending or cannot be written, or the header would
            replace one that was written by hand.
        BuildFailed: there is no C compiler, or it cannot link the library.
    """
    check_saving(path, built.target)
    header_path, weights_path = path.with_suffix(".h"), path.with_suffix(".weights")
    plan, machine = built.plan, machine_of(built.target)
    features = _features(plan, machine)
    seen = _Signature.of(plan, held)
    header = _header(seen, name, built)
    constants = [*built.constants, *(it.begin for it in held)]
    offsets, size = _offsets(constants)
    beside = None
    with tempfile.TemporaryDirectory() as folder:
        weights, whole = Path(folder, "weights.o"), Path(folder, "whole.so")
        with weights.open("wb") as stream:
            parts = _parts(constants)
            if size <= most_embedded:
                write_data_object(stream, _WEIGHTS, parts, machine.architecture)
            else:
                beside = weights_path.name, size, _write_weights(stream, parts)
        tables = _tables(name, built, seen, features, offsets, beside)
        source = ["#define _GNU_SOURCE", header, operators_text(), tables, _packaged("runtime.c")]
        files = {
            "network.c": "\n".join([*source, _ffi(seen)]).encode(),
            "lacks.o": _lacks(features, machine),
            **_shared_sources(),
            **_programs(built),
        }
        for file, data in files.items():
            Path(folder, file).write_bytes(data)
        paths = [Path(folder, file) for file in files if not file.endswith(".h")]
        link_library([*paths, weights] if beside is None else paths, machine, _PURPOSE, whole)
        if beside is not None:
            _copy(weights, weights_path)
        with replacing(header_path) as stream:
            stream.write(header.encode())
        _copy(whole, path)
    return _remarks(path, header_path, weights_path if beside else None)


def check_saving(path: Path, target: Target) -> None:
    """Check that a library for a CPU can be written to a path.

    Raises:
        InvalidValueError: there is no such folder, the name has another ending, or the header
            beside it would replace one that was written by hand.
        BuildFailed: there is no C compiler.
    """
    if path.suffix != ".so":
        raise InvalidValueError(
            f"a network is written as a shared library, whose name ends in .so, and {str(path)!r} "
            "does not"
        )
    if not path.parent.is_dir():
        raise InvalidValueError(f"{str(path)!r}: there is no folder {str(path.parent)!r}")
    check_header(path.with_suffix(".h"))
    find_compiler(machine_of(target), _PURPOSE)


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as stream, source.open("rb") as given:
        shutil.copyfileobj(given, stream, 1 << 24)


def _programs(built: BuiltPlan) -> dict[str, bytes]:
    """Object files of the programs, whose functions have names of their own."""
    return {
        f"program{number}.o": with_prefix(code, f"program{number}_")
        for number, code in enumerate(built.objects.values())
    }


def _remarks(path: Path, header: Path, weights: Path | None) -> tuple[str, ...]:
    lines = [f"{path}: called as {header} declares, or by autotune.load_network({str(path)!r})"]
    if weights is not None:
        lines.append(f"{weights}: the weights, which have to stay beside {path.name}")
    return tuple(lines)


def _features(plan: Plan[PrintedProgram], machine: Machine) -> tuple[str, ...]:
    """Features asked of the processor; no compiler uses tile registers by itself."""
    uses_tiles = any(program.layout.uses_tiles for program in plan.programs.values())
    return tuple(it for it in machine.features if uses_tiles or it not in TILES)


def _lacks(features: Sequence[str], machine: Machine) -> bytes:
    """The object file that tells the first extension that the processor lacks; -1 for none."""
    name = "autotune_network_lacks"
    if not machine.is_x86:
        text = f"define i32 @{name}() {{\n  ret i32 -1\n}}\n"
        return compile_library([text], machine.triple, machine.tuned_for, {name})
    # All of them, or all but the last, and so on: what is missing first says which lists fit.
    lists = [features[:count] for count in range(len(features), -1, -1)]
    lacks = (
        f"define i32 @{name}() {{\n"
        "  %chosen = call i32 @processor()\n"
        "  %whole = icmp eq i32 %chosen, 0\n"
        f"  %first = sub i32 {len(features)}, %chosen\n"
        "  %found = select i1 %whole, i32 -1, i32 %first\n"
        "  ret i32 %found\n}\n"
    )
    text = f"{detector('processor', lists)}\n\n{lacks}"
    return compile_library([text], machine.triple, "x86-64", {name})


def _offsets(constants: Sequence[Array | None]) -> tuple[list[int], int]:
    """Offsets of constants in the weights, and the size of those."""
    found, size = [], 0
    for array in constants:
        found.append(size)
        size += 0 if array is None else -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return found, max(size, ALIGNMENT)


def _parts(constants: Sequence[Array | None]) -> Iterator[memoryview]:
    """The weights, part by part; there is one byte at least."""
    yield memoryview(bytes(0 if any(it is not None for it in constants) else ALIGNMENT))
    for array in constants:
        if array is not None:
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            yield memoryview(bytes(-array.nbytes % ALIGNMENT))


def _write_weights(stream: BinaryIO, parts: Iterator[memoryview]) -> str:
    """Write a page with the digest of the weights, and the weights; returns their digest."""
    digest = hashlib.sha256()
    stream.write(bytes(_PAGE))
    for part in parts:
        digest.update(part)
        stream.write(part)
    stream.seek(0)
    stream.write(digest.hexdigest().encode())
    return digest.hexdigest()


def _header(seen: _Signature, name: str, built: BuiltPlan) -> str:
    """The header, for C and C++."""
    state = [built.plan.inputs[it.input] for it in seen.held]
    lines = [
        f"/* {_plain(name)}: a network {_MARK}, for {_plain(built.target.name)}.\n",
        *_listed("inputs", seen.inputs),
        *_listed("outputs", seen.outputs),
        *(_listed("state", state) if state else ()),
        "*/",
        "#ifndef AUTOTUNE_NETWORK_H",
        "#define AUTOTUNE_NETWORK_H",
        _packaged("network.h"),
        "#endif",
    ]
    return "\n".join(lines)


def _listed(title: str, tensors: Sequence[NetworkTensor]) -> list[str]:
    rows = [
        f"     {number} {_plain(it.name)}: {it.dtype}{list(it.shape)}"
        for number, it in enumerate(tensors)
    ]
    return [f"   {title}:", *rows]


def _plain(text: str) -> str:
    """Text that ends no comment of C."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("\n", " ")


def _packaged(name: str, package: str = __package__) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _shared_sources() -> dict[str, bytes]:
    """Sources that the core's native module is made of, too."""
    packages = {"thread_pool": "autotune.backends.native", "steps": "autotune.networks.plan"}
    return {
        f"{name}.{ending}": _packaged(f"{name}.{ending}", package).encode()
        for name, package in packages.items()
        for ending in ("c", "h")
    }


_TYPES = """\
#include "steps.h"
typedef int32_t (*program)(void **, autotune_step_launch *, void *);
typedef int (*host_address)(void *const *, int64_t);
typedef struct { const char *label, *allowed; int divides, is_unsigned; } check;
static int host_step(void *const *arrays, int64_t number);"""


def _tables(
    name: str,
    built: BuiltPlan,
    seen: _Signature,
    features: Sequence[str],
    offsets: Sequence[int],
    beside: tuple[str, int, str] | None,
) -> str:
    """C of what is in this network, for ``runtime.c``.

    Args:
        name: What people call the network.
        built: The network.
        seen: What callers see of it.
        features: What the processor has to have.
        offsets: Where constants, and then what the state begins with, lie in the weights.
        beside: Name of the file with the weights, their size and their digest; None where they
            are in the library.
    """
    plan = built.plan
    steps = [*leaves(plan.steps)]
    host = [it for it in steps if isinstance(it, HostCall)]
    checks = [_check(it) for it in steps if isinstance(it, Check)]
    programs = plan.programs.values()
    entries = [f"program{number}_run" for number in range(len(programs))]
    scratch = [f"{{{it.memory.fixed}, {it.memory.each}}}" for it in programs]
    return "\n".join(
        [
            *_sizes(name, built, seen, beside),
            c_array("char *const", "needed_features", map(c_text, [*features, ""])),
            *_tensors("input", seen.inputs),
            *_tensors("output", seen.outputs),
            *_tensors("state", [plan.inputs[it.input] for it in seen.held]),
            c_array("int64_t", "constant_offsets", map(str, offsets)),
            *_slots(seen),
            f"static const int64_t scratch_sizes[][2] = {{{', '.join(scratch) or '{0}'}}};",
            host_tables(host),
            _TYPES,
            c_array("host_address", "host_functions", ["host_step"] * len(host)),
            *(f"extern int32_t {it}(void **, autotune_step_launch *, void *);" for it in entries),
            c_array("program", "programs", entries),
            c_array("check", "checks", checks),
            c_array("int64_t", "network_steps", map(_integer, written_steps(plan).tolist())),
        ]
    )


def _slots(seen: _Signature) -> Iterator[str]:
    """C of which arrays of the plan callers give, and which are kept."""
    if seen.held:
        yield c_array("int", "input_slots", map(str, seen.input_slots))
        yield c_array("int", "output_slots", map(str, seen.output_slots))
        yield c_array("int", "state_inputs", [str(it.input) for it in seen.held])
        yield c_array("int", "state_outputs", [str(it.output) for it in seen.held])


def _sizes(
    name: str, built: BuiltPlan, seen: _Signature, beside: tuple[str, int, str] | None
) -> Iterator[str]:
    """C of what else there is to know."""
    about = {
        "schema": "autotune.network",
        "version": 1,
        "name": name,
        "target": built.target.name,
        "threads": built.threads,
    }
    yield f"static const char about_network[] = {c_text(json.dumps(about))};"
    sizes = {
        "INPUTS": len(seen.inputs),
        "OUTPUTS": len(seen.outputs),
        "STATES": len(seen.held),
        "CONSTANTS": len(built.plan.constants),
        "PROGRAMS": len(built.plan.programs),
        "TUNED_THREADS": built.threads,
        "ARENA_BYTES": f"INT64_C({built.plan.arena_bytes})",
        "MADE_FOR": c_text(built.target.name),
    }
    if beside is not None:
        file, size, digest = beside
        sizes["WEIGHTS_FILE"] = c_text(file)
        sizes["WEIGHTS_HEAD"] = f"INT64_C({_PAGE})"
        sizes["WEIGHTS_BYTES"] = f"INT64_C({size})"
        sizes["WEIGHTS_DIGEST"] = c_text(digest)
    yield from (f"#define {key} {value}" for key, value in sizes.items())


def _check(step: Check) -> str:
    """C of a condition: what messages say of it."""
    needed = step.requirement
    allowed = c_text(f"from {needed.low} to {needed.high}")
    is_unsigned = int(step.operand.dtype.startswith("u"))
    return f"{{{c_text(step.label)}, {allowed}, {int(needed.nonzero)}, {is_unsigned}}}"


def _tensors(role: str, tensors: Sequence[NetworkTensor]) -> Iterator[str]:
    """C of inputs or outputs."""
    rows = []
    for number, it in enumerate(tensors):
        shape, name, rank = f"{role}_shape{number}", c_text(it.name), len(it.shape)
        yield c_array("int64_t", shape, map(str, it.shape))
        size = int(np.prod(it.shape, dtype=np.int64)) * element_type(it.dtype).bytes
        rows.append(f"{{{name}, {c_text(it.dtype)}, {rank}, {shape}, {size}}}")
    yield c_array("autotune_network_tensor", f"network_{role}s", rows)


def _ffi(seen: _Signature) -> str:
    """C of what TVM-FFI calls."""
    told = [
        (c_text(it.name), it.dtype, len(it.shape), f"{role}_shape{number}")
        for role, tensors in (("input", seen.inputs), ("output", seen.outputs))
        for number, it in enumerate(tensors)
    ]
    run, error = "autotune_network_run", "autotune_network_error"
    return ffi_network(told, len(seen.inputs), run, error)


HOST_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Element types, in the order of their numbers in C."""

_COMBINERS = ("", "add", "mul", "max", "min")


Told = tuple[tuple[int, ...], tuple[float, ...]]


def _sort(attributes: Mapping[str, Any], operands: Sequence[Operand]) -> Told:
    return (attributes["axis"], int(attributes["descending"]), attributes["count"]), ()


def _unique(attributes: Mapping[str, Any], operands: Sequence[Operand]) -> Told:
    return (attributes["axis"], int(attributes["sorted"])), ()


def _boxes(attributes: Mapping[str, Any], operands: Sequence[Operand]) -> Told:
    element = element_type(operands[1].dtype)
    # numpy compares scores with a number of their own type.
    with np.errstate(over="ignore"):
        least = float(element.numbers(np.empty(0, element.dtype)).dtype.type(attributes["score"]))
    integers = attributes["most"], int(attributes["centred"]), attributes["bound"]
    return integers, (float(attributes["overlap"]), least)


def _nothing(attributes: Mapping[str, Any], operands: Sequence[Operand]) -> Told:
    return (), ()


_TOLD: Mapping[str, Callable[[Mapping[str, Any], Sequence[Operand]], Told]] = MappingProxyType(
    {
        "reshape": _nothing,
        "function": lambda told, _: (([*FUNCTIONS].index(told["function"]),), ()),
        "bitwise": lambda told, _: (([*BITWISE].index(told["function"]),), ()),
        "sort": _sort,
        "nonzero": _nothing,
        "unique": _unique,
        "scatter_along": lambda told, _: (
            (told["axis"], _COMBINERS.index(told["combiner"])),
            (),
        ),
        "scatter_nd": lambda told, _: ((_COMBINERS.index(told["combiner"]),), ()),
        "non_max_suppression": _boxes,
        "determinant": _nothing,
    }
)


def told_of(step: HostCall) -> Told:
    """Integers and numbers that a function of ``host_operators.c`` is told beside its tensors.

    Raises:
        UnknownNameError: there is no such operator in C.
        UnsupportedWorkload: an operand is of a type that a plugin registers.
    """
    kind = step.operator.kind
    if kind not in _TOLD:
        raise UnknownNameError("operator of the host in C", kind, _TOLD)
    for tensor in (*step.operands, *step.results):
        if tensor.dtype not in HOST_TYPES:
            raise UnsupportedWorkload(
                f"{step.label or kind}: operators of the host are in C for "
                f"{', '.join(HOST_TYPES)}, and not for {tensor.dtype}"
            )
    return _TOLD[kind](step.operator.attributes, step.operands)


def operators_text() -> str:
    """The text of ``host_operators.c``."""
    return _packaged("host_operators.c")


def host_tables(steps: Sequence[HostCall]) -> str:
    """C behind ``host_operators.c``: a table ``host_calls`` of what is called, with what."""
    lines, rows = [], []
    for number, step in enumerate(steps):
        tensors, (integers, numbers) = [], told_of(step)
        for at, tensor in enumerate((*step.operands, *step.results)):
            shape = f"shape{number}_{at}"
            lines.append(c_array("int64_t", shape, map(str, tensor.shape)))
            kind = HOST_TYPES.index(tensor.dtype)
            tensors.append(f"{{{kind}, {len(tensor.shape)}, {shape}}}")
        lines += [
            c_array("host_tensor", f"tensors{number}", tensors),
            c_array("int64_t", f"integers{number}", map(_integer, integers)),
            c_array("double", f"numbers{number}", map(_number, numbers)),
        ]
        told = f"tensors{number}, {len(step.operands)}, {len(step.results)}"
        label = c_text(step.label or step.operator.kind)
        given = f"{label}, {told}, integers{number}, numbers{number}"
        rows.append(f"{{host_{step.operator.kind}, {{{given}}}}}")
    lines += [
        "typedef struct {\n  int (*function)(const host_call *, void *const *);\n"
        "  host_call call;\n} host_entry;",
        c_array("host_entry", "host_calls", rows),
    ]
    return "\n".join(lines)


def c_array(kind: str, name: str, values: Iterable[str]) -> str:
    """A constant array of C, never an empty one, which C does not have."""
    listed = ", ".join(values)
    return f"static const {kind} {name}[] = {{{listed or '0'}}};"


def _integer(value: int) -> str:
    return f"INT64_C({value})" if value > -(1 << 63) else "INT64_MIN"


def _number(value: float) -> str:
    if isnan(value):
        return "NAN"
    if isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return value.hex()


def c_text(text: str) -> str:
    """A text as C has it, whatever is in it."""
    plain = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{"".join(plain)}"'
