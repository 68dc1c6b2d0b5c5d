"""Reductions to an extreme value and its index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import import_module, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, te, tirx, topi
from tvm.script import tirx as T

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import Workload, reference_outputs
from autotune.targets import detect_cpu
from autotune.testing.programs import (
    check_candidate,
    request_for,
    run_executable,
    sample_candidates,
)

BACKEND, TARGET = TVMBackend(), detect_cpu()
Compare = Callable[[Any, Any], Any]


def found(
    shape: tuple[int, ...], dtype: str, axis: int | None, largest: bool, last: bool = False
) -> Any:
    x = te.placeholder(shape, dtype, "X")
    operator = topi.argmax if largest else topi.argmin
    return te.create_prim_func([x, operator(x, axis, select_last_index=last)])


def expected(x: Any, axis: int | None, largest: bool, last: bool = False) -> Any:
    find = np.argmax if largest else np.argmin
    if not last:
        return find(x, axis)
    if axis is None:
        return x.size - 1 - find(np.flip(x))
    return x.shape[axis] - 1 - find(np.flip(x, axis), axis)


def pairs(choose: Callable[[Any, Any], Any], extents: tuple[int, ...] = (4, 9)) -> Any:
    """A reduction of the pairs of index and value along all but the first axis of ``extents``."""
    x = te.placeholder(extents, "float32", "X")
    first = lambda *_: (tirx.const(-1, "int32"), tirx.min_value("float32"))  # noqa: E731
    reducer = te.comm_reducer(choose, first, name="pair")
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(extents[1:])]

    def flat(own: Any) -> Any:
        number = tirx.const(0, "int32")
        for axis, extent in zip(axes, extents[1:], strict=True):
            number = number * extent + axis.var
        return reducer((number, x[(own, *axes)]), axis=axes)

    index, _ = te.compute(extents[:1], flat, name="R")
    copied = te.compute(extents[:1], lambda i: index[i], name="Y")
    return te.create_prim_func([x, copied])


def selecting(index: Compare, value: Compare | None = None) -> Callable[[Any, Any], Any]:
    """Pairs that keep the first of two where these conditions hold."""

    def choose(a: Any, b: Any) -> Any:
        kept = (value or index)(a, b)
        return tirx.Select(index(a, b), a[0], b[0]), tirx.Select(kept, a[1], b[1])

    return choose


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    axis=st.sampled_from((0, 1, None)),
    largest=st.booleans(),
    last=st.booleans(),
    seed=st.integers(0, 99),
)
def test_indices_are_those_of_numpy(
    shape: tuple[int, int], axis: int | None, largest: bool, last: bool, seed: int
) -> None:
    workload, _ = import_module(found(shape, "float32", axis, largest, last))
    x = np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)
    (output,) = reference_outputs(workload, {"X": x}).values()
    np.testing.assert_array_equal(output, expected(x, axis, largest, last))


@pytest.mark.parametrize(
    ("shape", "dtype", "axis", "largest", "last"),
    [
        ((32, 64), "float32", 1, True, False),
        ((64, 32), "float64", 0, False, False),
        ((16, 32), "float32", None, True, True),
        ((7, 13), "int8", 1, True, True),
        ((1, 31), "int64", None, False, False),
        ((5, 1), "float32", 1, True, False),
    ],
)
def test_programs_find_the_index_among_equal_values(
    shape: tuple[int, ...],
    dtype: str,
    axis: int | None,
    largest: bool,
    last: bool,
) -> None:
    program = found(shape, dtype, axis, largest, last)
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)
    check(program, x, expected(x, axis, largest, last), every=dtype in ("float64", "int8"))


def check(program: Any, x: Any, wanted: Any, *, every: bool) -> Workload:
    """Check candidates of a function; returns what it was imported as."""
    workload, module = import_module(program)
    (name,) = (tensor.name for tensor in workload.inputs)
    (found,) = reference_outputs(workload, {name: x}).values()
    np.testing.assert_array_equal(found, wanted)
    candidates = sample_candidates(BACKEND, workload, TARGET)
    for candidate in candidates if every else candidates[-1:]:
        check_candidate(BACKEND, candidate, TARGET, {name: x}, program=text_of(module))
    assert candidates
    return workload


def test_no_index_is_out_of_range_where_no_value_can_be_found() -> None:
    """Rows of numbers that are none, and of infinities, which TVM does not tell from its start."""
    workload, module = import_module(found((4, 32), "float32", 1, True))
    x = np.full((4, 32), np.nan, np.float32)
    x[1:3] = -np.inf
    x[3, 5] = 1
    for candidate in sample_candidates(BACKEND, workload, TARGET):
        executable = BACKEND.build(request_for(candidate, TARGET, 1, text_of(module)))
        (output,) = run_executable(executable, workload, {"X": x})
        assert output.min() >= 0 and output.max() < 32


# Vectors divide the first.
@pytest.mark.parametrize(("columns", "largest"), [(32, True), (33, False)])
def test_relax_has_indices_of_64_bits(largest: bool, columns: int) -> None:
    builder = relax.BlockBuilder()
    given_one = relax.Var("x", relax.TensorType((4, columns), "float32"))
    with builder.function("main", [given_one]):
        operator = relax.op.argmax if largest else relax.op.argmin
        builder.emit_func_output(builder.emit(operator(given_one, 1, False)))
    legal = relax.transform.LegalizeOps()(builder.get())
    (program,) = (it for it in legal.functions.values() if isinstance(it, tirx.PrimFunc))
    x = np.random.default_rng(0).integers(-3, 4, (4, columns)).astype(np.float32)
    workload = check(program, x, expected(x, 1, largest), every=False)
    assert workload.stages[-1].output.dtype == "int64"


@pytest.mark.parametrize(
    ("choose", "last"),
    [
        (selecting(lambda a, b: a[1] >= b[1]), False),
        (selecting(lambda a, b: b[1] <= a[1]), False),
        (selecting(lambda a, b: a[1] > b[1]), True),
        (selecting(lambda a, b: tirx.Not(a[1] < b[1])), False),
        (lambda a, b: (tirx.Select(b[1] > a[1], b[0], a[0]), te.max(b[1], a[1])), False),
    ],
)
def test_it_is_known_by_what_it_does(choose: Callable[[Any, Any], Any], last: bool) -> None:
    workload, _ = import_module(pairs(choose, (4, 3, 5)))
    x = np.random.default_rng(0).integers(-2, 3, (4, 3, 5)).astype(np.float32)
    (output,) = reference_outputs(workload, {"X": x}).values()
    np.testing.assert_array_equal(output, expected(x.reshape(4, 15), 1, True, last))


def keeps_smaller(a: Any, b: Any) -> Any:
    return a[1] < b[1]


REFUSED: dict[str, tuple[Any, str]] = {
    "index of the other": (
        selecting(keeps_smaller, lambda a, b: a[1] > b[1]),
        "not that of the value that it keeps",
    ),
    "sums": (lambda a, b: (a[0] + b[0], tirx.Select(a[0] > b[0], a[1], b[1])), "does not select"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_pairs_are_refused(name: str) -> None:
    choose, reason = REFUSED[name]
    with pytest.raises(UnsupportedWorkload, match=f"depends on .*no extreme value .*{reason}"):
        import_module(pairs(choose))


def test_what_is_read_after_it_was_stored_is_refused() -> None:
    @T.prim_func(s_tir=True)
    def program(x: T.Buffer((4, 32), "float32"), y: T.Buffer((4,), "int32")) -> None:
        v = T.sblock_alloc_buffer((4,), "float32")
        for i, k in T.grid(4, 32):
            with T.sblock("pair"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    y[vi] = -1
                    v[vi] = T.min_value("float32")
                v[vi] = T.max(v[vi], x[vi, vk])
                y[vi] = T.Select(v[vi] >= x[vi, vk], y[vi], vk)

    with pytest.raises(UnsupportedWorkload, match="'v' is read after it was stored to"):
        import_module(program)
