"""Networks of torch: modules, exported programs, and files of those."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from functools import cached_property, lru_cache
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np

from autotune.errors import AutotuneError, InvalidValueError, UnsupportedWorkload
from autotune.networks import AskedInputs, DeclaredInput, FixedInputs
from autotune.networks.arrays import as_numpy
from autotune.networks.fixed_inputs import fix_inputs
from autotune_tvm.compiler import brief
from autotune_tvm.networks.sources.converters import CONVERTERS
from autotune_tvm.networks.sources.decompositions import decompose
from autotune_tvm.networks.sources.decompositions.complex_pairs import (
    first_inexpressible,
    is_complex,
    with_pairs,
)
from autotune_tvm.networks.sources.parsing import parse_pt2, quiet_torch
from autotune_tvm.networks.sources.random_operators import (
    described,
    first_drawing,
    first_in_training,
)
from autotune_tvm.networks.sources.relax_module import baked
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
    return from_exported(program, inputs, type(model).__name__, AskedInputs())


def from_pt2(path: Path, example_inputs: Sequence[object] | None, asked: AskedInputs) -> Source:
    """A file that ``torch.export.save`` wrote.

    Raises:
        InvalidValueError: as of :func:`parse_pt2`.
        UnsupportedWorkload: TVM does not know one of its operators.
    """
    return from_exported(parse_pt2(path), example_inputs, path.stem, asked)


def from_exported(
    program: Any, example_inputs: Sequence[object] | None, name: str, asked: AskedInputs
) -> Source:
    """An exported program; one with open axes is exported again for one shape.

    Args:
        program: The ``ExportedProgram``.
        example_inputs: None to take its own.
        name: What to call it.
        asked: What a person says of its inputs.

    Raises:
        UnsupportedWorkload: TVM does not know one of its operators, or it changes its own state.
    """
    from tvm.relax.frontend.torch import from_exported_program

    program = _on_cpu(program)
    given = None if example_inputs is None else _tensors(example_inputs)
    fixed = fix_inputs(_declared(program), asked, given, name)
    program = _for_shapes(program, fixed, name)
    real = _real(program, name)
    try:
        with quiet_torch():
            decomposed = decompose(real, _known_operators())
    except Exception as error:  # whatever torch meets
        raise UnsupportedWorkload(
            f"{name}: torch cannot decompose the model: {brief(error)}; export it again"
        ) from error
    _check_deterministic(decomposed, name)
    writes = _return_written(decomposed, name)
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
    module = baked(module, fixed.constants)
    returned = next(iter(decomposed.graph.find_nodes(op="output"))).args[0]
    outputs = tuple(str(node) for node in returned)
    run = _Run(program, writes, fixed.constants)
    return Source(name, module, fixed.examples, outputs, run, writes, fixed, "torch")


def _declared(program: Any) -> list[DeclaredInput]:
    """The inputs of a program that are tensors; axes of any length have the names of its graph."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    examples = _example_tensors(program)
    names = _input_names(program)
    held = examples if len(examples) == len(names) else [None] * len(names)
    found = []
    for name, example in zip(names, held, strict=True):
        value = values[name]
        shape = tuple(it if isinstance(it, int) else str(it) for it in value.shape)
        array = None if example is None else as_numpy(example)
        dtype = str(value.dtype).removeprefix("torch.")
        found.append(DeclaredInput(name, shape, dtype, array))
    return found


def _for_shapes(program: Any, fixed: FixedInputs, name: str) -> Any:
    """A program for inputs of these shapes.

    Raises:
        UnsupportedWorkload: torch cannot export it for them.
    """
    import torch

    if all(isinstance(axis, int) for it in _declared(program) for axis in it.shape):
        return program
    left = iter(fixed.examples or ())
    names = _input_names(program)
    arrays = [fixed.constants[it] if it in fixed.constants else next(left) for it in names]
    arguments, keywords = _arguments(program, [_as_tensor(np.array(it)) for it in arrays])
    try:
        with quiet_torch(), torch.no_grad():
            return torch.export.export(program.module(), arguments, keywords)
    except Exception as error:  # whatever torch meets
        shapes = ", ".join(f"{it} {list(shape)}" for it, shape in fixed.shapes.items())
        raise UnsupportedWorkload(
            f"{name}: torch cannot export the model for inputs {shapes}: {_why(error)}"
        ) from error


def _input_names(program: Any) -> list[str]:
    """Names of the inputs that are tensors, in order."""
    specs = program.graph_signature.input_specs
    return [str(it.arg.name) for it in specs if _is_input(it)]


def _example_tensors(program: Any) -> list[Any]:
    if program.example_inputs is None:
        return []
    arguments, keywords = program.example_inputs
    return _tensors((*arguments, *keywords.values()))


def _arguments(program: Any, tensors: Sequence[Any]) -> tuple[Any, Any]:
    """What a program is called with; numbers and None are those with which it was traced."""
    from torch.utils._pytree import tree_unflatten

    left = iter(tensors)
    leaves = [
        next(left) if _is_input(it) else getattr(it.arg, "value", None)
        for it in program.graph_signature.input_specs
        if it.kind.name == "USER_INPUT"
    ]
    if program.call_spec.in_spec is None:
        return tuple(leaves), {}
    found: tuple[Any, Any] = tree_unflatten(leaves, program.call_spec.in_spec)
    return found


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
            f"{name}: node {described(node)}: its complex numbers cannot be imported; let the "
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
        return f"it does not know the operator of node {', '.join(map(described, nodes[:5]))}"
    return message if error.node is None else f"node {described(error.node)}: {message}"


def _check_deterministic(program: Any, name: str) -> None:
    node = first_drawing(program.graph_module)
    if node is not None:
        raise UnsupportedWorkload(
            f"{name}: node {described(node)} draws random numbers, and a network computes the "
            "same in every call; call eval() on the model, or let it take them as an input"
        )
    node = first_in_training(program.graph_module)
    if node is not None:
        raise UnsupportedWorkload(
            f"{name}: node {described(node)} computes as in training, which cannot be imported; "
            "call eval() on the model"
        )


def _return_written(program: Any, name: str) -> tuple[str, ...]:
    """Let a program return what it writes into inputs, before its other outputs.

    Returns:
        Names of those inputs.

    Raises:
        UnsupportedWorkload: it writes something that it holds itself.
    """
    from torch.export.graph_signature import OutputKind

    specs = program.graph_signature.output_specs
    state = ("BUFFER_MUTATION", "PARAMETER_MUTATION")
    held = sorted({it.target for it in specs if it.kind.name in state})
    if held:
        raise UnsupportedWorkload(
            f"{name} writes {', '.join(map(repr, held))}: networks have no state; call eval() "
            "before exporting it, or return what it writes"
        )
    written = [it for it in specs if it.kind == OutputKind.USER_INPUT_MUTATION]
    for it in written:
        # TVM's translator leaves out all others.
        it.kind = OutputKind.USER_OUTPUT
    return tuple(str(it.target) for it in written)


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


def _is_input(spec: Any) -> bool:
    return spec.kind.name == "USER_INPUT" and type(spec.arg).__name__ == "TensorArgument"


def _as_tensor(array: Array) -> Any:
    """A copy of an array as a tensor of torch's."""
    import torch

    if str(array.dtype) == "bfloat16":
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


class _Run:
    """The model in torch, on numpy arrays: the inputs that it writes, and what it returns."""

    def __init__(
        self, program: Any, writes: Sequence[str], constants: Mapping[str, Array]
    ) -> None:
        self._program = program
        self._names = _input_names(program)
        self._written = [self._names.index(name) for name in writes]
        self._constants = constants

    @cached_property
    def _module(self) -> Any:
        return self._program.module()

    def __call__(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        import torch
        from torch.utils._pytree import tree_leaves

        left = iter(inputs)
        arrays = [
            self._constants[it] if it in self._constants else next(left) for it in self._names
        ]
        tensors = list(map(_as_tensor, arrays))
        arguments, keywords = _arguments(self._program, tensors)
        with torch.no_grad(), quiet_torch():
            found = self._module(*arguments, **keywords)
        leaves = [*(tensors[at] for at in self._written), *tree_leaves(found)]
        return tuple(as_numpy(leaf) for leaf in leaves if hasattr(leaf, "shape"))
