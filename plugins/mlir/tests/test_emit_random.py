"""Random workloads compute what the reference computes."""

from __future__ import annotations

from autotune_mlir.backend import MLIRBackend
from hypothesis import given
from hypothesis import strategies as st

from autotune.backends import BuildRequest
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    less,
    maximum,
    minimum,
    select,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.targets import detect_cpu
from autotune.testing.programs import check_program

AXES = ("i", "j", "k")
# Functions that are defined, and not steep, for all that the expressions below can be.
SMOOTH = ("neg", "abs", "tanh", "sigmoid", "erf")
INTEGER = ("add", "sub", "max", "min")


@st.composite
def indices(draw: st.DrawFn, axes: tuple[str, ...]) -> IntExpr:
    """An index expression, of any kind, affine in half of the cases."""
    result = const(draw(st.integers(-3, 3)))
    for name in axes:
        result = result + var(name) * draw(st.sampled_from([0, 1, 1, 2, -1]))
    kind = draw(st.sampled_from(["affine"] * 4 + ["quotient", "rest", "extremum", "choice"]))
    number = draw(st.integers(1, 4))
    if kind == "quotient":
        return result // number
    if kind == "rest":
        return result % number
    if kind == "extremum":
        return maximum(minimum(result, const(number)), const(-number))
    if kind == "choice":
        return select(less(result, const(number)), result, const(number))
    return result


@st.composite
def bodies(
    draw: st.DrawFn, tensors: tuple[Tensor, ...], axes: tuple[str, ...], dtype: str, depth: int
) -> ScalarExpr:
    """A body of type ``dtype`` that is continuous in what it reads."""
    kinds = ["load", "load", "index", "constant"]
    kind = draw(st.sampled_from(kinds if depth == 0 else ["binary", "binary", "unary", "select"]))
    if kind == "load":
        tensor = draw(st.sampled_from(tensors))
        load = Load(tensor.name, tuple(draw(indices(axes)) for _ in tensor.shape))
        return load if tensor.dtype == dtype else Cast(dtype, load)
    if kind == "index":
        return Cast(dtype, IndexValue(draw(indices(axes))))
    if kind == "constant":
        return Constant(draw(st.integers(-3, 3)), dtype)
    inner = bodies(tensors, axes, dtype, depth - 1)
    if kind == "select":
        left, right = (IndexValue(draw(indices(axes))) for _ in range(2))
        condition = Binary(draw(st.sampled_from(["lt", "le", "eq", "ne"])), left, right)
        return Select(condition, draw(inner), draw(inner))
    if kind == "unary":
        names = SMOOTH if dtype.startswith("float") else ("neg", "abs")
        return Unary(draw(st.sampled_from(names)), draw(inner))
    return Binary(draw(st.sampled_from(INTEGER)), draw(inner), draw(inner))


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Draw one or two inputs and up to three stages, each of which may read all before it."""
    extents = st.integers(1, 5)
    dtypes = st.sampled_from(["float32", "float64", "int32", "int64"])
    inputs = tuple(
        Tensor(name, tuple(draw(st.lists(extents, max_size=2))), draw(dtypes))
        for name in ("X", "Z")[: draw(st.integers(1, 2))]
    )
    stages: list[Stage] = []
    for name in ("S", "T", "U")[: draw(st.integers(1, 3))]:
        known = (*inputs, *(stage.output for stage in stages))
        names = AXES[: draw(st.integers(0, 3))]
        reduced = draw(st.integers(0, len(names)))
        axes = tuple(
            Axis(axis, draw(extents), "reduce" if position < reduced else "spatial")
            for position, axis in enumerate(draw(st.permutations(names)))
        )
        shape = tuple(axis.extent for axis in axes if axis.kind == "spatial")
        dtype = draw(dtypes)
        body = draw(bodies(known, tuple(names), dtype, draw(st.integers(0, 2))))
        combiner = draw(st.sampled_from(["add", "max", "min"])) if reduced else None
        stages.append(Stage(Tensor(name, shape, dtype), axes, body, combiner))
    outputs = draw(st.lists(st.sampled_from([s.name for s in stages]), min_size=1, unique=True))
    return Workload("random", inputs, tuple(stages), tuple(outputs))


BACKEND, TARGET = MLIRBackend(), detect_cpu()


@given(workload=workloads())
def test_random_workloads(workload: Workload) -> None:
    check_program(BACKEND, BuildRequest(workload, None, None, TARGET, 1), tolerance=1e-4)
