"""The operators of torch, in groups; each is a function of a :class:`~..call.Call`.

They have the names of ATen, without overloads: a call has its arguments by the names of torch's
schema, whatever the overload. What is missing is expanded by torch (:mod:`..reader`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from autotune.networks.readers.torch.call import Operator
from autotune.networks.readers.torch.operators.arithmetic import ARITHMETIC
from autotune.networks.readers.torch.operators.products import PRODUCTS
from autotune.networks.readers.torch.operators.shapes import INDEXING, SHAPES
from autotune.networks.readers.torch.operators.windows import WINDOWS

__all__ = ["OPERATORS"]

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {**ARITHMETIC, **SHAPES, **INDEXING, **PRODUCTS, **WINDOWS}
)
"""By name."""
