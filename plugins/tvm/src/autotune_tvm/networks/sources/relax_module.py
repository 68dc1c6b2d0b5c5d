"""Networks that are Relax modules already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.networks import AskedInputs, DeclaredInput
from autotune.networks.arrays import check_examples
from autotune.networks.fixed_inputs import fix_inputs
from autotune_tvm.networks.graph import ENTRY, dtype_of
from autotune_tvm.networks.sources.parsing import parse_json
from autotune_tvm.networks.sources.source import (
    Source,
    flat_outputs,
    input_tensors,
)

Array = NDArray[Any]

__all__ = ["baked", "from_json", "from_module"]


def from_module(
    module: Any, example_inputs: Sequence[object] | None, name: str, asked: AskedInputs
) -> Source:
    """A Relax module with a function ``main``.

    Args:
        module: The ``IRModule``.
        example_inputs: What it is called with; None where that was not given.
        name: What to call it.
        asked: What a person says of its inputs.

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
    fixed = fix_inputs(_declared(module), asked, example_inputs, name)
    if fixed.lengths:
        module = relax.transform.BindSymbolicVars(dict(fixed.lengths), ENTRY)(module)
    module = baked(module, fixed.constants)
    examples = check_examples(input_tensors(module), fixed.examples)
    return Source(name, module, examples, run=_Run(module), fixed=fixed)


def _declared(module: Any) -> list[DeclaredInput]:
    """The inputs of ``main``; axes that are variables are open."""
    found = []
    for parameter in module[ENTRY].params:
        shape = getattr(getattr(parameter.ty, "shape", None), "values", None)
        if shape is not None and dtype_of(parameter):
            axes = tuple(int(it) if hasattr(it, "value") else str(it) for it in shape)
            found.append(DeclaredInput(parameter.name, axes, dtype_of(parameter)))
    return found


def baked(module: Any, constants: Mapping[str, Array]) -> Any:
    """A module some of whose inputs are constants."""
    from tvm import relax

    if not constants:
        return module
    return relax.transform.BindParams(ENTRY, dict(constants))(module)


def from_json(path: Path, example_inputs: Sequence[object] | None, asked: AskedInputs) -> Source:
    """A file that holds what ``tvm.ir.save_json`` returned.

    Raises:
        InvalidValueError: the file holds something else.
        UnsupportedWorkload: an input is no tensor of a fixed shape.
    """
    return from_module(parse_json(path), example_inputs, path.stem, asked)


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
