"""Digests by which equal programs are recognised."""

from __future__ import annotations

import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import code_digest

from autotune.backends import BuildRequest
from autotune.ir.expressions import const, var
from autotune.ir.workloads import Workload, gemm
from autotune.sketches import Candidate, Ordinal, Sketch, Tile, UnrollLimit
from autotune.targets import Target

SMALL = gemm(m=48, n=64, k=32)


def digests(
    backend: TVMBackend, target: Target, candidate: Candidate | None, threads: int = 1
) -> tuple[str, str]:
    """Of the lowered program, and of the code."""
    lowered = backend.lower(BuildRequest(SMALL, None, candidate, target, threads))
    return lowered.digest, backend.compile(lowered).digest


def tiled(limit: int, tile: int, parameter: str = "limit") -> Candidate:
    """Rows in tiles, and a limit on unrolling: 32 iterations innermost, 2048 in two loops."""
    params = (Ordinal(parameter, (0, 16, 64, 1024, 4096)),)
    rows = SMALL.tensors["C"].shape[0]
    steps = (
        Tile("C", "i", (const(rows // tile), const(tile))),
        UnrollLimit("C", var(parameter)),
    )
    return Candidate(Sketch("tiled", SMALL, params, (), steps), (limit,))


def test_limits_on_unrolling_leave_printed_programs_as_they_are(
    backend: TVMBackend, target: Target
) -> None:
    """Loops are expanded by what that makes of them."""
    assert len({digests(backend, target, tiled(limit, 4)) for limit in (0, 64, 4096)}) == 1


def test_names_of_parameters_make_no_difference(backend: TVMBackend, target: Target) -> None:
    first, second = tiled(0, 4), tiled(0, 4, parameter="unrolled")
    assert first.digest == second.digest
    assert digests(backend, target, first) == digests(backend, target, second)


def test_values_threads_and_processors_do(backend: TVMBackend, target: Target) -> None:
    candidate = tiled(0, 4)
    found = [
        digests(backend, target, candidate),
        digests(backend, target, tiled(0, 2)),
        digests(backend, evolve(target, processor="x86-64"), candidate),
    ]
    lowered, code = zip(*found, strict=True)
    assert len(set(lowered)) == len(set(code)) == 3
    assert digests(backend, target, candidate, threads=2)[0] != found[0][0]


ONE = """\
define i32 @main(ptr %args) {
entry:
    #dbg_value(ptr %args, !11, !DIExpression(), !15)
  %sum = add i32 %x, 512, !dbg !15, !tbaa !20
  br label %for_body
for_body:                                       ; preds = %entry
  store i32 %sum, ptr %"odd name", !tbaa !21
}
!11 = !DILocalVariable(name: "args")
!20 = !{!"0x55f1.w16.b0", !21, i64 0}
!21 = !{!"0x55f2", i64 0}
"""
SAME = (
    ("another address", "0x55f1", "0x7aaa"),
    ("for a debugger", '"args"', '"arguments"'),
    ("another place", "!dbg !15", "!dbg !16"),
    ("another node", "!21", "!33"),
    ("a remark", "preds = %entry", "preds = %entry, %other"),
)
DIFFERENT = (
    ("constant", "512", "513"),
    ("operation", "add", "sub"),
    ("symbol", "@main", "@other"),
    ("operand", "i32 %x", "i32 %sum"),
    ("overlap", "!tbaa !21", "!tbaa !20"),
    ("one variable", "0x55f2", "0x55f1"),
    ("width", "w16", "w32"),
)


@pytest.mark.parametrize(("what", "old", "new"), SAME, ids=lambda value: str(value)[:12])
def test_what_machine_code_does_not_depend_on(what: str, old: str, new: str) -> None:
    assert ONE.count(old), what
    assert code_digest(ONE.replace(old, new)) == code_digest(ONE)


@pytest.mark.parametrize(("what", "old", "new"), DIFFERENT, ids=lambda value: str(value)[:12])
def test_what_it_depends_on(what: str, old: str, new: str) -> None:
    assert ONE.count(old), what
    assert code_digest(ONE.replace(old, new)) != code_digest(ONE)


def test_a_workload_of_its_own_kind(backend: TVMBackend, target: Target) -> None:
    def digest(workload: Workload) -> str:
        return backend.lower(BuildRequest(workload, None, None, target, 1)).digest

    assert digest(gemm(m=4, n=8, k=2)) != digest(gemm(m=4, n=2, k=8))
