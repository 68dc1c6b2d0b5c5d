"""The vendor library as a yardstick: numpy's BLAS, for matrix products.

It runs in a process of its own, whose threads are set before numpy is imported.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from attrs import frozen

from autotune.backends.backend import Array
from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Binary, Load
from autotune.ir.workloads import Stage, Workload, draw_example
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import time_call
from autotune.measure.validation import expectations, mismatch
from autotune.process import Message, WorkerDied, ask_once
from autotune.process.child import connect, serve
from autotune.store.records import Outcome


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
    if len(workload.stages) != 1:
        return None
    stage = workload.stages[0]
    operands = _operands(stage)
    if operands is None or stage.combiner != "add" or len(stage.reduce_axes) != 1:
        return None
    tensors = workload.tensors
    dtypes = {tensors[name].dtype for name, _ in operands} | {stage.output.dtype}
    if len(dtypes) != 1 or dtypes.isdisjoint({"float32", "float64"}):
        return None
    (first, first_axes), (second, second_axes) = operands
    *batch, row, column = [axis.name for axis in stage.spatial_axes]
    depth = stage.reduce_axes[0].name
    if row in second_axes:
        (first, first_axes), (second, second_axes) = operands[1], operands[0]
    left = _transposed(first_axes, batch, row, depth)
    right = _transposed(second_axes, batch, depth, column)
    if left is None or right is None:
        return None
    return MatrixProduct(first, second, left, right)


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
    try:
        answer = ask_once("autotune.measure.vendor", question, threads, seconds)
    except TimeoutError:
        return Outcome("timeout", message=f"the vendor's library took more than {seconds:g} s")
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


def _operands(stage: Stage) -> tuple[tuple[str, list[str]], tuple[str, list[str]]] | None:
    """Names of both operands of a product, with the axes that index them; None if not plain."""
    body = stage.body
    if not isinstance(body, Binary) or body.op != "mul" or len(stage.spatial_axes) < 2:
        return None
    if not isinstance(body.left, Load) or not isinstance(body.right, Load):
        return None
    left, right = _plain_axes(body.left), _plain_axes(body.right)
    if left is None or right is None:
        return None
    return (body.left.tensor, left), (body.right.tensor, right)


def _plain_axes(load: Load) -> list[str] | None:
    if any(index.op != "var" for index in load.indices):
        return None
    return [str(index.args[0]) for index in load.indices]


def _transposed(axes: list[str], batch: list[str], row: str, column: str) -> bool | None:
    """Return whether an operand is stored transposed; None when it is not this operand."""
    if axes == [*batch, row, column]:
        return False
    return True if axes == [*batch, column, row] else None


def _answer(question: Message) -> Message:
    workload = Workload.from_json(question["workload"])
    protocol = MeasureProtocol.from_json(question["protocol"])
    return measure_here(workload, protocol, question["seed"]).to_json()


def main() -> None:
    """Answer :func:`vendor_latency`, which starts it."""
    connection, _ = connect("autotune.measure.vendor")
    serve(connection, {"measure": _answer})
