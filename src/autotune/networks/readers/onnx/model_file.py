"""Models of ONNX: files and objects, checked."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnsupportedWorkload, one_line
from autotune.networks.readers.onnx.wire import split_model
from autotune.plugins.installing import install_extra

__all__ = ["ModelFile", "open_model"]

# Domains of the operators that onnxruntime writes into a file when it saves an optimised model.
_RUNTIME_ONLY = {
    "com.microsoft": (
        *("BiasSoftmax", "FusedConv", "FusedGemm", "FusedMatMulActivation", "GemmFastGelu"),
        *("NhwcConv", "NhwcFusedConv", "NhwcMaxPool", "QLinearConv"),
    ),
    "com.microsoft.nchwc": (),
    "com.ms.internal.nhwc": (),
}


# Bytes, or elements, of a tensor above which it stays in its file, and the checker gets no copy.
_LARGE = 1 << 12


@frozen(eq=False)
class ModelFile:
    """A model as its file has it.

    Attributes:
        model: The ``ModelProto``; elements of other files are not in it.
        path: Its file, beside which others are looked for; None of a model that is an object.
        text: What a person calls it.
        content: The bytes of the file, for tensors that are said to be in the file called "";
            None where there are none.
    """

    model: Any
    path: Path | None
    text: str
    content: NDArray[np.uint8] | None = None

    @property
    def folder(self) -> Path | None:
        """Folder in which other files are looked for; None of a model that is an object."""
        return None if self.path is None else self.path.parent


def open_model(source: object) -> ModelFile:
    """A model from a path, a string that is one, or a ``ModelProto``, checked.

    Raises:
        InvalidValueError: the package ``onnx`` is missing, or the model is damaged.
        UnsupportedWorkload: onnxruntime optimised it.
    """
    try:
        import onnx
    except ImportError as error:
        raise InvalidValueError(
            "models of ONNX are read with the package onnx, which is not installed: run "
            + install_extra("onnx")
        ) from error
    if isinstance(source, onnx.ModelProto):
        found = ModelFile(source, None, source.graph.name or "model")
    elif isinstance(source, str | Path):
        path = Path(source)
        try:
            model, content = _read(path)
        except Exception as error:  # errors of protobuf and of files share no class
            raise _damaged(repr(str(path)), error) from error
        found = ModelFile(model, path, path.name, content)
    else:
        raise InvalidValueError(
            f"an ONNX model is a path or a ModelProto, not {type(source).__name__}"
        )
    _refuse_optimised(found)
    try:
        onnx.checker.check_model(_without_weights(found.model))
    except Exception as error:  # the checker's errors share no class
        raise _damaged(found.text, error) from error
    return found


def _read(path: Path) -> tuple[Any, NDArray[np.uint8] | None]:
    """A model, and the content of its file where large tensors are left in that."""
    import onnx

    known = onnx.serialization.registry.get_format_from_file_extension(path.suffix)
    if known not in (None, "protobuf"):
        return onnx.load(str(path), load_external_data=False), None
    content = np.fromfile(path, np.uint8)
    light, places = split_model(content.data, _LARGE)
    model = onnx.ModelProto.FromString(light)
    for tensor, place in zip(model.graph.initializer, places, strict=True):
        if place is not None:
            tensor.data_location = onnx.TensorProto.EXTERNAL
            told = {"location": "", "offset": place.begin, "length": place.end - place.begin}
            for key, value in told.items():
                tensor.external_data.add(key=key, value=str(value))
    return model, content


def _without_weights(model: Any) -> Any:
    """The model with inputs in the place of large tensors: the checker would copy these.

    What is in them is checked as they are read.
    """
    import onnx

    light = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name not in ("graph", "opset_import", "functions", "metadata_props"):
            setattr(light, field.name, value)
    for name in ("opset_import", "functions", "metadata_props"):
        getattr(light, name).extend(getattr(model, name))
    graph, given = model.graph, {it.name for it in model.graph.input}
    light.graph.name = graph.name
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(light.graph, name).extend(getattr(graph, name))
    for tensor in graph.initializer:
        if prod(tensor.dims) < _LARGE and tensor.data_location != onnx.TensorProto.EXTERNAL:
            light.graph.initializer.append(tensor)
        elif tensor.name not in given:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return light


def _damaged(text: str, error: Exception) -> InvalidValueError:
    return InvalidValueError(
        f"{text} is no valid ONNX model ({one_line(str(error))}); export it again"
    )


def _refuse_optimised(found: ModelFile) -> None:
    for node in found.model.graph.node:
        names = _RUNTIME_ONLY.get(node.domain)
        if names is not None and (not names or node.op_type in names):
            what = f"node {node.name or node.output[0]!r} is {node.domain}.{node.op_type}"
            raise UnsupportedWorkload(
                f"{found.text} was optimised by onnxruntime for itself ({what}): give the model "
                "that was exported"
            )
