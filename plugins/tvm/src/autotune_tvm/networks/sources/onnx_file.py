"""Networks in ONNX files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks.arrays import as_numpy
from autotune_tvm.networks.sources.onnx_recurrent import unroll_recurrent
from autotune_tvm.networks.sources.onnx_resize import write_out_resizes
from autotune_tvm.networks.sources.parsing import parse_onnx
from autotune_tvm.networks.sources.source import Array, Source
from autotune_tvm.networks.sources.translation import NotTranslated, translated

__all__ = ["from_onnx_file"]


def from_onnx_file(path: Path, example_inputs: Sequence[object] | None) -> Source:
    """An ONNX file; example inputs give the lengths of axes that have names instead of lengths.

    Raises:
        InvalidValueError: the file is damaged, or the package ``onnx`` is missing.
        UnsupportedWorkload: TVM does not know one of its operators, or an axis has no length.
    """
    model = parse_onnx(path)
    examples = None if example_inputs is None else tuple(map(as_numpy, example_inputs))
    inputs = _inputs(model)
    _check_types(inputs, path)
    shapes = _shapes(inputs, examples, path)
    from tvm.relax.frontend.onnx import from_onnx

    try:
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
    return Source(path.stem, module, examples, outputs, _Run(model))


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


def _shapes(
    inputs: Sequence[Any], examples: Sequence[Array] | None, path: Path
) -> dict[str, list[int]]:
    if examples is not None:
        if len(examples) != len(inputs):
            names = ", ".join(value.name for value in inputs)
            raise InvalidValueError(f"{len(examples)} example inputs; {path.name} takes {names}")
        pairs = zip(inputs, examples, strict=True)
        return {value.name: list(array.shape) for value, array in pairs}
    shapes = {}
    for value in inputs:
        axes = value.type.tensor_type.shape.dim
        unknown = [axis.dim_param or "?" for axis in axes if axis.dim_value <= 0]
        if unknown:
            raise UnsupportedWorkload(
                f"input {value.name!r} of {path.name} has axes without a length "
                f"({', '.join(unknown)}): programs are tuned for one shape; give example inputs, "
                "or export the model with fixed shapes"
            )
        shapes[value.name] = [int(axis.dim_value) for axis in axes]
    return shapes


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
