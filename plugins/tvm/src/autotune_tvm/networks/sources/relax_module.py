"""Networks that are Relax modules already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.networks.arrays import check_examples
from autotune_tvm.networks.graph import ENTRY
from autotune_tvm.networks.sources.parsing import parse_json
from autotune_tvm.networks.sources.source import (
    Source,
    flat_outputs,
    input_tensors,
)

Array = NDArray[Any]

__all__ = ["from_json", "from_module"]


def from_module(module: Any, example_inputs: Sequence[object] | None, name: str) -> Source:
    """A Relax module with a function ``main``.

    Raises:
        InvalidValueError: it has no such function, or the example inputs are not its inputs.
        UnsupportedWorkload: an input is no tensor of a fixed shape.
    """
    from tvm import relax

    functions = {str(variable.name_hint): body for variable, body in module.functions_items()}
    if not isinstance(functions.get(ENTRY), relax.Function):
        listed = ", ".join(sorted(functions)) or "none"
        raise InvalidValueError(
            f"{name}: a network is the Relax function {ENTRY!r} of its module; this one has the "
            f"functions {listed}"
        )
    examples = check_examples(input_tensors(module), example_inputs)
    return Source(name, module, examples, run=_Run(module))


def from_json(path: Path, example_inputs: Sequence[object] | None) -> Source:
    """A file that holds what ``tvm.ir.save_json`` returned.

    Raises:
        InvalidValueError: the file holds something else.
        UnsupportedWorkload: an input is no tensor of a fixed shape.
    """
    return from_module(parse_json(path), example_inputs, path.stem)


class _Run:
    """The module as TVM alone builds it: no pass of ours, no schedule."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._function: Any = None

    def __call__(self, inputs: Sequence[Array]) -> tuple[Array, ...] | None:
        from tvm import cpu, relax
        from tvm.runtime import tensor

        if self._function is None:
            try:
                built = relax.build(self._module, "llvm")
            except Exception:  # what TVM alone cannot build computes nothing to compare with
                return None
            self._function = relax.VirtualMachine(built, cpu())[ENTRY]
        found = flat_outputs(self._function(*(tensor(array) for array in inputs)))
        return tuple(np.from_dlpack(item) for item in found)
