from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir import workloads
from autotune.ir.converter import from_json, to_json
from autotune.ir.expressions import AffineForm, Binary, IntExpr, Load, ScalarExpr, Unary, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, conv2d, gemm, softmax

GOLDEN: dict[str, str] = json.loads((Path(__file__).parent / "digests.json").read_text())
SPELLED: dict[str, str] = json.loads((Path(__file__).parent / "spellings.json").read_text())
at_i, at_j = var("i"), var("j")
X = Load("X", (at_i,))
INPUT = Tensor("X", (8,), "float32")


def built(text: str) -> Workload:
    """The workload that a key of the golden file describes."""
    name, _, rest = text.removesuffix(")").partition("(")
    pairs = (item.split("=") for item in rest.split(", "))
    arguments = {key: int(value) if value.isdigit() else value for key, value in pairs}
    result: Workload = getattr(workloads, name)(**arguments)
    return result


@pytest.mark.parametrize("text", GOLDEN)
def test_digests_stay_what_they_were(text: str) -> None:
    assert built(text).digest == GOLDEN[text]
    assert built(text).spelling == SPELLED[text]


def test_every_builder_has_a_golden_digest() -> None:
    builders = {name for name in workloads.__all__ if name.islower()}
    builders -= {"draw_example", "padding_of_stage", "random_inputs", "reference_outputs"}
    builders -= {"structure_of", "without_numbers"}
    assert {text.partition("(")[0] for text in GOLDEN} == builders
    assert len(set(GOLDEN.values())) == len(GOLDEN)


@pytest.mark.parametrize("text", GOLDEN)
def test_json_round_trip(text: str) -> None:
    workload = built(text)
    data = json.loads(json.dumps(workload.to_json()))
    restored = Workload.from_json(data)
    assert restored == workload and restored.digest == workload.digest
    assert restored.parameters == workload.parameters
    assert to_json(restored) == data


@pytest.mark.parametrize("text", GOLDEN)
def test_constants_are_part_of_the_digest(text: str) -> None:
    workload = built(text)
    name = workload.inputs[-1].name
    constant = workload.with_constants(name)
    assert constant != workload and constant.digest != workload.digest
    assert constant.with_constants() == workload
    data = json.loads(json.dumps(constant.to_json()))
    assert Workload.from_json(data) == constant
    assert constant.canonical.digest == constant.digest
    # As it was written before there were constants.
    assert all(len(tensor) == 3 for tensor in workload.to_json()["inputs"])


def test_equal_inputs_of_which_one_is_constant_differ() -> None:
    product = gemm(m=8, n=8, k=8)
    assert product.with_constants("A").digest != product.with_constants("B").digest
    spare = attrs.evolve(
        product, inputs=(*product.inputs, Tensor("X", (8,), "int8"), Tensor("Z", (8,), "int8"))
    )
    assert spare.with_constants("X").digest == spare.with_constants("Z").digest
    assert spare.with_constants("X").digest != spare.digest


def test_only_inputs_are_constants() -> None:
    with pytest.raises(UnknownNameError, match="'D'"):
        gemm(m=2, n=3, k=4).with_constants("D")
    workload = gemm(m=2, n=3, k=4)
    (stage,) = workload.stages
    computed = attrs.evolve(stage, output=attrs.evolve(stage.output, constant=True))
    with pytest.raises(InvalidValueError, match="stage 'C' computes what is marked as constant"):
        attrs.evolve(workload, stages=(computed,))


def test_name_and_parameters_are_not_part_of_the_digest() -> None:
    workload = gemm(m=2, n=3, k=4)
    renamed = attrs.evolve(workload, name="other", parameters={})
    assert renamed.digest == workload.digest
    assert gemm(m=2, n=3, k=5).digest != workload.digest
    assert gemm(m=2, n=3, k=4, dtype="float64").digest != workload.digest


@pytest.mark.parametrize(
    ("text", "flop"),
    [
        ("gemm(m=2, n=3, k=5)", 2 * 2 * 3 * 5),
        ("gemm(m=2, n=3, k=5, dtype=int8)", 2 * 2 * 3 * 5),
        ("batch_matmul(b=4, m=2, n=3, k=5)", 2 * 4 * 2 * 3 * 5),
        ("dense(m=2, n=3, k=5)", 2 * 2 * 3 * 5 + 2 * 2 * 3),
        ("dense(m=2, n=3, k=5, bias=0, relu=0)", 2 * 2 * 3 * 5),
        ("conv2d(h=6, w=7, ci=2, co=3)", 2 * 4 * 5 * 3 * 9 * 2),
        ("conv2d(h=6, w=7, ci=2, co=3, pad=1)", 2 * 6 * 7 * 3 * 9 * 2),
        ("conv2d(n=2, h=7, w=7, ci=2, co=3, stride=2)", 2 * 2 * 3 * 3 * 3 * 9 * 2),
        ("depthwise_conv2d(h=6, w=7, c=2)", 2 * 4 * 5 * 2 * 9),
        ("softmax(m=3, n=5)", 3 * 5 * (1 + 2 + 1 + 1)),
        ("elementwise(m=3, n=5)", 3 * 5 * 4),
    ],
)
def test_flop(text: str, flop: int) -> None:
    assert built(text).flop == flop


def test_the_parts_of_a_convolution() -> None:
    workload = conv2d(h=9, w=7, ci=3, co=5, stride=2, pad=1, dilation=2, bias=1, relu=1)
    assert [stage.name for stage in workload.stages] == ["P", "Y", "Z", "R"]
    assert workload.outputs == ("R",)
    assert [tensor.name for tensor in workload.inputs] == ["X", "W", "bias"]
    stage = workload.stage("Y")
    assert stage.reads == ("P", "W") and stage.output.shape == (1, 4, 3, 5)
    row = stage.access_map(stage.loads[0])[1]
    assert row == AffineForm({"ho": 2, "kh": 2}, 0)
    assert [s.name for s in workload.consumers("Y")] == ["Z"]
    assert workload.tensors["P"].shape == (1, 11, 9, 3)
    assert workload.tensors["P"].bytes == 11 * 9 * 3 * 4
    with pytest.raises(InvalidValueError, match="no stage 'Q'"):
        workload.stage("Q")
    with pytest.raises(InvalidValueError, match="no axis 'q'"):
        stage.axis("q")


def stage_of(
    body: ScalarExpr = X, combiner: str | None = None, dtype: str = "float32", **axes: int
) -> Stage:
    """A stage ``Y`` over spatial ``i`` (8) and the given reduce axes."""
    reduce = tuple(Axis(name, extent, "reduce") for name, extent in axes.items())
    return Stage(Tensor("Y", (8,), dtype), (Axis("i", 8), *reduce), body, combiner)


@pytest.mark.parametrize(
    ("combiner", "dtype", "identity"),
    [
        ("add", "float32", 0),
        ("mul", "int32", 1),
        ("max", "float32", float("-inf")),
        ("min", "float64", float("inf")),
        ("max", "int8", -128),
        ("min", "int8", 127),
        ("max", "uint8", 0),
        ("min", "uint8", 255),
        ("min", "int32", 2**31 - 1),
    ],
)
def test_identities(combiner: str, dtype: str, identity: float) -> None:
    assert stage_of(combiner=combiner, dtype=dtype, k=3).identity() == identity


def test_only_reductions_have_an_identity() -> None:
    with pytest.raises(InvalidValueError, match="'Y' does not reduce"):
        stage_of().identity()


def test_an_index_that_is_not_affine_is_named() -> None:
    body = Load("X", (from_json(IntExpr, ["floordiv", "i", 2]),))
    with pytest.raises(UnsupportedWorkload, match=r"'Y' reads 'X' at \(i // 2\)"):
        stage_of(body).access_map(body)


@pytest.mark.parametrize(
    ("inputs", "stages", "outputs", "message"),
    [
        ((INPUT, INPUT), (stage_of(),), ("Y",), "two tensors are called 'X'"),
        ((Tensor("Y", (8,), "int8"), INPUT), (stage_of(),), ("Y",), "two tensors are called 'Y'"),
        (
            (Tensor("X", (8,), "f32"),),
            (stage_of(),),
            ("Y",),
            "tensor 'X': unknown dtype 'f32'; available: bfloat16, bool",
        ),
        ((Tensor("X", (0,), "int8"),), (stage_of(),), ("Y",), r"'X' has shape \(0,\)"),
        ((Tensor("X", (8.0,), "int8"),), (stage_of(),), ("Y",), r"'X' has shape \(8.0,\)"),  # type: ignore[arg-type]
        ((INPUT,), (stage_of(),), ("Z",), "output 'Z' is not computed"),
        ((INPUT,), (stage_of(),), ("X",), "output 'X' is not computed"),
        ((INPUT,), (stage_of(),), ("Y", "Y"), "output 'Y' is named twice"),
        ((INPUT,), (stage_of(),), (), "computes nothing"),
        ((INPUT,), (), (), "computes nothing"),
        ((), (stage_of(),), ("Y",), "reads unknown tensor 'X'"),
        ((INPUT,), (stage_of(Load("Y", (at_i,))),), ("Y",), "reads unknown tensor 'Y'"),
        ((INPUT,), (stage_of(Load("X", (at_i, at_i))),), ("Y",), "'X' with 2 indices"),
        ((INPUT,), (stage_of(Load("X", (at_j,))),), ("Y",), "'Y' has no axis 'j'"),
        ((INPUT,), (stage_of(k=3),), ("Y",), "reduce axes and combiner go together"),
        ((INPUT,), (stage_of(combiner="add"),), ("Y",), "reduce axes and combiner go together"),
        ((INPUT,), (stage_of(combiner="xor", k=2),), ("Y",), "combines by 'xor'; allowed: add"),
        ((INPUT,), (stage_of(combiner="add", i=2),), ("Y",), "repeats an axis name"),
        ((INPUT,), (stage_of(combiner="add", k=0),), ("Y",), "axis 'k' .* extent 0"),
        (
            (INPUT,),
            (Stage(Tensor("Y", (4,), "float32"), (Axis("i", 8),), X),),
            ("Y",),
            r"spatial extents \(8,\) and output \(4,\)",
        ),
        (
            (INPUT,),
            (Stage(Tensor("Y", (), "float32"), (Axis("i", 8, "reduction"),), X),),
            ("Y",),
            "kind 'reduction'",
        ),
    ],
)
def test_workloads_are_checked(
    inputs: tuple[Tensor, ...], stages: tuple[Stage, ...], outputs: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InvalidValueError, match=message):
        Workload("bad", inputs, stages, outputs)


def _without(key: str) -> Any:
    data = softmax(m=2, n=3).to_json()
    del data[key]
    return data


def _with(path: tuple[Any, ...], value: Any) -> Any:
    data = copy.deepcopy(softmax(m=2, n=3).to_json())
    place: Any = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "gemm",
        {},
        _without("inputs"),
        _without("stages"),
        _without("outputs"),
        _with(("stages", 0, "body"), ["sinh", 1]),
        _with(("stages", 0, "body"), ["load", "X"]),
        _with(("stages", 0, "axes"), [["i", 2]]),
        _with(("stages", 0, "axes", 0, 1), "2"),
        _with(("inputs", 0, 1), 3),
        _with(("inputs", 0, 1, 0), "2"),
        _with(("inputs", 0, 2), "float33"),
        _with(("outputs",), ["Q"]),
        _with(("outputs",), 3),
        _with(("parameters",), 3),
    ],
)
def test_malformed_json_is_refused(data: Any) -> None:
    with pytest.raises(InvalidValueError):
        Workload.from_json(data)


def test_operations_outside_arithmetic_are_not_flop() -> None:
    assert stage_of(Unary("exp", Binary("mul", X, X))).flop == 16
    assert stage_of(X).flop == 0
    assert stage_of(X, "max", k=3).flop == 24
