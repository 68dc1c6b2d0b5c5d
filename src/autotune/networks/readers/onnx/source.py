"""Models of ONNX as graphs of fixed shapes, and what their outputs are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.fixed_inputs import AskedInputs, DeclaredInput, FixedInputs, fix_inputs
from autotune.networks.frontend import Rival
from autotune.networks.graph import Graph, Value, constant, input_value
from autotune.networks.graph_program import GraphSource, Yardstick, timed_rival
from autotune.networks.readers.onnx.call import ValueNeeded, fill_of, with_counts
from autotune.networks.readers.onnx.model_file import ModelFile, dtype_of, open_model, type_name
from autotune.networks.readers.onnx.reader import ModelReader
from autotune.runtime.arrays import stored_array

__all__ = ["onnx_source"]

Array = NDArray[Any]

_OF_BYTES = (
    *("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"),
    *("QAttention", "QGemm"),
)


def onnx_source(
    model: object, examples: Sequence[object] | None = None, asked: AskedInputs | None = None
) -> GraphSource:
    """Read a model; as :func:`~autotune.networks.readers.onnx.read_onnx`."""
    network = read_onnx(model, examples, asked)
    names = [it.name for it in network.graph.inputs]
    yardstick = _onnxruntime(network.file, names, network.fixed.constants)
    if yardstick is not None and network.counted:
        yardstick = evolve(yardstick, run=partial(_counted, network, yardstick.run))
    name = Path(network.file.text).stem
    return GraphSource(name, network.graph, network.fixed, yardstick)


def _counted(
    network: OnnxNetwork,
    run: Callable[[Sequence[Array]], tuple[Array, ...] | None],
    arrays: Sequence[Array],
) -> tuple[Array, ...] | None:
    """Outputs of a model, as long as those of the network, and how many are valid."""
    found = run(arrays)
    if found is None:
        return None
    counts: list[Array] = []
    filled: list[Array] = []
    for (name, value), array in zip(network.graph.outputs.items(), found, strict=False):
        axis = network.counted.get(name)
        if axis is not None:
            counts.append(np.asarray(array.shape[axis]))
            widths = [(0, 0)] * array.ndim
            widths[axis] = (0, value.shape[axis] - array.shape[axis])
            array = np.pad(array, widths, constant_values=fill_of(value.dtype))
        filled.append(array)
    return (*filled, *counts)


def _onnxruntime(
    file: ModelFile, names: Sequence[str], constants: Mapping[str, Array]
) -> Yardstick | None:
    """The runtime without what it changes of a model; None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    exact = _multiplies_bytes(file)
    name = f"onnxruntime {onnxruntime.__version__}"
    how = "with exact products of bytes" if exact else "without optimisations"
    model = _Model(file, tuple(names), constants)
    return Yardstick(f"{name} {how}", partial(_run, model, exact), partial(_timed, model, name))


@frozen(eq=False)
class _Model:
    """A model for the runtime: its inputs by name, of which some are constants."""

    file: ModelFile
    names: tuple[str, ...]
    constants: Mapping[str, Array]

    def call(self, options: Any, arrays: Sequence[Array]) -> Callable[[], list[Array]]:
        """Run it on these inputs."""
        import onnxruntime

        options.log_severity_level = 4
        file = self.file
        where: Any = file.model.SerializeToString() if file.path is None else str(file.path)
        session = onnxruntime.InferenceSession(where, options, providers=["CPUExecutionProvider"])
        feeds = {**self.constants, **dict(zip(self.names, arrays, strict=True))}
        return partial(session.run, None, feeds)


def _multiplies_bytes(file: ModelFile) -> bool:
    """Tell if there are products of integers, whose sums the runtime may saturate at 16 bits."""
    return any(
        node.op_type.startswith("QLinear")
        or node.op_type.endswith("Integer")
        or node.op_type in _OF_BYTES
        for part in (file.model.graph, *file.model.functions)
        for node in part.node
    )


def _run(model: _Model, exact: bool, arrays: Sequence[Array]) -> tuple[Array, ...] | None:
    import onnxruntime

    options, levels = onnxruntime.SessionOptions(), onnxruntime.GraphOptimizationLevel
    # One of its optimisations makes weights unsigned, whose sums do not saturate.
    level = levels.ORT_ENABLE_EXTENDED if exact else levels.ORT_DISABLE_ALL
    options.graph_optimization_level = level
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return tuple(model.call(options, arrays)())
    except Exception:
        # Its errors have no class in common. It lacks kernels and types of the specification.
        return None


def _timed(
    model: _Model, name: str, arrays: Sequence[Array], threads: int, seconds: float
) -> Rival | None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    try:
        run = model.call(options, arrays)
        return timed_rival(name, run, seconds)
    except Exception:
        # As above.
        return None


# Floats beyond these are what a network computes with, and no parameter such as a scale.
_MOST_FLOATS = 16


@frozen(eq=False)
class OnnxNetwork:
    """A model that was read.

    Attributes:
        file: What it was read from.
        graph: The network.
        fixed: Its inputs, and what was chosen that nobody gave.
        counted: By name of an output of which data says how long it is the axis for which that is
            so. There is room for the most; ``NAME (count)``, behind all other outputs and in this
            order, says how many are valid.
    """

    file: ModelFile
    graph: Graph
    fixed: FixedInputs
    counted: Mapping[str, int]


def read_onnx(
    source: object,
    examples: Sequence[object] | None = None,
    asked: AskedInputs | None = None,
) -> OnnxNetwork:
    """Read a model.

    An input whose value decides a shape, and that is given with an example, is that value in
    every call: that is a remark.

    Args:
        source: A path, or a ``ModelProto``.
        examples: What it is called with.
        asked: What a person says of its inputs.

    Raises:
        InvalidValueError: the model is damaged, or an example is not one of its input.
        UnknownNameError: there is no input or axis of a name that was asked for.
        UnsupportedWorkload: an operator, a type or a form of it is not supported, in one line; or
            an axis has no length, or a value is missing that decides a shape.
    """
    file = open_model(source)
    asked = asked or AskedInputs()
    fixed = fix_inputs(_declared(file), asked, examples, file.text)
    given = set(fixed.shapes) if examples is not None else set(asked.inputs)
    while True:
        try:
            reader = ModelReader(file)
            read = reader.outputs(_inputs(file, fixed))
            outputs, counted = with_counts(read, reader.tracker)
            break
        except ValueNeeded as error:
            fixed = _baked(file, fixed, given, error)
        except (InvalidValueError, UnsupportedWorkload) as error:
            raise type(error)(f"{file.text}: {error}") from error
    names = list(fixed.shapes)
    inputs = _inputs(file, fixed)
    said = [
        f"output {name!r} of {file.text} has room for {outputs[name].shape[axis]} along axis "
        f"{axis}: as many as output '{name} (count)' says are valid"
        for name, axis in counted.items()
    ]
    fixed = evolve(fixed, remarks=(*fixed.remarks, *said))
    graph = Graph(tuple(inputs[it] for it in names), outputs)
    return OnnxNetwork(file, graph, fixed, counted)


def _tensors(file: ModelFile) -> list[Any]:
    """The inputs that a caller gives: initializers may be listed among the inputs, too."""
    weights = {it.name for it in file.model.graph.initializer}
    return [it for it in file.model.graph.input if it.name not in weights]


def _declared(file: ModelFile) -> list[DeclaredInput]:
    return [
        DeclaredInput(it.name, tuple(map(_axis, it.type.tensor_type.shape.dim)), _dtype(it, file))
        for it in _tensors(file)
    ]


def _dtype(value: Any, file: ModelFile) -> str:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedWorkload(f"{file.text}: input {value.name!r} is no tensor of numbers")
    try:
        return dtype_of(value.type.tensor_type.elem_type)
    except UnsupportedWorkload:
        raise UnsupportedWorkload(
            f"{file.text}: input {value.name!r} is a tensor of "
            f"{type_name(value.type.tensor_type.elem_type)}, which is not supported"
        ) from None


def _axis(axis: Any) -> int | str:
    """The length of an axis, else its name; ``?`` is what some exporters call all of them."""
    if axis.HasField("dim_value") and axis.dim_value >= 0:
        return int(axis.dim_value)
    return "" if axis.dim_param == "?" else str(axis.dim_param)


def _inputs(file: ModelFile, fixed: FixedInputs) -> dict[str, Value]:
    """The inputs of a model: those of the graph, and those that are known."""
    found: dict[str, Value] = {}
    for tensor in _tensors(file):
        name, dtype = tensor.name, _dtype(tensor, file)
        if name in fixed.constants:
            found[name] = constant(stored_array(fixed.constants[name], dtype), dtype, name)
        else:
            found[name] = input_value(name, fixed.shapes[name], dtype)
    return found


def _baked(
    file: ModelFile, fixed: FixedInputs, given: set[str], error: ValueNeeded
) -> FixedInputs:
    """With the inputs that have to be known as the constants that they are in the examples."""
    names = [it for it in fixed.shapes if it in _read(error.value)]
    parameters = [it for it in names if _is_parameter(file, it, fixed.shapes[it])]
    if not names or len(parameters) < len(names):
        raise UnsupportedWorkload(f"{file.text}: {error}") from error
    missing = [it for it in names if it not in given or fixed.examples is None]
    if missing:
        options = " ".join(f"--input {it}=FILE.npy" for it in missing)
        raise UnsupportedWorkload(
            f"{file.text}: {error}, and it depends on input {', '.join(map(repr, missing))}: give "
            f"{options} (in Python inputs={{...}}), which then holds in every call"
        ) from error
    examples = dict(zip(fixed.shapes, fixed.examples or (), strict=True))
    return evolve(
        fixed,
        shapes={it: shape for it, shape in fixed.shapes.items() if it not in names},
        examples=tuple(array for it, array in examples.items() if it not in names),
        constants={**fixed.constants, **{it: examples[it] for it in names}},
        remarks=(
            *fixed.remarks,
            *(f"input {it!r} of {file.text} decides shapes: it is as given" for it in names),
        ),
    )


def _is_parameter(file: ModelFile, name: str, shape: Sequence[int]) -> bool:
    dtype = next(_dtype(it, file) for it in _tensors(file) if it.name == name)
    return not element_type(dtype).is_float or math.prod(shape) <= _MOST_FLOATS


def _read(value: Value) -> set[str]:
    """Names of the inputs that a value depends on."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if one.is_input:
            found.add(one.name)
        elif one.node is not None and id(one.node) not in seen:
            seen.add(id(one.node))
            waiting.extend(one.node.operands)
    return found
