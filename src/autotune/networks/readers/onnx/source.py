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
    exact = _multiplies_bytes(file)
    how = "with exact products of bytes" if exact else "without optimisations"
    run = partial(_run, file, tuple(names), constants, exact)
    return Yardstick(f"onnxruntime {onnxruntime.__version__} {how}", run)


def _multiplies_bytes(file: ModelFile) -> bool:
    """Whether there are products of integers, whose sums the runtime may saturate at 16 bits."""
    return any(
        node.op_type.startswith("QLinear") or node.op_type.endswith("Integer")
        for part in (file.model.graph, *file.model.functions)
        for node in part.node
    )


def _run(
    file: ModelFile,
    names: Sequence[str],
    constants: Mapping[str, Array],
    exact: bool,
    arrays: Sequence[Array],
) -> tuple[Array, ...] | None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    # One of its optimisations makes weights unsigned, whose sums do not saturate.
    level = levels.ORT_ENABLE_EXTENDED if exact else levels.ORT_DISABLE_ALL
    options.graph_optimization_level = level
    options.add_session_config_entry("session.x64quantprecision", "1")
    where: Any = file.model.SerializeToString() if file.path is None else str(file.path)
    feeds = {**constants, **dict(zip(names, arrays, strict=True))}
    try:
        session = onnxruntime.InferenceSession(where, options, providers=["CPUExecutionProvider"])
        return tuple(session.run(None, feeds))
    except Exception:
        # Its errors have no class in common. It lacks kernels and types of the specification.
        return None
