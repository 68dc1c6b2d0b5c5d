"""The rewrite that pads a block's iteration space, alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.compiler import compile_module
from autotune_tvm.emit import module_for
from autotune_tvm.pad import pack_name, pad_module, padded_name, write_name

from autotune.targets import Target
from autotune.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    gemm,
    random_inputs,
    reference_outputs,
)


def padded(workload: Workload, stage: str, extents: dict[str, int]) -> tuple[Any, frozenset[str]]:
    return pad_module(module_for(workload), workload.stage(stage), stage, extents)


def check(module: Any, workload: Workload, target: Target) -> None:
    """The module computes the workload."""
    arrays = random_inputs(workload, np.random.default_rng(0))
    expected = reference_outputs(workload, arrays)
    inputs = [tvm.runtime.tensor(arrays[tensor.name]) for tensor in workload.inputs]
    outputs = [tvm.runtime.tensor(np.full_like(expected[name], -77)) for name in workload.outputs]
    compile_module(module, target, 1)["main"](*inputs, *outputs)
    for name, output in zip(workload.outputs, outputs, strict=True):
        np.testing.assert_allclose(output.numpy(), expected[name], rtol=2e-5, atol=2e-5)


def block_names(module: Any) -> list[str]:
    """Names of the blocks in the order of the program, without the root's."""
    names = []
    body = module["main"].body.block.body
    for nest in body.seq if isinstance(body, tvm.tirx.SeqStmt) else [body]:
        while isinstance(nest, tvm.tirx.For):
            nest = nest.body
        names.append(str(nest.block.name_hint))
    return names


def shapes(module: Any) -> dict[str, tuple[int, ...]]:
    """Extents of the buffers that the function allocates."""
    root = module["main"].body.block
    return {
        str(buffer.name): tuple(int(extent) for extent in buffer.shape)
        for buffer in root.alloc_buffers
    }


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
    module, copied = padded(workload, stage, extents)
    assert copied == operands
    names = block_names(module)
    assert stage in names and write_name(stage) in names
    assert {pack_name(stage, operand) for operand in operands} <= set(names)
    found = shapes(module)
    described = workload.stage(stage)
    result = tuple(extents.get(axis.name, axis.extent) for axis in described.spatial_axes)
    assert found[padded_name(stage, "result")] == result
    full = {**described.extents, **extents}
    for load in described.loads:
        if load.tensor in operands:
            reach = [form.bounds(full)[1] + 1 for form in described.access_map(load)]
            own = workload.tensors[load.tensor].shape
            expected = tuple(max(a, b) for a, b in zip(own, reach, strict=True))
            assert found[padded_name(stage, load.tensor)] == expected
    check(module, workload, target)


def test_operands_that_do_not_move_are_read_where_they_are() -> None:
    module, copied = padded(gemm(m=5, n=7, k=3), "C", {"i": 6})
    assert copied == {"A"}
    assert padded_name("C", "B") not in shapes(module)


def test_the_loops_run_to_the_new_extents() -> None:
    module, _ = padded(gemm(m=5, n=7, k=3), "C", {"i": 6, "j": 8})
    sch = tvm.s_tir.Schedule(module)
    loops = sch.get_loops(sch.get_sblock("C"))
    assert [int(sch.get(loop).extent) for loop in loops] == [6, 8, 3]
    back = sch.get_loops(sch.get_sblock(write_name("C")))
    assert [int(sch.get(loop).extent) for loop in back] == [5, 7]


def test_other_blocks_and_attributes_stay() -> None:
    workload = conv2d(h=5, w=5, ci=2, co=3, pad=1, bias=1, relu=1)
    module = module_for(workload)
    module = tvm.IRModule({"main": module["main"].with_attr("mark", "kept")})
    result, _ = pad_module(module, workload.stage("Y"), "Y", {"co": 8})
    assert str(result["main"].attrs["mark"]) == "kept"
    names = block_names(result)
    assert {"P", "Y", "Z", "R"} <= set(names)
    assert len(names) == len(set(names))


def test_the_module_given_is_left_alone() -> None:
    module = module_for(gemm(m=5, n=7, k=3))
    before = module.script()
    workload = gemm(m=5, n=7, k=3)
    pad_module(module, workload.stage("C"), "C", {"i": 6})
    assert module.script() == before


def test_a_block_under_another_name(target: Target) -> None:
    workload = gemm(m=5, n=7, k=3)
    text = tvm.ir.save_json(module_for(workload)).replace('"C"', '"C_block"', 1)
    module = tvm.ir.load_json(text)
    (name,) = block_names(module)
    result, _ = pad_module(module, workload.stage("C"), name, {"i": 6, "j": 8})
    assert block_names(result)[-2:] == [name, write_name("C")]
    check(result, workload, target)


@pytest.mark.parametrize("i", [5, 6, 8])
@pytest.mark.parametrize("j", [7, 8, 16])
def test_every_combination_of_extents(i: int, j: int, target: Target) -> None:
    workload = gemm(m=5, n=7, k=3)
    extents = {axis: extent for axis, extent, own in (("i", i, 5), ("j", j, 7)) if extent > own}
    if not extents:
        return
    module, copied = padded(workload, "C", extents)
    assert copied == {{"i": "A", "j": "B"}[axis] for axis in extents}
    check(module, workload, target)


def test_names_are_distinct() -> None:
    made = [
        f(stage, tensor)
        for f, stage, tensor in itertools.product((padded_name, pack_name), "YZ", "AB")
    ]
    assert len({*made, write_name("Y"), write_name("Z")}) == len(made) + 2
