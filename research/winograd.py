"""Is Winograd's convolution worth it: the 3 x 3 convolutions of ResNet-50, by several tiles.

    python research/winograd.py [--quick] [--threads N] [--trials N] [--only TEXT]
                                  [--tiles NAMES] [--json FILE] [--check]

Each convolution with bias and relu, channels last, is a network that is tuned directly and by
every tile, with as many trials for each program. Then they take turns. `warm` calls follow one
another, so that caches hold what they can; before `cold` ones other memory was written, as in a
network whose weights no cache holds. Needs the package `onnx`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from support.common import Bar, basic_parser, cores, finish_with, machine

import autotune
from autotune.networks import CompiledNetwork
from autotune.networks.passes.channels_last import channels_last
from autotune.networks.passes.winograd import Tile, with_tile

Reals = NDArray[np.float32]
Form = Callable[[Any], Any] | None
Forms = Mapping[str, Form]

SHAPES = {
    "56x56x64": (56, 64),
    "28x28x128": (28, 128),
    "14x14x256": (14, 256),
    "7x7x512": (7, 512),
}
"""Height and width, and channels in and out, by name."""
TILES = {f"{high}x{wide}": Tile(high, wide) for high, wide in ((1, 2), (1, 4), (2, 2), (4, 4))}
DIRECT = "direct"
WORTH_IT = 1.1
EVICTED_BYTES = 96 << 20
ROUNDS = 15
WARM_CALLS = 20
COLD_CALLS = 5


@dataclass
class Found:
    """A way to compute one convolution.

    Attributes:
        shape: Name of the convolution.
        form: `direct`, or a tile.
        threads: It runs on.
        flop: Of all its programs.
        tasks: Seconds of its programs, tuned one by one.
        weight_bytes: Of its constants.
        traffic_bytes: What its programs read and write, each tensor once a program.
        warm, cold: Seconds of a call: the median over the rounds, and the least of all.
        speedups: Over the direct one: warm the median over the rounds, cold of the least.
        error: Largest difference from float64, over the root mean square of the result.
    """

    shape: str
    form: str
    threads: int
    flop: float
    tasks: dict[str, float]
    weight_bytes: int
    traffic_bytes: int
    warm: float = 0.0
    cold: float = 0.0
    speedups: tuple[float, float] = (1.0, 1.0)
    error: float = 0.0


def main() -> int:
    """Run; returns the exit status."""
    parser = basic_parser(__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--trials", type=int, default=48, help="of each program")
    parser.add_argument("--only", default="", help="shapes whose name has this")
    tiles = ",".join(TILES)
    parser.add_argument("--tiles", default=tiles, help="names of tiles, separated by commas")
    options = parser.parse_args()
    unknown = set(options.tiles.split(",")) - set(TILES)
    if unknown:
        parser.error(f"--tiles {options.tiles}: there are {tiles}")
    forms: dict[str, Form] = {DIRECT: None}
    forms |= {name: partial(with_tile, tile=TILES[name]) for name in options.tiles.split(",")}
    names = [name for name in SHAPES if options.only in name]
    names = names[:1] if options.quick else names
    print("{processor}, {cores} cores, load {load:.1f}".format(**machine()), flush=True)
    found = []
    for name in names:
        found += compare_forms(name, forms, options.threads, options.trials)
    bars = []
    for name in names:
        best = max((it for it in found if it.shape == name), key=lambda it: it.speedups[0])
        bars.append(Bar(f"{name}, {best.form} over the direct one", best.speedups[0], WORTH_IT))
    data = {"machine": machine(), "found": [asdict(it) for it in found]}
    return finish_with(options, data, bars)


def compare_forms(name: str, forms: Forms, threads: int, trials: int) -> list[Found]:
    """Tune all forms of one convolution, and time them in turns."""
    size, channels = SHAPES[name]
    rng = np.random.default_rng(0)
    data = rng.standard_normal((1, size, size, channels)).astype(np.float32)
    scale = np.sqrt(2 / (9 * channels))
    weights = (rng.standard_normal((3, 3, channels, channels)) * scale).astype(np.float32)
    bias = rng.standard_normal(channels).astype(np.float32)
    module = network_of(data.shape, weights, bias)
    found, built = [], {}
    for form, replaced in forms.items():
        made, built[form] = tuned(module, form, replaced, threads, trials)
        made.shape = name
        found.append(made)
    warm = turns(built, lambda network: warm_seconds(network, data))
    cold = turns(built, lambda network: cold_seconds(network, data))
    want = reference(data, weights, bias)
    size_of = np.sqrt(np.mean(want**2))
    for it in found:
        it.warm, it.cold = statistics.median(warm[it.form]), min(cold[it.form])
        it.speedups = over_direct(warm, it.form), min(cold[DIRECT]) / it.cold
        (output,) = built[it.form](data)
        it.error = float(np.abs(output - want).max() / size_of)
        print_found(it)
    return found


def network_of(shape: tuple[int, ...], weights: Reals, bias: Reals) -> onnx.ModelProto:
    """A model of a convolution, its bias and relu, whose input and output have channels last."""
    size, features = shape[1], weights.shape[-1]
    kernel = numpy_helper.from_array(weights.transpose(3, 2, 0, 1).copy(), "kernel")
    nodes = [
        helper.make_node("Transpose", ["data"], ["first"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["first", "kernel", "bias"], ["made"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["made"], ["positive"]),
        helper.make_node("Transpose", ["positive"], ["output"], perm=[0, 2, 3, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "convolution",
        [helper.make_tensor_value_info("data", onnx.TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info(
                "output", onnx.TensorProto.FLOAT, (1, size, size, features)
            )
        ],
        [kernel, numpy_helper.from_array(bias, "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tuned(
    module: Any,
    form: str,
    replaced: Form,
    threads: int,
    trials: int,
) -> tuple[Found, CompiledNetwork]:
    """A form, tuned, and what of it is known so far."""
    passes = {"winograd": replaced, "layouts": channels_last}
    programs = 1 if replaced is None else 3
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "winograd.db"
        result = autotune.tune_model(
            module, passes=passes, trials=programs * trials, threads=threads, database=database
        )
        network = result.build()
    tasks = {task.task.name: task.total or 0.0 for task in result.tasks}
    loads = [it.task.workload for it in result.tasks if not it.task.view]
    traffic = sum(workload.io_bytes for workload in loads if workload is not None)
    weights = result.network.weight_bytes
    return Found("", form, threads, result.flop, tasks, weights, traffic), network


def turns(
    built: Mapping[str, CompiledNetwork], seconds: Callable[[CompiledNetwork], float]
) -> dict[str, list[float]]:
    """Seconds of each form in each round."""
    found: dict[str, list[float]] = {form: [] for form in built}
    for number in range(ROUNDS):
        for form in list(built) if number % 2 == 0 else reversed(list(built)):
            found[form].append(seconds(built[form]))
    return found


def over_direct(seconds: Mapping[str, list[float]], form: str) -> float:
    """Speed over the direct form, the median over the rounds."""
    pairs = zip(seconds[DIRECT], seconds[form], strict=True)
    return statistics.median(direct / other for direct, other in pairs)


def warm_seconds(network: CompiledNetwork, data: Reals) -> float:
    """The least of a few calls that follow one another."""
    return min(network.time_calls([data], WARM_CALLS))


def cold_seconds(network: CompiledNetwork, data: Reals) -> float:
    """The least of a few calls, before each of which other memory was written."""
    other = np.zeros(EVICTED_BYTES, np.uint8)
    seconds = []
    for _ in range(COLD_CALLS):
        other += 1
        begin = time.perf_counter()
        network(data)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def reference(data: Reals, weights: Reals, bias: Reals) -> NDArray[np.float64]:
    """The result in float64."""
    padded = np.pad(data.astype(np.float64), [(0, 0), (1, 1), (1, 1), (0, 0)])
    height, width = data.shape[1:3]
    total = np.zeros((*data.shape[:3], weights.shape[-1])) + bias
    for i in range(3):
        for j in range(3):
            total += padded[:, i : i + height, j : j + width] @ weights[i, j].astype(np.float64)
    return np.maximum(total, 0)


def print_found(it: Found) -> None:
    """A line of the table."""
    parts = " + ".join(f"{seconds * 1e3:.3f}" for seconds in it.tasks.values() if seconds)
    print(
        f"{it.shape:<10} {it.form:<13} {it.threads} threads  {it.warm * 1e3:7.3f} ms warm "
        f"{it.speedups[0]:5.2f}x  cold {it.cold * 1e3:7.3f} ms {it.speedups[1]:5.2f}x  "
        f"{it.flop / 1e6:6.1f} MFLOP  weights {it.weight_bytes / 2**20:5.1f} MiB  "
        f"of {it.traffic_bytes / 2**20:5.1f} MiB moved  "
        f"error {it.error:.1e}  tasks {parts}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
