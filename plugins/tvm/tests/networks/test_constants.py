"""Operands of functions that are constants in every call, and workloads that say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import CONSTANTS
from autotune_tvm.networks.apply_records import constant_operands_of, mark_constants
from relax_networks import const, network, op, weights
from relax_records import PASSES, fused
from tvm import relax

SHAPE = ((24, 24), "float32")


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


def test_what_is_stored_of_a_program_is_without_the_mark() -> None:
    module = fused(network([SHAPE], layer))
    (name,) = constant_operands_of(module)
    imported = TVMBackend().import_program(mark_constants(module)[name])
    assert CONSTANTS in mark_constants(module)[name].attrs and CONSTANTS not in imported.program
    plain = TVMBackend().import_program(module[name])
    assert plain.program == imported.program
    assert plain.workload == imported.workload.with_constants()
    assert plain.workload.digest != imported.workload.digest
