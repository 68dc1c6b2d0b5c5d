"""Arguments of the host's operators, as tables of C for ``host_operators.c``.

In the process that builds a network its operators of the host stay those of numpy, which are the
reference: C needs a compiler there, and they are a small part of any network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from math import isinf, isnan
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import frozen

from autotune.errors import UnknownNameError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph.host import BITWISE, FUNCTIONS
from autotune.networks.plan.plan import HostCall, Operand

__all__ = [
    "HOST_TYPES",
    "HostEntry",
    "c_array",
    "c_text",
    "entry_of",
    "host_tables",
    "operators_text",
]

HOST_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Element types, in the order of their numbers in C."""

_COMBINERS = ("", "add", "mul", "max", "min")


@frozen
class HostEntry:
    """A call of a function of ``host_operators.c``.

    Attributes:
        function: Its name.
        label: What it is called in messages.
        tensors: Operands and then results.
        operands: How many of them are operands.
        integers: What it is told beside them, in the order in which it reads that.
        numbers: Likewise.
    """

    function: str
    label: str
    tensors: tuple[Operand, ...]
    operands: int
    integers: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()


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


def entry_of(step: HostCall) -> HostEntry:
    """The call of C that a step is.

    Raises:
        UnknownNameError: there is no such operator in C.
        UnsupportedWorkload: an operand is of a type that a plugin registers.
    """
    kind, label = step.operator.kind, step.label or step.operator.kind
    if kind not in _TOLD:
        raise UnknownNameError("operator of the host in C", kind, _TOLD)
    tensors = (*step.operands, *step.results)
    for tensor in tensors:
        if tensor.dtype not in HOST_TYPES:
            raise UnsupportedWorkload(
                f"{label}: operators of the host are in C for {', '.join(HOST_TYPES)}, and not "
                f"for {tensor.dtype}"
            )
    integers, numbers = _TOLD[kind](step.operator.attributes, step.operands)
    return HostEntry(f"host_{kind}", label, tensors, len(step.operands), integers, numbers)


def operators_text() -> str:
    """The text of ``host_operators.c``."""
    found = resources.files(__package__).joinpath("host_operators.c")
    return found.read_text(encoding="utf-8")


def host_tables(entries: Sequence[HostEntry]) -> str:
    """C behind ``host_operators.c``: a table ``host_calls`` of what is called, with what."""
    lines, rows = [], []
    for number, entry in enumerate(entries):
        tensors = []
        for at, tensor in enumerate(entry.tensors):
            shape = f"shape{number}_{at}"
            lines.append(c_array("int64_t", shape, map(str, tensor.shape)))
            kind = HOST_TYPES.index(tensor.dtype)
            tensors.append(f"{{{kind}, {len(tensor.shape)}, {shape}}}")
        lines += [
            c_array("host_tensor", f"tensors{number}", tensors),
            c_array("int64_t", f"integers{number}", map(_integer, entry.integers)),
            c_array("double", f"numbers{number}", map(_number, entry.numbers)),
        ]
        told = f"tensors{number}, {entry.operands}, {len(entry.tensors) - entry.operands}"
        given = f"{c_text(entry.label)}, {told}, integers{number}, numbers{number}"
        rows.append(f"{{{entry.function}, {{{given}}}}}")
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
