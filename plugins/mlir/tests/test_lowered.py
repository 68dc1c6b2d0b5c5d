"""The derived nest against what MLIR makes of the same schedule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from attention_workloads import with_epilogue
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.schedule import schedule
from autotune_mlir.schedule.script import MAIN
from autotune_mlir.scripted import program_of
from divided_reductions import shared_factor
from made_workloads import ALIGNED_WORKLOADS
from mlir_lowered import COMPUTED, LoweredBuffer, LoweredNest, LoweredStatement, lowered_nest
from mlir_schedules import candidates
from split_reductions import SPLIT_REDUCTIONS
from thinning import thinned

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload, attention, conv2d, dense, gemm, softmax
from autotune.nest import derive_nest
from autotune.nest.loop_nest import LoopNest, Statement
from autotune.sketches import (
    Candidate,
    Inline,
    Pack,
    PadExtent,
    Sketch,
    SplitReduction,
    lane_axis,
    partial_name,
)
from autotune.sketches.variants import names_used, step_names
from autotune.spaces import SketchSpace
from autotune.targets import preset

Buffers = Counter[tuple[tuple[int, ...], str]]
PADDED_OPERANDS = (
    gemm(m=16, n=51, k=32),
    dense(m=16, n=35, k=32),
    conv2d(h=12, w=14, ci=4, co=24, stride=3),
    conv2d(h=7, w=7, ci=16, co=32, pad=1),
)
VECTOR = 16
MLIR_TYPES = {"float32": "f32", "float64": "f64", "int8": "i8", "int32": "i32"}


def all_consumed(extents: Sequence[int], found: Sequence[int]) -> Iterator[int]:
    """How many of the extents are those found, which leave out ones: every way to read them.

    What is computed when the program runs, at a padded axis, may be any extent.
    """
    if not found:
        yield 0
        return
    for skipped, extent in enumerate(extents):
        if found[0] in (extent, COMPUTED):
            for rest in all_consumed(extents[skipped + 1 :], found[1:]):
                yield skipped + 1 + rest
        if extent != 1:
            break


def consumed(extents: Sequence[int], found: Sequence[int]) -> int | None:
    """The first way to read the extents found; None if they are others."""
    return next(all_consumed(extents, found), None)


def equal(extents: Sequence[int], found: Sequence[int]) -> bool:
    """Whether extents are those found, but for ones."""
    count = consumed(extents, found)
    return count is not None and not without_ones(extents[count:])


def without_ones(extents: Sequence[int]) -> tuple[int, ...]:
    return tuple(extent for extent in extents if extent != 1)


class Tape:
    """A candidate's nest with its numbers."""

    def __init__(self, candidate: Candidate) -> None:
        self.nest: LoopNest = derive_nest(candidate.sketch)
        self.sketch = candidate.sketch
        self._config = candidate.config

    def number(self, extent: IntExpr) -> int:
        return int(evaluate(extent, self._config))

    def extents(self, statement: Statement) -> list[int]:
        return [self.number(loop.extent) for loop in statement.loops]

    def iterations(self, statement: Statement, outer: int) -> tuple[int, ...]:
        """How far each axis of the stage moves inside the first ``outer`` loops."""
        stage = next(it for it in self.nest.workload.stages if it.name == statement.stage)
        axes = stage.spatial_axes
        axes = axes if statement.role == "init" else (*axes, *stage.reduce_axes)
        return tuple(self.number(statement.reach(axis.name, outer)) for axis in axes)

    def is_padded(self, stage: str, operand: str | None = None) -> bool:
        """Whether a stage is iterated beyond extents that an operand depends on."""
        own = self.sketch.workload.stage(stage)
        padded = {
            step.axis
            for step in self.sketch.core_steps
            if isinstance(step, PadExtent)
            and step.stage == stage
            and self.number(step.extent) > own.axis(step.axis).extent
        }
        loads = [load for load in own.loads if operand in (None, load.tensor)]
        return any(padded & set(index.variables) for load in loads for index in load.indices)

    def statements(self) -> dict[tuple[str, str], Statement]:
        """What has a counterpart in MLIR, by its role and name there.

        A result is written where it belongs by the operation that computes it.
        """
        found = {}
        for statement in self.nest.statements:
            name = statement.stage
            if statement.role == "pack":
                name = f"{name}.{statement.name.removesuffix('.pack')}"
            if statement.role != "write":
                found[statement.role, name] = statement
        return found

    def buffers(self, ending: str = "") -> Buffers:
        """Shapes and types of the buffers whose names end so."""
        return Counter(
            (without_ones(tuple(map(self.number, buffer.shape))), MLIR_TYPES[buffer.dtype])
            for buffer in self.nest.buffers
            if buffer.name.endswith(ending)
        )


def compare_statements(candidate: Candidate, lowered: LoweredNest) -> None:
    """Hold what a schedule makes of a program against the nest."""
    tape = Tape(candidate)
    split = {
        name
        for step in candidate.sketch.steps
        if isinstance(step, SplitReduction)
        for name in (step.stage, partial_name(step.stage))
    }
    incomplete = incomplete_lanes(candidate.sketch)
    # What pads an operand that is then transposed is a part of that copy.
    copied = [it for it in lowered.statements if it.role != "margin"]
    statements = without_inlined(candidate.sketch, copied)
    where = f"{candidate.sketch.name} {candidate.config}"
    expected = tape.statements()
    assert Counter((it.role, it.name) for it in statements) == Counter(list(expected)), where
    for found in statements:
        statement = expected[found.role, found.name]
        at = f"{statement.name} of {where}"
        if found.name in split:
            compare_partial(tape, statement, found, at, incomplete)
        elif found.role == "pack":
            compare_copy(tape, statement, found, candidate.sketch, at)
        else:
            compare_in_order(tape, statement, found, at)


def compare_copy(
    tape: Tape, statement: Statement, found: LoweredStatement, sketch: Sketch, at: str
) -> None:
    """The loops around a copy, and how far it reaches.

    MLIR copies vectors where the step leaves that to the compiler; it makes a transposed copy
    in the order of the copy, which the nest makes in that of the operand; and it makes the loop
    over vectors of a whole operand's rows as two, over blocks and over what is inside of one.
    Of one that it pads, the loops over blocks are the outer ones.
    """
    extents = tape.extents(statement)
    while extents and extents[-1] == 1:
        extents.pop()
    copied = (*found.loops, *without_ones(found.iterations))
    whole = is_packed_so(sketch, found.name, "pack.whole")
    if whole and tape.is_padded(statement.stage, found.name.partition(".")[2]):
        assert math.prod(extents) == math.prod(copied), at
    elif not is_packed_so(sketch, found.name, "pack.transposed"):
        around = extents[: -2 if whole else -1]
        assert any(equal(around, copied[:count]) for count in range(len(copied) + 1)), at
    assert COMPUTED in copied or math.prod(extents) == math.prod(copied), at


def compare_in_order(tape: Tape, statement: Statement, found: LoweredStatement, at: str) -> None:
    """The loops in their order; what is inside them, by axis."""
    inside = [
        tape.iterations(statement, outer)
        for outer in all_consumed(tape.extents(statement), found.loops)
    ]
    # What reads a transposed copy has a dimension of one iteration more: the block's.
    assert any(
        same((*iterations, 1)[: len(found.iterations)], found.iterations) for iterations in inside
    ), at


def same(extents: Sequence[int], found: Sequence[int]) -> bool:
    """Whether extents are those found, of which those of padded tiles may be computed."""
    return len(extents) == len(found) and all(
        number in (extent, COMPUTED) for extent, number in zip(extents, found, strict=True)
    )


def incomplete_lanes(sketch: Sketch) -> set[str]:
    """Loops over lanes, of which there are fewer in the last round."""
    return {
        f"{partial_name(step.stage)}.{lane_axis(step.axis)}.0"
        for step in sketch.core_steps
        if isinstance(step, SplitReduction) and "split_reduction.uneven" in names_used(sketch)
    }


def compare_partial(
    tape: Tape, statement: Statement, found: LoweredStatement, at: str, incomplete: set[str]
) -> None:
    """The loops in any order: MLIR reduces one row's partial results after the other.

    The levels of a reduced axis are one loop, which is unrolled in part. Results of rows may be
    initialised in front of the loop over them. Of lanes that are incomplete in the last round,
    the number is computed.
    """
    if statement.role == "init":
        everything = (*found.loops, *found.iterations)
        assert math.prod(tape.extents(statement)) == math.prod(everything), at
        return
    extents: dict[str, int] = {}
    for loop in statement.loops:
        axis = loop.name.rpartition(".")[0]
        reduced = axis.startswith(f"{statement.stage}.") and "*" not in axis
        name = axis if reduced else loop.name
        extents[name] = extents.get(name, 1) * tape.number(loop.extent)
        if loop.name in incomplete:
            extents[name] = COMPUTED
    expected = sorted(without_ones(list(extents.values())))
    assert expected == sorted((*found.loops, *without_ones(found.iterations))), at


def without_inlined(
    sketch: Sketch, statements: Sequence[LoweredStatement]
) -> list[LoweredStatement]:
    """Statements without those of inlined stages, which are operations beside their readers.

    One that pads and is inlined into a copy is that copy.
    """
    copies = {
        step.operand: f"{step.stage}.{step.operand}"
        for step in sketch.steps
        if isinstance(step, Pack)
    }
    inlined = {step.stage for step in sketch.steps if isinstance(step, Inline)}
    kept = []
    for statement in statements:
        name = statement.name.partition(">")[0]
        if name not in inlined:
            kept.append(statement)
        elif name in copies:
            kept.append(evolve(statement, role="pack", name=copies[name]))
    return kept


def is_packed_so(sketch: Sketch, name: str, variant: str) -> bool:
    """Whether a copy is such a variant of packing."""
    for step in sketch.steps:
        if isinstance(step, Pack) and f"{step.stage}.{step.operand}" == name:
            return variant in step_names(step, sketch.workload)
    return False


def is_of(buffer: LoweredBuffer, shape: Sequence[int], kind: str) -> bool:
    """Whether a buffer is one of the nest: of its shape, which may be computed, and its type."""
    return buffer.element == kind and equal((*shape, *[1] * len(buffer.shape)), buffer.shape)


def compare_buffers(candidate: Candidate, lowered: LoweredNest) -> None:
    """Hold the buffers of a whole program against the nest: all copies, and nothing else.

    What is small enough is in registers. Nothing is copied that the schedule does not say, but for
    a result on its way from them to memory.
    """
    tape = Tape(candidate)
    where = f"{candidate.sketch.name} {candidate.config}"
    # One whose extents are computed is the smallest that it may be: a part of a tile.
    known = sorted(tape.buffers(), key=lambda it: math.prod(it[0]))
    buffers = Counter(
        next(
            ((shape, kind) for shape, kind in known if is_of(buffer, shape, kind)),
            (buffer.shape, ""),
        )
        for buffer in lowered.buffers
    )
    tile = max((math.prod(shape) for shape, _ in tape.buffers(".tile")), default=0)
    if any(tape.is_padded(stage.name) for stage in candidate.sketch.workload.stages):
        # Besides copies there are parts of tiles, and vectors that are read to be transposed.
        small = max(tile, VECTOR)
        assert tape.buffers(".pack") <= buffers, where
        assert all(math.prod(shape) <= small for shape, _ in buffers - tape.buffers()), where
    else:
        assert tape.buffers(".pack") <= buffers <= tape.buffers(), where
    assert all(math.prod(copy.iterations) <= tile for copy in lowered.copies), where


@pytest.mark.parametrize("target", ["haswell-2core", "skylake-avx512-4core"])
@pytest.mark.parametrize("workload", thinned(ALIGNED_WORKLOADS, 3, 2))
def test_loops_and_allocations_are_those_of_the_lowered_program(
    workload: Workload, target: str
) -> None:
    space = SketchSpace(workload, preset(target), MLIRBackend().limits(preset(target)))
    for candidate in space.sample(2 * len(space.sketches()), np.random.default_rng(0)):
        program, script = program_of(workload, None, candidate), schedule(candidate, workload)
        compare_statements(candidate, lowered_nest(program, script))
        compare_buffers(candidate, lowered_nest(program, script, MAIN))


@pytest.mark.parametrize(
    "workload",
    thinned([*PADDED_OPERANDS, *SPLIT_REDUCTIONS, softmax(m=5, n=203)], 3),
)
def test_padded_columns_and_partial_results_are_those_of_the_nest(workload: Workload) -> None:
    target = preset("haswell-2core")
    for candidate in candidates(workload, target, 1):
        program, script = program_of(workload, None, candidate), schedule(candidate, workload)
        compare_statements(candidate, lowered_nest(program, script))
        compare_buffers(candidate, lowered_nest(program, script, MAIN))


@pytest.mark.parametrize(
    "workload", [shared_factor(), shared_factor(8, 4, 6, 32, 16), shared_factor(7, 7, 5, 47, 9)]
)
def test_what_batches_share_is_packed_once(workload: Workload) -> None:
    target = preset("haswell-2core")
    for candidate in candidates(workload, target, 2):
        program, script = program_of(workload, None, candidate), schedule(candidate, workload)
        compare_statements(candidate, lowered_nest(program, script))
        compare_buffers(candidate, lowered_nest(program, script, MAIN))


@pytest.mark.parametrize("target", ["haswell-2core", "skylake-avx512-4core"])
def test_tiles_of_attention_are_those_of_the_nest(target: str) -> None:
    workload = with_epilogue(attention(h=2, n=16, d=32))
    found = [
        it for it in candidates(workload, preset(target), 4) if it.sketch.name == "attention-tiles"
    ]
    assert found
    for candidate in found:
        program, script = program_of(workload, None, candidate), schedule(candidate, workload)
        compare_statements(candidate, lowered_nest(program, script))
        compare_buffers(candidate, lowered_nest(program, script, MAIN))


def test_a_program_without_a_schedule() -> None:
    lowered = lowered_nest(payload(softmax(m=5, n=7)), None)
    assert [(it.role, it.name, it.iterations) for it in lowered.statements] == [
        ("init", "M", (5,)),
        ("compute", "M", (5, 7)),
        ("compute", "E", (5, 7)),
        ("init", "S", (5,)),
        ("compute", "S", (5, 7)),
        ("compute", "Y", (5, 7)),
    ]
    assert {it.loops for it in lowered.statements} == {()}
    assert sorted(buffer.shape for buffer in lowered.buffers) == [(5,), (5,), (5, 7)]


def script(*sizes: list[int], name: str = "structure") -> str:
    """Rows and columns on several threads, and inside of them one loop after the other."""
    lines = [
        "%C = transform.structured.match attributes {autotune.stage = "
        '"C"} in %root : (!transform.any_op) -> !transform.any_op',
        "%tile0, %all = transform.structured.tile_using_forall %C tile_sizes [4, 8, 0] "
        ": (!transform.any_op) -> (!transform.any_op, !transform.any_op)",
        "%init = transform.structured.match attributes {autotune.init = "
        '"C"} in %root : (!transform.any_op) -> !transform.any_op',
        "transform.structured.fuse_into_containing_op %init into %all : "
        "(!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)",
    ]
    for number, size in enumerate(sizes):
        lines.append(
            f"%tile{number + 1}, %loop{number} = transform.structured.tile_using_for "
            f"%tile{number} tile_sizes {size} "
            ": (!transform.any_op) -> (!transform.any_op, !transform.any_op)"
        )
    body = "\n".join([*lines, "transform.yield"])
    return (
        "module attributes {transform.with_named_sequence} {\n"
        f"transform.named_sequence @{name}(%root: !transform.any_op {{transform.readonly}}) {{\n"
        f"{body}\n}}\n}}\n"
    )


PROGRAM = payload(gemm(m=8, n=24, k=6))


def test_loops_of_a_script_by_hand() -> None:
    lowered = lowered_nest(PROGRAM, script([0, 8, 0], [0, 0, 2]))
    # The two dimensions of the parallel loop are one; the loop over columns has one iteration.
    assert lowered.statements == (
        LoweredStatement("init", "C", (6,), (4, 8)),
        LoweredStatement("compute", "C", (6, 3), (4, 8, 2)),
    )
    assert lowered.buffers == ()


def test_a_tile_that_does_not_divide() -> None:
    lowered = lowered_nest(PROGRAM, script([0, 0, 4]))
    assert lowered.statements[-1] == LoweredStatement("compute", "C", (6, 2), (4, 8, COMPUTED))
    lowered = lowered_nest(PROGRAM, script([0, 0, 4], [0, 0, 2]))
    assert lowered.statements[-1].loops == (6, 2, COMPUTED)


def test_a_script_without_the_sequence() -> None:
    with pytest.raises(InvalidSchedule, match="@structure"):
        lowered_nest(PROGRAM, script(name="loops"))
