"""The derived nest against what MLIR makes of the same schedule."""

from __future__ import annotations

import pytest
from autotune_mlir.emit import payload
from autotune_mlir.lowered import COMPUTED, LoweredStatement, lowered_nest

from autotune.backends import InvalidSchedule
from autotune.workloads import gemm, softmax


def test_a_program_without_a_schedule() -> None:
    lowered = lowered_nest(payload(softmax(m=5, n=7)), None)
    assert [(it.role, it.name, it.iterations) for it in lowered.statements] == [
        ("init", "M", (5,)),
        ("compute", "M", (5, 7)),
        ("compute", "E", (5, 7)),
        ("init", "S", (5,)),
        ("compute", "S", (5, 7)),
        ("compute", "Y", (5, 7)),
    ]
    assert {it.loops for it in lowered.statements} == {()}
    assert sorted(buffer.shape for buffer in lowered.buffers) == [(5,), (5,), (5, 7)]


def script(*sizes: list[int], name: str = "structure") -> str:
    """Rows and columns on several threads, and inside of them one loop after the other."""
    lines = [
        "%C = transform.structured.match attributes {autotune.stage = "
        '"C"} in %root : (!transform.any_op) -> !transform.any_op',
        "%tile0, %all = transform.structured.tile_using_forall %C tile_sizes [4, 8, 0] "
        ": (!transform.any_op) -> (!transform.any_op, !transform.any_op)",
        "%init = transform.structured.match attributes {autotune.init = "
        '"C"} in %root : (!transform.any_op) -> !transform.any_op',
        "transform.structured.fuse_into_containing_op %init into %all : "
        "(!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)",
    ]
    for number, size in enumerate(sizes):
        lines.append(
            f"%tile{number + 1}, %loop{number} = transform.structured.tile_using_for "
            f"%tile{number} tile_sizes {size} "
            ": (!transform.any_op) -> (!transform.any_op, !transform.any_op)"
        )
    body = "\n".join([*lines, "transform.yield"])
    return (
        "module attributes {transform.with_named_sequence} {\n"
        f"transform.named_sequence @{name}(%root: !transform.any_op {{transform.readonly}}) {{\n"
        f"{body}\n}}\n}}\n"
    )


PROGRAM = payload(gemm(m=8, n=24, k=6))


def test_loops_of_a_script_by_hand() -> None:
    lowered = lowered_nest(PROGRAM, script([0, 8, 0], [0, 0, 2]))
    # The two dimensions of the parallel loop are one; the loop over columns has one iteration.
    assert lowered.statements == (
        LoweredStatement("init", "C", (6,), (4, 8)),
        LoweredStatement("compute", "C", (6, 3), (4, 8, 2)),
    )
    assert lowered.buffers == ()


def test_a_tile_that_does_not_divide() -> None:
    lowered = lowered_nest(PROGRAM, script([0, 0, 4]))
    assert lowered.statements[-1] == LoweredStatement("compute", "C", (6, 2), (4, 8, COMPUTED))
    with pytest.raises(ValueError, match="computed"):
        lowered_nest(PROGRAM, script([0, 0, 4], [0, 0, 2]))


def test_a_script_without_the_sequence() -> None:
    with pytest.raises(InvalidSchedule, match="@structure"):
        lowered_nest(PROGRAM, script(name="loops"))
