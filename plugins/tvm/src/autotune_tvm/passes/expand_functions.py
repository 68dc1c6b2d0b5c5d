"""Elementary functions as arithmetic that vectorises.

LLVM calls the C library for ``exp`` and similar functions once per element, also in vectors:
TVM's is built without the option that would give it a library of vector functions. Here they
become the forms of :mod:`autotune.lower.elementary`, as functions in LLVM's text form that TVM
links into the program and LLVM inlines. Expressions of TIR would not do: its analyzer
substitutes what has a name into every use, which takes exponential time where functions are
nested.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from tvm import DataType, DataTypeCode, tirx
from tvm.ir import Call, IRModule
from tvm.target import codegen
from tvm_ffi import structural_map

from autotune.lower.elementary import (
    ELEMENTARY,
    Arithmetic,
    BitOperation,
    Comparison,
    FloatOperation,
)
from autotune_tvm.linked_text import with_functions, with_linked

__all__ = ["expand_functions"]

_INTEGERS = {"and": "and", "or": "or", "shl": "shl", "shr": "ashr"}
_POWERS: Mapping[int, Callable[[Arithmetic, Any], Any]] = {
    2: lambda on, x: on.mul(x, x),
    3: lambda on, x: on.mul(on.mul(x, x), x),
}
"""More factors would be less precise than the function."""

_SCALE: Mapping[int, tuple[str, str, str]] = {
    16: ("i16", ", i32", ", i32 4"),
    8: ("i8", "", ""),
    4: ("i8", "", ""),
}
"""Instructions by which AVX-512 multiplies vectors by powers of two, by lanes: the type of the
intrinsic's mask, and the type and value of what says how it rounds."""

_FORMS: Mapping[str, Callable[[Arithmetic, Any], Any]] = {
    **ELEMENTARY,
    **{f"power_{exponent}": form for exponent, form in _POWERS.items()},
}


def expand_functions(module: IRModule) -> IRModule:
    """The module with functions of half and single precision written out, of scalars and vectors.

    Half precision is computed in single; double precision stays as it is, and so do functions
    that have no form. Squares and cubes become products. Loops are expected to be vectors
    already: what is put in is opaque to TVM. What a function's target has instructions for is done
    by those.
    """
    return with_functions(module, _in_function)


def _in_function(function: Any) -> Any:
    used: dict[str, str] = {}
    widths = _scaled_widths(function)
    changed = structural_map(function, (Call, lambda call: _expanded(call, used, widths)))
    if not used:
        return function
    return with_linked(changed, [used[name] for name in sorted(used)])


def _scaled_widths(function: Any) -> frozenset[int]:
    """Lanes of the vectors that the function's target multiplies by powers of two at once."""
    target = function.attrs.get("target") if function.attrs is not None else None
    if target is None or str(target.kind) != "llvm":
        return frozenset()
    has = codegen.target_has_features
    if not has("avx512f", target):
        return frozenset()
    return frozenset(_SCALE) if has("avx512vl", target) else frozenset((max(_SCALE),))


def _is_split(lanes: int, width: int) -> bool:
    """Return whether vectors are of so many lanes, or twice, four times and so on as many."""
    count, rest = divmod(lanes, width)
    return rest == 0 and count.bit_count() == 1


def _expanded(call: Any, used: dict[str, str], widths: frozenset[int]) -> Any:
    """The call, or one of a function that is added to ``used``: definitions by name.

    Args:
        call: Any call.
        used: Added to.
        widths: Lanes of the vectors that are scaled by an instruction.
    """
    name = _form(call)
    if name is None:
        return call
    dtype = DataType(str(call.ty.dtype))
    if dtype.type_code != DataTypeCode.FLOAT or dtype.bits not in (16, 32):
        return call
    single = f"float32x{dtype.lanes}" if dtype.lanes > 1 else "float32"
    operand = call.args[0] if dtype.bits == 32 else tirx.Cast(single, call.args[0])
    linked = f"autotune_{name}_{dtype.lanes}"
    used.update(_definition(name, dtype.lanes, widths))
    result = tirx.call_pure_extern(single, linked, operand)
    return result if dtype.bits == 32 else tirx.Cast(str(dtype), result)


def _form(call: Any) -> str | None:
    """The form that computes what a call does; None where there is none."""
    name = str(getattr(call.op, "name", "")).removeprefix("tirx.")
    if name in ELEMENTARY:
        return name
    if name != "pow":
        return None
    exponent = call.args[1]
    if isinstance(exponent, tirx.Broadcast):
        exponent = exponent.value
    known = isinstance(exponent, tirx.FloatImm) and exponent.value in _POWERS
    return f"power_{int(exponent.value)}" if known else None


@lru_cache(maxsize=256)
def _definition(name: str, lanes: int, widths: frozenset[int]) -> Mapping[str, str]:
    """A function in LLVM's text form, and declarations of what it calls, by name."""
    text = _Text(lanes, widths)
    result = _FORMS[name](text, "%x")
    body = "\n".join(f"  {line}" for line in (*text.lines, f"ret {text.float} {result}"))
    linked = f"autotune_{name}_{lanes}"
    head = f"define {text.float} @{linked}({text.float} %x) alwaysinline nounwind"
    return {**text.declared, linked: f"{head} {{\n{body}\n}}\n"}


class _Text(Arithmetic):
    """Operations as lines of LLVM's text form; values are names.

    TVM lets LLVM fuse products with sums wherever the processor can.

    Args:
        lanes: Of the vectors, 1 for scalars.
        widths: Lanes of the vectors that are scaled by an instruction.

    Attributes:
        lines: The operations.
        declared: Declarations of what they call, by name.
        scales: Whether the vectors are scaled by an instruction, whole or in parts.
    """

    def __init__(self, lanes: int, widths: frozenset[int]) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self._width = max((width for width in widths if _is_split(lanes, width)), default=0)
        self.scales = bool(self._width)
        self.float = self._typed("float", lanes)
        self._lanes = lanes
        self._integer = self._typed("i32", lanes)
        self._truth = self._typed("i1", lanes)

    @staticmethod
    def _typed(element: str, lanes: int) -> str:
        return f"<{lanes} x {element}>" if lanes > 1 else element

    def _line(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def _value(self, operand: Any) -> str:
        """A name, or a constant in every lane."""
        if isinstance(operand, str):
            return operand
        if isinstance(operand, int):
            element, number = "i32", str(operand)
        else:
            # Constants of single precision are written as the same numbers in double precision.
            (rounded,) = struct.unpack("f", struct.pack("f", operand))
            element, number = "float", f"0x{struct.pack('>d', rounded).hex().upper()}"
        if self._lanes == 1:
            return number
        return f"<{', '.join([f'{element} {number}'] * self._lanes)}>"

    def floats(self, operation: FloatOperation, left: Any, right: Any) -> str:
        """See :class:`Arithmetic`."""
        operands = f"{self._value(left)}, {self._value(right)}"
        return self._line(f"f{operation} {self.float} {operands}")

    def integers(self, operation: BitOperation, left: Any, right: Any) -> str:
        """See :class:`Arithmetic`."""
        operands = f"{self._value(left)}, {self._value(right)}"
        return self._line(f"{_INTEGERS[operation]} {self._integer} {operands}")

    def where(self, comparison: Comparison, left: Any, right: Any, yes: Any, no: Any) -> str:
        """See :class:`Arithmetic`."""
        operands = f"{self._value(left)}, {self._value(right)}"
        condition = self._line(f"fcmp o{comparison} {self.float} {operands}")
        values = f"{self.float} {self._value(yes)}, {self.float} {self._value(no)}"
        return self._line(f"select {self._truth} {condition}, {values}")

    def bits(self, value: Any) -> str:
        """See :class:`Arithmetic`."""
        return self._line(f"bitcast {self.float} {value} to {self._integer}")

    def of_bits(self, value: Any) -> str:
        """See :class:`Arithmetic`."""
        return self._line(f"bitcast {self._integer} {value} to {self.float}")

    def converted(self, value: Any) -> str:
        """See :class:`Arithmetic`."""
        return self._line(f"sitofp {self._integer} {value} to {self.float}")

    def scaled(self, value: Any, power: Any) -> str:
        """See :class:`Arithmetic`."""
        width, part = self._width, self._typed("float", self._width)
        mask, more, rounding = _SCALE[width]
        name = f"llvm.x86.avx512.mask.scalef.ps.{32 * width}"
        self.declared[name] = f"declare {part} @{name}({part}, {part}, {part}, {mask}{more})"
        parts = []
        for start in range(0, self._lanes, width):
            own = [f"{part} {self._lanes_from(it, start)}" for it in (value, power)]
            given = ", ".join((*own, f"{part} zeroinitializer", f"{mask} -1{rounding}"))
            parts.append(self._line(f"call {part} @{name}({given})"))
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts, width = [self._joined(*pair, width) for pair in pairs], 2 * width
        return parts[0]

    def _lanes_from(self, value: str, start: int) -> str:
        """The lanes of a vector that are scaled at once, from one on."""
        width = self._width
        if width == self._lanes:
            return value
        return self._shuffled(value, "poison", self._lanes, range(start, start + width))

    def _joined(self, left: str, right: str, lanes: int) -> str:
        return self._shuffled(left, right, lanes, range(2 * lanes))

    def _shuffled(self, left: str, right: str, lanes: int, chosen: range) -> str:
        kind = self._typed("float", lanes)
        places = ", ".join(f"i32 {place}" for place in chosen)
        operands = f"{kind} {left}, {kind} {right}"
        return self._line(f"shufflevector {operands}, <{len(chosen)} x i32> <{places}>")
