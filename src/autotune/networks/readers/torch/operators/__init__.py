"""The operators of torch, in groups; each is a function of a :class:`~..call.Call`.

They have the names of ATen, without overloads: a call has its arguments by the names of torch's
schema, whatever the overload. What is missing is expanded by torch (:mod:`..reader`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from autotune.networks.readers.torch.call import Operator
from autotune.networks.readers.torch.operators.elementwise import ELEMENTWISE
from autotune.networks.readers.torch.operators.indexing import INDEXING
from autotune.networks.readers.torch.operators.products import PRODUCTS
from autotune.networks.readers.torch.operators.recurrent import RECURRENT
from autotune.networks.readers.torch.operators.reductions import NORMALISATION, REDUCTIONS
from autotune.networks.readers.torch.operators.shapes import SHAPES
from autotune.networks.readers.torch.operators.windows import RESAMPLING, WINDOWS

__all__ = ["OPERATORS"]

_GROUPS = (
    ELEMENTWISE,
    REDUCTIONS,
    SHAPES,
    INDEXING,
    PRODUCTS,
    WINDOWS,
    NORMALISATION,
    RESAMPLING,
    RECURRENT,
)

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {name: operator for group in _GROUPS for name, operator in group.items()}
)
"""By name."""
