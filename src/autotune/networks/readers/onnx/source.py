"""Models of ONNX as networks, and what their outputs are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.networks.asked_inputs import AskedInputs
from autotune.networks.frontend import Rival
from autotune.networks.graph_program import GraphSource, Yardstick
from autotune.networks.readers.onnx.counted_rows import fill_of
from autotune.networks.readers.onnx.model_file import ModelFile
from autotune.networks.readers.onnx.network import OnnxNetwork, read_onnx

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
        run()
    except Exception:
        # As above.
        return None
    samples: list[float] = []
    end = perf_counter() + seconds
    while not samples or perf_counter() < end:
        begin = perf_counter()
        run()
        samples.append(perf_counter() - begin)
    return Rival(name, median(samples))
