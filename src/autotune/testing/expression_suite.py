"""Conformance suite for compilers of workloads: every expression, read and reduction is computed.

Subclass it in a test module and give the one fixture::

    class TestMyExpressions(ExpressionSuite):
        @pytest.fixture
        def backend(self):
            return MyBackend()

Programs are built without a schedule. What has one type is one program, of which each expression
is an output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.backends import Backend, BuildRequest
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
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
from autotune.ir.expressions.scalar import ARITHMETIC, COMPARISONS, LOGIC, UNARY
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, random_inputs
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import check_program

__all__ = ["SHAPE", "ExpressionSuite", "load", "one_stage", "stages"]

SHAPE = (5, 7)
"""Shape of the inputs of `stages`."""

_POSITIVE = ("P", "Q")
# Functions that are defined for positive numbers only.
_OF_POSITIVE = ("log", "sqrt", "rsqrt", "pow", "div", "mod")
_INTEGERS = ("add", "sub", "mul", "max", "min")

i, j, k = var("i"), var("j"), var("k")


def load(name: str) -> Load:
    """``name[i, j]``."""
    return Load(name, (i, j))


def stages(
    bodies: Mapping[str, ScalarExpr],
    dtype: str = "float32",
    *,
    inputs: str = "float32",
    shapes: Mapping[str, tuple[int, int]] | None = None,
) -> Workload:
    """A stage ``name[i, j] = body`` for every body; all of them are outputs.

    Args:
        bodies: They read ``X``, ``Z`` and, of positive numbers, ``P`` and ``Q``: [5, 7] each.
        dtype: Type of the outputs.
        inputs: Type of the inputs.
        shapes: Shapes of the outputs; [5, 7] by default.
    """
    made = []
    for name, body in bodies.items():
        shape = (shapes or {}).get(name, SHAPE)
        axes = (Axis("i", shape[0]), Axis("j", shape[1]))
        made.append(Stage(Tensor(name, shape, dtype), axes, body))
    tensors = tuple(Tensor(name, SHAPE, inputs) for name in ("X", "Z", *_POSITIVE))
    return Workload("expressions", tensors, tuple(made), tuple(bodies))


def one_stage(
    body: ScalarExpr,
    dtype: str = "float32",
    *,
    inputs: str = "float32",
    shape: tuple[int, int] = SHAPE,
) -> Workload:
    """``Y[i, j] = body``; see `stages`."""
    return stages({"Y": body}, dtype, inputs=inputs, shapes={"Y": shape})


class ExpressionSuite:
    """Programs without a schedule compute what the reference does."""

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend."""
        raise NotImplementedError("override this fixture")

    @pytest.fixture
    def target(self) -> Target:
        """A target that the backend supports and this machine can run; the machine itself."""
        return detect_cpu()

    @pytest.fixture(autouse=True)
    def _backend(self, backend: Backend, target: Target) -> None:
        self.backend_, self.target_ = backend, target

    def check(self, workload: Workload) -> None:
        """Build a workload without a schedule, run it, and compare it with the reference."""
        arrays = random_inputs(workload, np.random.default_rng(7))
        for name in set(_POSITIVE) & set(arrays):
            arrays[name] = np.abs(arrays[name]) + arrays[name].dtype.type(0.25)
        self._check_with(workload, arrays)

    def _check_with(self, workload: Workload, arrays: dict[str, NDArray[Any]]) -> None:
        request = BuildRequest(workload, None, None, self.target_, 1)
        check_program(self.backend_, request, arrays)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_functions(self, dtype: str) -> None:
        bodies: dict[str, ScalarExpr] = {
            op: Unary(op, load("P" if op in _OF_POSITIVE else "X")) for op in UNARY if op != "not"
        }
        for op in ARITHMETIC:
            left, right = ("P", "Q") if op in _OF_POSITIVE else ("X", "Z")
            bodies[op] = Binary(op, load(left), load(right))
        self.check(stages(bodies, dtype, inputs=dtype))

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
    def test_arithmetic_of_integers(self, dtype: str) -> None:
        bodies: dict[str, ScalarExpr] = {
            op: Binary(op, load("X"), load("Z")) for op in _INTEGERS if dtype != "int8"
        }
        if dtype != "uint8":
            bodies |= {op: Unary(op, load("X")) for op in ("neg", "abs", "floor", "ceil", "round")}
        self.check(stages(bodies, dtype, inputs=dtype))

    def test_functions_of_integers_are_floats(self) -> None:
        self.check(one_stage(Unary("exp", load("X")), inputs="int32"))

    @pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
    def test_comparisons(self, dtype: str) -> None:
        bodies = {op: Binary(op, load("X"), load("Z")) for op in COMPARISONS}
        self.check(stages(bodies, "bool", inputs=dtype))

    def test_logic(self) -> None:
        left = Binary("lt", load("X"), Constant(0.0, "float32"))
        right = Binary("gt", load("Z"), Constant(0.0, "float32"))
        bodies: dict[str, ScalarExpr] = {op: Binary(op, left, right) for op in LOGIC}
        bodies["not"] = Unary("not", left)
        self.check(stages(bodies, "bool"))
        bodies = {op: Unary("not", Binary(op, load("X"), load("Z"))) for op in LOGIC}
        self.check(stages(bodies, "bool", inputs="bool"))

    def test_integer_division_truncates(self) -> None:
        body = Binary("div", load("X"), Constant(3, "int32"))
        self.check(one_stage(body, "int32", inputs="int32"))

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8"])
    def test_remainders_have_the_sign_of_the_divisor(self, dtype: str) -> None:
        zero, three = Constant(0, dtype), Constant(3, dtype)
        divisor = Select(Binary("eq", load("Z"), zero), three, load("Z"))
        self.check(one_stage(Binary("mod", load("X"), divisor), dtype, inputs=dtype))

    def test_halves_are_rounded_to_even(self) -> None:
        halves = Binary(
            "div", Cast("float32", IndexValue(i * 7 + j - 17)), Constant(2.0, "float32")
        )
        self.check(one_stage(Unary("round", halves)))

    @pytest.mark.parametrize("op", ["div", "mod"])
    def test_a_branch_that_is_not_taken_may_divide_by_zero(self, op: str) -> None:
        zero, shape, place = Constant(0, "int32"), (3, 32), (i, j)
        quotient = Binary(op, Constant(100, "int32"), Load("Z", place))
        body = Select(Binary("eq", Load("Z", place), zero), zero, quotient)
        made = Stage(Tensor("Y", shape, "int32"), (Axis("i", 3), Axis("j", 32)), body)
        workload = Workload("guarded", (Tensor("Z", shape, "int32"),), (made,), ("Y",))
        divisors = np.resize(np.array([5, 0, -7], np.int32), shape)
        self._check_with(workload, {"Z": divisors})

    def test_a_branch_that_is_not_taken_may_read_outside(self) -> None:
        inside = Binary("ge", IndexValue(i), IndexValue(const(1)))
        bodies = {
            name: Select(inside, Load("X", (i - shift, j)), load("Z"))
            for name, shift in (("plain", 0), ("shifted", 1))
        }
        self.check(stages(bodies))

    def test_index_values(self) -> None:
        values = {
            "remainder": (i * 3 + j) % 4,
            "quotient": (i * 3 + j) // 4,
            "negative": (i - 3) // 2 * 5 + (i * 2 - j) % 3,
            "extrema": maximum(i, const(2)) // 2 + minimum(j, i),
            "less": less(i, j) * 7 + less(j, const(3)),
            "select": select(less(i, const(2)), j, i * 2),
        }
        self.check(stages({name: IndexValue(value) for name, value in values.items()}, "int32"))
        products = {
            name: Binary("mul", load("X"), Cast("float32", IndexValue(value)))
            for name, value in values.items()
        }
        self.check(stages(products))

    @pytest.mark.parametrize("source", ["float32", "float64", "int8", "int64", "uint8", "bool"])
    def test_casts(self, source: str) -> None:
        axes = (Axis("i", 5), Axis("j", 7))
        made = tuple(
            Stage(Tensor(f"Y{dtype}", SHAPE, dtype), axes, Cast(dtype, load("X")))
            for dtype in ("float16", "float32", "int8", "int32", "int64", "bool")
        )
        names = tuple(stage.name for stage in made)
        self.check(Workload("casts", (Tensor("X", SHAPE, source),), made, names))

    def test_operands_of_several_types_meet(self) -> None:
        index = IndexValue(i + j)
        self.check(one_stage(Binary("add", load("X"), index), "int32", inputs="int32"))
        self.check(one_stage(Binary("mul", index, Constant(0.5, "float32"))))
        compared = Binary("lt", load("X"), load("Z"))
        self.check(one_stage(Binary("add", compared, index), "int64"))
        self.check(one_stage(Binary("add", Cast("int8", index), Cast("uint8", index)), "int32"))

    def test_extreme_constants_keep_their_bits(self) -> None:
        values = (float("inf"), float("-inf"), 1e-45, 3.4028234663852886e38, 0.1)
        self.check(stages({f"Y{n}": Constant(it, "float32") for n, it in enumerate(values)}))
        self.check(one_stage(Constant(-(2**63), "int64"), "int64"))
        self.check(one_stage(Constant(255, "uint8"), "uint8"))

    def test_reads(self) -> None:
        reads: dict[str, tuple[tuple[int, int], tuple[IntExpr, IntExpr]]] = {
            "part": ((3, 4), (i, j)),
            "shifted": ((3, 4), (i + 2, j + 1)),
            "reversed": ((5, 7), (4 - i, 6 - j)),
            "transposed": ((7, 5), (j, i)),
            "diagonal": ((5, 2), (i, i)),
            "row": ((3, 7), (const(2), j)),
            "element": ((3, 2), (const(4), const(6))),
            "strided": ((3, 3), (i * 2, j * 3)),
            "windows": ((2, 4), (i + j, j)),
            "remainder": ((5, 7), (i, (i + j) % 7)),
            "quotient": ((5, 7), (i // 2, (i * 7 + j) // 6)),
            "merged": ((2, 28), (j // 7 + i, j % 7)),
        }
        bodies = {name: Unary("neg", Load("X", read)) for name, (_, read) in reads.items()}
        self.check(stages(bodies, shapes={name: shape for name, (shape, _) in reads.items()}))

    @pytest.mark.parametrize("index", ["int32", "int64"])
    @pytest.mark.parametrize("dtype", ["float32", "bool"])
    def test_reads_where_data_says(self, dtype: str, index: str) -> None:
        """By rows, by elements, at computed indices, at one number, and behind a condition."""
        first = Binary("lt", IndexValue(j), IndexValue(const(4)))
        last = Binary("sub", Constant(4, index), Load("I", (i,)))
        reads: dict[str, ScalarExpr] = {
            "rows": Gather("X", (Load("I", (i,)), IndexValue(j))),
            "elements": Gather("X", (Load("K", (i, j)), IndexValue((i + j) % 7))),
            "computed": Gather("X", (last, Load("S", ()))),
            "nested": Gather("X", (Gather("I", (Load("K", (i, j)),)), IndexValue(j))),
            "guarded": Select(first, Gather("X", (Load("I", (i,)), IndexValue(j))), load("X")),
        }
        axes = (Axis("i", 5), Axis("j", 7))
        made = tuple(Stage(Tensor(n, SHAPE, dtype), axes, body) for n, body in reads.items())
        shapes = {"I": (5,), "K": SHAPE, "S": ()}
        inputs = (
            Tensor("X", SHAPE, dtype),
            *(Tensor(name, shape, index) for name, shape in shapes.items()),
        )
        self.check(Workload("gathers", inputs, made, tuple(reads)))

    def test_truth_values_are_compared(self) -> None:
        bodies = {op: Binary(op, load("X"), load("Z")) for op in ("eq", "ne")}
        self.check(stages(bodies, "bool", inputs="bool"))

    @pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool"])
    def test_combiners(self, dtype: str) -> None:
        axes = (Axis("i", 5), Axis("k", 3, "reduce"))
        self.check(
            _reductions(
                (5, 3),
                [
                    Stage(Tensor(name, (5,), dtype), axes, Load("X", (i, k)), name)
                    for name in ("add", "mul", "max", "min")
                ],
                dtype,
            )
        )

    def test_reductions_over_any_axes(self) -> None:
        """To a single number, and over an axis that stands before another."""
        both = (Axis("i", 5, "reduce"), Axis("k", 3, "reduce"))
        first = (Axis("i", 5, "reduce"), Axis("k", 3))
        self.check(
            _reductions(
                (5, 3),
                [
                    Stage(Tensor("sum", (), "float32"), both, Load("X", (i, k)), "add"),
                    Stage(Tensor("columns", (3,), "float32"), first, Load("X", (i, k)), "add"),
                ],
            )
        )

    def test_pooling_over_a_window_of_one_operand(self) -> None:
        axes = (Axis("i", 4), Axis("k", 3, "reduce"), Axis("l", 2, "reduce"))
        body = Load("X", (i * 2 + k, var("l") * 2 + 1))
        pools = [Stage(Tensor(name, (4,), "float32"), axes, body, name) for name in ("add", "max")]
        self.check(_reductions((9, 5), pools))

    def test_several_outputs_and_an_unused_input(self) -> None:
        axes, x = (Axis("i", 5),), Load("X", (i,))
        made = (
            Stage(Tensor("Y", (5,), "float32"), axes, Unary("neg", x)),
            Stage(Tensor("Z", (5,), "float32"), axes, Binary("mul", Load("Y", (i,)), x)),
        )
        inputs = (Tensor("U", (3,), "float32"), Tensor("X", (5,), "float32"))
        self.check(Workload("two", inputs, made, ("Z", "Y")))

    def test_a_scalar_without_axes(self) -> None:
        stage = Stage(Tensor("Y", (), "float32"), (), Unary("exp", Load("X", ())))
        self.check(Workload("scalar", (Tensor("X", (), "float32"),), (stage,), ("Y",)))


def _reductions(shape: tuple[int, int], made: Sequence[Stage], dtype: str = "float32") -> Workload:
    """Stages that reduce an input ``X`` of a shape."""
    names = tuple(stage.name for stage in made)
    return Workload("reductions", (Tensor("X", shape, dtype),), tuple(made), names)
