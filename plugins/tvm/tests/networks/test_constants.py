"""Operands of functions that are constants in every call, and workloads that say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import CONSTANTS
from autotune_tvm.networks.apply import PREPACKED
from autotune_tvm.networks.apply_records import ApplyRecords
from autotune_tvm.networks.constants import constant_operands_of, mark_constants
from autotune_tvm.networks.frontend import RelaxFrontend
from relax_networks import const, network, op, run, weights
from tvm import relax

from autotune.networks import LoadOptions
from autotune.sketches import prepacked_operands
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.store.sqlite import open_database
from autotune.targets import Target
from autotune.testing.programs import sample_candidates

PASSES = relax.transform
SHAPE = ((24, 24), "float32")


def fused(module: Any) -> Any:
    """The module, cut into functions as in a pipeline of somebody else's."""
    steps = [PASSES.LegalizeOps(), PASSES.AnnotateTIROpPattern(), PASSES.FuseOps()]
    return tvm.transform.Sequential([*steps, PASSES.FuseTIR()])(module)


def layer(emit: Callable[[Any], Any], x: Any, seed: int = 0) -> Any:
    product = emit(op.matmul(x, const(weights(24, 24, seed=seed))))
    return emit(op.nn.relu(emit(op.add(product, const(weights(24, seed=seed))))))


def test_constants_of_all_calls_are_marked() -> None:
    module = fused(network([SHAPE], lambda emit, x: layer(emit, layer(emit, x), seed=1)))
    known = constant_operands_of(module)
    assert sorted(map(sorted, known.values())) == [[1, 2]]
    marked = mark_constants(module)
    for name in known:
        workload = TVMBackend().import_program(marked[name]).workload
        assert [tensor.constant for tensor in workload.inputs] == [False, True, True]
    assert mark_constants(marked) is marked and mark_constants(module) is not module


def test_variables_are_not_marked() -> None:
    module = fused(network([SHAPE] * 2, lambda emit, x, y: emit(op.matmul(x, y))))
    assert constant_operands_of(module) == {} and mark_constants(module) is module


def test_functions_that_others_use_have_no_constants() -> None:
    module = fused(network([SHAPE], layer))
    (name,) = constant_operands_of(module)
    builder = relax.BlockBuilder(module)
    x = relax.Var("x", relax.TensorType(*SHAPE))
    with builder.function("other", [x]):
        with builder.dataflow():
            arguments = [x, x, relax.const(weights(24))]
            called = relax.call_tir(
                module.get_global_var(name), arguments, relax.TensorType(*SHAPE)
            )
            out = builder.emit_output(called)
        builder.emit_func_output(out)
    assert constant_operands_of(builder.get()) == {}


def test_modules_that_are_no_straight_programs_have_no_constants() -> None:
    module = fused(network([SHAPE], layer))
    assert constant_operands_of(PASSES.ToNonDataflow()(module)) == {}
    (name,) = constant_operands_of(module)
    alone = tvm.ir.IRModule({name: module[name]})
    assert constant_operands_of(alone) == {}


def test_what_is_stored_of_a_program_is_without_the_mark(target: Target) -> None:
    program = RelaxFrontend().load(network([SHAPE], layer), None, LoadOptions(target, 1))
    (task,) = program.tasks
    imported = TVMBackend().import_program(task.program)
    assert CONSTANTS in task.program.attrs and CONSTANTS not in imported.program
    plain = TVMBackend().import_program(task.program.without_attr(CONSTANTS))
    assert plain.program == imported.program
    assert plain.workload == imported.workload.with_constants()
    assert plain.workload.digest != imported.workload.digest


@pytest.mark.parametrize("sketch", ["packed-root", "direct"])
def test_a_pipeline_of_ones_own_packs_what_records_say(
    sketch: str, tmp_path: Path, target: Target
) -> None:
    """The workload is that of the network's task, which the record is for."""
    module = network([SHAPE], layer)
    target = target.with_cores(1)
    (task,) = RelaxFrontend().load(module, None, LoadOptions(target, 1)).tasks
    imported = TVMBackend().import_program(task.program)
    (candidate,) = (
        it
        for it in sample_candidates(TVMBackend(), imported.workload, target)
        if it.sketch.name.split("+")[-1] == sketch
    )
    key = MeasureKey(target.fingerprint, "tvm", "1", "1", 1, "warm-3")
    outcome, text = Outcome("ok", 1e-3, (1e-3,)), imported.program
    path = tmp_path / "records.db"
    with open_database(path) as database:
        database.append_record(
            Record(
                "r", 0, candidate, key, target.to_json(), "sketch-1", outcome, 0.0, program=text
            )
        )
    cut = fused(module)
    applied = ApplyRecords(path, target=target)(cut)
    (name,) = constant_operands_of(applied)
    assert applied[name].attrs["tirx.is_scheduled"] and PREPACKED not in applied[name].attrs
    packs = bool(prepacked_operands(candidate))
    assert packs == (sketch == "packed-root")
    shapes = [len(parameter.ty.shape) for parameter in applied[name].params]
    assert shapes == ([2, 3, 1, 2] if packs else [2, 2, 1, 2])
    x = weights(24, 24, seed=9)
    np.testing.assert_allclose(run(applied, x)[0], run(cut, x)[0], rtol=1e-4, atol=1e-4)
