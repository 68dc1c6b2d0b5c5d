"""A model of torch as it was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.networks.fixed_inputs import AskedInputs, FixedInputs
from autotune.networks.graph import Graph
from autotune.plugins.installing import install_extra

__all__ = ["TorchNetwork", "check_program", "read_torch"]

Array = NDArray[Any]


@frozen(eq=False, kw_only=True)
class TorchNetwork:
    """A model of torch that was read.

    Attributes:
        name: What a person calls it.
        graph: The network. Its inputs are those of the model, then the state that it writes; its
            outputs what it writes, then what it returns.
        fixed: The inputs of the model, and what was chosen that nobody gave.
        writes: Names of inputs, and of the state, whose new values are the first outputs.
        state: What the model holds and writes, as it was when it was read (bfloat16 as
            ``uint16``); constants of the graph share the memory of the model's.
        strides: Of each output, steps in memory as torch has them; () where they are not known.
        reference: From arrays for the inputs of the graph to its outputs, computed by torch.
    """

    name: str
    graph: Graph
    fixed: FixedInputs
    writes: tuple[str, ...]
    state: Mapping[str, Array]
    strides: tuple[tuple[int, ...], ...]
    reference: Callable[[Sequence[Array]], tuple[Array, ...]]


def read_torch(
    source: object,
    examples: Sequence[object] | None = None,
    asked: AskedInputs | None = None,
) -> TorchNetwork:
    """Read a model of torch.

    Args:
        source: A module, an exported program, or the path of a ``.pt2`` file.
        examples: What it is called with; a module is traced with them.
        asked: What a person says of its inputs.

    Raises:
        InvalidValueError: torch is missing, a file is damaged, or an example is not one of its
            input.
        UnknownNameError: there is no input or axis of a name that was asked for.
        UnsupportedWorkload: torch cannot trace it, or a node cannot be read; names it.
    """
    module = _with_torch("source")
    given = Path(source) if isinstance(source, str) else source
    found: TorchNetwork = module.read(given, examples, asked or AskedInputs())
    return found


def check_program(path: Path) -> None:
    """Parse a ``.pt2`` file.

    Raises:
        InvalidValueError: torch is missing, or the file is damaged.
    """
    _with_torch("program").open_program(path)


def _with_torch(module: str) -> Any:
    """A module of this package that imports torch."""
    try:
        import_module("torch")
    except ImportError as error:
        raise InvalidValueError(
            "models of torch are read with torch, which is not installed: run "
            + install_extra("torch")
        ) from error
    return import_module(f"autotune.networks.readers.torch.{module}")
