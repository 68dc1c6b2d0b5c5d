"""Networks that are Relax modules already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.networks import AskedInputs, DeclaredInput
from autotune.networks.arrays import check_examples
from autotune.networks.fixed_inputs import fix_inputs
from autotune_tvm.compiler import brief
from autotune_tvm.networks.graph import ENTRY, dtype_of, input_tensors, output_tensors

if TYPE_CHECKING:
    from autotune.networks import GraphSource

Array = NDArray[Any]

__all__ = ["baked", "from_json", "from_module", "parse_json"]


def from_module(
    module: Any, example_inputs: Sequence[object] | None, name: str, asked: AskedInputs
) -> GraphSource:
    """A Relax module with a function ``main`` as a graph.

    Args:
        module: The ``IRModule``.
        example_inputs: What it is called with; None where that was not given.
        name: What to call it.
        asked: What a person says of its inputs.

    Raises:
        InvalidValueError: it has no such function, or the example inputs are not its inputs.
        UnsupportedWorkload: an input or an output is no tensor of a fixed shape, or an operator
            has no form as a loop nest; names it.
    """
    from tvm import relax

    from autotune.networks import GraphSource, Yardstick
    from autotune_tvm.networks.reader import read_graph

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
    graph = read_graph(module, [tensor.name for tensor in output_tensors(module)])
    yardstick = Yardstick("TVM without schedules", _Run(module))
    return GraphSource(name, graph, evolve(fixed, examples=examples), yardstick)


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


def from_json(
    path: Path, example_inputs: Sequence[object] | None, asked: AskedInputs
) -> GraphSource:
    """A file that holds what ``tvm.ir.save_json`` returned.

    Raises:
        InvalidValueError: the file holds something else.
        UnsupportedWorkload: as of :func:`from_module`.
    """
    return from_module(parse_json(path), example_inputs, path.stem, asked)


def parse_json(path: Path) -> Any:
    """The ``IRModule`` in a file that holds what ``tvm.ir.save_json`` returned.

    Raises:
        InvalidValueError: the file holds something else.
    """
    from tvm.ir import IRModule, load_json

    try:
        module = load_json(path.read_text())
    except Exception as error:  # whatever the reader raises for text that is not its own
        raise InvalidValueError(
            f"{str(path)!r} is no Relax module in JSON ({brief(error)}); tvm.ir.save_json writes "
            "such files"
        ) from error
    if not isinstance(module, IRModule):
        raise InvalidValueError(
            f"{str(path)!r} holds an object of type {type(module).__name__}, not a Relax module"
        )
    return module


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
        found = self._function(*(tensor(array) for array in inputs))
        return tuple(np.from_dlpack(item) for item in _flat(found))


def _flat(result: Any) -> Iterator[Any]:
    """The tensors that a network returned, which may be in tuples of tuples."""
    if hasattr(result, "__dlpack__"):
        yield result
    else:
        for item in result:
            yield from _flat(item)
