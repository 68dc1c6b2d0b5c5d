"""Tell whether a candidate computed the right numbers.

The reference is evaluated in double precision. A candidate adds in another order, so it may
differ by rounding, and only by that. Adding ``K`` terms of either sign rounds ``K`` times, each
time by up to ``eps / 2`` of a partial sum that has grown to the size of ``sqrt(k)`` terms. The
roundings are as good as independent, so that they add up to about ``eps * K / 2.4`` of one term:
relative to the sum, which is of size ``sqrt(K)``, that is ``eps * sqrt(K) / 2.4``. For terms of
one sign the partial sums grow as ``k``, the sum as ``K``, and the law is the same. The bound on
an element is therefore

    8 * sum over stages (e + eps * (sqrt(K) + 4 * functions)) * (|reference| + rms(reference))

over the stages that the output depends on, ``K`` the points of each one's reduction and
``functions`` the divisions, roots and transcendental functions in its body, which libraries
round less well. ``eps`` is that of the least precise type in which the stage computes or sums,
``e`` the same with the types that it rounds a result to: sums of halves in float32 that are
rounded to halves once are held to float32 but for that rounding. The root mean square stands for
the size of the terms where the sum happens to cancel, and it covers instructions that take
denormals for zeros. Twenty times the expected error is far below what one missing term does to a
sum of thousands; sums of thousands *in* halves have errors of their own size, and say little.
Integers are compared exactly. Where the target allows TF32, ``e`` has its ``2 ** -10`` as well in
sums of products of two numbers of float32.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
from attrs import define, field, frozen

from autotune.backends.backend import Array
from autotune.ir.element_types import ElementType, element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    operation_counts,
)
from autotune.ir.expressions.scalar import COMPARISONS, LOGIC, children
from autotune.ir.workloads import Stage, Workload, draw_example
from autotune.process.errors import WorkerStartFailed
from autotune.targets import TF32_EPS, Target, allows_tf32

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_MARGIN = 8.0
_FUNCTION_WEIGHT = 4.0
_INEXACT = (
    *("div", "mod", "pow", "exp", "log", "sqrt", "rsqrt"),
    *("sin", "cos", "tanh", "sigmoid", "erf"),
)
_EXACT = ("max", "min", "neg", "abs", "floor", "ceil", "round")


@define(eq=False)
class ReferenceFiles:
    """The inputs and the reference outputs, in the workload's order.

    They are in memory of the host that nobody can change once it is filled, this host included.
    Workers read them by path.

    Attributes:
        inputs: Paths of the inputs (``.npy``).
        outputs: Paths of the reference outputs.
        descriptors: What keeps them; the paths are valid until these are closed.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    descriptors: tuple[int, ...]
    _draw: Callable[[], Sequence[Array]]
    _is_filled: bool = field(default=False, init=False)

    def fill(self) -> None:
        """Draw the inputs, and evaluate the reference. Again, it does nothing.

        Raises:
            WorkerStartFailed: there is no memory for them.
        """
        if self._is_filled or not self.descriptors:
            # An external program has no arrays.
            return
        for descriptor, array in zip(self.descriptors, self._draw(), strict=True):
            _write_sealed(descriptor, array)
        self._is_filled = True

    def close(self) -> None:
        """Free the memory, once no worker reads it any more."""
        for descriptor in self.descriptors:
            os.close(descriptor)


@frozen(eq=False)
class Expected:
    """A reference output, and how far from it a candidate may be.

    Attributes:
        name: Of the output.
        element: What its elements are.
        reference: Right, as programs write it.
        bound: Largest absolute error of each element.
    """

    name: str
    element: ElementType
    reference: Array
    bound: Array


def reserve_reference(workload: Workload, seed: int) -> ReferenceFiles:
    """Files for inputs and the reference, to be filled before they are read.

    Workers that know their paths can build meanwhile.

    Args:
        workload: What is evaluated.
        seed: Seed of the inputs.

    Raises:
        WorkerStartFailed: there is no memory for them.
    """

    def draw() -> list[Array]:
        arrays, results = draw_example(workload, np.random.default_rng(seed))
        inputs = [arrays[tensor.name] for tensor in workload.inputs]
        return [*inputs, *(results[name] for name in workload.outputs)]

    with ExitStack() as on_failure:
        descriptors = []
        for _ in range(len(workload.inputs) + len(workload.outputs)):
            descriptors.append(_file_in_memory())
            on_failure.callback(os.close, descriptors[-1])
        on_failure.pop_all()
    paths = [f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in descriptors]
    inputs = len(workload.inputs)
    return ReferenceFiles(tuple(paths[:inputs]), tuple(paths[inputs:]), tuple(descriptors), draw)


def _file_in_memory() -> int:
    """A descriptor of an empty file."""
    try:
        return os.memfd_create("reference", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise _no_memory(error) from error


def _write_sealed(descriptor: int, array: Array) -> None:
    """Make a file one of an array (``.npy``), which cannot be changed any more."""
    try:
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE:
            # An interrupt has come before the others were written.
            return
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        with open(descriptor, "wb", closefd=False) as file:
            np.save(file, array, allow_pickle=False)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        raise _no_memory(error) from error


def _no_memory(error: OSError) -> WorkerStartFailed:
    return WorkerStartFailed(f"no file in memory for the arrays of a task: {error.strerror}")


def read_arrays(paths: Sequence[str]) -> list[Array]:
    """Arrays mapped into memory: all workers share one copy."""
    return [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]


def expectations(
    workload: Workload, references: Sequence[Array], target: Target | None = None
) -> list[Expected]:
    """The expected values of each output.

    Args:
        workload: What was evaluated.
        references: Its outputs.
        target: What programs run on, if it has a part in how they may round.
    """
    found = []
    for name, reference in zip(workload.outputs, references, strict=True):
        element = workload.tensors[name].element
        bound = error_bound(element.numbers(reference), relative_bound(workload, name, target))
        found.append(Expected(name, element, reference, bound))
    return found


def relative_bound(workload: Workload, output: str, target: Target | None = None) -> float:
    """The part of the bound that does not depend on the numbers; see the module's description."""
    if not workload.tensors[output].element.is_float:
        return 0.0
    stages = _ancestors(workload, output)
    found = sum(_roundings(workload, stage) for stage in stages)
    if target is not None and allows_tf32(target):
        found += TF32_EPS * sum(_multiplies_floats(workload, stage) for stage in stages)
    return _MARGIN * found


def _multiplies_floats(workload: Workload, stage: Stage) -> bool:
    """Return whether a stage adds up products that tensor cores compute of rounded factors."""
    body = stage.body
    if stage.combiner != "add" or not isinstance(body, Binary) or body.op != "mul":
        return False
    sides = (body.left, body.right)
    return all(
        isinstance(it, Load) and workload.tensors[it.tensor].dtype == "float32" for it in sides
    )


def error_bound(reference: Array, relative: float) -> Array:
    """Largest absolute error allowed per element, as an array of the reference's shape."""
    if relative == 0:
        return np.zeros(reference.shape, dtype=np.int64)
    finite = np.where(np.isfinite(reference), reference, 0).astype(np.float64)
    scale = math.sqrt(float(np.mean(finite * finite))) if finite.size else 0.0
    return np.asarray((relative * (np.abs(finite) + scale)).astype(np.float32))


def mismatch(expected: Sequence[Expected], outputs: Sequence[Array]) -> str | None:
    """The mismatch of ``outputs``, with the largest error and its bound; None if correct."""
    for want, got in zip(expected, outputs, strict=True):
        message = _compare(want, got)
        if message is not None:
            return message
    return None


def _compare(want: Expected, got: Array) -> str | None:
    if got.shape != want.reference.shape or got.dtype != want.reference.dtype:
        return (
            f"output {want.name!r} is {got.dtype}{list(got.shape)}, "
            f"expected {want.reference.dtype}{list(want.reference.shape)}"
        )
    reference, result = want.element.numbers(want.reference), want.element.numbers(got)
    is_float = want.element.is_float
    if is_float:
        with np.errstate(all="ignore"):
            error = np.abs(result - reference)
    elif reference.dtype.kind == "b":
        error = (result != reference).astype(np.int64)
    else:
        error = np.abs(result.astype(np.int64) - reference.astype(np.int64))
    wrong = ~(error <= want.bound)
    if wrong.any() and is_float:
        # Infinities and NaN where the reference has the same are right.
        wrong &= ~((result == reference) | (np.isnan(result) & np.isnan(reference)))
    if not wrong.any():
        return None
    return _describe(want.name, (reference, result, want.bound, error), wrong)


def _describe(name: str, arrays: tuple[Array, Array, Array, Array], wrong: Array) -> str:
    """Describe the worst element in a line; ``arrays``: reference, result, bound and error."""
    excess = np.where(wrong, np.where(np.isnan(arrays[3]), np.inf, arrays[3]), -1)
    place = np.unravel_index(int(np.argmax(excess)), excess.shape)
    reference, value, bound, error = (array[place] for array in arrays)
    size = float(np.abs(reference))
    relative = float(error) / size if size else math.inf
    return (
        f"output {name!r}: {int(wrong.sum())} of {wrong.size} elements are wrong; "
        f"largest error {float(error):.3g} (relative {relative:.3g}, "
        f"allowed {float(bound):.3g}) at {[int(index) for index in place]}: "
        f"{value} instead of {reference}"
    )


def _roundings(workload: Workload, stage: Stage) -> float:
    """Relative error that a stage adds, in roundings."""
    stored = stage.output.element.eps
    computed, narrowed, _ = _precision(workload, stage.body)
    if stage.combiner is not None or not computed:
        computed = max(computed, stored)
    counts = operation_counts(stage.body)
    functions = sum(counts.get(name, 0) for name in _INEXACT)
    terms = math.prod(axis.extent for axis in stage.axes if axis.kind != "spatial")
    summed = math.sqrt(terms) if stage.combiner in ("add", "mul") else 0.0
    once = max(stored, computed, narrowed)
    return once + computed * (summed + _FUNCTION_WEIGHT * functions)


def _precision(workload: Workload, body: ScalarExpr) -> tuple[float, float, float]:
    """The largest eps that a body computes with, that it converts to, and that of its value.

    Converting to a wider type is exact: what is only loaded and widened adds nothing.
    """
    if isinstance(body, (Load, Gather)):
        return 0.0, 0.0, workload.tensors[body.tensor].element.eps
    if isinstance(body, Constant):
        return 0.0, 0.0, element_type(body.dtype).eps
    if isinstance(body, IndexValue):
        return 0.0, 0.0, 0.0
    parts = [_precision(workload, part) for part in children(body)]
    computed, narrowed = (max(part[place] for part in parts) for place in (0, 1))
    # What a condition compares is not part of the value.
    valued = parts[1:] if isinstance(body, Select) else parts
    value = max(part[2] for part in valued)
    if isinstance(body, Cast):
        own = element_type(body.dtype).eps
        return computed, max(narrowed, own if own > value else 0.0), own
    if isinstance(body, (Unary, Binary)):
        if body.op in (*COMPARISONS, *LOGIC, "not"):
            value = 0.0
        elif body.op not in _EXACT:
            computed = max(computed, value)
    return computed, narrowed, value


def _ancestors(workload: Workload, output: str) -> list[Stage]:
    """The stages that ``output`` depends on, itself included."""
    wanted = {output}
    found = []
    for stage in reversed(workload.stages):
        if stage.name in wanted:
            found.append(stage)
            wanted.update(stage.reads)
    return found
