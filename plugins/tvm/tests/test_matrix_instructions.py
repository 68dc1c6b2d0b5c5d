"""Declared fragments fit the matrix instructions that TVM writes and nvcc assembles."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm
from autotune_tvm.cuda_code import cuda_source, lower_kernels
from autotune_tvm.nvcc import kernel_resources
from tvm.script import tirx as T

from autotune.sketches.intrinsics import find_intrinsic
from autotune.targets import preset

# The names of TVM and of PTX for the types of the factors and of the sums.
INSTRUCTIONS = {
    "mma-m16n8k16": ("m16n8k16", "fp16", "fp32", "f16.f16"),
    "mma-m16n8k16-bf16": ("m16n8k16", "bf16", "fp32", "bf16.bf16"),
    "mma-m16n8k8-tf32": ("m16n8k8", "tf32", "fp32", "tf32.tf32"),
    "mma-m16n8k32-int8": ("m16n8k32", "int8", "int32", "s8.s8"),
}
ARCHITECTURES = ("sm_80", "sm_90a")


def program_of(name: str) -> Any:
    """A warp that multiplies what each lane holds: arrays are [32, elements of a lane]."""
    intrinsic = find_intrinsic(name)
    shape, factor, total, _ = INSTRUCTIONS[name]
    held = [operand.fragment.elements for operand in intrinsic.operands if operand.fragment]
    left, right, sums = held
    dtype, result = intrinsic.left.dtype, intrinsic.result.dtype

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def main(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (32, left), dtype)
        B = T.match_buffer(b, (32, right), dtype)
        C = T.match_buffer(c, (32, sums), result)
        for lane in T.thread_binding(32, "threadIdx.x"):
            with T.sblock("root"):
                T.reads(A[0:32, 0:left], B[0:32, 0:right], C[0:32, 0:sums])
                T.writes(C[0:32, 0:sums])
                x = T.alloc_buffer((left,), dtype, scope="local")
                y = T.alloc_buffer((right,), dtype, scope="local")
                z = T.alloc_buffer((sums,), result, scope="local")
                for i in range(left):
                    x[i] = A[lane, i]
                for i in range(right):
                    y[i] = B[lane, i]
                for i in range(sums):
                    z[i] = C[lane, i]
                T.evaluate(
                    T.ptx_legacy.mma(
                        shape,
                        "row",
                        "col",
                        factor,
                        factor,
                        total,
                        x.data,
                        0,
                        y.data,
                        0,
                        z.data,
                        0,
                        False,
                        dtype=result,
                    )
                )
                for i in range(sums):
                    C[lane, i] = z[i]

    return tvm.IRModule({"main": main.with_attr("global_symbol", "main")})


def source_of(name: str) -> str:
    target = preset("a100")
    return cuda_source(lower_kernels(program_of(name), target), target)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_fragments_have_the_registers_of_the_instruction(name: str) -> None:
    intrinsic = find_intrinsic(name)
    text = re.sub(r'"\s*"', "", source_of(name))
    written = re.search(r"mma\.sync\.aligned\.(\w+)\.row\.col\.\w+\.(\w+\.\w+)\.\w+", text)
    assert written is not None
    assert written.groups() == (INSTRUCTIONS[name][0], INSTRUCTIONS[name][3])
    groups = re.findall(r"\{([^{}]*)\}", text[written.end() :])[:4]
    found = [group.count("%") for group in groups]
    left, right, sums = (
        operand.fragment.registers(operand.dtype)
        for operand in intrinsic.operands
        if operand.fragment is not None
    )
    assert found == [sums, left, right, sums]


@pytest.mark.slow
@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_assembler_takes_them(name: str) -> None:
    architecture = ARCHITECTURES[list(INSTRUCTIONS).index(name) % 2]
    (kernel,) = kernel_resources(source_of(name), architecture)
    assert kernel.spill_stores == 0
