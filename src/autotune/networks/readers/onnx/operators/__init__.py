"""The operators of ONNX, in groups; each is a function of a :class:`~..call.Call`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from autotune.networks.readers.onnx.call import Operator
from autotune.networks.readers.onnx.operators.arithmetic import ARITHMETIC
from autotune.networks.readers.onnx.operators.contributed import CONTRIBUTED
from autotune.networks.readers.onnx.operators.control_flow import CONTROL_FLOW
from autotune.networks.readers.onnx.operators.products import PRODUCTS
from autotune.networks.readers.onnx.operators.quantised import QUANTISED, in_bytes
from autotune.networks.readers.onnx.operators.shapes import SHAPES
from autotune.networks.readers.onnx.operators.windows import WINDOWS

__all__ = ["OPERATORS"]

_GROUPS = ARITHMETIC, SHAPES, PRODUCTS, WINDOWS, QUANTISED, CONTROL_FLOW

OPERATORS: Mapping[tuple[str, str], Operator] = MappingProxyType(
    {("", name): in_bytes(name, it) for group in _GROUPS for name, it in group.items()}
    | {("com.microsoft", name): operator for name, operator in CONTRIBUTED.items()}
)
"""By domain and name. Those that are missing may be functions of others (:mod:`..reader`)."""
