"""The vendor library as a yardstick: numpy's BLAS, for matrix products.

It runs in a process of its own, whose threads are set before numpy is imported.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen

from autotune.backends.backend import Array
from autotune.errors import AutotuneError, UnsupportedWorkload
from autotune.ir.expressions import Binary, Load
from autotune.ir.expressions.scalar import children
from autotune.ir.workloads import Workload, draw_example
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import time_call
from autotune.measure.validation import expectations, mismatch
from autotune.plugins.workload_names import make_workload
from autotune.process import Message, WorkerDied, ask_once
from autotune.process.child import connect, serve
from autotune.store.records import Outcome
from autotune.targets import Target


@frozen
class MatrixProduct:
    """A workload as ``np.matmul``: operands by name, and which of them are stored transposed."""

    left: str
    right: str
    left_transposed: bool
    right_transposed: bool


def matrix_product(workload: Workload) -> MatrixProduct | None:
    """The workload as one (batched) matrix product in floating point, if that is what it is.

    One sum over one axis of a product of two operands, each indexed by plain axes, the batch
    axes first and in the output's order.
    """
    stage, tensors = workload.stages[0], workload.tensors
    body, spatial = stage.body, [axis.name for axis in stage.spatial_axes]
    is_product = isinstance(body, Binary) and body.op == "mul" and len(workload.stages) == 1
    loads = [part for part in children(body) if isinstance(part, Load)]
    is_sum = stage.combiner == "add" and len(stage.reduce_axes) == 1
    if not is_product or len(loads) != 2 or not is_sum or len(spatial) < 2:
        return None
    dtypes = {stage.output.dtype, *(tensors[load.tensor].dtype for load in loads)}
    if len(dtypes) != 1 or dtypes.isdisjoint({"float32", "float64"}):
        return None
    *batch, row, column = spatial
    depth = stage.reduce_axes[0].name
    for left, right in (loads, loads[::-1]):
        found = _transposed(left, batch, row, depth), _transposed(right, batch, depth, column)
        if found[0] is not None and found[1] is not None:
            return MatrixProduct(left.tensor, right.tensor, found[0], found[1])
    return None


def vendor_latency(
    workload: Workload, threads: int, protocol: MeasureProtocol, seed: int = 0
) -> Outcome | None:
    """Time the vendor's library on a workload, by the same protocol as a candidate.

    Returns None when the library has no routine for the workload.
    """
    if matrix_product(workload) is None:
        return None
    question = {
        "op": "measure",
        "workload": workload.to_json(),
        "protocol": protocol.to_json(),
        "seed": seed,
    }
    seconds = sum(protocol.deadlines.values())
    return _ask("the vendor's library", "autotune.measure.vendor", question, threads, seconds)


def _ask(who: str, module: str, question: Message, threads: int, seconds: float) -> Outcome:
    """The outcome that a process of its own gives, or that of its end."""
    try:
        answer = ask_once(module, question, threads, seconds)
    except TimeoutError:
        return Outcome("timeout", message=f"{who} took more than {seconds:g} s")
    except WorkerDied as error:
        return Outcome("crash", message=str(error))
    if "failed" in answer:
        return Outcome("crash", message=answer["failed"])
    return Outcome.from_json(answer["done"])


class _MatmulCall:
    """A call of ``np.matmul`` with its arguments in place."""

    def __init__(self, product: MatrixProduct, inputs: dict[str, Array], output: Array) -> None:
        left, right = inputs[product.left], inputs[product.right]
        # Transposing makes a view: BLAS reads either order.
        self._left = np.swapaxes(left, -1, -2) if product.left_transposed else left
        self._right = np.swapaxes(right, -1, -2) if product.right_transposed else right
        self.output = output

    def time(self, number: int) -> float:
        """Seconds per call."""
        left, right, output = self._left, self._right, self.output
        begin = time.perf_counter()
        for _ in range(number):
            np.matmul(left, right, out=output)
        return (time.perf_counter() - begin) / number


def measure_here(workload: Workload, protocol: MeasureProtocol, seed: int) -> Outcome:
    """Check and time ``np.matmul`` in this process, on the threads that numpy has.

    Raises:
        UnsupportedWorkload: the workload is not a matrix product.
    """
    product = matrix_product(workload)
    if product is None:
        raise UnsupportedWorkload(f"{workload.name!r} is not a matrix product")
    inputs, outputs = draw_example(workload, np.random.default_rng(seed))
    expected = expectations(workload, list(outputs.values()))
    tensor = workload.tensors[workload.outputs[0]]
    call = _MatmulCall(product, inputs, np.full(tensor.shape, np.nan, tensor.element.dtype))
    call.time(1)
    wrong = mismatch(expected, [call.output])
    if wrong is not None:
        return Outcome("wrong_result", message=wrong)
    samples = time_call(call, protocol)
    return Outcome("ok", statistics.median(samples), samples)


def _transposed(load: Load, batch: list[str], row: str, column: str) -> bool | None:
    """Return whether an operand is stored transposed; None when it is not this operand."""
    axes = [str(index.args[0]) if index.op == "var" else "" for index in load.indices]
    orders = {False: [*batch, row, column], True: [*batch, column, row]}
    return next((transposed for transposed, order in orders.items() if order == axes), None)


def _answer(question: Message) -> Message:
    workload = Workload.from_json(question["workload"])
    protocol = MeasureProtocol.from_json(question["protocol"])
    return measure_here(workload, protocol, question["seed"]).to_json()


def main() -> None:
    """Answer :func:`vendor_latency`, which starts it."""
    connection, _ = connect("autotune.measure.vendor")
    serve(connection, {"measure": _answer})


_COMPILING_SECONDS = 300.0
_ELEMENTS = ("float16", "bfloat16", "float32", "float64")
_ROUTINES = (
    *("gemm", "batch_matmul", "dense", "softmax", "attention", "elementwise"),
    *("conv1d", "conv2d", "conv3d", "depthwise_conv2d"),
)


def has_routine(workload: Workload) -> bool:
    """Return whether torch has something for a workload: one of the builders, in floating point.

    Of bytes it has the product that keeps its sums, where cuBLAS takes the sizes.
    Names and parameters are for people: what they stand for has to be this very workload.
    """
    parameters = dict(workload.parameters)
    dtype = parameters.pop("dtype", None)
    if workload.name not in _ROUTINES or parameters.get("requantize"):
        return False
    if dtype not in _ELEMENTS and not (
        workload.name == "gemm" and dtype == "int8" and _multiplies_bytes(parameters)
    ):
        return False
    try:
        return make_workload(workload.name, parameters, dtype).digest == workload.digest
    except AutotuneError:
        return False


def _multiplies_bytes(sizes: Mapping[str, Any]) -> bool:
    """Return whether ``torch._int_mm`` takes sizes on CUDA devices."""
    found = [sizes.get(name) for name in "mnk"]
    rows, columns, depth = (size if isinstance(size, int) else 0 for size in found)
    return rows > 16 and columns % 8 == 0 and depth % 8 == 0


def torch_latency(
    workload: Workload,
    target: Target,
    protocol: MeasureProtocol,
    seed: int = 0,
    *,
    compiled: bool = False,
) -> Outcome | None:
    """Time torch on a workload, by the same protocol as a candidate.

    Of the ways that torch has, such as orders of the channels of images, the fastest counts.

    Args:
        workload: What torch computes.
        target: The CUDA device, and whether TF32 is allowed; or the CPU, and its cores.
        protocol: How to time.
        seed: Of the inputs.
        compiled: Whether each way is compiled by Inductor, which then tunes its own kernels.

    Returns:
        None when torch has no routine for the workload. An outcome that says why where torch is
        not installed with CUDA, or fails.
    """
    if not has_routine(workload):
        return None
    module = "autotune.measure.torch_routines"
    return ask_torch(module, workload, target, protocol, seed, compiled=compiled)


def ask_torch(
    module: str,
    workload: Workload,
    target: Target,
    protocol: MeasureProtocol,
    seed: int = 0,
    *,
    compiled: bool = False,
) -> Outcome:
    """Measure as :func:`torch_latency`, by routines that a module has.

    Args:
        module: What the process runs: one that answers by
            :func:`autotune.measure.torch_routines.answer`.
        workload: One that the module has a routine for.
        target: As above, and so are the others.
        protocol: How to time.
        seed: Of the inputs.
        compiled: Whether each way is compiled.
    """
    question = {
        "op": "measure",
        "workload": workload.to_json(),
        "target": target.to_json(),
        "protocol": protocol.to_json(),
        "seed": seed,
        "compiled": compiled,
    }
    seconds = sum(protocol.deadlines.values()) + (_COMPILING_SECONDS if compiled else 0.0)
    # Nothing else is measured meanwhile, and the reference of a large product takes a while.
    threads = len(os.sched_getaffinity(0)) if target.kind == "cuda" else target.cores
    return _ask("torch", module, question, threads, seconds)
