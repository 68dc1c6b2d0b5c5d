"""Sources of networks, one kind per module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from autotune.errors import InvalidValueError
from autotune.networks import AskedInputs, class_names
from autotune_tvm import runtime

if TYPE_CHECKING:
    from autotune.networks import GraphSource

__all__ = ["SUFFIXES", "check_file", "is_source", "read_source"]

Examples = Sequence[object] | None

_MODULE = "tvm.ir.module.IRModule"


def is_source(source: object) -> bool:
    """Tell if this is of a kind that is read here, by its class or suffix; imports nothing."""
    if isinstance(source, Path):
        return source.suffix in SUFFIXES
    return _MODULE in class_names(source)


def read_source(
    source: object, example_inputs: Sequence[object] | None, asked: AskedInputs | None = None
) -> GraphSource:
    """Read a network.

    Args:
        source: One of those that :func:`is_source` knows.
        example_inputs: What it is called with; None where that was not given.
        asked: What a person says of its inputs.

    Raises:
        UnsupportedWorkload: a node cannot be expressed; names it.
        InvalidValueError: the source is damaged or incomplete, or needs a package.
    """
    asked = asked or AskedInputs()
    if isinstance(source, Path):
        if not source.is_file():
            raise InvalidValueError(f"there is no file {str(source)!r}")
        return SUFFIXES[source.suffix](source, example_inputs, asked)
    if not is_source(source):
        raise InvalidValueError(
            f"an object of type {type(source).__name__!r} is no Relax module; what can be read is "
            f"one, or a file {', '.join(SUFFIXES)}"
        )
    from autotune_tvm.networks.sources.relax_module import from_module

    return from_module(source, example_inputs, "network", asked)


def check_file(path: Path) -> None:
    """Parse a file.

    Raises:
        InvalidValueError: the file is damaged.
    """
    with runtime.environment(**runtime.WORKER_ENVIRONMENT):
        runtime.load()
    if path.suffix == ".json":
        from autotune_tvm.networks.sources.relax_module import parse_json

        parse_json(path)
    else:
        from autotune_tvm.networks.sources.script_file import parse_script

        parse_script(path)


def _read_json(path: Path, example_inputs: Examples, asked: AskedInputs) -> GraphSource:
    from autotune_tvm.networks.sources.relax_module import from_json

    return from_json(path, example_inputs, asked)


def _read_script(path: Path, example_inputs: Examples, asked: AskedInputs) -> GraphSource:
    from autotune_tvm.networks.sources.script_file import from_script

    return from_script(path, example_inputs, asked)


SUFFIXES: Mapping[str, Callable[[Path, Examples, AskedInputs], GraphSource]] = MappingProxyType(
    {".json": _read_json, ".py": _read_script}
)
"""What files are read by."""
