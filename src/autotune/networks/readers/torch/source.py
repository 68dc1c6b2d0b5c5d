"""Models of torch as graphs of fixed shapes, and what their outputs are compared with.

An operator that writes into what another has just computed, and that nobody has seen through a
view, is read as one that computes something new. All else is left to torch, which takes as long as
exporting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attrs import evolve
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from autotune.errors import InvalidValueError, UnsupportedWorkload, one_line
from autotune.networks.fixed_inputs import AskedInputs, FixedInputs, fix_inputs
from autotune.networks.frontend import Rival
from autotune.networks.graph import Graph, Value, constant, input_value
from autotune.networks.graph_program import GraphSource, Yardstick, timed_rival
from autotune.networks.readers.torch.operators.complex_pairs import Pair
from autotune.networks.readers.torch.program import (
    arguments,
    as_tensor,
    declared,
    example_tensors,
    exported,
    for_shapes,
    input_names,
    is_input,
    kept,
    on_cpu,
    open_program,
    plain_array,
    quiet_torch,
    stored_value,
    type_name,
)
from autotune.networks.readers.torch.reader import GraphReader
from autotune.networks.readers.torch.torch_network import Array, TorchNetwork
from autotune.runtime.arrays import as_numpy, numpy_type

__all__ = ["is_plain", "read", "torch_source", "writes"]


def torch_source(
    model: object, examples: Sequence[object] | None = None, asked: AskedInputs | None = None
) -> GraphSource:
    """Read a model; as :func:`~autotune.networks.readers.torch.read_torch`."""
    network = read(model, examples, asked or AskedInputs())
    types = {it.name: numpy_type(it.dtype) for it in network.graph.inputs}
    state = {name: array.view(types[name]) for name, array in network.state.items()}
    name = f"torch {torch.__version__}"
    yardstick = Yardstick(name, network.reference, partial(_timed, network.reference, name))
    fixed = network.fixed
    if state:
        said = f"{', '.join(state)}: the network keeps what the model writes there between calls"
        fixed = evolve(fixed, remarks=(*fixed.remarks, said))
    return GraphSource(network.name, network.graph, fixed, yardstick, network.writes, state)


def _timed(
    run: Callable[[Sequence[Array]], object],
    name: str,
    arrays: Sequence[Array],
    threads: int,
    seconds: float,
) -> Rival | None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return timed_rival(name, partial(run, arrays), seconds)
    finally:
        torch.set_num_threads(before)


def read(source: object, examples: Sequence[object] | None, asked: AskedInputs) -> TorchNetwork:
    """Read as :func:`~autotune.networks.readers.torch.read_torch`."""
    if isinstance(source, (str, Path)):
        path = Path(source)
        return _read(open_program(path), examples, path.stem, asked)
    if isinstance(source, torch.export.ExportedProgram):
        return _read(source, examples, "network", asked)
    if not isinstance(source, torch.nn.Module):
        raise InvalidValueError(
            "a model of torch is a module, an exported program or the path of a .pt2 file, not "
            f"{type(source).__name__}"
        )
    if examples is None:
        raise InvalidValueError("a torch module needs example inputs: it is traced with them")
    program, given = exported(source, examples)
    return _read(program, given, type(source).__name__, asked)


def _read(
    program: Any, examples: Sequence[object] | None, name: str, asked: AskedInputs
) -> TorchNetwork:
    program = on_cpu(program)
    given = None if examples is None else example_tensors(examples)
    fixed = fix_inputs(declared(program), asked, given, name)
    program = for_shapes(program, fixed, name)
    plain = _functional(program, name)
    held = _held(plain)
    inputs = _inputs(plain, fixed)
    named = _written_state(plain, inputs)
    state = {it: held[target] for target, it in named.items()}
    own = {
        target: input_value(it, tuple(held[target].shape), type_name(held[target].dtype))
        for target, it in named.items()
    }
    try:
        found = GraphReader(plain.graph_module).outputs(
            [_given(it, inputs, own, held) for it in plain.graph_signature.input_specs]
        )
    except (InvalidValueError, UnsupportedWorkload) as error:
        raise type(error)(f"{name}: {error}") from error
    outputs, writes = _outputs(plain, found, named, name)
    kept = [it for it in (*inputs.values(), *own.values()) if it.constant is None]
    return TorchNetwork(
        name=name,
        graph=Graph(tuple(kept), outputs),
        fixed=fixed,
        writes=writes,
        state={it: plain_array(tensor).copy() for it, tensor in state.items()},
        strides=_strides(plain, len(outputs)),
        reference=_Reference(program, writes, fixed.constants, named),
    )


def _functional(program: Any, name: str) -> Any:
    """A program that writes into nothing, what it would write is among its outputs, without vmap.

    Raises:
        UnsupportedWorkload: torch cannot say it so.
    """
    if is_plain(program.graph_module):
        return program
    try:
        with quiet_torch():
            return program.run_decompositions({})
    except Exception as error:  # whatever torch meets
        raise UnsupportedWorkload(
            f"{name}: torch cannot take the model apart: {one_line(str(error))}; export it again"
        ) from error


def _held(program: Any) -> dict[str, torch.Tensor]:
    """Weights, buffers and constants by name."""
    found = {**program.state_dict, **program.constants}
    return {name: it for name, it in found.items() if isinstance(it, torch.Tensor)}


def _written_state(program: Any, inputs: Mapping[str, Value]) -> dict[str, str]:
    """Names for what a program holds and writes, which no input has, by its own."""
    kinds = ("BUFFER_MUTATION", "PARAMETER_MUTATION")
    specs = program.graph_signature.output_specs
    targets = [str(it.target) for it in specs if it.kind.name in kinds]
    found: dict[str, str] = {}
    for target in targets:
        found[target] = _free(target, {*inputs, *found.values()})
    return found


def _inputs(program: Any, fixed: FixedInputs) -> dict[str, Value]:
    """Inputs of the caller by name, and those that are the same in every call."""
    dtypes = {it.name: it.dtype for it in declared(program)}
    found: dict[str, Value] = {}
    for name in input_names(program):
        if name in fixed.constants:
            held = plain_array(as_tensor(fixed.constants[name]))
            found[name] = constant(held, dtypes[name], name)
        else:
            found[name] = input_value(name, fixed.shapes[name], dtypes[name])
    return found


def _given(
    spec: Any,
    inputs: Mapping[str, Value],
    state: Mapping[str, Value],
    held: Mapping[str, torch.Tensor],
) -> Any:
    """Value that a placeholder of a program stands for."""
    if is_input(spec):
        return inputs[spec.arg.name]
    if spec.kind.name == "USER_INPUT":
        return getattr(spec.arg, "value", None)
    target = str(spec.target)
    if target in state:
        return state[target]
    if target not in held:
        raise UnsupportedWorkload(f"{target!r}, which the model holds, is no tensor")
    return stored_value(held[target], target)


def _outputs(
    program: Any, found: Sequence[Any], state: Mapping[str, str], name: str
) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Tensors that a program returns, what it writes before all others; and names of that."""
    specs = program.graph_signature.output_specs
    pairs = list(zip(specs, found, strict=True))
    written = [(it, value) for it, value in pairs if it.kind.name.endswith("_MUTATION")]
    returned = [(it, value) for it, value in pairs if it.kind.name == "USER_OUTPUT"]
    names = _output_names(program, len(returned))
    writes = tuple(
        str(it.target) if it.kind.name == "USER_INPUT_MUTATION" else state[str(it.target)]
        for it, _ in written
    )
    outputs: dict[str, Value] = {}
    for target, (_, value) in zip(writes, written, strict=True):
        outputs[f"{target} (written)"] = value
    for (spec, value), path in zip(returned, names, strict=True):
        if isinstance(value, Pair):
            raise UnsupportedWorkload(
                f"{name} returns complex numbers; let it return real ones (torch.view_as_real)"
            )
        if isinstance(value, Value):
            outputs[_free(path or str(spec.arg.name), outputs)] = value
    if not outputs:
        raise UnsupportedWorkload(f"{name} returns no tensor: there is nothing to compute")
    return outputs, writes


def _free(name: str, taken: Collection[str]) -> str:
    """A name that nothing has yet."""
    number, found = 1, name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _output_names(program: Any, count: int) -> list[str]:
    """Names of a model's outputs by their places in what it returns; else ""."""
    form = program.call_spec.out_spec
    if form is None or form.num_leaves != count:
        return [""] * count
    found = _paths(form)
    has_names = any("'" in it or "." in it for it in found)
    return [it.lstrip(".") for it in found] if has_names else [""] * count


def _paths(form: Any) -> list[str]:
    """Paths of the leaves of a tree: ``['cache'][0].keys``.

    A library says how torch takes its own objects apart, and need not name their parts.
    """
    if form.is_leaf():
        return [""]
    return [
        step + path
        for step, child in zip(_steps(form), form.children(), strict=True)
        for path in _paths(child)
    ]


def _steps(form: Any) -> list[str]:
    """Steps from a node of a tree to its children."""
    context = form.context
    fields = getattr(context, "_fields", ())
    parts = [fields, context, *(context if isinstance(context, list) else ())]
    for names in parts:
        listed = isinstance(names, (list, tuple)) and len(names) == form.num_children
        if listed and names and all(isinstance(it, str) for it in names):
            is_object = bool(fields) or dataclasses.is_dataclass(form.type)
            return [f".{it}" if is_object else f"[{it!r}]" for it in names]
    return [f"[{number}]" for number in range(form.num_children)]


def _strides(program: Any, count: int) -> tuple[tuple[int, ...], ...]:
    """Steps in memory of the outputs, as torch has them."""
    output = next(iter(program.graph.find_nodes(op="output")))
    values = [getattr(it, "meta", {}).get("val") for it in output.args[0]]
    found = [tuple(it.stride()) for it in values if isinstance(it, torch.Tensor)]
    return tuple(found) if len(found) == count else ()


class _Reference:
    """The model in torch, on numpy arrays: what it writes, and what it returns."""

    def __init__(
        self,
        program: Any,
        writes: Sequence[str],
        constants: Mapping[str, Array],
        state: Mapping[str, str],
    ) -> None:
        self._program, self._constants, self._state = program, constants, state
        self._names = input_names(program)
        self._writes = writes

    @cached_property
    def _module(self) -> Callable[..., Any]:
        module: Callable[..., Any] = self._program.module()
        return module

    def __call__(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Arrays of what it writes and returns, for its inputs and then its state."""
        left = iter(inputs)
        arrays = [
            self._constants[it] if it in self._constants else next(left) for it in self._names
        ]
        tensors = dict(zip(self._names, map(as_tensor, arrays), strict=True))
        module: Any = self._module
        by_target = dict(module.named_parameters()) | dict(module.named_buffers())
        held = {name: by_target[target] for target, name in self._state.items()}
        with torch.no_grad(), quiet_torch(), kept(held.values()):
            for tensor in held.values():
                tensor.copy_(as_tensor(np.asarray(next(left))))
            positional, named = arguments(self._program, list(tensors.values()))
            found = module(*positional, **named)
            written = [tensors.get(it, held.get(it)) for it in self._writes]
            leaves = [it for it in (*written, *tree_leaves(found)) if hasattr(it, "shape")]
            # What it returns may be what it holds, which is as before afterwards.
            return tuple(np.array(as_numpy(it)) for it in leaves)


# Operators made of others that return no operand, and no view of one.
_FRESH: frozenset[str] = frozenset(
    {
        *("batch_norm", "einsum", "embedding_bag", "group_norm", "instance_norm", "layer_norm"),
        *("linear", "log_softmax", "matmul", "scaled_dot_product_attention", "silu", "softmax"),
        *(f"conv{at}d" for at in (1, 2, 3)),
        *(f"conv_transpose{at}d" for at in (1, 2, 3)),
        *(f"max_pool{at}d" for at in (1, 2, 3)),
        *(f"adaptive_avg_pool{at}d" for at in (1, 2, 3)),
    }
)


def is_plain(module: GraphModule) -> bool:
    """Tell if what a module writes can be read as new values, and shapes and types as they are."""
    graphs = [it.graph for it in module.modules() if isinstance(it, GraphModule)]
    nodes = [node for graph in graphs for node in graph.nodes]
    if any(map(_updates_statistics, nodes)) or any(map(_transforms, nodes)):
        return False
    if any(map(_casts, nodes)):
        return False
    written = [node for node in nodes if writes(node)]
    if len(graphs) > 1 and written:
        return False
    order = {node: at for at, node in enumerate(nodes)}
    return all(_is_local(node, order) for node in written)


def writes(node: Node) -> bool:
    """Tell if a node writes into an operand."""
    return _any_argument(node, lambda it: it.alias_info is not None and it.alias_info.is_write)


def _any_argument(node: Node, test: Callable[[Any], bool]) -> bool:
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    return any(map(test, target._schema.arguments))


def _is_local(node: Node, order: Mapping[Node, int]) -> bool:
    """Tell if a node writes into its first operand only, which is another's own result."""
    target: Any = node.target
    written = [
        at
        for at, it in enumerate(target._schema.arguments)
        if it.alias_info is not None and it.alias_info.is_write
    ]
    if written != [0]:
        return False
    first = node.args[0] if node.args else None
    if not isinstance(first, Node) or not _has_own_type(node, first):
        return False
    same = {node}
    while writes(first):
        same.add(first)
        below = first.args[0]
        if not isinstance(below, Node):
            return False
        first = below
    same.add(first)
    return _is_fresh(first) and not _is_seen(same, node, order)


def _updates_statistics(node: Node) -> bool:
    """Tell if a node is a norm that keeps statistics, which its schema does not say."""
    name = getattr(node.target, "__name__", "").split(".")[0]
    if node.op != "call_function" or name not in ("batch_norm", "instance_norm"):
        return False
    return node.args[3] is not None and bool(node.args[5])


def _transforms(node: Node) -> bool:
    """Tell if a node is of ``vmap`` or of a derivative, whose values hide an axis."""
    return getattr(node.target, "__module__", "") == "torch._functorch.predispatch"


def _casts(node: Node) -> bool:
    """Tell if a node is a region of autocast, where operators have operands of other types.

    Torch's own rules say of which ones: taken apart, a program has these casts as its nodes.
    """
    return getattr(node.target, "__name__", "") == "wrap_with_autocast" and bool(node.args[2])


def _has_own_type(node: Node, operand: Node) -> bool:
    """Tell if a result has the shape and type of the operand that it is written into."""
    new, old = node.meta.get("val"), operand.meta.get("val")
    both = isinstance(new, torch.Tensor) and isinstance(old, torch.Tensor)
    return both and (new.shape, new.dtype) == (old.shape, old.dtype)


def _is_fresh(node: Node) -> bool:
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    if any(
        it.alias_info is not None for it in (*target._schema.arguments, *target._schema.returns)
    ):
        return False
    name = target._schema.name.split("::")[-1]
    return name in _FRESH or not target._can_decompose()


def _is_seen(same: set[Node], writer: Node, order: Mapping[Node, int]) -> bool:
    """Tell if something that may be a view of an operand is made before it is written."""
    return any(
        order[user] < order[writer] and user not in same and not _is_fresh(user)
        for node in same
        for user in node.users
    )
