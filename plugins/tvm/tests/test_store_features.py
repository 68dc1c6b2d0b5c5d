"""Our statement features against TVM's own of the same programs, column by column.

``docs/pam-features.md`` has the table. Where a column differs, the reasons below say when; all
others agree for every candidate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.emit import module_for
from autotune_tvm.replay import schedule
from benchmark_scripts import benchmark_scripts
from made_workloads import VARIED_WORKLOADS
from numpy.typing import NDArray
from thinning import thinned
from tvm import tirx
from tvm.sym import Analyzer

from autotune.ir.expressions import Select
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload, conv2d, dense, gemm, softmax
from autotune.models.features import FEATURE_COLUMNS, pam_features
from autotune.nest import LoopNest, Statement, derive_nest
from autotune.sketches import STEP_TYPES, Candidate, is_uneven, lane_splits
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset

with benchmark_scripts("support.store_features") as (module,):
    store_features = module.store_features

CPU = preset("haswell-2core")
# TVM counts bounded loops as if they ran to their end.
LIMITS = ScheduleLimits(frozenset(STEP_TYPES) - {"bound_loop"}, 65536, 512, "test")
TVM_CPU = tvm.target.Target({"kind": "llvm", "num-cores": 2})

# Columns that count index arithmetic: ours on the sketch's canonical indices, TVM's on what it
# simplified them to. Predicates of padding are such arithmetic too.
INDEX_ARITHMETIC = {
    *(name for name in FEATURE_COLUMNS if name.startswith("integer_")),
    "logic",
}
# Columns that follow from hulls of what is touched.
FROM_REGIONS = re.compile(r"buffer\d_(unique_.*|reuse_bytes)$|intensity\d")


class Compared:
    """Rows of one candidate, ours in TVM's order."""

    def __init__(self, candidate: Candidate, theirs: NDArray[np.float64], fidelity: str) -> None:
        matrix = np.array([candidate.values], dtype=np.int64)
        self.candidate = candidate
        self.nest = derive_nest(candidate.sketch)
        found = pam_features(candidate.sketch, matrix, CPU, fidelity)
        by_name = {statement.name: statement for statement in self.nest.statements}
        statements = [by_name[name] for name in found.statements]
        # TVM puts copies of whole inputs before everything else, those that pad last.
        order = sorted(range(len(statements)), key=lambda at: place(statements[at], candidate))
        self.statements = [statements[at] for at in order]
        self.ours, self.theirs = found.values[order], theirs
        assert self.ours.shape == theirs.shape, candidate
        if is_padded(candidate):
            # Padded buffers have other names in TVM, which break ties between equal ones.
            self.ours, self.theirs = without_ties(self.ours), without_ties(self.theirs)

    def differing(self) -> Iterator[tuple[Statement, str]]:
        """Statements and columns that differ."""
        wrong = ~np.isclose(self.ours, self.theirs, rtol=1e-6, atol=1e-6)
        for row, column in np.argwhere(wrong):
            yield self.statements[row], FEATURE_COLUMNS[column]


def without_ties(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows with the buffers of equal lines and bytes in an order that their columns decide."""
    result = rows.copy()
    first = FEATURE_COLUMNS.index("buffer0_read")
    for row in result:
        blocks = row[first : first + 90].reshape(5, 18)
        # Lines, bytes, kind of access, stride, and when it is used again.
        keys = np.round(blocks[:, [5, 3, 0, 1, 2, 17, 12, 10]], 3)
        blocks[:] = blocks[sorted(range(5), key=lambda at: tuple(-keys[at]))]
    return result


def place(statement: Statement, candidate: Candidate) -> int:
    """Place at which TVM puts a statement, before those of higher places."""
    if statement.role != "pack" or statement.corners:
        return 2
    stage = candidate.sketch.workload.stage(statement.stage)
    operand = statement.name.removesuffix(".pack")
    copied = {
        (stage.name, axis)
        for load in stage.loads
        if load.tensor == operand
        for form in stage.access_map(load)
        for axis in form.coefficients
    }
    return 1 if copied & padded_axes(candidate) else 0


def candidates(workload: Workload, count: int) -> list[Candidate]:
    """Random ones of sketches that TVM's schedules can say: lanes divide what they sum."""
    space = SketchSpace(workload, CPU, LIMITS)
    drawn = space.sample(count * len(space.sketches()), np.random.default_rng(5))
    return [
        it
        for it in drawn
        if not any(is_uneven(*split) for split in lane_splits(workload, it.sketch.core_steps))
    ]


def compared(workload: Workload, count: int, fidelity: str = "tvm") -> list[Compared]:
    module = module_for(workload)
    chosen = candidates(workload, count)
    schedules = [schedule(module, candidate, workload) for candidate in chosen]
    rows = store_features(schedules, module, TVM_CPU)
    return [Compared(c, row, fidelity) for c, row in zip(chosen, rows, strict=True)]


def padded_axes(candidate: Candidate) -> set[tuple[str, str]]:
    """Stages and their axes whose extents are padded."""
    workload = candidate.sketch.workload
    found = set()
    for name, value in candidate.config.items():
        stage, axis, *kind = name.split(".")
        if kind == ["extent"] and value != workload.stage(stage).axis(axis).extent:
            found.add((stage, axis))
    return found


def is_padded(candidate: Candidate) -> bool:
    """Tell whether an extent is padded: TVM guards copies, and does not stop hulls at bounds."""
    return bool(padded_axes(candidate))


def fuses(nest: LoopNest, candidate: Candidate) -> bool:
    """Tell whether remainders occur in indices: a fused loop with several parts that move."""
    return any(
        sum(int(evaluate(extent, candidate.config)) > 1 for _, extent in loop.parts) > 1
        for statement in nest.statements
        for loop in statement.loops
    )


def is_blocked(nest: LoopNest) -> bool:
    return any(buffer.block_dim is not None for buffer in nest.buffers)


def is_guarded(nest: LoopNest) -> bool:
    """Tell whether padding is written out: hulls of guarded reads pass bounds in TVM."""
    return any(isinstance(statement.body, Select) for statement in nest.statements)


def explained(item: Compared, column: str) -> bool:
    """Tell whether TVM is known to count a column differently in this program."""
    if column in INDEX_ARITHMETIC:
        return True
    padded = is_padded(item.candidate)
    if column == "float_function" and padded:
        return True
    remainders = fuses(item.nest, item.candidate) or is_blocked(item.nest)
    regions = padded or remainders or is_guarded(item.nest)
    # What two statements share of a buffer is counted by regions too.
    if is_guarded(item.nest) and column.endswith("_reuse_iterations"):
        return True
    return regions and FROM_REGIONS.match(column) is not None


@pytest.mark.parametrize("workload", thinned(VARIED_WORKLOADS, 5))
def test_columns_agree_but_for_the_reasons_given(workload: Workload) -> None:
    for item in compared(workload, 1):
        for statement, column in item.differing():
            where = (item.candidate.sketch.name, item.candidate.config, statement.name)
            assert explained(item, column), (column, where)


def test_remainders_collapse_in_tvm() -> None:
    """Hulls differ: a variable keeps the modulus of the constant that it was bound to first.

    TVM binds every loop to its first value, then, from the innermost outwards, to its range.
    """
    analyzer, loop = Analyzer(), tirx.Var("loop", "int32")
    analyzer.bind(loop, tirx.const(0, "int32"))
    analyzer.bind(loop, tvm.ir.Range(0, 32), allow_override=True)
    assert analyzer.const_int_bound(loop).max_value == 31
    assert analyzer.const_int_bound(tirx.floormod(loop, 8)).max_value == 0
    fresh = Analyzer()
    fresh.bind(loop, tvm.ir.Range(0, 32))
    assert fresh.const_int_bound(tirx.floormod(loop, 8)).max_value == 7


def test_without_remainders_padding_or_guards_all_columns_agree() -> None:
    counted = 0
    for workload in (gemm(m=64, n=64, k=64), dense(m=33, n=64, k=64, bias=0), softmax(m=64, n=64)):
        for item in compared(workload, 4):
            apart = is_padded(item.candidate) or is_blocked(item.nest) or is_guarded(item.nest)
            if apart or fuses(item.nest, item.candidate):
                continue
            counted += 1
            assert {column for _, column in item.differing()} <= INDEX_ARITHMETIC
    assert counted >= 4


# What the corrections change, besides: marked loops of extent 1, what lies together, guards.
CORRECTED = re.compile(
    r"(vectorized|unrolled|parallel)_(count|product|length|none|mixed)$|loops$|select$"
    r"|float_function$|buffer\d_(unique_lines|reuse_.*|.*_per_reuse|stride)$|intensity\d"
)


def test_corrections_change_the_columns_that_the_documentation_names() -> None:
    for workload in (gemm(m=64, n=64, k=64), conv2d(h=14, w=14, ci=16, co=32, pad=1)):
        for item in compared(workload, 1, "corrected"):
            for _, column in item.differing():
                assert CORRECTED.match(column) or explained(item, column), column


def test_gpu_programs_agree_but_for_copies_that_a_block_makes() -> None:
    """Copies have other loops in TVM: threads outside, virtual threads repeating them."""
    gpu, workload = preset("a100"), gemm(m=128, n=128, k=64)
    module, space = module_for(workload), SketchSpace(workload, gpu, LIMITS)
    cuda = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    for candidate in space.sample(2 * len(space.sketches()), np.random.default_rng(2)):
        [theirs] = store_features([schedule(module, candidate, workload)], module, cuda)
        matrix = np.array([candidate.values], dtype=np.int64)
        found = pam_features(candidate.sketch, matrix, gpu, "tvm")
        assert found.values.shape == theirs.shape
        for row, column in np.argwhere(~np.isclose(found.values, theirs, rtol=1e-6, atol=1e-6)):
            name = FEATURE_COLUMNS[column]
            copied = found.statements[row].endswith(".fetch")
            # What two statements share of a buffer is counted by regions too.
            from_regions = FROM_REGIONS.match(name) or name.endswith("_reuse_iterations")
            assert copied or from_regions or name in INDEX_ARITHMETIC, (name, candidate.config)
