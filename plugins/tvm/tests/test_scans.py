"""Running sums and products, as TVM's operator library writes them and as workloads have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.default_schedule import default_schedule
from autotune_tvm.emit import module_for
from autotune_tvm.importer import import_module, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scanned import scan, scanned_between
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ScheduleError
from tvm_ffi import structural_equal
from tvm_programs import check_imported

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import Workload, cumsum, reference_outputs
from autotune.targets import Target
from autotune.testing.programs import check_candidate, check_program, sample_candidates


def written(shape: tuple[int, ...], name: str = "cumsum", **options: Any) -> Any:
    x = te.placeholder(shape, options.pop("of", "float32"), "X")
    return te.create_prim_func([x, getattr(topi, name)(x, **options)])


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    axis=st.none() | st.integers(-4, 3),
    name=st.sampled_from(("cumsum", "cumprod")),
    exclusive=st.booleans(),
    dtype=st.sampled_from(("float32", "float64", "int32")),
)
def test_imported_scans_are_those_of_numpy(
    shape: tuple[int, ...], axis: int | None, name: str, exclusive: bool, dtype: str
) -> None:
    along = None if axis is None else axis % len(shape)
    workload, _ = import_module(written(shape, name, axis=along, exclusive=exclusive, dtype=dtype))
    assert [stage.scan_axis is not None for stage in workload.stages] == [True]
    x = np.random.default_rng(0).uniform(-2, 2, shape).astype(np.float32)
    (found,) = reference_outputs(workload, {"X": x}).values()
    wanted = getattr(np, name)(x.astype(dtype).astype(found.dtype), axis=along, dtype=np.float64)
    if exclusive:
        place = 0 if along is None else along
        ahead = np.full_like(wanted.take([0], axis=place), name == "cumprod")
        kept = wanted.take(range(wanted.shape[place] - 1), axis=place)
        wanted = np.concatenate([ahead, kept], axis=place)
    np.testing.assert_allclose(found, wanted.astype(dtype), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((16, 64), {"axis": 1}),
        ((3, 40, 64), {"axis": 1}),
        ((40, 37), {"axis": 0, "exclusive": True}),
        ((8, 33), {"axis": 1, "exclusive": True, "dtype": "float64"}),
        ((6, 7), {"axis": None}),
        ((64, 32), {"axis": 0, "of": "int32"}),
    ],
    ids=str,
)
def test_imported_scans_are_right(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    check_imported(written(shape, **options))


def test_a_scan_among_other_operators() -> None:
    x = te.placeholder((20, 32), "float32", "X")
    sums = topi.cumsum(topi.nn.relu(x), axis=0)
    function = te.create_prim_func([x, topi.add(topi.tanh(sums), topi.cumsum(sums, axis=1))])
    workload = check_imported(function, every=True)
    assert [stage.scan_axis is not None for stage in workload.stages].count(True) == 2


@pytest.mark.parametrize(
    "computed",
    [lambda x: topi.sum(x, axis=-1), lambda x: topi.take(topi.nn.relu(x), 0, axis=2)],
    ids=["reduced", "of a part"],
)
def test_exclusive_scans_of_one_computed_element_are_the_start(computed: Any) -> None:
    """None of what is computed before them is read."""
    x = te.placeholder((1, 16, 4), "float32", "X")
    check_imported(te.create_prim_func([x, topi.cumsum(computed(x), axis=0, exclusive=True)]))


@pytest.mark.parametrize(
    "workload",
    [
        scan((24, 48), 0, "max"),
        scan((24, 48), 1, "min"),
        cumsum(m=16, n=64, axis=0, exclusive=1),
        scanned_between((8, 4, 32), 1),
    ],
    ids=lambda workload: f"{workload.name}-{workload.digest}",
)
def test_candidates_of_workloads_are_right(
    backend: TVMBackend, target: Target, workload: Workload
) -> None:
    for candidate in sample_candidates(backend, workload, target):
        check_candidate(backend, candidate, target)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2048,), {"axis": 0}),
        ((2, 1536), {"axis": 1, "exclusive": True, "dtype": "float64"}),
        ((2, 1, 1024), {"axis": -1, "of": "int32"}),
    ],
    ids=str,
)
def test_long_rows_in_parts_are_right(
    backend: TVMBackend, target: Target, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    workload, module = import_module(written(shape, **options))
    candidates = sample_candidates(backend, workload, target, each=2)
    parts = [it for it in candidates if it.sketch.name == "chunked-scan"]
    assert parts
    for candidate in parts:
        check_candidate(backend, candidate, target, program=text_of(module), threads=2)


@pytest.mark.parametrize("workload", [scan((4, 6), 1), scan((4, 6), 0, "max")], ids=repr)
def test_what_is_written_is_read_again(workload: Workload) -> None:
    assert import_module(module_for(workload))[0].digest == workload.digest


def test_the_program_stays_as_it_came(backend: TVMBackend, target: Target) -> None:
    """The stored program and the untuned one are TVM's; only the workload is a scan."""
    function = written((8, 16), axis=1)
    workload, module = import_module(function)
    assert structural_equal(module["main"], function)
    untuned = BuildRequest(workload, text_of(module), None, target, 1)
    assert "T.parallel(8)" in str(backend.show(untuned))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_records_of_the_workload_are_those_of_the_program(axis: int, exclusive: int) -> None:
    function = written((5, 7), axis=axis, exclusive=bool(exclusive))
    workload = cumsum(m=5, n=7, axis=axis, exclusive=exclusive)
    assert import_module(function)[0].digest == workload.digest


@pytest.mark.parametrize("axis", [0, 1])
def test_tvms_own_schedules_leave_scans_alone(
    backend: TVMBackend, target: Target, axis: int
) -> None:
    """Their rules do not know that its axis has an order."""
    workload = cumsum(m=16, n=32, axis=axis)
    module = module_for(workload)
    schedule = Schedule(module)
    loops = schedule.get_loops(schedule.get_sblock("Y"))
    for loop in loops:
        with pytest.raises(ScheduleError):
            schedule.parallel(loop)
    with pytest.raises(InvalidSchedule):
        default_schedule(module, target, 2)
    check_program(backend, BuildRequest(workload, None, None, target, 1))


def test_scatters_are_refused_by_name_and_index() -> None:
    data, updates = (te.placeholder((8, 4), "float32", name) for name in ("X", "U"))
    places = te.placeholder((8, 4), "int64", "P")
    made = topi.scatter_elements(data, places, updates, axis=0)
    function = te.create_prim_func([data, places, updates, made])
    with pytest.raises(UnsupportedWorkload, match="block 'scatter_.*' scatters: index 0 of .* on"):
        import_module(function)
