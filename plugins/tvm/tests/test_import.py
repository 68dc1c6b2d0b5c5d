"""TIR functions become workloads, or are refused with the reason."""

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
from autotune_tvm.passes import narrow_indices
from made_workloads import ROUND_TRIPS
from relax_programs import relax_convolution
from tvm import te, tirx, topi

from autotune.backends import BuildRequest
from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Binary, Load, Select, Unary, const, var
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Workload, gemm
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target
from autotune.testing.programs import check_candidate, sample_candidates


def function(body: str, signature: str = "A: B((4, 6)), C: B((4, 6))") -> Any:
    """A TIR function from the lines of its body; ``B(shape)`` is a float32 buffer."""
    typed = signature.replace("B((", "T.Buffer((").replace("))", '), "float32")')
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return tvm.script.from_source(f"@T.prim_func(s_tir=True)\ndef f({typed}):\n{lines}\n")


COPY = """
for i, j in T.grid(4, 6):
    with T.sblock("copy"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = {}
"""


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


def test_an_output_first_and_loops_in_another_order(check: Callable[..., Any]) -> None:
    program = function(TRANSPOSED, "C: B((48, 40)), A: B((37, 40)), B_: B((37, 48))")
    workload, module = import_module(program)
    assert [tensor.name for tensor in workload.inputs] == ["A", "B_"]
    assert argument_names(module) == ("C", "A", "B_")
    assert [axis.name for axis in workload.stages[0].axes] == ["j", "i", "k"]
    assert workload.stages[0].loads[0] == Load("A", (var("k"), var("i")))
    check(workload, text_of(module))


def test_a_schedule_brings_loops_into_the_order_of_the_axes(
    backend: TVMBackend, target: Target, check: Callable[..., Any]
) -> None:
    program = function(TRANSPOSED, "C: B((48, 40)), A: B((37, 40)), B_: B((37, 48))")
    workload, module = import_module(program)
    for candidate in sample_candidates(backend, workload, target, 2):
        check(workload, text_of(module), candidate)


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


def test_a_function_from_relax(
    backend: TVMBackend, target: Target, check: Callable[..., Any]
) -> None:
    imported = backend.import_program(relax_convolution())
    workload = imported.workload
    assert [stage.combiner for stage in workload.stages] == [None, "add", None, None]
    check(workload, imported.program)
    for candidate in sample_candidates(backend, workload, target):
        check(workload, imported.program, candidate)


def test_indices_are_narrowed_where_they_fit() -> None:
    module = import_module(relax_convolution())[1]
    assert "T.int64" in module.script()
    assert "T.int64" not in narrow_indices(module, module).script()
    narrow = import_module(module_for(gemm(m=3, n=4, k=5)))[1]
    assert narrow_indices(narrow, narrow).same_as(narrow)


def test_indices_of_two_widths_are_put_together(backend: TVMBackend, target: Target) -> None:
    """TVM repeats (`tile`) in 64 bits what it concatenates in 32."""
    x = te.placeholder((16,), "float32", "X")
    made = topi.tile(topi.stack([x, topi.tanh(x)], 0), [2, 1])
    imported = backend.import_program(te.create_prim_func([x, made]))
    (candidate, *_) = sample_candidates(backend, imported.workload, target)
    check_candidate(backend, candidate, target, program=imported.program)


def test_replay_applies_to_the_imported_function(backend: TVMBackend, target: Target) -> None:
    program = function(TRANSPOSED, "C: B((48, 40)), A: B((37, 40)), B_: B((37, 48))")
    imported = backend.import_program(program.with_attr("mark", "kept"))
    space = SketchSpace(imported.workload, target, backend.limits(target))
    candidate = next(iter(space.sample(1, np.random.default_rng(0))))
    request = BuildRequest(
        workload=imported.workload,
        program=imported.program,
        candidate=candidate,
        target=target,
        threads=1,
    )
    shown = backend.show(request)
    assert '"mark": "kept"' in shown
    assert "T.vectorized" in shown


SUM = """
for i, j, k in T.grid(4, 6, 5):
    with T.sblock("sum"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        with T.init():
            C[vi, vj] = T.float32(0)
        C[vi, vj] = C[vi, vj] + {}
"""


REFUSALS = {
    "indirect sum": (
        SUM.format('A[vi, T.Cast("int32", A[vi, vk])]'),
        r"block 'sum': it reduces, and index 1 of its read of 'A' is not computed from axes",
    ),
    "beyond the end": (
        COPY.format("A[vi, vj + 1]"),
        r"block 'copy': index 1 of its read of 'A' runs from 1 to 6, of 6 elements: \(j \+ 1\)",
    ),
    "before the start of a sum": (
        SUM.format("A[vi, (vk - 3) // 2]"),
        r"block 'sum': index 1 of its read of 'A' runs from -2 to 0, of 6 elements",
    ),
    "views of one buffer": (
        'B = T.decl_buffer((24,), "float32", data=A.data)' + COPY.format("B[vi * 6 + vj]"),
        r"buffer 'B' is another view of a buffer's data",
    ),
    "a view in a block": (
        COPY.replace(
            "        C[vi, vj]", "        B = T.match_buffer(A[vi, vj], ())\n        C[vi, vj]", 1
        ).format("B[()]"),
        r"block 'copy': it matches or allocates buffers",
    ),
    "a divisor that varies in a sum": (
        SUM.format("A[vi, vk // (vi + 1)]"),
        r"block 'sum': it reduces, and index 1 .* from axes by \+, \*, // and % with constants",
    ),
    "beside": (
        COPY.format('A[vi, T.Cast("int32", A[vi, vj]) + 6]'),
        r"stage 'C' reads beside 'A', also where all indices given are 0",
    ),
    "call": (
        COPY.format("T.tan(A[vi, vj])"),
        r"block 'copy': calls of tirx.tan are not supported",
    ),
    "expression": (
        COPY.format('T.Cast("float32", vi << vj)'),
        r"block 'copy': LShift expressions are not supported",
    ),
    "dtype": (
        COPY.format('T.Cast("float32", T.Cast("int16", A[vi, vj]))'),
        r"block 'copy': dtype int16 is not one of",
    ),
    "loop-carried": (
        COPY.format("C[vi, vj] + A[vi, vj]"),
        r"block 'copy': it reads what it writes, 'C': loop-carried",
    ),
    "predicate": (
        """
for i, j in T.grid(4, 6):
    with T.sblock("copy"):
        vi, vj = T.axis.remap("SS", [i, j])
        T.where(i * 6 + j < 20)
        C[vi, vj] = A[vi, vj]
""",
        r"block 'copy': it runs under a predicate \(T.where\)",
    ),
    "several writes": (
        COPY.format("A[vi, vj]") + COPY.format("A[vi, vj]").replace("copy", "again"),
        r"block 'again' writes 'C', which block 'copy' wrote before: several writes",
    ),
    "opaque": (
        """
for i in range(4):
    with T.sblock("outer"):
        vi = T.axis.spatial(4, i)
        for j in range(6):
            with T.sblock("inner"):
                vj = T.axis.spatial(6, j)
                C[vi, vj] = A[vi, vj]
""",
        r"block 'outer' holds For, not one store",
    ),
    "opaque block": (
        """
for i in range(4):
    with T.sblock("outer"):
        vi = T.axis.spatial(4, i)
        with T.sblock("inner"):
            C[vi, 0] = A[vi, 0]
""",
        r"block 'outer' holds an opaque block, not one store",
    ),
    "two blocks in a loop": (
        """
D = T.sblock_alloc_buffer((4, 6), "float32")
for i in range(4):
    for j in range(6):
        with T.sblock("first"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = A[vi, vj]
    for j in range(6):
        with T.sblock("second"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = D[vi, vj]
""",
        r"inside loop 'i' there is SeqStmt of blocks 'first', 'second', not one block",
    ),
    "fused loop": (
        """
for f in range(24):
    with T.sblock("copy"):
        vi = T.axis.spatial(4, f // 6)
        vj = T.axis.spatial(6, f % 6)
        C[vi, vj] = A[vi, vj]
""",
        r"block 'copy': 'vi' is bound to f // 6, not to a loop of its own",
    ),
    "scheduled": (
        COPY.format("A[vi, vj]")
        .replace("for i, j in T.grid(4, 6)", "for i in T.parallel(4)")
        .replace('    with T.sblock("copy"', '    for j in range(6):\n     with T.sblock("copy"'),
        r"block 'copy': loop 'i' is not serial: it was scheduled already",
    ),
    "loop start": (
        """
for i, j in T.grid(4, 6):
    for k in range(1, 4):
        with T.sblock("sum"):
            vi, vj = T.axis.remap("SS", [i, j])
            vk = T.axis.reduce(4, k)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk]
""",
        r"block 'sum': the loop of 'vk' does not start at 0",
    ),
    "part": (
        COPY.format("A[vi, vj]").replace("T.grid(4, 6)", "T.grid(4, 5)"),
        r"block 'copy': it writes a part of 'C' only",
    ),
    "write index": (
        COPY.format("A[vi, vj]").replace("C[vi, vj]", "C[vi, 5 - vj]"),
        r"block 'copy': index 1 of its write is 5 - vj, not a spatial axis of its own",
    ),
    "no init": (
        """
for i, j, k in T.grid(4, 6, 5):
    with T.sblock("sum"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        C[vi, vj] = C[vi, vj] + A[vi, vk]
""",
        r"block 'sum': it reduces without T.init\(\)",
    ),
    "update": (
        """
for i, j, k in T.grid(4, 6, 5):
    with T.sblock("sum"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        with T.init():
            C[vi, vj] = T.float32(0)
        C[vi, vj] = C[vi, vj] * T.float32(2) + A[vi, vk]
""",
        r"block 'sum': its update is not output = output",
    ),
    "identity": (
        """
for i, j, k in T.grid(4, 6, 5):
    with T.sblock("sum"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        with T.init():
            C[vi, vj] = T.float32(1)
        C[vi, vj] = C[vi, vj] + A[vi, vk]
""",
        r"block 'sum': T.init\(\) stores 1.0, not the identity of 'add'",
    ),
    "ordered": (
        """
for i, j in T.grid(4, 6):
    with T.sblock("scan"):
        vi = T.axis.scan(4, i)
        vj = T.axis.spatial(6, j)
        C[vi, vj] = A[vi, vj]
""",
        r"block 'scan': 'vi' is carried by its loop",
    ),
    "undefined": (
        """
D = T.sblock_alloc_buffer((4, 6), "float32")
for i, j in T.grid(4, 6):
    with T.sblock("copy"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = D[vi, vj]
""",
        r"block 'copy': it reads D.*, which is neither an input nor computed before it",
    ),
    "scope": (
        """
D = T.sblock_alloc_buffer((4, 6), "float32", scope="shared")
for i, j in T.grid(4, 6):
    with T.sblock("stage"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = A[vi, vj]
"""
        + COPY.format("D[vi, vj]"),
        r"block 'stage' lives in scope 'shared'",
    ),
}


@pytest.mark.parametrize(("body", "reason"), REFUSALS.values(), ids=REFUSALS.keys())
def test_refusals(body: str, reason: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=reason):
        import_module(function(body))


def test_a_dynamic_shape_is_refused() -> None:
    n = te.var("n")
    a = te.placeholder((n, 6), name="A")
    c = te.compute((n, 6), lambda i, j: a[i, j] + 1.0, name="C")
    with pytest.raises(UnsupportedWorkload, match="parameter 'A' has a dynamic shape"):
        import_module(te.create_prim_func([a, c]))


def test_a_strided_buffer_is_refused() -> None:
    text = COPY.format("A[vi, vj]")
    signature = 'A: T.Buffer((4, 6), "float32", strides=[12, 1]), C: B((4, 6))'
    with pytest.raises(UnsupportedWorkload, match="parameter 'A' is strided"):
        import_module(function(text, signature))


def test_a_lowered_function_is_refused() -> None:
    module = module_for(gemm(m=3, n=4, k=5))
    lowered = tvm.s_tir.transform.LowerOpaqueBlock()(
        tvm.s_tir.transform.ConvertBlocksToOpaque()(tvm.s_tir.transform.LowerInitBlock()(module))
    )
    with pytest.raises(UnsupportedWorkload, match="not one block|lowered already"):
        import_module(lowered)


def test_two_functions_are_refused() -> None:
    one = module_for(gemm(m=3, n=4, k=5))["main"]
    module = tvm.IRModule({"a": one, "b": one})
    with pytest.raises(UnsupportedWorkload, match=r"2 functions \(a, b\), not one"):
        import_module(module)
    with pytest.raises(UnsupportedWorkload, match="0 functions"):
        import_module(tvm.IRModule())


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"root_index": 0}', "import os"])
def test_text_that_is_no_program(text: str) -> None:
    with pytest.raises(UnsupportedWorkload, match="not a TVM"):
        module_from_text(text)
