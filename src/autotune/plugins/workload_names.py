"""From an operator's name and a shape to a workload, with errors that say what is allowed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from autotune.errors import InvalidValueError, PluginError, UnknownNameError
from autotune.ir.workloads import Workload
from autotune.plugins.calling import Calling
from autotune.plugins.manager import manager

__all__ = [
    "BuilderInfo",
    "ShapeParameter",
    "builder_info",
    "make_workload",
    "parse_assignments",
    "task_name",
]


@frozen
class ShapeParameter:
    """Entry of a builder's shape; ``default`` is None where it has to be given."""

    name: str
    default: int | None

    def __str__(self) -> str:
        return self.name if self.default is None else f"{self.name} (default {self.default})"


@frozen
class BuilderInfo:
    """The parameters of a workload builder."""

    name: str
    description: str
    shape: tuple[ShapeParameter, ...]
    dtype: str | None


def builder_info(name: str) -> BuilderInfo:
    """Describe the workload builder called ``name``.

    Raises:
        UnknownNameError: there is no such builder.
        PluginError: the builder cannot be imported, or its signature is not a builder's.
    """
    spec = manager().get("workload", name)
    shape = []
    dtype = None
    for parameter in inspect.signature(spec.resolve()).parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            raise PluginError(
                f"workload {name!r}: parameter {parameter.name!r} is not keyword-only"
            )
        if parameter.annotation in ("int", int):
            default = parameter.default
            required = default is parameter.empty
            shape.append(ShapeParameter(parameter.name, None if required else int(default)))
        elif parameter.name == "dtype":
            dtype = str(parameter.default)
    return BuilderInfo(name, spec.description, tuple(shape), dtype)


def make_workload(name: str, shape: Mapping[str, int | str], dtype: str | None = None) -> Workload:
    """Build a workload by name.

    Args:
        name: A registered builder, such as ``"gemm"``.
        shape: The builder's integer parameters; text is read as an integer.
        dtype: Element type; None for the builder's default.

    Raises:
        UnknownNameError: there is no such builder, or no such shape parameter.
        InvalidValueError: a shape parameter is missing or not an integer that the builder takes,
            or the type is not supported.
    """
    info = builder_info(name)
    known = {parameter.name: parameter for parameter in info.shape}
    for key in shape:
        if key not in known:
            raise UnknownNameError(f"shape parameter of {name}", key, known)
    missing = [p.name for p in info.shape if p.default is None and p.name not in shape]
    if missing:
        takes = ", ".join(map(str, info.shape))
        raise InvalidValueError(f"{name}: the shape lacks {', '.join(missing)}; it takes {takes}")
    arguments: dict[str, Any] = {key: _integer(name, key, text) for key, text in shape.items()}
    if dtype is not None:
        if info.dtype is None:
            raise InvalidValueError(f"{name} takes no dtype, got {dtype!r}")
        arguments["dtype"] = dtype
    builder = manager().factory("workload", name)
    with Calling(f"workload {name!r}", "on construction"):
        workload = builder(**arguments)
    if not isinstance(workload, Workload):
        raise PluginError(f"workload {name!r} built a {type(workload).__name__}, not a Workload")
    return workload


def task_name(workload: Workload) -> str:
    """The display name of a workload: ``"gemm m=512 n=512 k=512 float32"``."""
    parameters = dict(workload.parameters)
    order = list(parameters)
    if workload.name in manager().names("workload"):
        # A stored workload may have lost the order in which people write its shape.
        known = [parameter.name for parameter in builder_info(workload.name).shape]
        order.sort(key=lambda key: known.index(key) if key in known else len(known))
    shape = [f"{key}={parameters[key]}" for key in order if key != "dtype"]
    dtype = [str(parameters["dtype"])] if "dtype" in parameters else []
    return " ".join([workload.name, *shape, *dtype])


def parse_assignments(text: str, what: str) -> dict[str, str]:
    """Read ``"m=512,n=512"``.

    Raises:
        InvalidValueError: an item is not ``name=value``, or a name is there twice.
    """
    values: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (name and equals and value):
            raise InvalidValueError(f"{what} {item!r} is not of the form name=value")
        if name in values:
            raise InvalidValueError(f"{what} names {name!r} twice")
        values[name] = value
    return values


def _integer(builder: str, key: str, value: int | str) -> int:
    if isinstance(value, str):
        if re.fullmatch(r"[+-]?[0-9]{1,40}", value):
            return int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    raise InvalidValueError(f"{builder}: {key} must be a whole number, not {value!r}")
