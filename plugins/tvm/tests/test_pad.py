"""Padding a block's iteration space with schedule primitives, alone."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from autotune_tvm.emit import module_for
from autotune_tvm.schedule_state import PaddedBlock, pad_block
from tvm import s_tir
from tvm_programs import check_module

from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    gemm,
)
from autotune.targets import Target


def padded(
    workload: Workload, stage: str, extents: dict[str, int], block: str | None = None
) -> tuple[Any, Any, PaddedBlock]:
    """The schedule, the padded block, and what padding added."""
    sch = s_tir.Schedule(module_for(workload))
    main = sch.get_sblock(block or stage)
    return sch, main, pad_block(sch, main, workload.stage(stage), extents, {})


def shape(sch: Any, block: Any) -> tuple[int, ...]:
    """Shape of the buffer that a block writes."""
    return tuple(int(extent) for extent in sch.get(block).writes[0].source.shape)


def extents_of(sch: Any, block: Any) -> list[int]:
    return [int(sch.get(loop).extent) for loop in sch.get_loops(block)]


CASES = [
    (gemm(m=5, n=7, k=3), "C", {"i": 6}, {"A"}),
    (gemm(m=5, n=7, k=3), "C", {"j": 16}, {"B"}),
    (gemm(m=5, n=7, k=3), "C", {"i": 8, "j": 16}, {"A", "B"}),
    (gemm(m=5, n=7, k=3), "C", {"k": 4}, {"A", "B"}),
    (gemm(m=5, n=7, k=3, dtype="int8"), "C", {"i": 8, "j": 16}, {"A", "B"}),
    (batch_matmul(b=2, m=3, n=5, k=4), "C", {"i": 4, "j": 8}, {"A", "B"}),
    (dense(m=3, n=5, k=4), "Y", {"i": 4, "j": 8}, {"X", "W"}),
    (conv2d(h=9, w=8, ci=3, co=5), "Y", {"co": 8}, {"W"}),
    (conv2d(h=9, w=8, ci=3, co=5, stride=2), "Y", {"ho": 6, "wo": 5}, {"X"}),
    (conv2d(h=9, w=8, ci=3, co=5, stride=2, kh=1, kw=1), "Y", {"wo": 5}, {"X"}),
    (conv2d(h=8, w=8, ci=3, co=5, stride=3, kh=1, kw=1), "Y", {"wo": 4}, {"X"}),
    (conv2d(h=9, w=8, ci=3, co=5, dilation=2), "Y", {"ho": 7, "co": 16}, {"X", "W"}),
    (conv2d(h=9, w=8, ci=3, co=5, pad=1, bias=1, relu=1), "Y", {"wo": 10}, {"P"}),
    (depthwise_conv2d(h=7, w=6, c=5, pad=1), "Y", {"c": 8, "ho": 8}, {"P", "W"}),
]


@pytest.mark.parametrize(
    ("workload", "stage", "extents", "operands"),
    CASES,
    ids=[f"{workload.name} {extents}" for workload, _, extents, _ in CASES],
)
def test_padding_changes_the_extents_and_not_the_result(
    workload: Workload, stage: str, extents: dict[str, int], operands: set[str], target: Target
) -> None:
    sch, main, added = padded(workload, stage, extents)
    assert set(added.copies) == operands
    described = workload.stage(stage)
    full = {**described.extents, **extents}
    assert extents_of(sch, main) == list(full.values())
    assert shape(sch, main) == tuple(full[axis.name] for axis in described.spatial_axes)
    assert extents_of(sch, added.write) == list(described.output.shape)
    for load in described.loads:
        if load.tensor in operands:
            reach = [form.bounds(full)[1] + 1 for form in described.access_map(load)]
            own = workload.tensors[load.tensor].shape
            expected = tuple(max(a, b) for a, b in zip(own, reach, strict=True))
            assert shape(sch, added.copies[load.tensor]) == expected
    check_reads(sch, main)
    check_module(sch.mod, workload, target)
    # The trace alone makes it again.
    again = s_tir.Schedule(module_for(workload))
    s_tir.schedule.Trace.apply_json_to_schedule(sch.trace.as_json(), again)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def check_reads(sch: Any, main: Any) -> None:
    """Declarations made for TVM's sake while padding are gone afterwards."""
    block = sch.get(main)
    assert "explicit_read_region" not in block.annotations
    buffers = {region.source.name: region.source for region in (*block.reads, *block.writes)}
    reads, writes = s_tir.analysis.get_sblock_read_write_region(
        block, {buffer: buffer for buffer in buffers.values()}
    )
    for declared, found in ((block.reads, reads), (block.writes, writes)):
        assert sorted(map(str, declared)) == sorted(map(str, found))


def test_operands_that_do_not_move_are_read_where_they_are() -> None:
    sch, main, added = padded(gemm(m=5, n=7, k=3), "C", {"i": 6})
    assert set(added.copies) == {"A"}
    assert "B" in [str(read.source.name) for read in sch.get(main).reads]


def test_other_blocks_and_attributes_stay() -> None:
    workload = conv2d(h=5, w=5, ci=2, co=3, pad=1, bias=1, relu=1)
    module = module_for(workload)
    sch = s_tir.Schedule(tvm.IRModule({"main": module["main"].with_attr("mark", "kept")}))
    pad_block(sch, sch.get_sblock("Y"), workload.stage("Y"), {"co": 8}, {})
    assert str(sch.mod["main"].attrs["mark"]) == "kept"
    for stage in workload.stages:
        sch.get_sblock(stage.name)


def test_a_buffer_under_another_name(target: Target) -> None:
    workload = gemm(m=5, n=7, k=3)
    text = tvm.ir.save_json(module_for(workload)).replace('"A"', '"left"')
    sch = s_tir.Schedule(tvm.ir.load_json(text))
    extents = {"i": 6, "j": 8}
    pad_block(sch, sch.get_sblock("C"), workload.stage("C"), extents, {"A": "left"})
    check_module(sch.mod, workload, target)
