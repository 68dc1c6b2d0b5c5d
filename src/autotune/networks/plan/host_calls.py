"""Operators of the host that a driver in this process calls: functions of C that call numpy."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.ir.element_types import element_type
from autotune.networks.graph import Node, input_value
from autotune.networks.graph.host import run_on_host
from autotune.networks.plan.loading import table_of
from autotune.networks.plan.plan import HostCall, Operand

__all__ = ["HostTable"]

Array = NDArray[Any]

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int64)


class HostTable:
    """Functions that a driver calls for operators of the host.

    Args:
        calls: The calls, in order.
    """

    def __init__(self, calls: Sequence[HostCall]) -> None:
        self._calls = [(_node(call), (*call.operands, *call.results)) for call in calls]
        self._errors = threading.local()
        self._function = _FUNCTION(self._run)
        address = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        self.table = table_of([address] * len(calls))

    def error(self) -> BaseException:
        """Error that the latest failed call in this thread has raised."""
        found: BaseException = self._errors.last
        return found

    def _run(self, pointers: Any, number: int) -> int:
        try:
            node, operands = self._calls[number]
            arrays = [
                _array_at(pointers[position], operand) for position, operand in enumerate(operands)
            ]
            count = len(node.operands)
            found = run_on_host(node, arrays[:count])
            for target, result in zip(arrays[count:], found, strict=True):
                target[...] = result
        except BaseException as error:  # C knows none; the caller of the driver raises it
            self._errors.last = error
            return 1
        return 0


def _node(call: HostCall) -> Node:
    operands = (
        input_value(f"operand{number}", it.shape, it.dtype)
        for number, it in enumerate(call.operands)
    )
    results = tuple((it.shape, it.dtype) for it in call.results)
    return Node(call.operator, tuple(operands), results, name=call.label)


def _array_at(address: int, operand: Operand) -> Array:
    """An array in memory that a program gives."""
    kind = element_type(operand.dtype).dtype
    if not operand.bytes:
        return np.empty(operand.shape, kind)
    memory: Any = (ctypes.c_char * operand.bytes).from_address(address)
    return np.frombuffer(memory, kind).reshape(operand.shape)
