"""Operators of the host in C compute what those of numpy do."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.errors import UnknownNameError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    HostOperator,
    Node,
    Value,
    binary,
    determinant,
    input_value,
    non_max_suppression,
    nonzero,
    scatter_along,
    scatter_nd,
    top_k,
    unary,
    unique,
)
from autotune.networks.graph.making import BITWISE, FUNCTIONS, HOST_OPERATORS, run_on_host
from autotune.networks.library.saving import (
    HOST_TYPES,
    host_tables,
    operators_text,
    told_of,
)
from autotune.runtime.plan import HostCall, Operand, Place

Array = NDArray[Any]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = tuple(it for it in HOST_TYPES if "int" in it)
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 1e-7, 3e-5, 6.1e-5, 700.0, -1e30, np.inf, np.nan)
SEEDS = st.integers(0, 1 << 32)


class _Tensor(Structure):
    _fields_ = (("type", c_int32), ("rank", c_int32), ("shape", POINTER(c_int64)))


class _Call(Structure):
    _fields_ = (
        ("label", c_char_p),
        ("tensors", POINTER(_Tensor)),
        ("operands", c_int32),
        ("results", c_int32),
        ("integers", POINTER(c_int64)),
        ("numbers", POINTER(c_double)),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The operators, compiled with every warning being an error."""
    folder = tmp_path_factory.mktemp("operators")
    source, built = folder / "operators.c", folder / "operators.so"
    said = "const char *host_message(void) { return message; }\n"
    source.write_text(f"{operators_text()}{said}")
    options = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fPIC"]
    command = ["cc", *options, "-DHOST_FUNCTION=", "-shared", "-o", str(built), str(source)]
    subprocess.run([*command, "-lm"], check=True)
    found = ctypes.CDLL(str(built))
    found.host_message.restype = c_char_p
    return found


def _run(library: ctypes.CDLL, step: HostCall, arrays: Sequence[Array]) -> str:
    """Call an operator; returns what it says where it fails."""
    operands, (integers, numbers) = (*step.operands, *step.results), told_of(step)
    tensors = (_Tensor * len(operands))(
        *(
            _Tensor(
                HOST_TYPES.index(it.dtype),
                len(it.shape),
                (c_int64 * max(1, len(it.shape)))(*it.shape),
            )
            for it in operands
        )
    )
    call = _Call(
        step.label.encode(),
        tensors,
        len(step.operands),
        len(step.results),
        (c_int64 * max(1, len(integers)))(*integers),
        (c_double * max(1, len(numbers)))(*numbers),
    )
    pointers = (c_void_p * len(arrays))(*(it.ctypes.data for it in arrays))
    status = getattr(library, f"host_{step.operator.kind}")(ctypes.byref(call), pointers)
    return str(library.host_message().decode()) if status else ""


def _operands(node: Node) -> tuple[Operand, ...]:
    return tuple(Operand(Place("arena"), it.shape, it.dtype) for it in node.operands)


def _step(node: Node) -> HostCall:
    assert isinstance(node.operation, HostOperator)
    results = (Operand(Place("arena"), shape, dtype) for shape, dtype in node.results)
    return HostCall(node.operation, _operands(node), tuple(results), node.label)


def _both(
    library: ctypes.CDLL, value: Value, arrays: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """The results of the node of a value, by C and by numpy."""
    node = value.node
    assert node is not None
    step = _step(node)
    given = [np.ascontiguousarray(it) for it in arrays]
    kept = [it.copy() for it in given]
    found = [
        np.full(shape, 0x5A, np.uint8)
        .repeat(element_type(dtype).bytes)
        .view(element_type(dtype).dtype)
        .reshape(shape)
        if shape
        else np.zeros((), element_type(dtype).dtype)
        for shape, dtype in node.results
    ]
    assert not _run(library, step, [*given, *found])
    for array, before in zip(given, kept, strict=True):
        assert array.tobytes() == before.tobytes()
    return found, list(run_on_host(node, arrays))


def _drawn(shape: Sequence[int], dtype: str, seed: int, few: bool = False) -> Array:
    """Elements of which many are equal, or at the edges of what there is."""
    rng, element = np.random.default_rng(seed), element_type(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if not element.is_float:
        limits = np.iinfo(element.dtype)
        low, high = (max(-2, limits.min), 3) if few else (limits.min, limits.max)
        return rng.integers(low, high, shape, element.dtype, endpoint=True)
    if few:
        numbers = rng.choice([np.nan, -1.0, -0.0, 0.0, 2.0, np.inf], shape)
    else:
        numbers = rng.standard_normal(shape) * 4
        at = rng.random(shape) < 0.3
        numbers = np.where(at, rng.choice(EDGES, shape), numbers)
    with np.errstate(all="ignore"):
        return element.stored(np.asarray(numbers))


def _assert_alike(found: Array, wanted: Array, dtype: str, least: float = 1e-40) -> None:
    """Equal but for a few last places of double precision, which rounding may carry on.

    Near a root of a function, that is ``least``.
    """
    element = element_type(dtype)
    left, right = (element.numbers(it).astype(np.float64) for it in (found, wanted))
    with np.errstate(all="ignore"):
        bound = (4 * 2.0**-52 + (0 if dtype == "float64" else element.eps)) * np.abs(right)
        near = np.abs(left - right) <= bound + (2.0**-24 if dtype == "float16" else least)
        same = (left == right) | near | (np.isnan(left) & np.isnan(right))
    assert same.all(), (left[~same], right[~same])


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_functions_of_floats(library: ctypes.CDLL, dtype: str, seed: int) -> None:
    shape = (3, 5)
    for name in FUNCTIONS:
        if name in ("atan2", "hypot", "next_after"):
            x, y = input_value("x", (5,), dtype), input_value("y", (3, 1), dtype)
            value = binary(name, x, y)
            arrays = [_drawn((5,), dtype, seed), _drawn((3, 1), dtype, seed + 1)]
        else:
            value = unary(name, input_value("x", shape, dtype))
            arrays = [_drawn(shape, dtype, seed)]
        (found,), (wanted,) = _both(library, value, arrays)
        # Python's own logarithm of the gamma function is another approximation.
        _assert_alike(found, wanted, dtype, 1e-13 if name == "gamma_log" else 1e-40)


@pytest.mark.parametrize("dtype", INTEGERS)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_functions_of_bits(library: ctypes.CDLL, dtype: str, seed: int) -> None:
    x, y = _drawn((4, 1), dtype, seed), _drawn((2, 1, 6), dtype, seed + 1)
    width = 8 * element_type(dtype).bytes
    by = np.asarray(np.random.default_rng(seed).integers(0, width + 2, (2, 1, 6)), x.dtype)
    for name in BITWISE:
        value = input_value("x", (4, 1), dtype)
        if name == "bit_not":
            made, arrays = unary(name, value), [x]
        else:
            made = binary(name, value, input_value("y", (2, 1, 6), dtype))
            arrays = [x, by if name.startswith("shift") else y]
        (found,), (wanted,) = _both(library, made, arrays)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", HOST_TYPES)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, axis=st.integers(0, 2), largest=st.booleans())
def test_order(library: ctypes.CDLL, dtype: str, seed: int, axis: int, largest: bool) -> None:
    shape = (3, 7, 2)
    array = _drawn(shape, dtype, seed, few=bool(seed % 2))
    count = int(np.random.default_rng(seed).integers(1, shape[axis] + 1))
    value = top_k(input_value("x", shape, dtype), count, axis, largest)[0]
    found, wanted = _both(library, value, [array])
    for one, other in zip(found, wanted, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", HOST_TYPES)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, axis=st.sampled_from([None, 0, 1, 2]), is_sorted=st.booleans())
def test_different_slices_and_places(
    library: ctypes.CDLL, dtype: str, seed: int, axis: int | None, is_sorted: bool
) -> None:
    shape = (4, 5, 1)
    array = _drawn(shape, dtype, seed, few=True)
    source = input_value("x", shape, dtype)
    value = unique(source, axis, is_sorted)[0]
    given_array = array if axis is not None else array.reshape(-1)
    for made, operand in ((value, given_array), (nonzero(source)[0], array)):
        found, wanted = _both(library, made, [operand])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", HOST_TYPES)
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, combiner=st.sampled_from(["", "add", "mul", "max", "min"]))
def test_scattered_elements(library: ctypes.CDLL, dtype: str, seed: int, combiner: str) -> None:
    rng = np.random.default_rng(seed)
    array = _drawn((4, 3, 2), dtype, seed)
    x = input_value("x", (4, 3, 2), dtype)
    along, kind = rng.integers(-3, 3, (3, 5, 2)), ("int32", "int64", "int8")[seed % 3]
    updates = _drawn((3, 5, 2), dtype, seed + 1)
    value = scatter_along(
        x, input_value("i", (3, 5, 2), kind), input_value("u", (3, 5, 2), dtype), 1, combiner
    )
    pairs = [(value, [array, along.astype(kind), updates])]
    places = np.stack([rng.integers(-4, 4, 6), rng.integers(-3, 3, 6)], -1)
    slices = _drawn((6, 2), dtype, seed + 2)
    value = scatter_nd(
        x, input_value("i", (6, 2), "int64"), input_value("u", (6, 2), dtype), combiner
    )
    pairs.append((value, [array, places, slices]))
    for made, arrays in pairs:
        (found,), (wanted,) = _both(library, made, arrays)
        np.testing.assert_array_equal(
            element_type(dtype).numbers(found), element_type(dtype).numbers(wanted)
        )


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    most=st.integers(1, 9),
    overlap=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    score=st.sampled_from([-np.inf, 0.1, 0.5]),
    centred=st.booleans(),
)
def test_boxes(
    library: ctypes.CDLL,
    dtype: str,
    seed: int,
    most: int,
    overlap: float,
    score: float,
    centred: bool,
) -> None:
    rng, element = np.random.default_rng(seed), element_type(dtype)
    boxes = element.stored(rng.integers(0, 6, (2, 9, 4)).astype(np.float32))
    scores = element.stored(rng.integers(0, 10, (2, 3, 9)).astype(np.float32) / np.float32(10))
    scores[0, 0, 0] = element.stored(np.array(np.nan))
    value = non_max_suppression(
        input_value("b", (2, 9, 4), dtype),
        input_value("s", (2, 3, 9), dtype),
        most,
        overlap,
        score,
        centred,
    )[0]
    found, wanted = _both(library, value, [boxes, scores])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, order=st.integers(1, 5))
def test_determinants(library: ctypes.CDLL, dtype: str, seed: int, order: int) -> None:
    array = element_type(dtype).stored(
        np.random.default_rng(seed).integers(-4, 5, (2, 3, order, order)).astype(np.float32)
    )
    (found,), (wanted,) = _both(
        library, determinant(input_value("x", array.shape, dtype)), [array]
    )
    left, right = (element_type(dtype).numbers(it).astype(np.float64) for it in (found, wanted))
    # What elimination leaves of numbers as large as these.
    np.testing.assert_allclose(left, right, element_type(dtype).eps * 1.01, 1e-9)


def test_another_shape(library: ctypes.CDLL) -> None:
    array = _drawn((4, 3), "bfloat16", 0)
    value = input_value("x", (4, 3), "bfloat16")
    node = Node(HostOperator("reshape", {"shape": (12,)}), (value,), (((12,), "bfloat16"),))
    (found,), _ = _both(library, Value((12,), "bfloat16", node=node), [array])
    np.testing.assert_array_equal(found, array.reshape(12))


def test_every_operator_is_there() -> None:
    text = operators_text()
    for kind in HOST_OPERATORS:
        assert f"int host_{kind}(" in text
    operand = Operand(Place("arena"), (2,), "int8")
    step = HostCall(HostOperator("nonzero"), (operand,), (), 'a "b" \\ \u00e4?')
    assert "\\042b\\042 \\134 \\303\\244\\077" in host_tables([step])
    with pytest.raises(UnknownNameError, match="operator of the host in C 'sorted'"):
        told_of(HostCall(HostOperator("sorted"), (), ()))
    odd = evolve(operand, dtype="float8")
    with pytest.raises(UnsupportedWorkload, match="and not for float8"):
        told_of(evolve(step, operands=(odd,)))
