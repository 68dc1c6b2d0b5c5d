"""Networks in ONNX files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import UnsupportedWorkload
from autotune.networks import AskedInputs, DeclaredInput
from autotune.networks.fixed_inputs import fix_inputs
from autotune_tvm.networks.sources.onnx_nodes import constants_of
from autotune_tvm.networks.sources.onnx_recurrent import unroll_recurrent
from autotune_tvm.networks.sources.onnx_resize import write_out_resizes
from autotune_tvm.networks.sources.onnx_training import check_deterministic
from autotune_tvm.networks.sources.parsing import parse_onnx
from autotune_tvm.networks.sources.source import Array, Source
from autotune_tvm.networks.sources.translation import NotTranslated, translated

__all__ = ["from_onnx_file"]


def from_onnx_file(
    path: Path, example_inputs: Sequence[object] | None, asked: AskedInputs
) -> Source:
    """An ONNX file; example inputs give the lengths of axes that have names instead of lengths.

    Raises:
        InvalidValueError: the file is damaged, or the package ``onnx`` is missing.
        UnsupportedWorkload: TVM does not know one of its operators, or an axis has no length.
    """
    model = parse_onnx(path)
    inputs = _inputs(model)
    _check_types(inputs, path)
    fixed = fix_inputs(list(map(_declared, inputs)), asked, example_inputs, path.name)
    _bake(model.graph, fixed.constants)
    shapes = {name: list(shape) for name, shape in fixed.shapes.items()}
    from tvm.relax.frontend.onnx import from_onnx

    try:
        check_deterministic(model, constants_of(model))
        known = write_out_resizes(unroll_recurrent(model, shapes), shapes)
    except UnsupportedWorkload as error:
        raise UnsupportedWorkload(f"{path.name}: {error}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = translated(lambda: from_onnx(known, shapes, keep_params_in_input=False))
    except NotTranslated as error:
        raise UnsupportedWorkload(
            f"{path.name}: TVM cannot import the model: {_named(known, error)}"
        ) from error
    outputs = tuple(output.name for output in model.graph.output)
    return Source(path.stem, module, fixed.examples, outputs, _Run(model), fixed=fixed)


def _inputs(model: Any) -> list[Any]:
    """What a caller gives: initializers may be listed among the inputs, too."""
    weights = {initializer.name for initializer in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def _check_types(inputs: Sequence[Any], path: Path) -> None:
    from onnx import TensorProto

    for value in inputs:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type" or value.type.tensor_type.elem_type == TensorProto.STRING:
            raise UnsupportedWorkload(
                f"input {value.name!r} of {path.name} is no tensor of numbers; export the model "
                "without what prepares its inputs"
            )


def _declared(value: Any) -> DeclaredInput:
    """An input of a graph."""
    from onnx.helper import tensor_dtype_to_np_dtype

    tensor = value.type.tensor_type
    dtype = str(tensor_dtype_to_np_dtype(tensor.elem_type))
    return DeclaredInput(value.name, tuple(map(_axis, tensor.shape.dim)), dtype)


def _axis(axis: Any) -> int | str:
    """The length of an axis, else its name; ``?`` is what some exporters call all of them."""
    if axis.dim_value > 0:
        return int(axis.dim_value)
    return "" if axis.dim_param == "?" else str(axis.dim_param)


def _bake(graph: Any, constants: Mapping[str, Array]) -> None:
    """Let inputs be constants of a graph."""
    from onnx import numpy_helper

    left = [value for value in graph.input if value.name not in constants]
    del graph.input[:]
    graph.input.extend(left)
    graph.initializer.extend(numpy_helper.from_array(it, name) for name, it in constants.items())


def _named(model: Any, error: NotTranslated) -> str:
    """TVM's message, with the names of the nodes that it is about."""
    message = str(error)
    if "not supported for frontend ONNX" not in message:
        return message if error.node is None else f"node {_described(error.node)}: {message}"
    operators = set(re.split(r",\s*", message.rsplit(": ", 1)[-1]))
    nodes = [_described(node) for node in model.graph.node if node.op_type in operators]
    return (
        f"it does not know the operator of node {', '.join(nodes[:5])}; export the model with an "
        "older opset, or replace the operator"
    )


def _described(node: Any) -> str:
    return f"{(node.name or node.output[0])!r} ({node.op_type})"


class _Run:
    """The model in onnxruntime where that takes it, else in ONNX's own evaluator."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        names = [value.name for value in _inputs(self._model)]
        feeds = dict(zip(names, inputs, strict=True))
        session = self._session()
        if session is None:
            from onnx.reference import ReferenceEvaluator

            return tuple(ReferenceEvaluator(self._model).run(None, feeds))
        return tuple(session.run(None, feeds))

    def _session(self) -> Any:
        """A session of onnxruntime; None where that is not installed, or lacks a kernel."""
        try:
            import onnxruntime
        except ImportError:
            return None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        content = self._model.SerializeToString()
        try:
            return onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception:
            # Its errors have no class in common. It lacks kernels that the specification has.
            return None
