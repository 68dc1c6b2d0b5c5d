"""Constants that schedules pack: packed when a program is bound, and no part of what is timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from autotune_mlir import bindings
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.parsing import parse_payload
from autotune_mlir.passes import split_packing as packing

from autotune.backends import BuildRequest, InvalidSchedule, bind_copies
from autotune.ir.expressions import Load, Unary, var
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    attention,
    conv2d,
    dense,
    gemm,
    random_inputs,
    reference_outputs,
)
from autotune.measure.validation import expectations, mismatch
from autotune.sketches import Candidate, Prepack, names_used, prepacked_operands
from autotune.targets import Target
from autotune.testing.programs import check_candidate, check_program, sample_candidates

WORKLOADS = {
    "gemm": gemm(m=20, n=40, k=24).with_constants("B"),
    "dense": dense(m=20, n=40, k=24).with_constants("W"),
    "dense of one row": dense(m=1, n=40, k=24).with_constants("W"),
    "conv2d": conv2d(n=1, h=8, w=8, ci=16, co=24, kh=3, kw=3).with_constants("W"),
}
# Rows of %a into the buffer, and the sum of the buffer's and of %b into the result.
PROGRAM = """
func.func @kernel(%a: memref<4x8xf32>, %b: memref<4x8xf32>, %c: memref<4x8xf32>) {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %buffer = memref.alloc() : memref<4x1x8xf32>
  %view = memref.collapse_shape %buffer [[0, 1], [2]] : memref<4x1x8xf32> into memref<4x8xf32>
  scf.for %i = %zero to %four step %one {{
    %x = vector.transfer_read %{packed}[%i, %zero], %pad : memref<4x8xf32>, vector<8xf32>
    vector.transfer_write %x, %view[%i, %zero] : vector<8xf32>, memref<4x8xf32>
  }}
  scf.for %i = %zero to %four step %one {{
    %x = vector.transfer_read %view[%i, %zero], %pad : memref<4x8xf32>, vector<8xf32>
    %y = vector.transfer_read %{other}[%i, %zero], %pad : memref<4x8xf32>, vector<8xf32>
    %z = arith.addf %x, %y : vector<8xf32>
    vector.transfer_write %z, %{written}[%i, %zero] : vector<8xf32>, memref<4x8xf32>
  }}
  memref.dealloc %buffer : memref<4x1x8xf32>
  return
}}
"""


def ahead(candidates: list[Candidate]) -> list[Candidate]:
    """Those whose programs are given packed operands."""
    return [candidate for candidate in candidates if prepacked_operands(candidate)]


def in_every_call(candidate: Candidate, target: Target) -> BuildRequest:
    """The same schedule of the workload without constants."""
    workload = candidate.sketch.workload.with_constants()
    steps = tuple(step for step in candidate.sketch.steps if not isinstance(step, Prepack))
    sketch = evolve(candidate.sketch, workload=workload, steps=steps)
    return BuildRequest(workload, None, evolve(candidate, sketch=sketch), target, 1)


@pytest.mark.parametrize("name", WORKLOADS)
def test_programs_that_are_given_packed_constants_are_right(
    name: str, backend: MLIRBackend, target: Target
) -> None:
    workload = WORKLOADS[name]
    candidates = ahead(sample_candidates(backend, workload, target))
    assert candidates
    for candidate in candidates:
        executable = backend.build(BuildRequest(workload, None, candidate, target, 2))
        # Of each binding's own constants, although a program packs them once only.
        for seed in (0, 1):
            inputs = random_inputs(workload, np.random.default_rng(seed))
            references = reference_outputs(workload, inputs)
            call = bind_copies(executable, workload, list(inputs.values()))
            call.poison()
            call.run()
            wanted = expectations(workload, [references[it] for it in workload.outputs])
            assert mismatch(wanted, call.outputs()) is None, candidate.sketch.name
            assert len(call.copies()) == 1


def test_two_constants_are_packed_of_which_one_is_transposed(
    backend: MLIRBackend, target: Target
) -> None:
    """Rows of 17 elements are transposed one by one, and not in vectors."""
    workload = attention(h=1, n=12, m=20, d=17).with_constants("K", "V")
    both = [
        candidate
        for candidate in sample_candidates(backend, workload, target)
        if len(prepacked_operands(candidate)) == 2
    ]
    assert both
    check_candidate(backend, both[0], target)


def test_operands_are_packed_with_another_dimension_innermost(
    backend: MLIRBackend, target: Target
) -> None:
    """In every call, where they are no constants."""
    workload = WORKLOADS["dense"]
    for candidate in ahead(sample_candidates(backend, workload, target)):
        assert "pack.whole_transposed" in names_used(candidate.sketch)
        check_program(backend, in_every_call(candidate, target))


def test_what_is_inlined_into_a_transposed_copy_has_loops_of_its_own(
    backend: MLIRBackend, target: Target
) -> None:
    """It is computed before, as what is inlined into other copies of whole operands is."""
    plain = dense(m=16, n=40, k=32, bias=0, relu=0)
    axes = (Axis("a", 40), Axis("b", 32))
    body = Unary("exp", Load("V", (var("a"), var("b"))))
    weights = Stage(Tensor("W", (40, 32), "float32"), axes, body)
    inputs = (plain.inputs[0], Tensor("V", (40, 32), "float32"))
    workload = evolve(plain, inputs=inputs, stages=(weights, *plain.stages))
    wanted = {"inline.into_whole_copy", "pack.whole_transposed"}
    found = [
        candidate
        for candidate in sample_candidates(backend, workload, target)
        if wanted <= names_used(candidate.sketch)
    ]
    assert found
    for candidate in found:
        check_candidate(backend, candidate, target)
        text = backend.show(BuildRequest(workload, None, candidate, target, 1))
        assert "linalg.generic" not in text and "math.exp" in text


def test_a_program_that_is_shown_packs_what_it_is_given(
    backend: MLIRBackend, target: Target
) -> None:
    workload = WORKLOADS["gemm"]
    (candidate, *_) = ahead(sample_candidates(backend, workload, target))
    shown = backend.show(BuildRequest(workload, None, candidate, target, 1))
    assert shown == backend.show(in_every_call(candidate, target))


def test_only_constants_of_one_reader_are_given_packed(
    backend: MLIRBackend, target: Target
) -> None:
    workload = WORKLOADS["gemm"]
    (candidate, *_) = ahead(sample_candidates(backend, workload, target))
    plain = workload.with_constants()
    sketch = evolve(candidate.sketch, workload=plain)
    request = BuildRequest(plain, None, evolve(candidate, sketch=sketch), target, 1)
    with pytest.raises(InvalidSchedule, match="no constant"):
        backend.build(request)


def split(position: int, packed: str = "a", other: str = "b", written: str = "c") -> Any:
    """The two programs that the one above is split into, as texts."""
    module = parse_payload(PROGRAM.format(packed=packed, other=other, written=written))
    ir = bindings.load().ir
    with module.context, ir.Location.unknown():
        made = packing.split_packing(ir, module, position)
        assert module.operation.verify() and made.module.operation.verify()
    return made, str(module), str(made.module)


def test_a_program_is_split_in_two() -> None:
    made, kernel, packer = split(0)
    assert (made.position, made.shape) == (0, (4, 1, 8))
    assert kernel.count("scf.for") == packer.count("scf.for") == 1
    assert "@kernel(%arg0: memref<4x1x8xf32>, %arg1: memref<4x8xf32>, %arg2" in kernel
    assert "@kernel(%arg0: memref<4x8xf32>, %arg1: memref<4x1x8xf32>)" in packer
    assert "alloc" not in kernel + packer
    assert "arith.addf" in kernel and "arith.addf" not in packer


def test_what_reads_a_packed_operand_outside_of_loops_is_no_part_of_packing() -> None:
    text = """
func.func @kernel(%a: memref<8xf32>, %c: memref<8xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %eight = arith.constant 8 : index
  %pad = arith.constant 0.0 : f32
  %buffer = memref.alloc() : memref<8xf32>
  scf.for %i = %zero to %eight step %one {
    %x = memref.load %a[%i] : memref<8xf32>
    %n = arith.negf %x : f32
    memref.store %n, %buffer[%i] : memref<8xf32>
  }
  %y = vector.transfer_read %buffer[%zero], %pad : memref<8xf32>, vector<8xf32>
  %z = arith.addf %y, %y : vector<8xf32>
  vector.transfer_write %z, %c[%zero] : vector<8xf32>, memref<8xf32>
  return
}
"""
    module = parse_payload(text)
    with module.context, bindings.load().ir.Location.unknown():
        made = packing.split_packing(bindings.load().ir, module, 0)
    assert module.operation.verify() and made.module.operation.verify()
    assert "arith.addf" in str(module) and "arith.negf" not in str(module)
    assert "arith.negf" in str(made.module) and "arith.addf" not in str(made.module)


@pytest.mark.parametrize(
    ("position", "names", "reason"),
    [
        (1, {}, "nothing packs all of argument 1 alone"),
        (0, {"other": "a"}, "nothing packs all of argument 0 alone"),
        (0, {"written": "view"}, "the packed argument 0 is written again"),
    ],
)
def test_what_does_more_than_pack_is_not_split(
    position: int, names: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidSchedule, match=reason):
        split(position, **names)
