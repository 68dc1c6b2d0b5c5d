"""Records in MetaSchedule's JSON database, applied by TVM's own passes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import described_target
from autotune_tvm.default_schedule import DEFAULT_SCHEDULE
from autotune_tvm.emit import ENTRY, module_for
from autotune_tvm.importer import blocks_of, callable_module, module_from_text
from autotune_tvm.metaschedule import FILES
from autotune_tvm.replay import schedule as schedule_on
from autotune_tvm.scheduled import scheduled_module
from relax_programs import relax_convolution, relax_module
from thinning import thinned
from tvm import relax, te, topi
from tvm.s_tir import meta_schedule
from tvm_programs import check_module

from autotune import compile_record
from autotune.backends import BuildRequest
from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.expressions import const
from autotune.ir.workloads import (
    batch_matmul,
    conv2d,
    cumsum,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    random_inputs,
    reference_outputs,
    softmax,
)
from autotune.sketches import UNTUNED, Candidate, PadExtent, Sketch, is_default
from autotune.store.jsonl import read_lines, record_line
from autotune.store.records import Baseline, Outcome, Record
from autotune.targets import Target, preset
from autotune.testing.sample_records import candidate_records

BUILT = {
    "gemm": gemm(m=20, n=37, k=24),
    "batch_matmul": batch_matmul(b=2, m=12, n=20, k=16),
    "dense": dense(m=20, n=37, k=24),
    "conv2d": conv2d(h=9, w=10, ci=5, co=19, pad=1, bias=1, relu=1),
    "conv2d_strided": conv2d(h=13, w=11, ci=3, co=17, stride=2, dilation=2),
    "depthwise_conv2d": depthwise_conv2d(h=9, w=9, c=20, pad=1),
    "softmax": softmax(m=9, n=64),
    "elementwise": elementwise(m=9, n=50),
}


def request(record: Record, target: Target) -> BuildRequest:
    workload = record.candidate.sketch.workload
    return BuildRequest(workload, record.program, record.scheduled, target, record.key.threads)


def replayed(record: Record, target: Target) -> Any:
    """The schedule alone, as a trace has it: none of the passes that follow."""
    candidate, workload = record.scheduled, record.candidate.sketch.workload
    if candidate is None or is_default(candidate):
        return scheduled_module(request(record, target))
    module = unscheduled(record)
    blocks = {} if record.program is None else blocks_of(module)
    return schedule_on(module, candidate, workload, blocks).mod


def opened(folder: Path) -> Any:
    return meta_schedule.database.JSONDatabase(work_dir=str(folder), allow_missing=False)


@pytest.mark.parametrize("name", BUILT)
def test_every_candidate_of_a_built_workload_is_exported(
    name: str, backend: TVMBackend, target: Target, tmp_path: Path
) -> None:
    workload = BUILT[name]
    records = candidate_records(workload, target, backend, 2 if name == "gemm" else 1)
    report = backend.export_records(records, "metaschedule", tmp_path / "database")
    assert report.refused == () and report.exported == len(records)
    assert report.files == tuple(str(tmp_path / "database" / file) for file in FILES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["database"]
    found = opened(tmp_path / "database").get_all_tuning_records()
    assert len(found) == len(records)
    for record, theirs in zip(records, found, strict=True):  # both are in the order of latencies
        assert float(theirs.run_secs[0]) == pytest.approx(record.latency)
        assert theirs.target.kind.name == "llvm"
        again = theirs.as_measure_candidate().sch.mod
        ours = replayed(record, target)
        tvm.ir.assert_structural_equal(again, ours)


@pytest.mark.parametrize(
    ("name", "baseline"), thinned([("gemm", UNTUNED), ("softmax", DEFAULT_SCHEDULE)], 2)
)
def test_tvm_finds_a_baseline_that_no_candidate_beats(
    name: str, baseline: str, backend: TVMBackend, target: Target, tmp_path: Path
) -> None:
    workload = BUILT[name]
    records = candidate_records(workload, target, backend, 1)
    fastest = records[0].latency or 0.0
    outcome = Outcome("ok", 2 * fastest, (2 * fastest,))
    # As slow by its own latency, and as fast in turns.
    kept = Baseline("run", workload.digest, records[0].key, outcome, 1.0, baseline, fastest)
    records.append(kept.record(records[0]))
    report = backend.export_records(records, "metaschedule", tmp_path)
    assert report.refused == () and report.exported == len(records)
    expected = replayed(records[-1], target)
    schedule = meta_schedule.tir_integration.compile_tir(
        opened(tmp_path), module_for(workload)[ENTRY], described_target(target, 1)
    )
    assert schedule is not None
    tvm.ir.assert_structural_equal(schedule.mod, expected)


@pytest.mark.parametrize("name", thinned(["gemm", "conv2d", "softmax"], 3))
def test_tvm_finds_the_best_schedule_of_a_function(
    name: str, backend: TVMBackend, target: Target, tmp_path: Path
) -> None:
    workload = BUILT[name]
    records = candidate_records(workload, target, backend, 1)
    backend.export_records(records, "metaschedule", tmp_path)
    best = replayed(records[0], target)
    schedule = meta_schedule.tir_integration.compile_tir(
        opened(tmp_path), module_for(workload)[ENTRY], described_target(target, 1)
    )
    assert schedule is not None
    tvm.ir.assert_structural_equal(schedule.mod, best)
    check_module(schedule.mod, workload, target)
    other = gemm(m=3, n=3, k=3)
    assert not opened(tmp_path).has_workload(module_for(other))


def applied(module: Any, folder: Path, target: Target) -> Any:
    """The functions of a module, scheduled by TVM's own pass."""
    with described_target(target, 1):
        return relax.transform.MetaScheduleApplyDatabase(str(folder))(module)


def only_function(module: Any) -> Any:
    (found,) = [f for _, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    return found


def check_applied(function: Any, record: Record, target: Target) -> None:
    """The function that TVM schedules is our replay, with its own attributes, and is right."""
    assert bool(function.attrs["tirx.is_scheduled"])
    ours = replayed(record, target)
    plain = tvm.tirx.PrimFunc(function.params, function.body, function.ret_type)
    theirs = tvm.IRModule({"main": plain.with_attrs(dict(ours["main"].attrs))})
    tvm.ir.assert_structural_equal(theirs, ours)
    check_module(theirs, record.candidate.sketch.workload, target)


def unscheduled(record: Record) -> Any:
    """The program before it was scheduled."""
    if record.program is None:
        return module_for(record.candidate.sketch.workload)
    return callable_module(module_from_text(record.program))


def test_tvm_applies_schedules_to_an_imported_convolution_with_its_epilogue(
    backend: TVMBackend, target: Target, tmp_path: Path
) -> None:
    """The function as it stands in Relax's module, 64-bit loops and all."""
    imported = backend.import_program(relax_convolution())
    records = candidate_records(imported.workload, target, backend, 1, imported.program)
    fastest = evolve(records[-1], outcome=Outcome("ok", 1e-9, (1e-9,)))
    report = backend.export_records([*records, fastest], "metaschedule", tmp_path)
    assert report.refused == () and report.exported == len(records) + 1
    module = relax_module()
    assert not only_function(module).attrs.get("tirx.is_scheduled")
    function = only_function(applied(module, tmp_path, target))
    check_applied(function, fastest, target)
    attributes = only_function(module).attrs
    assert all(function.attrs[name] == value for name, value in attributes.items())


TRANSPOSED = """
@T.prim_func(s_tir=True)
def named(C: T.Buffer((48, 40)), A: T.Buffer((37, 40)), B: T.Buffer((37, 48))):
    for k, i, j in T.grid(37, 40, 48):
        with T.sblock("C"):
            vk, vi, vj = T.axis.remap("RSS", [k, i, j])
            with T.init():
                C[vj, vi] = T.float32(0)
            C[vj, vi] = C[vj, vi] + A[vk, vi] * B[vk, vj]
"""


@pytest.mark.parametrize("form", ["function", "module"])
def test_a_function_is_found_under_its_own_name(
    form: str, backend: TVMBackend, target: Target, tmp_path: Path
) -> None:
    """By itself and in a module of its own, which TVM looks up under different attributes."""
    function = tvm.script.from_source(TRANSPOSED)
    given = function if form == "function" else tvm.IRModule({"named": function})
    imported = backend.import_program(given)
    records = candidate_records(imported.workload, target, backend, 2, imported.program)
    report = backend.export_records(records, "metaschedule", tmp_path)
    assert report.refused == ()
    database, described = opened(tmp_path), described_target(target, 1)
    for asked in (function, tvm.IRModule({"named": function})):
        assert meta_schedule.tir_integration.compile_tir(database, asked, described) is not None
    module = tvm.IRModule({"named": function, "other": module_for(gemm(m=2, n=2, k=2))[ENTRY]})
    found = applied(module, tmp_path, target)
    assert bool(found["named"].attrs["tirx.is_scheduled"])
    assert "tirx.is_scheduled" not in found["other"].attrs


def test_a_record_of_an_imported_function_stands_alone(
    backend: TVMBackend, target: Target
) -> None:
    """A file has enough of it to compile the schedule on the very function."""
    imported = backend.import_program(tvm.script.from_source(TRANSPOSED))
    (record, *_) = candidate_records(imported.workload, target, backend, 1, imported.program)
    (again,) = read_lines(io.BytesIO(record_line(record)))
    assert isinstance(again, Record) and again == record
    arrays = random_inputs(imported.workload, np.random.default_rng(0))
    # The function takes its output first, which only the program itself says.
    result = compile_record(again)(**arrays)
    expected = reference_outputs(imported.workload, arrays)["C"]
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


def test_records_that_cannot_be_exported_are_named(
    backend: TVMBackend, target: Target, tmp_path: Path
) -> None:
    workload = gemm(m=8, n=8, k=8)
    good = candidate_records(workload, target, backend, 1)
    failed = evolve(good[0], trial=100, outcome=Outcome("crash"))
    sketch = Sketch("wrong", workload, (), (), (PadExtent("C", "i", const(9)),))
    wrong = evolve(good[0], trial=101, candidate=Candidate(sketch, ()))
    report = backend.export_records([failed, *good, wrong], "metaschedule", tmp_path)
    assert report.exported == len(good)
    first, second = report.refused
    assert first == ("run/100", "its outcome is 'crash', not ok")
    assert second[0] == "run/101" and "padding C needs A to be packed" in second[1]
    nothing = backend.export_records([failed], "metaschedule", tmp_path / "none")
    assert nothing.exported == 0 and nothing.files == ()
    assert not (tmp_path / "none").exists()


def normalised() -> Any:
    """A function with a block that reduces to several tensors."""
    x, scale, shift = (
        te.placeholder(shape, "float32", name)
        for name, shape in (("X", (2, 4, 3, 5)), ("G", (4,)), ("B", (4,)))
    )
    made = topi.nn.instance_norm(x, scale, shift, 1, [2, 3], 1e-5)
    return te.create_prim_func([x, scale, shift, made])


REFUSED: dict[str, tuple[Any, str]] = {
    "calls": (gemm(m=8, n=16, k=8, dtype="u8s8s32"), "calls instructions"),
    "uneven lanes": (softmax(m=9, n=67), "lanes that do not divide their axis"),
    "separated blocks": (normalised(), "several tensors in one block"),
    "scans": (cumsum(m=8, n=32), "its program scans"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_schedules_that_tvm_alone_does_not_know_are_refused(
    name: str, backend: TVMBackend, target: Target, tmp_path: Path
) -> None:
    made, reason = REFUSED[name]
    machine = preset("cascadelake").with_cores(1) if name == "calls" else target
    text = None
    if backend.imports(made):
        imported = backend.import_program(made)
        made, text = imported.workload, imported.program
    records = candidate_records(made, machine, backend, 1, text)
    report = backend.export_records(records, "metaschedule", tmp_path / "database")
    assert report.exported == 0 and len(report.refused) == len(records)
    assert all(reason in why for _, why in report.refused)


def test_what_metaschedule_cannot_tell_apart_is_not_mixed(
    backend: TVMBackend, target: Target, tmp_path: Path
) -> None:
    (record, *_) = candidate_records(gemm(m=8, n=8, k=8), target, backend, 1)
    for change in ({"threads": 2}, {"protocol": "cold-1"}, {"target": "another"}):
        other = evolve(record, key=evolve(record.key, **change))
        with pytest.raises(InvalidValueError, match="several targets, thread counts"):
            backend.export_records([record, other], "metaschedule", tmp_path / "database")
    assert list(tmp_path.iterdir()) == []


def test_mistakes(backend: TVMBackend, target: Target, tmp_path: Path) -> None:
    records = candidate_records(gemm(m=8, n=8, k=8), target, backend, 1)
    with pytest.raises(UnknownNameError, match="Did you mean 'metaschedule'"):
        backend.export_records(records, "metasched", tmp_path)
    with pytest.raises(InvalidValueError, match="there is no folder"):
        backend.export_records(records, "metaschedule", tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValueError, match="is a file; the format needs a folder"):
        backend.export_records(records, "metaschedule", tmp_path / "file")
    backend.export_records(records, "metaschedule", tmp_path / "database")
    before = (tmp_path / "database" / FILES[1]).read_bytes()
    with pytest.raises(InvalidValueError, match="has a file 'database_workload.json' already"):
        backend.export_records(records, "metaschedule", tmp_path / "database")
    assert (tmp_path / "database" / FILES[1]).read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["database", "file"]
