"""Steps replayed through TVM: the programs compute the right numbers, and refusals name a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.replay import schedule
from made_workloads import REDUCED_FIRST
from thinning import thinned
from tvm.script import tirx as T
from tvm_programs import check_imported

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import IntExpr, const
from autotune.ir.workloads import Workload, conv2d, gemm
from autotune.sketches import (
    STEP_TYPES,
    Candidate,
    CandidateBatch,
    Order,
    Pack,
    PadExtent,
    Parallel,
    Sketch,
    Step,
    Tile,
    Vectorize,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset
from autotune.testing.programs import sample_candidates


@pytest.mark.parametrize("workload", thinned(REDUCED_FIRST, 3))
def test_reduced_axes_may_come_before_those_of_the_result(
    workload: Workload, backend: TVMBackend
) -> None:
    gpu = preset("a100")
    for candidate in sample_candidates(backend, workload, gpu):
        assert schedule(module_for(workload), candidate, workload) is not None


# Programs whose blocks and buffers have names of their own.


@T.prim_func(s_tir=True)
def product_with_other_names(
    left: T.Buffer((37, 29), "float32"),
    right: T.Buffer((29, 53), "float32"),
    result: T.Buffer((37, 53), "float32"),
) -> None:
    for row, column, inner in T.grid(37, 53, 29):
        with T.sblock("multiply.update"):
            x, y, z = T.axis.remap("SSR", [row, column, inner])
            with T.init():
                result[x, y] = T.float32(0)
            result[x, y] = result[x, y] + left[x, z] * right[z, y]


@T.prim_func(s_tir=True)
def product_with_an_epilogue(
    left: T.Buffer((33, 20), "float32"),
    right: T.Buffer((20, 48), "float32"),
    result: T.Buffer((33, 48), "float32"),
) -> None:
    middle = T.sblock_alloc_buffer((33, 48), "float32")
    for row, column, inner in T.grid(33, 48, 20):
        with T.sblock("first"):
            x, y, z = T.axis.remap("SSR", [row, column, inner])
            with T.init():
                middle[x, y] = T.float32(0)
            middle[x, y] = middle[x, y] + left[x, z] * right[z, y]
    for row, column in T.grid(33, 48):
        with T.sblock("second"):
            x, y = T.axis.remap("SS", [row, column])
            result[x, y] = T.max(middle[x, y], T.float32(0))


@pytest.mark.parametrize("program", [product_with_other_names, product_with_an_epilogue])
def test_imported_programs_whose_blocks_are_not_called_after_tensors(program: Any) -> None:
    workload = check_imported(program, every=True)
    assert {stage.name for stage in workload.stages} <= {"middle", "result"}


def test_buffers_whose_names_are_no_identifiers() -> None:
    """Converters of models make such names."""
    text = tvm.ir.save_json(tvm.IRModule({"main": product_with_other_names}))
    text = text.replace('"left"', '"p.left.weight"').replace('"result"', '"lv1.out"')
    workload = check_imported(tvm.ir.load_json(text))
    assert {t.name for t in workload.inputs} == {"p_left_weight", "right"}


# One step at a time, on a product of 8 x 16 x 4.

PRODUCT = gemm(m=8, n=16, k=4)


def candidate_of(*steps: Step, workload: Workload = PRODUCT) -> Candidate:
    return Candidate(Sketch("made", workload, (), (), steps), ())


def numbers(*values: int) -> tuple[IntExpr, ...]:
    return tuple(const(value) for value in values)


TILES = (Tile("C", "i", numbers(2, 4)), Tile("C", "j", numbers(1, 16)))
ORDER = Order("C", ("i.0", "j.0", "k.0", "i.1", "j.1"))


DOCTORED = {
    "a product that is too small": ((Tile("C", "i", numbers(2, 3)),), "Tile"),
    "a loop that does not exist": ((Tile("C", "q", numbers(2, 4)),), "Tile"),
    "an unknown stage": ((Tile("D", "i", numbers(2, 4)),), "Tile"),
    "an unknown loop in an order": ((Order("C", ("i.0", "j.0", "k.7")),), "Order"),
    "a parallel reduction": ((Parallel("C", ("k.0",)),), "Parallel"),
    "parallel loops that are apart": (
        (*TILES, ORDER, Parallel("C", ("i.0", "k.0"))),
        "Parallel",
    ),
    "a vectorised reduction": ((Vectorize("C", "k.0"),), "Vectorize"),
    "an operand that is not read": ((Pack("C", "Q", None, None, None, 1),), "Pack"),
    "a copy at a loop that does not exist": ((Pack("C", "A", "i.5", None, None, 1),), "Pack"),
    "padding to less": ((PadExtent("C", "i", const(7)),), "PadExtent"),
    "padding without packing": ((PadExtent("C", "i", const(9)),), "padding C needs A"),
}


@pytest.mark.parametrize("name", DOCTORED)
def test_a_step_that_cannot_be_applied_is_named(name: str) -> None:
    steps, message = DOCTORED[name]
    with pytest.raises(InvalidSchedule, match=message) as caught:
        schedule(module_for(PRODUCT), candidate_of(*steps), PRODUCT)
    assert len(str(caught.value)) < 1000
    assert "Traceback" not in str(caught.value)


def test_a_doctored_configuration_names_the_step() -> None:
    workload = gemm(m=64, n=64, k=64)
    limits = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
    space = SketchSpace(workload, preset("skylake-avx512-4core"), limits)
    module = module_for(workload)
    for candidate in space.sample(len(space.sketches()), np.random.default_rng(0)):
        doctored = {**candidate.config, "C.k.0": candidate.config["C.k.0"] // 2 or 5}
        broken = Candidate.from_config(candidate.sketch, doctored)
        assert not space.contains(CandidateBatch.of([broken])).any()
        with pytest.raises(InvalidSchedule, match=r"Tile\(stage='C', axis='k'"):
            schedule(module, broken, workload)


def test_the_module_is_left_alone() -> None:
    module = module_for(PRODUCT)
    before = module.script()
    schedule(module, candidate_of(*TILES, ORDER), PRODUCT)
    assert module.script() == before


def test_replay_is_deterministic() -> None:
    workload = conv2d(h=9, w=9, ci=4, co=20, pad=1, bias=1, relu=1)
    limits = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
    space = SketchSpace(workload, preset("skylake-avx512-4core"), limits)
    for candidate in space.sample(len(space.sketches()), np.random.default_rng(0)):
        first, again = (
            schedule(module_for(workload), candidate, workload).mod.script() for _ in range(2)
        )
        assert first == again
