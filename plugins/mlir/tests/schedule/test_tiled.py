"""Matrix multiplications, scheduled: what they compute, and of which operations they are made."""

from __future__ import annotations

import re

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.host import vector_instructions
from autotune_mlir.schedule import schedule
from autotune_mlir.schedule.script import MAIN
from made_workloads import gram
from mlir_lowered import lowered_nest
from mlir_schedules import candidates, scheduled
from mlir_tiles import lowered
from thinning import thinned

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import Binary, Constant, Load, const, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, batch_matmul, conv2d, dense, gemm
from autotune.sketches import (
    Accumulate,
    Candidate,
    Order,
    Pack,
    Sketch,
    Tile,
    Unroll,
    Vectorize,
    names_used,
)
from autotune.targets import Target, preset
from autotune.testing.programs import check_candidate

PRODUCTS = {
    "gemm": gemm(m=24, n=64, k=16),
    "odd": gemm(m=21, n=48, k=7),
    "double": gemm(m=8, n=32, k=6, dtype="float64"),
    "batch": batch_matmul(b=3, m=8, n=32, k=16),
    "dense": dense(m=12, n=32, k=16),
    "no epilogue": dense(m=12, n=32, k=16, bias=0, relu=0),
    "integers": gemm(m=16, n=32, k=8, dtype="int8"),
}


def behind_relu() -> Workload:
    """A product of what is computed from its operands, at once in the copies of them."""
    zero = Constant(0.0, "float32")
    relus = [
        Stage(
            Tensor(name, (16, extent), "float32"),
            (Axis("a", 16), Axis("b", extent)),
            Binary("max", Load(source, (var("a"), var("b"))), zero),
        )
        for name, source, extent in (("R", "A", 16), ("S", "B", 32))
    ]
    body = Binary("mul", Load("R", (var("i"), var("k"))), Load("S", (var("k"), var("j"))))
    product = Stage(
        Tensor("C", (16, 32), "float32"),
        (Axis("i", 16), Axis("j", 32), Axis("k", 16, "reduce")),
        body,
        "add",
    )
    inputs = (Tensor("A", (16, 16), "float32"), Tensor("B", (16, 32), "float32"))
    return Workload("behind_relu", inputs, (*relus, product), ("C",), {})


PRODUCTS["behind relu"] = behind_relu()


@pytest.mark.parametrize("name", thinned(PRODUCTS, 2))
def test_every_sketch_computes_it(name: str, backend: MLIRBackend, target: Target) -> None:
    workload = PRODUCTS[name]
    for candidate in candidates(workload, target, 2):
        check_candidate(backend, candidate, target)


def test_one_tensor_is_both_factors(backend: MLIRBackend, target: Target) -> None:
    for candidate in candidates(gram(20, 12), target, 2):
        check_candidate(backend, candidate, target)


def test_on_two_threads(backend: MLIRBackend, target: Target) -> None:
    workload = PRODUCTS["gemm"]
    for candidate in candidates(workload, target, 1):
        check_candidate(backend, candidate, target, threads=2)


@pytest.mark.parametrize("workload", [PRODUCTS["gemm"], PRODUCTS["batch"]])
def test_nothing_but_vectors_is_left(workload: Workload, target: Target) -> None:
    for candidate in candidates(workload, target, 1):
        text = str(scheduled(candidate))
        assert "vector.fma" in text
        assert "linalg." not in text


def test_every_operand_that_is_packed_inside_has_a_buffer(target: Target) -> None:
    workload = PRODUCTS["gemm"]
    for candidate in candidates(workload, target, 1):
        text = str(scheduled(candidate))
        packed = [step for step in candidate.sketch.steps if isinstance(step, Pack)]
        inside = [step for step in packed if step.at is not None]
        assert text.count("memref.alloc()") == len(inside), candidate.sketch.name


def packed_first(block: int | None, lanes: int, *, at: str = "j.1") -> Candidate:
    """A product on one core: its second operand is copied as a whole, in blocks or as it is."""
    workload = gemm(m=4, n=48, k=6)
    tiles = (const(3), const(2), const(8))
    block_dim = None if block is None else 1
    steps = (
        Tile("C", "j", tiles),
        Order("C", ("j.0", "j.1", "k.0", "i.0", "j.2")),
        Pack("C", "B", None, block_dim, None if block is None else const(block), lanes),
        Accumulate("C", at, (const(1), const(8))),
        Vectorize("C", "j.2"),
        Unroll("C", ("i.0",)),
    )
    return Candidate(Sketch("packed-first", workload, (), (), steps), ())


@pytest.mark.parametrize(("block", "lanes"), [(8, 8), (8, 2), (None, 8), (None, 1)])
def test_a_whole_operand_is_copied_once(
    block: int | None, lanes: int, backend: MLIRBackend, target: Target
) -> None:
    candidate = packed_first(block, lanes)
    workload = candidate.sketch.workload
    check_candidate(backend, candidate, target)
    nest = lowered_nest(payload(workload), schedule(candidate, workload), MAIN)
    shape = (6, 48) if block is None else (6, 6, 8)
    assert [(it.shape, it.loops) for it in nest.buffers if len(it.shape) > 1] == [(shape, ())]


def test_blocks_that_no_tile_reads() -> None:
    for candidate in (packed_first(16, 8), packed_first(8, 8, at="j.0")):
        with pytest.raises(InvalidSchedule, match="a tile of stage 'C' reads"):
            schedule(candidate, candidate.sketch.workload)


def test_blocks_of_an_operand_that_is_read_between_axes(target: Target) -> None:
    workload = conv2d(h=6, w=6, ci=4, co=16)
    steps = (
        Tile("Y", "co", (const(2), const(8))),
        Pack("Y", workload.inputs[0].name, None, 3, const(4), 4),
        Accumulate("Y", "wo.0", (const(1), const(8))),
    )
    candidate = Candidate(Sketch("blocked-image", workload, (), (), steps), ())
    with pytest.raises(InvalidSchedule, match="at other indices than its axes"):
        schedule(candidate, workload)


def test_lanes_are_next_to_each_other_in_a_copy(target: Target) -> None:
    """Where they are not in the operand: rows of weights are copied as columns.

    Those that are copied as a whole are transposed by vectors.
    """
    workload = PRODUCTS["no epilogue"]
    counts: dict[bool, set[int]] = {False: set(), True: set()}
    for candidate in candidates(workload, target, 2):
        used = names_used(candidate.sketch)
        if "pack.transposed" in used:
            text = str(scheduled(candidate))
            counts["pack.whole_transposed" in used].add(text.count("linalg.transpose"))
    assert counts[False] == {1} and counts[True] <= {0, 1}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_casts_of_factors_are_a_part_of_products(dtype: str, target: Target) -> None:
    """Rows and columns are converted, and not all their pairs, which would be no products then."""
    for candidate in candidates(gemm(m=8, n=32, k=16, dtype=dtype), target, 1):
        text = str(scheduled(candidate))
        assert not re.search(r"vector<\d+x\d+x\d+x\w+>", text)
        assert re.search(r"arith\.ext\w+ .* : vector<", text)


def test_blocks_that_vectors_of_what_is_read_do_not_divide() -> None:
    """Of 16 lanes, 12 divide rows of 24, and not blocks of 16 columns."""
    wide = preset("zen4-1core")
    found = [
        candidate
        for candidate in candidates(dense(m=48, n=48, k=24, bias=0, relu=0), wide, 8)
        if candidate.config.get("Y.j.extent") == 48
        and candidate.config["Y.j.2"] == 1
        and candidate.sketch.name.startswith("packed-root")
    ]
    assert found
    lowered(found[0], vectors=vector_instructions(wide))
