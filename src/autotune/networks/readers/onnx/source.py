"""Models of ONNX as networks, and what their outputs are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.networks.asked_inputs import AskedInputs
from autotune.networks.graph_program import GraphSource, Yardstick
from autotune.networks.readers.onnx.model_file import ModelFile
from autotune.networks.readers.onnx.network import read_onnx

__all__ = ["onnx_source"]

Array = NDArray[Any]


def onnx_source(
    model: object, examples: Sequence[object] | None = None, asked: AskedInputs | None = None
) -> GraphSource:
    """Read a model; as :func:`~autotune.networks.readers.onnx.read_onnx`."""
    network = read_onnx(model, examples, asked)
    names = [it.name for it in network.graph.inputs]
    yardstick = _onnxruntime(network.file, names, network.fixed.constants)
    name = Path(network.file.text).stem
    return GraphSource(name, network.graph, network.fixed, yardstick)


def _onnxruntime(
    file: ModelFile, names: Sequence[str], constants: Mapping[str, Array]
) -> Yardstick | None:
    """The runtime without what it changes of a model; None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    name = f"onnxruntime {onnxruntime.__version__} without optimisations"
    return Yardstick(name, partial(_run, file, tuple(names), constants))


def _run(
    file: ModelFile, names: Sequence[str], constants: Mapping[str, Array], arrays: Sequence[Array]
) -> tuple[Array, ...] | None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Else its sums of bytes saturate at 16 bits on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    where: Any = file.model.SerializeToString() if file.path is None else str(file.path)
    feeds = {**constants, **dict(zip(names, arrays, strict=True))}
    try:
        session = onnxruntime.InferenceSession(where, options, providers=["CPUExecutionProvider"])
        return tuple(session.run(None, feeds))
    except Exception:
        # Its errors have no class in common. It lacks kernels and types of the specification.
        return None
