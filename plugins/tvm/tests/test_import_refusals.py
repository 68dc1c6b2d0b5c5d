"""TIR functions that no workload expresses are refused with the reason."""

from __future__ import annotations

import pytest
import tvm
from autotune_tvm.emit import module_for
from autotune_tvm.importer import import_module, module_from_text
from tir_functions import COPY, function
from tvm import te

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import gemm

INIT = """        with T.init():
            C[vi, vj] = T.float32(0)
"""
SUM = f"""
for i, j, k in T.grid(4, 6, 5):
    with T.sblock("sum"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
{INIT}        C[vi, vj] = C[vi, vj] + {{}}
"""


REFUSALS = {
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
        COPY.format('T.Cast("float32", T.Cast("int4", A[vi, vj]))'),
        r"block 'copy': dtype int4 is not one of",
    ),
    "loop-carried": (
        COPY.format("C[vi, vj] + A[vi, vj]"),
        r"block 'copy': it reads what it writes, 'C': loop-carried",
    ),
    "predicate": (
        COPY.format("A[vi, vj]").replace(
            "        C[", "        T.where(i * 6 + j < 20)\n        C["
        ),
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
        SUM.format("A[vi, vk]").replace(INIT, ""),
        r"block 'sum': it reduces without T.init\(\)",
    ),
    "update": (
        SUM.format("A[vi, vk]").replace("= C[vi, vj] +", "= C[vi, vj] * T.float32(2) +"),
        r"block 'sum': its update is not output = output",
    ),
    "identity": (
        SUM.format("A[vi, vk]").replace("T.float32(0)", "T.float32(1)"),
        r"block 'sum': it starts with 1.0, not the identity of 'add'",
    ),
    "ordered": (
        COPY.format("A[vi, vj]").replace(
            'vi, vj = T.axis.remap("SS", [i, j])',
            "vi = T.axis.scan(4, i)\n        vj = T.axis.spatial(6, j)",
        ),
        r"block 'copy': 'vi' is carried by its loop",
    ),
    "undefined": (
        'D = T.sblock_alloc_buffer((4, 6), "float32")' + COPY.format("D[vi, vj]"),
        r"block 'copy': it reads D.*, which is neither an input nor computed before it",
    ),
    "scope": (
        'D = T.sblock_alloc_buffer((4, 6), "float32", scope="shared")'
        + COPY.format("A[vi, vj]").replace("copy", "stage").replace("C[vi", "D[vi")
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
