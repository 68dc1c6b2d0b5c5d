"""Contractions as dot products of the processor: int8, exact for all bytes, and bfloat16."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from autotune_mlir import code_generation, compiler
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.schedule import schedule
from autotune_mlir.scripted import program_of
from needs import skip_here
from thinning import thinned

from autotune.backends import InvalidSchedule, ProgramFile
from autotune.ir.expressions import Binary, Cast, Constant, Load, const, var
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    batch_matmul,
    conv1d,
    conv2d,
    conv3d,
    dense,
    gemm,
    random_inputs,
)
from autotune.sketches import (
    Accumulate,
    Candidate,
    Order,
    Pack,
    Sketch,
    Step,
    Tensorize,
    Tile,
    prepacked_operands,
)
from autotune.spaces import SketchSpace
from autotune.targets import Target, detect_cpu, preset
from autotune.targets.processors import missing_features
from autotune.testing.programs import check_candidate

BACKEND = MLIRBackend()
ZEN4 = preset("znver4").with_cores(1)
ALDERLAKE = preset("alderlake").with_cores(1)


def weights_in_rows(m: int, n: int, k: int, dtype: str = "uint8") -> Workload:
    """A product whose right factor is transposed: neighbours along the reduction lie together."""
    axes = (Axis("i", m), Axis("j", n), Axis("k", k, "reduce"))
    left = Cast("int32", Load("X", (var("i"), var("k"))))
    right = Cast("int32", Load("W", (var("j"), var("k"))))
    inputs = (Tensor("X", (m, k), dtype), Tensor("W", (n, k), "int8"))
    stage = Stage(Tensor("Y", (m, n), "int32"), axes, Binary("mul", left, right), "add")
    return Workload("rows", inputs, (stage,), ("Y",))


def one_behind_the_other(m: int, n: int) -> Workload:
    """Two products by matrices of one shape, with bytes between them."""
    i, j, k = map(var, "ijk")
    axes = (Axis("i", m), Axis("j", n))

    def product(name: str, left: str, right: str) -> Stage:
        factors = (Cast("int32", Load(left, (i, k))), Cast("int32", Load(right, (k, j))))
        summed = (*axes, Axis("k", n, "reduce"))
        return Stage(Tensor(name, (m, n), "int32"), summed, Binary("mul", *factors), "add")

    scaled = Binary("div", Load("X", (i, j)), Constant(1 << 12, "int32"))
    between = Stage(Tensor("Q", (m, n), "int8"), axes, Cast("int8", scaled))
    inputs = (Tensor("A", (m, n), "int8"), *(Tensor(it, (n, n), "int8") for it in "BW"))
    stages = (product("X", "A", "B"), between, product("Y", "Q", "W"))
    return Workload("chain", inputs, stages, ("Y",))


WORKLOADS = (
    gemm(m=24, n=64, k=32, dtype="u8s8s32"),
    gemm(m=37, n=53, k=29, dtype="u8s8s32"),
    gemm(m=13, n=48, k=20, dtype="int8"),
    gemm(m=1, n=7, k=4, dtype="u8s8s32"),
    gemm(m=16, n=32, k=13, requantize=9, dtype="u8s8s32"),
    gemm(m=37, n=53, k=29, dtype="int8"),
    weights_in_rows(9, 32, 24),
    batch_matmul(b=3, m=17, n=40, k=24, dtype="int8"),
    conv2d(h=14, w=14, ci=16, co=32, pad=1, dtype="u8s8s32"),
    weights_in_rows(9, 35, 24, "int8"),
    conv2d(h=13, w=11, ci=3, co=17, pad=1, stride=2, bias=1, relu=1, dtype="u8s8s32"),
    gemm(m=10, n=32, k=24, requantize=9, dtype="u8s8s32"),
    batch_matmul(b=3, m=17, n=40, k=24, dtype="u8s8s32"),
    conv1d(w=20, ci=8, co=24, pad=1, stride=2, dtype="u8s8s32"),
    conv3d(d=3, h=4, w=5, ci=4, co=16, pad=1, kd=2, dtype="u8s8s32"),
    conv2d(h=9, w=9, ci=8, co=16, kh=3, kw=2, dilation=2, stride=3, dtype="int8"),
)
HALVES = (
    gemm(m=24, n=64, k=32, dtype="bfloat16"),
    gemm(m=37, n=53, k=29, dtype="bfloat16"),
    gemm(m=1, n=7, k=2, dtype="bfloat16"),
    dense(m=9, n=32, k=31, dtype="bfloat16"),
    batch_matmul(b=3, m=17, n=40, k=24, dtype="bfloat16"),
    conv2d(h=13, w=11, ci=3, co=17, pad=1, stride=2, bias=1, relu=1, dtype="bfloat16"),
)


def samples(workload: Workload, target: Target, each: int = 1, seed: int = 0) -> list[Candidate]:
    """So many candidates of every sketch, all of which call an instruction."""
    space = SketchSpace(workload, target, BACKEND.limits(target))
    found: dict[str, list[Candidate]] = {sketch.name: [] for sketch in space.sketches()}
    for candidate in space.sample(200, np.random.default_rng(seed)):
        assert call_of(candidate)
        found[candidate.sketch.name].append(candidate)
    assert all(found.values())
    return [candidate for made in found.values() for candidate in made[:each]]


def call_of(candidate: Candidate) -> Tensorize:
    (call,) = (step for step in candidate.sketch.steps if isinstance(step, Tensorize))
    return call


def need(target: Target) -> None:
    lacking = missing_features(target.features, detect_cpu().features)
    if lacking:
        skip_here(f"it lacks {', '.join(lacking)}")


def lowered(candidate: Candidate, threads: int = 1) -> compiler.Lowered:
    """A candidate in LLVM's dialect, whatever this machine has."""
    workload = candidate.sketch.workload
    program = program_of(workload, None, candidate)
    return compiler.lower(program, schedule(candidate, workload), threads=threads)


def check_exact(candidates: Iterable[Candidate], target: Target, threads: int = 1) -> None:
    """Candidates of one workload compute it exactly, with the largest numbers among its bytes."""
    for candidate in candidates:
        workload = candidate.sketch.workload
        inputs = random_inputs(workload, np.random.default_rng(1))
        first, limits = workload.inputs[0], np.iinfo(workload.inputs[0].dtype)
        inputs[first.name].flat[:6] = [limits.max] * 3 + [limits.min] * 3
        check_candidate(BACKEND, candidate, target, inputs, threads=threads)


@pytest.mark.parametrize("workload", thinned(WORKLOADS, 3))
def test_exact_for_all_bytes(workload: Workload) -> None:
    need(ZEN4)
    check_exact(samples(workload, ZEN4), ZEN4)


@pytest.mark.parametrize("workload", thinned(HALVES, 3))
def test_halves_are_summed_in_float32(workload: Workload) -> None:
    need(ZEN4)
    for candidate in samples(workload, ZEN4):
        check_candidate(BACKEND, candidate, ZEN4, threads=1)


def test_copies_of_one_shape_are_interleaved_apart() -> None:
    """Both matrices, packed as a whole, in tiles of the same extents."""
    need(ZEN4)
    workload = one_behind_the_other(8, 32)
    space = SketchSpace(workload, ZEN4, BACKEND.limits(ZEN4))
    found = [
        candidate
        for candidate in space.sample(60, np.random.default_rng(0))
        if all(candidate.config[f"{name}.j.3"] == 16 for name in "XY")
        and candidate.config["X.j.2"] == candidate.config["Y.j.2"]
        and all(pack.at is None for pack in candidate.sketch.steps if isinstance(pack, Pack))
    ]
    assert found
    check_exact(found[:2], ZEN4)


@pytest.mark.needs("openmp")
def test_copies_are_interleaved_on_several_threads() -> None:
    need(ZEN4)
    target = ZEN4.with_cores(2)
    check_exact(samples(gemm(m=48, n=64, k=32, dtype="int8"), target), target, threads=2)


def test_constants_are_interleaved_where_they_are_packed_ahead() -> None:
    workload = gemm(m=8, n=32, k=16, dtype="u8s8s32").with_constants("B")
    ahead = [it for it in samples(workload, ZEN4) if prepacked_operands(it)]
    assert ahead
    for candidate in ahead:
        program = program_of(workload, None, candidate)
        made = compiler.lower(program, schedule(candidate, workload), threads=1, packed=[1])
        (packer,) = made.packers
        assert is_woven(packer.program) and not is_woven(made)
    need(ZEN4)
    check_exact(ahead, ZEN4)


def is_woven(program: compiler.Lowered) -> bool:
    """Whether elements of two vectors follow each other in turns."""
    return re.search(r"llvm\.shufflevector .*\[0, 16, 1, 17,", str(program.module)) is not None


CALLS = {
    "u8s8s32": (WORKLOADS[0], "avx512.vpdpbusd"),
    "int8": (gemm(m=24, n=64, k=32, dtype="int8"), "avx512.vpdpbusd"),
    "bfloat16": (HALVES[0], "avx512bf16.dpbf16ps"),
}


@pytest.mark.parametrize("dtype", CALLS)
def test_a_tile_is_calls_on_vectors_that_loops_carry(dtype: str) -> None:
    workload, instruction = CALLS[dtype]
    for candidate in samples(workload, ZEN4):
        text = str(lowered(candidate).module)
        config = candidate.config
        columns, rows = config["C.j.2"], config["C.i.2"]
        # For signed bytes the excess of each column is added up, and signs are made for each call.
        each = 2 * rows + 1 if dtype == "int8" else rows
        assert text.count(f'"llvm.x86.{instruction}.512"') == each * columns * config["C.k.1"]
        # Sums are vectors of the instruction's width wherever they are, and none in memory.
        total = "f32" if dtype == "bfloat16" else "i32"
        widths = {int(it) for it in re.findall(rf"\^bb\d+\([^)]*vector<(\d+)x{total}>", text)}
        assert widths <= {16}


@pytest.mark.parametrize(
    ("workload", "opcode"),
    [(WORKLOADS[0], 0x50), (HALVES[0], 0x52)],
    ids=["vpdpbusd", "vdpbf16ps"],
)
def test_the_machine_code_has_the_instruction(
    workload: Workload, opcode: int, tmp_path: Path
) -> None:
    need(ZEN4)
    for candidate in samples(workload, ZEN4):
        config = candidate.config
        path = tmp_path / "made.o"
        code_generation.generate(lowered(candidate)).engine.dump_to_object_file(str(path))
        tile = config["C.i.2"] * config["C.j.2"] * config["C.k.1"]
        assert dot_products(path.read_bytes(), opcode) >= tile > 0


def dot_products(code: bytes, opcode: int) -> int:
    """How often code has an instruction of 512 bits of the map 0F38 (EVEX prefix 62)."""
    found = 0
    for match in re.finditer(rb"\x62(.)(.)(.)" + re.escape(bytes([opcode])), code, re.DOTALL):
        first, _, third = (part[0] for part in match.groups())
        found += (first & 7) == 2 and (third >> 5 & 3) == 2
    return found


def test_narrower_vectors_are_called_where_the_target_has_them() -> None:
    for candidate in samples(WORKLOADS[0], ALDERLAKE):
        assert call_of(candidate).intrinsic == "vnni-8x4"
        assert '"llvm.x86.avx512.vpdpbusd.256"' in str(lowered(candidate).module)
    narrow = evolve(ZEN4, vector_bytes=32)
    for candidate in samples(HALVES[0], narrow):
        assert '"llvm.x86.avx512bf16.dpbf16ps.256"' in str(lowered(candidate).module)
    need(narrow)
    for candidate in samples(HALVES[1], narrow):
        check_candidate(BACKEND, candidate, narrow, threads=1)


def test_an_imported_product_is_calls(tmp_path: Path) -> None:
    path = tmp_path / "product.mlir"
    path.write_text("""
func.func @f(%a: tensor<13x24xi8>, %b: tensor<24x33xi8>) -> tensor<13x33xi32> {
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<13x33xi32>
  %o = linalg.fill ins(%zero : i32) outs(%e : tensor<13x33xi32>) -> tensor<13x33xi32>
  %r = linalg.matmul ins(%a, %b : tensor<13x24xi8>, tensor<24x33xi8>)
    outs(%o : tensor<13x33xi32>) -> tensor<13x33xi32>
  return %r : tensor<13x33xi32>
}
""")
    need(ZEN4)
    imported = BACKEND.import_program(ProgramFile(path, "mlir"))
    for candidate in samples(imported.workload, ZEN4):
        check_candidate(BACKEND, candidate, ZEN4, threads=1, program=imported.program)


def hand_made(steps: tuple[Step, ...], workload: Workload) -> Candidate:
    return Candidate(Sketch("by hand", workload, (), (), steps), ())


def test_factors_that_do_not_lie_together_are_refused() -> None:
    steps = (
        Tile("Y", "j", (const(1), const(16))),
        Tile("Y", "k", (const(2), const(4))),
        Order("Y", ("i.0", "j.0", "k.0", "k.1", "j.1")),
        Accumulate("Y", "i.0", (const(1), const(16))),
        Tensorize("Y", ("k.1", "j.1"), "vnni-16x4"),
    )
    with pytest.raises(InvalidSchedule, match="'W' has neighbours along 'j' 8 elements apart"):
        lowered(hand_made(steps, weights_in_rows(2, 16, 8)))


def test_instructions_that_the_backend_lacks_are_refused() -> None:
    candidate = samples(WORKLOADS[0], ZEN4)[0]

    def changed(change: type[Step], **to: object) -> Candidate:
        steps = tuple(
            evolve(step, **to) if isinstance(step, change) else step
            for step in candidate.sketch.steps
        )
        return evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))

    with pytest.raises(InvalidSchedule, match=r"vta-1x16x16' is implemented for no backend"):
        lowered(changed(Tensorize, intrinsic="vta-1x16x16"))
    with pytest.raises(InvalidSchedule, match="unknown intrinsic 'nothing'"):
        lowered(changed(Tensorize, intrinsic="nothing"))
    steps = tuple(it for it in candidate.sketch.steps if not isinstance(it, Tensorize))
    with pytest.raises(InvalidSchedule, match="interleaves for instructions only"):
        lowered(evolve(candidate, sketch=evolve(candidate.sketch, steps=steps)))


def test_processors_with_tiles_have_dot_products_for_what_fills_none() -> None:
    target = preset("sapphirerapids").with_cores(1)
    for candidate in samples(gemm(m=40, n=64, k=64, dtype="u8s8s32"), target):
        assert call_of(candidate).intrinsic == "vnni-16x4"
        assert any(isinstance(step, Pack) for step in candidate.sketch.steps)
