"""The derived nest against what TVM makes of the same schedule.

None of this needs a GPU or a CUDA compiler.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
import tvm
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.replay import schedule
from indexed_workloads import INDEXED_WORKLOADS
from made_workloads import VARIED_WORKLOADS
from row_norms import scaled_rows
from scanned import SCANS
from split_reductions import SPLIT_ACROSS_BLOCKS
from thinning import thinned
from tvm import s_tir, tirx
from tvm_lowered import LoweredNest, compare, compare_kernels, lowered_nest
from written import written

from autotune.ir.expressions import IntExpr, const
from autotune.ir.workloads import (
    Workload,
    dense,
    gemm,
    softmax,
)
from autotune.sketches import (
    Accumulate,
    Candidate,
    Order,
    Pack,
    Sketch,
    SplitReduction,
    Tile,
)
from autotune.spaces import SketchSpace
from autotune.targets import preset

ONE_TOTAL = written("X[30, 200]", "S[one:1; i:30, j:200] += X[i, j]", name="total")
"""The sum of a whole matrix: nothing for blocks to share."""


GPU_WORKLOADS = (
    *VARIED_WORKLOADS,
    # A single number has no loops to make a kernel of.
    *(workload for workload in INDEXED_WORKLOADS if workload.name != "number"),
    gemm(m=4, n=6, k=300),
    dense(m=3, n=5, k=256),
    softmax(m=3, n=20000),
    ONE_TOTAL,
    scaled_rows(3, 4, 40),
    *SPLIT_ACROSS_BLOCKS,
    *SCANS,
)


@pytest.mark.parametrize(
    ("workload", "target"), thinned(zip(GPU_WORKLOADS, cycle(["a100", "t4"]), strict=False), 3, 2)
)
def test_gpu_programs_are_those_of_the_lowered_program(workload: Workload, target: str) -> None:
    space = SketchSpace(workload, preset(target), TVMBackend().limits(preset(target)))
    module = module_for(workload)
    for candidate in space.sample(len(space.sketches()), np.random.default_rng(0)):
        scheduled = schedule(module, candidate, workload).mod
        lowered = lowered_nest(scheduled)
        compare(candidate, lowered)
        compare_kernels(candidate, lowered)
    check_what_tvm_counts(scheduled, lowered)


def check_what_tvm_counts(scheduled: tvm.IRModule, lowered: LoweredNest) -> None:
    """TVM's own verification of GPU code allows what the lowered program has, and no less."""
    passes = [
        s_tir.transform.LowerCrossThreadReduction(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.UnifyThreadBinding(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
    ]
    function = tvm.ir.transform.Sequential(passes)(scheduled)["main"]

    def allows(threads: int, shared_bytes: int) -> bool:
        limits = {"max_threads_per_block": threads, "max_shared_memory_per_block": shared_bytes}
        return bool(s_tir.analysis.verify_gpu_code(function, limits))

    threads = max(kernel.threads for kernel in lowered.kernels)
    shared = max(kernel.shared_bytes for kernel in lowered.kernels)
    assert allows(threads, shared)
    assert threads == 1 or not allows(threads - 1, shared)
    assert shared == 0 or not allows(threads, shared - 1)


def numbers(*values: int) -> tuple[IntExpr, ...]:
    return tuple(map(const, values))


ROWS = Tile("C", "i", numbers(2, 4))
SPLIT = Tile("C", "k", numbers(2, 2))
HAND_MADE = {
    "nothing": (),
    "tiles": (ROWS, SPLIT),
    "a tile around the whole reduction": (
        ROWS,
        Order("C", ("i.0", "i.1", "k.0", "j.0")),
        Accumulate("C", "i.1", numbers(1, 16)),
    ),
    "a tile that an outer reduction loop carries": (
        ROWS,
        SPLIT,
        Order("C", ("i.0", "k.0", "i.1", "k.1", "j.0")),
        Accumulate("C", "i.1", numbers(1, 16)),
    ),
    "a tile inside a reduction loop": (
        ROWS,
        Order("C", ("i.0", "k.0", "i.1", "j.0")),
        Accumulate("C", "k.0", numbers(4, 4)),
    ),
    "copies inside a reduction loop": (
        ROWS,
        SPLIT,
        Order("C", ("i.0", "k.0", "i.1", "k.1", "j.0")),
        Pack("C", "A", "k.0", None, None, 2),
        Pack("C", "B", "i.1", 1, const(8), 8),
    ),
    "a copy of what one element needs": (
        Order("C", ("i.0", "k.0", "j.0")),
        Pack("C", "A", "j.0", None, None, 1),
    ),
    "a split reduction": (
        SplitReduction("C", "k", 2),
        Order("C_partial", ("i.0", "j.0", "k.0", "k_lane.0")),
        Order("C", ("i.0", "j.0", "k_lane.0")),
    ),
}


@pytest.mark.parametrize("name", HAND_MADE)
def test_steps_that_no_built_in_rule_combines(name: str) -> None:
    workload = gemm(m=8, n=16, k=4)
    candidate = Candidate(Sketch(name, workload, (), (), HAND_MADE[name]), ())
    compare(candidate, lowered_nest(schedule(module_for(workload), candidate, workload).mod))


def test_an_unscheduled_program() -> None:
    lowered = lowered_nest(module_for(softmax(m=5, n=1)))
    # One loop over rows for each of maximum, exponential, sum (two with their initial values) and
    # quotient; extents of 1 are left out.
    assert lowered.stores == ((5,),) * 6
    assert lowered.allocations == ((5,), (5,), (5,))
