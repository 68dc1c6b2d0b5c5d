"""Element types of tensors: those of the core, and by name those that plugins register."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import Attribute, field, frozen

from autotune.errors import PluginError, UnknownNameError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ELEMENT_TYPES", "ElementType", "element_type"]

_STORAGE = {
    "bool": 1,
    **{f"{sign}int{8 * size}": size for sign in ("", "u") for size in (1, 2, 4, 8)},
    **{f"float{8 * size}": size for size in (2, 4, 8)},
}


@frozen
class ElementType:
    """What the elements of tensors are. A plugin registers one as kind ``dtype``.

    Attributes:
        name: What workloads, records and ``--dtype`` call it.
        eps: Of a floating-point type: from 1 to the next larger number, by which results are
            judged (:mod:`autotune.measure.validation`). 0 for integers, which are exact.
        storage: Name of the numpy type of its arrays: those that the reference evaluates, and
            those that programs are bound to. That of the same name by default.

    Raises:
        UnknownNameError: there is no such type of numpy, or it is not of the same kind.
    """

    name: str
    eps: float = 0.0
    storage: str = field(kw_only=True)

    @storage.default
    def _own(self) -> str:
        return self.name

    @storage.validator
    def _check(self, _: Attribute[Any], storage: str) -> None:
        fitting = [name for name in _STORAGE if name.startswith("float") == self.is_float]
        if storage not in fitting:
            raise UnknownNameError(f"storage of dtype {self.name!r}", str(storage), fitting)

    @property
    def bytes(self) -> int:
        """Size of an element."""
        return _STORAGE[self.storage]

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.eps > 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of its arrays."""
        import numpy as np

        return np.dtype(self.storage)


ELEMENT_TYPES: Mapping[str, ElementType] = MappingProxyType(
    {
        **{name: ElementType(name) for name in ("bool", "int8", "uint8", "int32", "int64")},
        "float16": ElementType("float16", 2.0**-10),
        "float32": ElementType("float32", 2.0**-23),
        "float64": ElementType("float64", 2.0**-52),
    }
)
"""Those of the core, which registers them like a plugin."""


def element_type(name: str) -> ElementType:
    """The element type of this name; plugins are asked where it is none of the core's.

    Raises:
        UnknownNameError: nobody registers it.
        PluginError: its plugin makes something else.
    """
    if name in ELEMENT_TYPES:
        return ELEMENT_TYPES[name]
    # A later room. What a record holds is only looked up: an import string is no name.
    import_module("autotune.plugins.manager").manager().get("dtype", name)
    found: ElementType = import_module("autotune.plugins.parts").create_part("dtype", name)
    if found.name != name:
        raise PluginError(f"dtype {name!r} calls itself {found.name!r}")
    return found
