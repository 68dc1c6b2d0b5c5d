"""Networks of torch: modules, exported programs, and files of those."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from functools import cached_property, lru_cache
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np

from autotune.errors import AutotuneError, InvalidValueError, UnsupportedWorkload
from autotune.networks.arrays import as_numpy
from autotune_tvm.compiler import brief
from autotune_tvm.networks.sources.converters import CONVERTERS
from autotune_tvm.networks.sources.decompositions import decompose
from autotune_tvm.networks.sources.decompositions.complex_pairs import (
    first_inexpressible,
    is_complex,
    with_pairs,
)
from autotune_tvm.networks.sources.parsing import parse_pt2, quiet_torch
from autotune_tvm.networks.sources.source import Array, Source
from autotune_tvm.networks.sources.translation import NotTranslated, translated
from autotune_tvm.networks.sources.type_promotion import promote_types, widen_halves

__all__ = ["from_exported", "from_pt2", "from_torch"]


def from_torch(model: Any, example_inputs: Sequence[object] | None) -> Source:
    """A torch module, traced with its example inputs.

    Raises:
        InvalidValueError: there are no example inputs, or the module is in training mode.
        UnsupportedWorkload: torch cannot export it, or TVM does not know one of its operators.
    """
    import torch

    if example_inputs is None:
        raise InvalidValueError("a torch module needs example inputs: it is traced with them")
    if model.training:
        raise InvalidValueError(
            f"{type(model).__name__} is in training mode, in which dropout and batch norms "
            "compute something else; call eval() on it first"
        )
    inputs = tuple(map(_as_argument, example_inputs))
    said = io.StringIO()
    try:
        # Torch prints the graph as far as it has got when it cannot go on.
        with quiet_torch(), redirect_stderr(said), torch.no_grad():
            program = torch.export.export(model, inputs)
    except Exception as error:  # what a model's own code raises, among much else
        raise UnsupportedWorkload(
            f"torch.export cannot trace {type(model).__name__}{_place(error)}: {_why(error)}"
        ) from error
    sys.stderr.write(said.getvalue())
    return from_exported(program, inputs, type(model).__name__)


def from_pt2(path: Path, example_inputs: Sequence[object] | None) -> Source:
    """A file that ``torch.export.save`` wrote.

    Raises:
        InvalidValueError: as of :func:`parse_pt2`.
        UnsupportedWorkload: TVM does not know one of its operators.
    """
    return from_exported(parse_pt2(path), example_inputs, path.stem)


def from_exported(program: Any, example_inputs: Sequence[object] | None, name: str) -> Source:
    """An exported program.

    Args:
        program: The ``ExportedProgram``.
        example_inputs: None to take its own.
        name: What to call it.

    Raises:
        UnsupportedWorkload: TVM does not know one of its operators, or it changes its own state.
    """
    from tvm.relax.frontend.torch import from_exported_program

    program = _on_cpu(program)
    real = _real(program, name)
    try:
        with quiet_torch():
            decomposed = decompose(real, _known_operators())
    except Exception as error:  # whatever torch meets
        raise UnsupportedWorkload(
            f"{name}: torch cannot decompose the model: {brief(error)}; export it again"
        ) from error
    _check_signature(decomposed, name)
    _count_from_the_beginning(decomposed)
    promote_types(decomposed)
    widen_halves(decomposed)
    _keep_tensors(decomposed, name)
    _take_tensors(decomposed)
    try:
        with quiet_torch():
            module = translated(
                lambda: from_exported_program(
                    decomposed,
                    run_ep_decomposition=False,
                    custom_convert_map=dict(CONVERTERS),
                )
            )
    except NotTranslated as error:
        named = _named(decomposed.graph, error)
        if isinstance(error.__cause__, AutotuneError):
            raise UnsupportedWorkload(f"{name}: {named}") from error
        raise UnsupportedWorkload(
            f"{name}: TVM cannot import the model: {named}; replace it, or decompose it with "
            "torch.export's run_decompositions first"
        ) from error
    given = example_inputs
    if given is None and program.example_inputs is not None:
        arguments, keywords = program.example_inputs
        given = (*arguments, *keywords.values())
    examples = None if given is None else tuple(map(as_numpy, _tensors(given)))
    returned = next(iter(decomposed.graph.find_nodes(op="output"))).args[0]
    outputs = tuple(str(node) for node in returned)
    return Source(name, module, examples, outputs, _Run(program))


@lru_cache(maxsize=1)
def _known_operators() -> frozenset[str]:
    """Names of torch's operators that are translated."""
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    return frozenset(ExportedProgramImporter().create_convert_map()) | frozenset(CONVERTERS)


def _real(program: Any, name: str) -> Any:
    """A program whose complex numbers are pairs of real ones.

    Raises:
        UnsupportedWorkload: a node does what pairs do not express, such as a Fourier transform.
    """
    if not any(map(is_complex, program.graph.nodes)):
        return program
    node = first_inexpressible(program)
    if node is not None:
        raise UnsupportedWorkload(
            f"{name}: node {_described(node)}: its complex numbers cannot be imported; let the "
            "model take and return real ones (torch.view_as_real), and in it add, multiply, or "
            "move complex ones only"
        )
    try:
        with quiet_torch():
            return with_pairs(program)
    except Exception as error:  # whatever torch meets
        raise UnsupportedWorkload(
            f"{name}: torch cannot trace the model without complex numbers: {brief(error)}; write "
            "it with real ones"
        ) from error


def _on_cpu(program: Any) -> Any:
    """A program whose weights, and the tensors that it makes, are on the CPU."""
    from torch import Tensor
    from torch.export.passes import move_to_device_pass

    values = [node.meta.get("val") for node in program.graph.nodes]
    held = [*values, *program.state_dict.values(), *program.constants.values()]
    if all(it.device.type == "cpu" for it in held if isinstance(it, Tensor)):
        return program
    return move_to_device_pass(program, "cpu")


def _count_from_the_beginning(program: Any) -> None:
    """Write ``x[:, -1]`` with a position from the beginning.

    TVM counts on from the beginning of ``x`` whatever the sign, and reads in front of it.
    """
    import torch

    for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten.select.int):
        data, dim, index = node.args
        if index < 0:
            node.update_arg(2, index + data.meta["val"].shape[dim])


def _keep_tensors(program: Any, name: str) -> None:
    """Leave numbers and None out of the outputs, which are the same in every call."""
    output = next(iter(program.graph.find_nodes(op="output")))
    constants = (bool, int, float, type(None))
    found = tuple(it for it in output.args[0] if not isinstance(it, constants))
    if not found:
        raise UnsupportedWorkload(f"{name} returns no tensor: there is nothing to compute")
    output.update_arg(0, found)


def _take_tensors(program: Any) -> None:
    """Leave numbers and None out of the inputs: the graph has those that it was traced with."""
    signature = program.graph_signature
    constants = {it.arg.name for it in signature.input_specs if hasattr(it.arg, "value")}
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in constants:
            program.graph.erase_node(node)
    signature.input_specs = [it for it in signature.input_specs if it.arg.name not in constants]


def _why(error: Exception) -> str:
    """Why torch cannot trace a model, and what to do."""
    if type(error).__name__ == "GuardOnDataDependentSymNode":
        return (
            "what it does there depends on the values of a tensor; compute both cases, and choose "
            "by torch.where"
        )
    return (
        f"{brief(error).rstrip('.')}; call the model on its example inputs to see whether it runs"
    )


def _place(error: Exception) -> str:
    """The line of the model's own code that failed: `` at model.py:12``; "" where none is."""
    import torch

    # Torch also runs code that it has made, which is in no file.
    others = (os.path.dirname(torch.__file__), __file__, "<")
    lines = [
        f" at {os.path.basename(frame.f_code.co_filename)}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(others)
    ]
    return lines[-1] if lines else ""


def _named(graph: Any, error: NotTranslated) -> str:
    """TVM's message, with the nodes of the graph that it is about."""
    message = str(error)
    if "Unsupported function types" in message:
        operators = set(re.findall(r"'([^']+)'", message))
        nodes = [node for node in graph.nodes if getattr(node.target, "__name__", "") in operators]
        return f"it does not know the operator of node {', '.join(map(_described, nodes[:5]))}"
    return message if error.node is None else f"node {_described(error.node)}: {message}"


def _described(node: Any) -> str:
    """A node's name, operator, and the module that it is in."""
    operator = getattr(node.target, "__name__", node.target)
    stack = node.meta.get("nn_module_stack") or {}
    path = [path for path, _ in stack.values() if path][-1:]
    inside = f" in {path[0]!r}" if path else ""
    return f"{node.name!r} ({operator}{inside})"


def _check_signature(program: Any, name: str) -> None:
    signature = program.graph_signature
    written = {**signature.buffers_to_mutate, **signature.user_inputs_to_mutate}
    if written:
        raise UnsupportedWorkload(
            f"{name} writes {', '.join(map(repr, sorted(written.values())))}: networks have no "
            "state; call eval() before exporting it, or return what it writes"
        )


def _tensors(values: Sequence[object]) -> list[Any]:
    """The tensors in example inputs, which may be nested as a model's arguments are."""
    from torch.utils._pytree import tree_leaves

    return [value for value in tree_leaves(tuple(values)) if hasattr(value, "shape")]


def _as_argument(value: object) -> Any:
    """An argument of a model: tensors as they are, arrays and numbers as tensors.

    One that has several tensors keeps its form, and each of them is an input of the network.
    """
    from torch import Tensor
    from torch.utils._pytree import tree_leaves, tree_map

    def converted(leaf: Any) -> Any:
        is_array = hasattr(leaf, "shape") and not isinstance(leaf, Tensor)
        return _as_tensor(as_numpy(leaf)) if is_array else leaf

    if any(hasattr(leaf, "shape") for leaf in tree_leaves(value)):
        return tree_map(converted, value)
    return _as_tensor(as_numpy(value))


def _as_tensor(array: Array) -> Any:
    """A copy of an array as a tensor of torch's."""
    import torch

    if str(array.dtype) == "bfloat16":
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


class _Run:
    """The model in torch, on numpy arrays."""

    def __init__(self, program: Any) -> None:
        self._program = program

    @cached_property
    def _module(self) -> Any:
        return self._program.module()

    def __call__(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        import torch
        from torch.utils._pytree import tree_leaves, tree_unflatten

        tensors = iter(list(map(_as_tensor, inputs)))
        # Numbers and None among the arguments are those with which the model was traced.
        leaves = [
            it.arg.value if hasattr(it.arg, "value") else next(tensors)
            for it in self._program.graph_signature.input_specs
            if it.kind.name == "USER_INPUT"
        ]
        arguments: Any = (tuple(leaves), {})
        if self._program.call_spec.in_spec is not None:
            arguments = tree_unflatten(leaves, self._program.call_spec.in_spec)
        with torch.no_grad(), quiet_torch():
            found = self._module(*arguments[0], **arguments[1])
        return tuple(as_numpy(leaf) for leaf in tree_leaves(found) if hasattr(leaf, "shape"))
