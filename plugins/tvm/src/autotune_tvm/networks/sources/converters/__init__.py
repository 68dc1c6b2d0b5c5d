"""Operators of torch that TVM's translator lacks, or gives another meaning, and how they become
Relax."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from autotune_tvm.networks.sources.converters.arithmetic import ARITHMETIC
from autotune_tvm.networks.sources.converters.convolutions import CONVOLUTIONS
from autotune_tvm.networks.sources.converters.emission import Converter
from autotune_tvm.networks.sources.converters.indexing import INDEXING
from autotune_tvm.networks.sources.converters.pooling import POOLING
from autotune_tvm.networks.sources.converters.products import PRODUCTS
from autotune_tvm.networks.sources.converters.reductions import REDUCTIONS
from autotune_tvm.networks.sources.converters.scatters import SCATTERS

__all__ = ["CONVERTERS"]

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **ARITHMETIC,
        **CONVOLUTIONS,
        **INDEXING,
        **POOLING,
        **PRODUCTS,
        **REDUCTIONS,
        **SCATTERS,
    }
)
"""By name of the operator, as TVM's translator names it."""
