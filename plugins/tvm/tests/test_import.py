"""TIR functions become workloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.importer import (
    CONSTANTS,
    argument_names,
    blocks_of,
    import_module,
    module_from_text,
    text_of,
)
from made_workloads import ROUND_TRIPS
from relax_programs import relax_convolution
from tir_functions import COPY, function
from tvm import te, tirx, topi
from tvm_programs import check_imported

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Binary, Load, Select, Unary, const, var
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Workload, gemm
from autotune.targets import Target
from autotune.testing.programs import check_candidate, sample_candidates


@pytest.mark.parametrize("workload", ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
def test_round_trip(workload: Workload) -> None:
    imported, module = import_module(module_for(workload))
    assert imported.to_json()["stages"] == workload.to_json()["stages"]
    assert imported.digest == workload.digest
    names = {stage: block.name for stage, block in blocks_of(module).items()}
    assert names == {stage.name: stage.name for stage in workload.stages}
    names = (*(tensor.name for tensor in workload.inputs), *workload.outputs)
    assert argument_names(module) == names
    again = module_from_text(text_of(module))
    tvm.ir.assert_structural_equal(again, module)
    assert import_module(again)[0].digest == workload.digest


def test_a_function_is_read_once_under_its_name() -> None:
    text = COPY.format("A[vi, vj]")
    first, _ = import_module(function(text))
    assert import_module(function(text))[0] is first
    other, _ = import_module(function(text).with_attr("global_symbol", "g"))
    assert (first.name, other.name) == ("f", "g") and other.digest == first.digest
    constant, module = import_module(function(text).with_attr(CONSTANTS, [0]))
    assert constant.inputs[0].constant and not first.inputs[0].constant
    assert CONSTANTS not in module["main"].attrs


def test_a_function_and_a_module_are_imported(backend: TVMBackend) -> None:
    module = module_for(gemm(m=3, n=4, k=5))
    assert backend.imports(module)
    assert backend.imports(module["main"])
    for other in (None, "main", np.zeros(3), gemm(m=3, n=4, k=5)):
        assert not backend.imports(other)
    imported = backend.import_program(module["main"])
    assert imported.workload.digest == gemm(m=3, n=4, k=5).digest
    assert imported.program.startswith("{")


def test_constants_move_to_the_right_of_comparisons() -> None:
    workload, _ = import_module(
        function(COPY.format("T.if_then_else(1 <= vi and vi < 3, A[vi - 1, vj], T.float32(0))"))
    )
    body = workload.stages[0].body
    assert isinstance(body, Select)
    comparisons = [node for node in walk(body.condition) if isinstance(node, Binary)]
    assert [node.op for node in comparisons] == ["and", "ge", "lt"]


def test_update_may_stand_on_either_side() -> None:
    workload, _ = import_module(
        function(
            """
for i, j, k in T.grid(4, 6, 5):
    with T.sblock("product"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        with T.init():
            C[vi, vj] = T.float32(0)
        C[vi, vj] = A[vi, vk] * A[vi, vk] + C[vi, vj]
""",
            "A: B((4, 5)), C: B((4, 6))",
        )
    )
    assert workload.stages[0].combiner == "add"
    assert len(workload.stages[0].loads) == 2


def test_max_starts_from_minus_infinity_or_the_smallest_number() -> None:
    text = """
for i, k in T.grid(4, 5):
    with T.sblock("largest"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            C[vi] = {}
        C[vi] = T.max(C[vi], A[vi, vk])
"""
    signature = "A: B((4, 5)), C: B((4,))"
    for start in ('T.float32("-inf")', 'T.min_value("float32")'):
        workload, _ = import_module(function(text.format(start), signature))
        assert workload.stages[0].combiner == "max"
    with pytest.raises(UnsupportedWorkload, match="not the identity of 'max'"):
        import_module(function(text.format("T.float32(0)"), signature))


def test_functions_remainders_and_logic(check: Callable[..., Any]) -> None:
    shape = (5, 6)
    x, y = te.placeholder(shape, "float32", "X"), te.placeholder(shape, "int32", "Y")
    a, b = te.placeholder(shape, "bool", "A"), te.placeholder(shape, "bool", "B")
    made = [
        *(function(x) for function in (topi.sin, topi.cos, topi.round)),
        topi.floor_mod(y, tirx.const(3, "int32")),
        *(logic(a, b) for logic in (topi.bitwise_and, topi.bitwise_or, topi.bitwise_xor)),
        topi.bitwise_not(a),
    ]
    workload, module = import_module(te.create_prim_func([x, y, a, b, *made]))
    bodies = [stage.body for stage in workload.stages]
    operations = [body.op for body in bodies if isinstance(body, (Unary, Binary))]
    assert operations == ["sin", "cos", "round", "mod", "and", "or", "ne", "not"]
    check(workload, text_of(module))


def test_halves_are_rounded_to_even(check: Callable[..., Any]) -> None:
    y = te.placeholder((5, 6), "int32", "Y")
    half = tirx.const(0.5, "float32")
    made = te.compute((5, 6), lambda i, j: tirx.round(tirx.Cast("float32", y[i, j]) * half), "R")
    workload, module = import_module(te.create_prim_func([y, made]))
    check(workload, text_of(module))
    body = workload.stages[0].body
    assert isinstance(body, Unary) and body.op == "round"


TRANSPOSED = """
for k, i, j in T.grid(37, 40, 48):
    with T.sblock("mm"):
        vk, vi, vj = T.axis.remap("RSS", [k, i, j])
        with T.init():
            C[vj, vi] = T.float32(0)
        C[vj, vi] = C[vj, vi] + A[vk, vi] * B_[vk, vj]
"""


def test_an_output_first_and_loops_in_another_order() -> None:
    program = function(TRANSPOSED, "C: B((48, 40)), A: B((37, 40)), B_: B((37, 48))")
    workload, module = import_module(program)
    assert [tensor.name for tensor in workload.inputs] == ["A", "B_"]
    assert argument_names(module) == ("C", "A", "B_")
    assert [axis.name for axis in workload.stages[0].axes] == ["j", "i", "k"]
    assert workload.stages[0].loads[0] == Load("A", (var("k"), var("i")))
    assert check_imported(program, every=True) == workload


def test_names_are_made_unique(check: Callable[..., Any]) -> None:
    first = te.placeholder((5, 6), dtype="float32")
    second = te.compute((5, 6), lambda i, j: first[i, j] + 1.0)
    third = te.compute((5, 6), lambda i, j: second[i, j] * 2.0)
    workload, module = import_module(te.create_prim_func([first, third]))
    assert len(set(workload.tensors)) == 3
    assert set(blocks_of(module)) == {stage.name for stage in workload.stages}
    check(workload, text_of(module))


def test_a_quotient_that_never_changes_is_simplified() -> None:
    workload, _ = import_module(function(COPY.format("A[vi // 4 + vi % 4, (vj + 6) % 12 - 6]")))
    assert workload.stages[0].loads[0].indices == (var("i"), var("j"))
    workload, _ = import_module(function(COPY.format("A[vi // 5 + 1, vj]")))
    assert workload.stages[0].loads[0].indices == (const(1), var("j"))


def test_inputs_that_nothing_reads_are_kept(check: Callable[..., Any]) -> None:
    signature = "U: B((3,)), A: B((4, 6)), C: B((4, 6))"
    program = function(COPY.format("A[vi, vj]"), signature)
    workload, module = import_module(program)
    assert [tensor.name for tensor in workload.inputs] == ["U", "A"]
    check(workload, text_of(module))


def test_a_function_from_relax() -> None:
    workload = check_imported(relax_convolution())
    assert [stage.combiner for stage in workload.stages] == [None, "add", None, None]


def test_indices_of_two_widths_are_put_together(backend: TVMBackend, target: Target) -> None:
    """TVM repeats (`tile`) in 64 bits what it concatenates in 32."""
    x = te.placeholder((16,), "float32", "X")
    made = topi.tile(topi.stack([x, topi.tanh(x)], 0), [2, 1])
    imported = backend.import_program(te.create_prim_func([x, made]))
    (candidate, *_) = sample_candidates(backend, imported.workload, target)
    check_candidate(backend, candidate, target, program=imported.program)
