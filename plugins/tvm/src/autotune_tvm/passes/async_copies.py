"""Copies from global to shared memory that a thread begins and does not wait for.

Since sm_80 a thread can have up to 16 bytes copied past its registers (``cp.async``), ask for the
end of a group of copies, and wait until at most so many of its groups are on their way. TVM 0.27
writes such copies behind ``ThreadSync``, which has put barriers around the stores by then. Here
calls take the place of stores before, as inline PTX, and barriers are where the schedule put them.

Copies that are rounded to TF32 on their way are calls in the same places, which threads wait for.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import DataType, tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.ir import Call, IRModule, Op, TensorLoad
from tvm_ffi import structural_map

from autotune.lower.instructions.fetches import COPIED_BYTES, COPIES, ROUNDING_COPIES, waiting
from autotune_tvm.linked_text import with_functions

__all__ = [
    "async_copies",
    "end_of_group",
    "marked",
    "wait_for_group",
]

_MARK = "autotune.async_copies"
_COPIED, _ROUNDED = 1, 2
_CONDITIONAL = Op.get("prim.if_then_else")


def marked(copies: Any, *, rounded: bool = False) -> Any:
    """Statements whose stores are to be asynchronous copies, or copies rounded to TF32."""
    kind = tirx.const(_ROUNDED if rounded else _COPIED, "int32")
    return tirx.AttrStmt(tirx.const(0, "int32"), _MARK, kind, copies)


def end_of_group() -> Any:
    """Close the group of what a thread has begun to copy since the last call."""
    return _called("autotune_end_copies")


def wait_for_group(on_their_way: int) -> Any:
    """Wait until at most so many of a thread's groups are on their way, less than most stages."""
    return _called(waiting(on_their_way))


def async_copies(module: IRModule) -> IRModule:
    """A module on vectors whose marked stores are asynchronous or rounded copies.

    Raises:
        ValueError: one of them is no copy of 4, 8 or 16 bytes that lie together, or of zeros.
    """

    def changed(node: Any) -> Any:
        if node.attr_key != _MARK:
            return node
        kind = "round" if int(node.value) == _ROUNDED else "copy"
        return structural_map(node.body, (tirx.BufferStore, partial(_copy, kind)))

    return with_functions(module, lambda it: structural_map(it, (tirx.AttrStmt, changed)))


def _copy(kind: str, store: Any) -> Any:
    """The call in place of a store of elements of global memory, or of zeros, by a condition.

    Args:
        kind: ``copy`` or ``round``, which is how the functions are called.
        store: The store.
    """
    value, conditions = store.value, list[Any]()
    while (chosen := _chosen(value)) is not None:
        condition, value, other = chosen
        if not _is_zero(other):
            raise ValueError(f"no asynchronous copy: elements or {other}")
        conditions.append(condition)
    size = DataType(str(value.ty.dtype))
    width = size.bits * size.lanes // 8
    if width not in COPIED_BYTES:
        raise ValueError(f"no asynchronous copy: {width} bytes of {store.buffer.name}")
    if kind == "round" and not str(value.ty.dtype).startswith("float32"):
        raise ValueError(f"no copy that is rounded to TF32: {store.buffer.name} is {value.ty}")
    text = ROUNDING_COPIES if kind == "round" else COPIES
    to = _address(store.buffer, store.indices)
    if _is_zero(value):
        return _called(f"autotune_zero_{width}", to)
    if not isinstance(value, TensorLoad):
        raise ValueError(f"no asynchronous copy: {store.buffer.name} holds {value}")
    place = _address(value.source, value.indices)
    if not conditions:
        return _called(f"autotune_{kind}_{width}", to, place, text=text)
    valid = conditions[0]
    for condition in conditions[1:]:
        valid = tirx.And(valid, condition)
    valid = tirx.Cast("int32", valid)
    return _called(f"autotune_{kind}_{width}_if", to, place, valid, text=text)


def _chosen(value: Any) -> tuple[Any, Any, Any] | None:
    """Condition, value where it holds, and elsewhere; None where a value has no condition."""
    if isinstance(value, tirx.Select):
        return value.condition, value.true_value, value.false_value
    if isinstance(value, Call) and value.op.same_as(_CONDITIONAL):
        condition, first, second = value.args
        return condition, first, second
    return None


def _is_zero(value: Any) -> bool:
    if isinstance(value, (tirx.Cast, tirx.Broadcast)):
        return _is_zero(value.value)
    return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and value.value == 0


def _address(buffer: Any, indices: Any) -> Any:
    """Address at which the elements at consecutive indices begin."""
    (index,) = indices
    if isinstance(index, tirx.Ramp):
        if not isinstance(index.stride, tirx.IntImm) or int(index.stride.value) != 1:
            raise ValueError(f"no asynchronous copy: elements of {buffer.name} lie apart")
        index = index.base
    if isinstance(index, tirx.Broadcast) or DataType(str(index.ty.dtype)).lanes > 1:
        raise ValueError(f"no asynchronous copy: elements of {buffer.name} lie apart")
    return tirx.address_of(tirx.BufferLoad(buffer, [index]))


def _called(name: str, *arguments: Any, text: str | None = None) -> Any:
    return tirx.Evaluate(cuda_func_call(name, *arguments, source_code=text or COPIES))
