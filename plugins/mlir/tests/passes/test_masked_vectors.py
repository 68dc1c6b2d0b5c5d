"""Masked vectors on processors that have no masks for their elements."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from autotune_mlir import bindings, host
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.parsing import parse_payload
from autotune_mlir.passes.masked_vectors import split_masked
from mlir_schedules import candidates

from autotune.ir.workloads import gemm
from autotune.sketches import Candidate
from autotune.targets import Target, preset
from autotune.testing.programs import check_candidate, request_for

AVX2 = preset("avx2").with_cores(1)


def here(target: Target) -> Target:
    """This machine without what AVX2 lacks."""
    return evolve(AVX2, features=tuple(sorted({*AVX2.features} & {*target.features})))


def test_processors_have_masks() -> None:
    names = ("avx512", "avx2", "sse2")
    known = {name: host.vector_instructions(preset(name)).least_masked_bits for name in names}
    assert known == {"avx512": 8, "avx2": 32, "sse2": 128}


TEXT = """
func.func @kernel(%x: memref<9x40x{kind}>, %y: memref<9x40x{kind}>, %i: index, %j: index) {{
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : {kind}
  %mask = vector.create_mask %i, %j : vector<1x16xi1>
  %r = vector.transfer_read %x[%i, %j], %zero{read} {{in_bounds = [true, {inside}]}}
    : memref<9x40x{kind}>, vector<1x16x{kind}>
  vector.transfer_write %r, %y[%i, %j], %mask {{in_bounds = [true, {inside}]}}
    : vector<1x16x{kind}>, memref<9x40x{kind}>
  return
}}
"""


@pytest.mark.parametrize(
    ("kind", "bits", "inside", "read", "choices"),
    [
        ("bf16", 32, "true", ", %mask", 2),
        ("f32", 128, "true", ", %mask", 2),
        ("bf16", 32, "true", "", 1),
        ("f32", 32, "true", ", %mask", 0),
        ("bf16", 8, "true", ", %mask", 0),
        ("bf16", 32, "false", ", %mask", 0),
    ],
)
def test_a_choice_is_made_where_the_processor_has_no_masks(
    kind: str, bits: int, inside: str, read: str, choices: int
) -> None:
    ir = bindings.load().ir
    module = parse_payload(TEXT.format(kind=kind, inside=inside, read=read))
    with module.context, ir.Location.unknown():
        split_masked(ir, transfers(module), bits)
        assert module.operation.verify()
    found = [operation for operation in everything(module) if operation.name == "scf.if"]
    assert len(found) == choices
    for choice in found:
        segments = [
            list(operation.attributes["operandSegmentSizes"])[-1]
            for region in choice.regions
            for operation in region.blocks[0].operations
            if operation.operation.name.startswith("vector.")
        ]
        assert segments == [0, 1]  # without the mask if all lanes are inside, else with it


def transfers(module: Any) -> list[Any]:
    return [it for it in everything(module) if it.name.startswith("vector.transfer")]


def everything(module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        found.append(operation.operation)
        return bindings.load().ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_padded_products_are_right_on_avx2(
    dtype: str, backend: MLIRBackend, target: Target
) -> None:
    less = here(target)
    split = 0
    for candidate in candidates(gemm(m=21, n=31, k=18, dtype=dtype), less, 1):
        if is_padded(candidate):
            check_candidate(backend, candidate, less)
            masked, choices = (counted(backend, candidate, each) for each in (target, less))
            split += masked < choices
    assert split or host.vector_instructions(target).least_masked_bits > 8


def is_padded(candidate: Candidate) -> bool:
    extents = {"C.i.extent": 21, "C.j.extent": 31}
    return any(candidate.config.get(name, own) > own for name, own in extents.items())


def counted(backend: MLIRBackend, candidate: Candidate, target: Target) -> int:
    """Branches of a program."""
    lowered = backend.lower(request_for(candidate, target, 1, None)).program
    return str(lowered.module).count("llvm.cond_br")
