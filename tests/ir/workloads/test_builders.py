from __future__ import annotations

import inspect
from typing import Any

import pytest

from autotune.errors import InvalidValueError
from autotune.ir import workloads
from autotune.ir.workloads import (
    batch_matmul,
    conv1d,
    conv2d,
    conv3d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)

BUILDERS = (
    "gemm",
    "batch_matmul",
    "dense",
    "conv1d",
    "conv2d",
    "conv3d",
    "depthwise_conv2d",
    "softmax",
    "attention",
    "elementwise",
    "cumsum",
)


def smallest(builder: str) -> dict[str, Any]:
    """Arguments for a builder: 5 for everything that has to be given."""
    parameters = inspect.signature(getattr(workloads, builder)).parameters
    return {name: 5 for name, item in parameters.items() if item.default is item.empty}


@pytest.mark.parametrize("builder", BUILDERS)
def test_builders_take_keywords_and_shapes_are_integers(builder: str) -> None:
    parameters = inspect.signature(getattr(workloads, builder), eval_str=True).parameters
    assert all(item.kind is item.KEYWORD_ONLY for item in parameters.values())
    annotations = {name: item.annotation for name, item in parameters.items()}
    assert annotations.pop("dtype") is str
    assert set(annotations.values()) == {int}
    assert parameters["dtype"].default == "float32"


@pytest.mark.parametrize("builder", BUILDERS)
def test_the_parameters_build_the_same_workload(builder: str) -> None:
    workload = getattr(workloads, builder)(**smallest(builder))
    assert workload.name == builder
    known = inspect.signature(getattr(workloads, builder)).parameters
    assert set(workload.parameters) <= set(known)
    # Shapes of floats have nothing that only bytes can have.
    assert set(known) - set(workload.parameters) <= {"requantize"}
    assert getattr(workloads, builder)(**workload.parameters) == workload


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "2", None])
@pytest.mark.parametrize("builder", BUILDERS)
def test_bad_shapes_are_named(builder: str, value: Any) -> None:
    arguments = smallest(builder)
    for name in arguments:
        message = f"{builder}: {name} must be a positive integer, not {value!r}"
        with pytest.raises(InvalidValueError, match=message):
            getattr(workloads, builder)(**{**arguments, name: value})


@pytest.mark.parametrize("builder", BUILDERS)
def test_bad_dtypes_are_named(builder: str) -> None:
    with pytest.raises(InvalidValueError, match="unknown dtype 'float8'; allowed: .*float32"):
        getattr(workloads, builder)(**smallest(builder), dtype="float8")


@pytest.mark.parametrize("build", [dense, softmax, elementwise, depthwise_conv2d])
def test_floating_point_operators_refuse_integers(build: Any) -> None:
    with pytest.raises(InvalidValueError, match="unknown dtype 'int8'; allowed: float32, float64"):
        build(**smallest(build.__name__), dtype="int8")


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (gemm, ("A", "B", "C")),
        (batch_matmul, ("A", "B", "C")),
        (conv1d, ("X", "W", "Y")),
        (conv2d, ("X", "W", "Y")),
        (conv3d, ("X", "W", "Y")),
    ],
)
@pytest.mark.parametrize(("dtype", "left"), [("int8", "int8"), ("u8s8s32", "uint8")])
def test_products_of_bytes(build: Any, names: tuple[str, ...], dtype: str, left: str) -> None:
    workload = build(**smallest(build.__name__), dtype=dtype)
    found = [workload.tensors[name].dtype for name in names]
    assert found == [left, "int8", "int32"]
    assert workload.parameters["dtype"] == dtype


@pytest.mark.parametrize("build", [gemm, conv2d])
@pytest.mark.parametrize("shift", [-1, 31, True, "8"])
def test_shifts_out_of_range_are_named(build: Any, shift: Any) -> None:
    with pytest.raises(InvalidValueError, match="requantize must be an integer from 0 to 30"):
        build(**smallest(build.__name__), dtype="int8", requantize=shift)


@pytest.mark.parametrize("build", [gemm, conv2d])
def test_only_sums_of_bytes_become_bytes(build: Any) -> None:
    with pytest.raises(InvalidValueError, match="needs a dtype of int8, u8s8s32, not 'float32'"):
        build(**smallest(build.__name__), dtype="float32", requantize=8)


def test_an_integer_epilogue_is_of_the_type_of_the_sums() -> None:
    workload = conv2d(h=4, w=4, ci=4, co=4, pad=1, bias=1, relu=1, dtype="u8s8s32")
    dtypes = {name: tensor.dtype for name, tensor in workload.tensors.items()}
    assert dtypes["P"] == "uint8"
    assert dtypes["bias"] == dtypes["Z"] == dtypes["R"] == "int32"


@pytest.mark.parametrize("build", [conv2d, depthwise_conv2d])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stride": 0}, "stride must be an integer of at least 1, not 0"),
        ({"stride": True}, "stride must be an integer of at least 1, not True"),
        ({"pad": -1}, "pad must be an integer of at least 0, not -1"),
        ({"dilation": 0}, "dilation must be an integer of at least 1, not 0"),
        ({"kh": 0}, "kh must be a positive integer, not 0"),
        ({"kh": 6}, "a window that spans 6 does not fit 5 with padding 0"),
        ({"kw": 4, "dilation": 2, "pad": 0}, "a window that spans 7 does not fit 5"),
    ],
)
def test_windows_are_checked(build: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{build.__name__}: .*{message}"):
        build(**{**smallest(build.__name__), **arguments})


@pytest.mark.parametrize("build", [dense, conv2d])
@pytest.mark.parametrize("flag", ["bias", "relu"])
def test_flags_are_checked(build: Any, flag: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{flag} must be 0 or 1, not 2"):
        build(**smallest(build.__name__), **{flag: 2})


def test_a_window_that_just_fits() -> None:
    workload = conv2d(h=5, w=5, ci=1, co=1, kh=3, kw=5, dilation=1, pad=0)
    assert workload.stage("Y").output.shape == (1, 3, 1, 1)


def test_integers_accumulate_in_32_bits() -> None:
    workload = gemm(m=2, n=2, k=2, dtype="int8")
    assert workload.tensors["C"].dtype == "int32"
    assert gemm(m=2, n=2, k=2, dtype="int32").tensors["C"].dtype == "int32"
