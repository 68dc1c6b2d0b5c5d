"""Elementary functions as arithmetic that vectorises.

LLVM calls the C library for ``exp`` and similar functions once per element, also in vectors:
TVM's is built without the option that would give it a library of vector functions. Here they
become the forms of :mod:`autotune.lower.elementary`, as functions in LLVM's text form that TVM
links into the program and LLVM inlines. Expressions of TIR would not do: its analyzer
substitutes what has a name into every use, which takes exponential time where functions are
nested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from tvm import DataType, DataTypeCode, tirx
from tvm.ir import Call, IRModule
from tvm.target import codegen
from tvm_ffi import structural_map

from autotune.lower.arithmetic import EmitterArithmetic
from autotune.lower.elementary import ELEMENTARY, Arithmetic
from autotune.lower.emitter import Value
from autotune.lower.llvm_ir import LLVMEmitter, function_text
from autotune_tvm.linked_text import with_functions, with_linked

__all__ = ["expand_functions"]

_POWERS: Mapping[int, Callable[[Arithmetic, Any], Any]] = {
    2: lambda on, x: on.mul(x, x),
    3: lambda on, x: on.mul(on.mul(x, x), x),
}
"""More factors would be less precise than the function."""

_SCALE: Mapping[int, tuple[Any, ...]] = {16: ("int16", 4), 8: ("int8",), 4: ("int8",)}
"""Instructions by which AVX-512 multiplies vectors by powers of two, by lanes: the type of the
intrinsic's mask, and what says how it rounds."""

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
    used: dict[str, None] = {}
    widths = _scaled_widths(function)
    changed = structural_map(function, (Call, lambda call: _expanded(call, used, widths)))
    if not used:
        return function
    return with_linked(changed, sorted(used))


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


def _expanded(call: Any, used: dict[str, None], widths: frozenset[int]) -> Any:
    """The call, or one of a function that is added to ``used``: definitions.

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
def _definition(name: str, lanes: int, widths: frozenset[int]) -> Mapping[str, None]:
    """A function in LLVM's text form, and declarations of what it calls."""
    width = max((width for width in widths if _is_split(lanes, width)), default=0)

    def made(emitter: LLVMEmitter, x: Value) -> Value:
        on = _Scaling(emitter, width) if width else EmitterArithmetic(emitter)
        found: Value = _FORMS[name](on, x)
        return found

    return dict.fromkeys(function_text(f"autotune_{name}_{lanes}", ("float32", lanes), made))


class _Scaling(EmitterArithmetic):
    """Elementary functions of vectors that an instruction multiplies by powers of two.

    Args:
        emitter: Prints the function.
        width: Lanes that the instruction multiplies at once.
    """

    scales = True

    def __init__(self, emitter: LLVMEmitter, width: int) -> None:
        super().__init__(emitter)
        self._printer, self._width = emitter, width

    def scaled(self, value: Value, power: Value) -> Value:
        """See :class:`Arithmetic`."""
        printer, width = self._printer, self._width
        if value.lanes > width:
            halves = zip(printer.halves(value), printer.halves(power), strict=True)
            lower, upper = (self.scaled(*pair) for pair in halves)
            return printer.shuffled(lower, upper, range(value.lanes))
        zeros = printer.wide(printer.constant(0.0, "float32"), width)
        mask, *rounding = _SCALE[width]
        given = [value, power, zeros, printer.constant(-1, mask)]
        given += [printer.constant(it, "int32") for it in rounding]
        name = f"llvm.x86.avx512.mask.scalef.ps.{32 * width}"
        return printer.intrinsic(name, "float32", width, given)
