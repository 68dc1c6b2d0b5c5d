"""Loop extents and allocations of programs that TVM has lowered.

Used to hold the symbolic loop nest against the truth. Lowering stops before unit, unrolled and
vectorised loops disappear.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm
from attrs import define, field, frozen
from autotune_tvm.emit import module_for
from autotune_tvm.replay import schedule
from autotune_tvm.scheduled import scheduled_module
from tvm import s_tir, tirx
from tvm.ir import IRModule

from autotune.backends import BuildRequest
from autotune.ir.element_types import element_type
from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.nest import derive_nest, nest_tape
from autotune.nest.loop_nest import Loop, LoopNest
from autotune.sketches import Candidate
from autotune.targets import Target

_LAUNCHED = ("thread_extent", "virtual_thread")
# What TVM adds for reductions across threads; the schedule knows nothing of it.
_SCRATCH = ("in_thread_", "cross_thread_")
_SCOPES = ("global", "shared", "local")


@frozen
class Kernel:
    """Launch and allocations of one kernel of a GPU program.

    Attributes:
        blocks: Blocks of the grid.
        vthreads: Virtual threads of each thread.
        threads: Threads of a block.
        shared_bytes: Shared memory of a block.
        local_bytes: Local buffers of one virtual thread.
        rows: Extent of the second dimension of the threads.
    """

    blocks: int
    vthreads: int
    threads: int
    shared_bytes: int
    local_bytes: int
    rows: int = 1

    @property
    def launch(self) -> tuple[int, int, int]:
        """Blocks, and the extents of the two dimensions of threads."""
        return self.blocks, self.threads // self.rows, self.rows


@frozen
class LoweredNest:
    """Extents of the loops around every store, and what is allocated, in program order.

    Loops and dimensions of extent 1 are left out. Loops that a GPU runs as blocks or threads
    count as loops; the scalars that TVM adds for a reduction across threads do not.

    Attributes:
        stores: Extents of the loops around each store, outermost first.
        allocations: Shape of each buffer.
        scopes: Memory that each buffer is in: global, shared or local.
        kernels: The kernels of a GPU program.
    """

    stores: tuple[tuple[int, ...], ...]
    allocations: tuple[tuple[int, ...], ...]
    scopes: tuple[str, ...]
    kernels: tuple[Kernel, ...]


def numbers_of(extents: Iterable[IntExpr], candidate: Candidate) -> tuple[int, ...]:
    """Evaluate extents of the nest for a candidate, without those of 1."""
    numbers = (int(evaluate(extent, candidate.config)) for extent in extents)
    return tuple(number for number in numbers if number != 1)


def stores_of(nest: LoopNest) -> list[list[Loop]]:
    """Loops around every store that TVM makes of the statements.

    A reduction across threads is three stores of TVM's: every thread initialises a partial result
    and adds to it, in loops inside the threads; the combined result is then written.
    """
    across: dict[str, list[Loop]] = {}
    reduces = {
        stage.name: {axis.name for axis in stage.reduce_axes} for stage in nest.workload.stages
    }
    for statement in nest.statements:
        inner = reduces[statement.stage] if statement.role == "compute" else set()
        own = [loop for loop in statement.loops if inner & {axis for axis, _ in loop.parts}]
        if any(loop.kind == "thread" for loop in own):
            across[statement.stage] = own
    found = []
    for statement in nest.statements:
        if statement.intrinsic:
            # One call for a thread's loops: what it stores is in no statement of TVM's.
            continue
        loops, own = list(statement.loops), across.get(statement.stage, [])
        threads = [loop for loop in own if loop.kind == "thread"]
        if statement.role == "init":
            loops += threads
            found += [loops] if threads else []
        elif statement.role == "compute" and own:
            loops = loops[: -len(own)] + threads + [loop for loop in own if loop not in threads]
        found.append(loops)
    return found


def compare(
    candidate: Candidate,
    lowered: LoweredNest,
    ahead: LoweredNest | None = None,
    *,
    in_boxes: bool = False,
) -> None:
    """Check loops and memory of a nest against those of the lowered program.

    Args:
        candidate: Loops that became calls are in no store; what a thread keeps of a fragment has a
            dimension for each level of its axes.
        lowered: As its schedule has it.
        ahead: As passes make it that fetch some iterations ahead.
        in_boxes: Whether the copy engine fills shared memory, of which sizes alone are compared.
    """
    nest = derive_nest(candidate.sketch)
    found = ahead or lowered
    calls = any(statement.intrinsic for statement in nest.statements)

    def compared(scope: str, extents: tuple[int, ...]) -> tuple[str, object]:
        whole = (
            in_boxes if scope == "shared" else calls and (scope == "local" or ahead is not None)
        )
        return scope, math.prod(extents) if whole else extents

    scopes = ("shared",) if in_boxes else _SCOPES
    own = [(it.scope, numbers_of(it.extents, candidate)) for it in nest.buffers]
    theirs = list(zip(found.scopes, found.allocations, strict=True))
    one, other = (
        Counter(compared(*it) for it in side if it[0] in scopes) for side in (own, theirs)
    )
    where = f"{candidate.sketch.name} {candidate.config}"
    stores = (numbers_of((loop.extent for loop in loops), candidate) for loops in stores_of(nest))
    assert Counter(stores) == Counter(lowered.stores), where
    assert one == other, where


def compare_kernels(candidate: Candidate, lowered: LoweredNest) -> None:
    """Check blocks, threads and memory on the tape against those of the lowered program."""
    tape = nest_tape(candidate.sketch)
    row = tape.tape.evaluate(np.array([candidate.values], dtype=np.int64))[0]
    value = {name: int(row[column]) for name, column in tape.tape.output_index.items()}
    launches: dict[str, tuple[int, ...]] = {}
    for statement in tape.nest.statements:
        counts = [value[f"{statement.name}/{kind}"] for kind in ("grid", "vthreads", "threads")]
        kernel = statement.loops[0].name
        known = launches.get(kernel, (1, 1, 1))
        launches[kernel] = tuple(map(max, known, counts))
    found = [(kernel.blocks, kernel.vthreads, kernel.threads) for kernel in lowered.kernels]
    assert list(launches.values()) == found
    assert value["shared_bytes"] == sum(kernel.shared_bytes for kernel in lowered.kernels)
    assert value["local_bytes"] == sum(kernel.local_bytes for kernel in lowered.kernels)


def check_matrices(candidate: Candidate, target: Target, *, in_boxes: bool = False) -> None:
    """Check loops and memory of a nest on tensor cores; see :func:`compare`."""
    workload = candidate.sketch.workload
    request = BuildRequest(workload, None, candidate, target, threads=1)
    lowered = lowered_nest(schedule(module_for(workload), candidate, workload).mod)
    ahead = lowered_nest(scheduled_module(request))
    compare(candidate, lowered, ahead, in_boxes=in_boxes)
    if not in_boxes:
        compare_kernels(candidate, ahead)


def lower_for_comparison(module: IRModule) -> IRModule:
    """``module`` after the passes that fix loop extents and allocations, and no further."""
    passes = [
        s_tir.transform.LowerCrossThreadReduction(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
    ]
    return tvm.ir.transform.Sequential(passes)(module)


def lowered_nest(module: IRModule) -> LoweredNest:
    """Stores, allocations and kernels of the scheduled ``module``.

    Raises:
        ValueError: loops of one kernel that are bound to its threads differ in extent.
    """
    reader = _Reader()
    reader.visit(lower_for_comparison(module)["main"].body, (), None)
    return LoweredNest(
        tuple(reader.stores),
        tuple(reader.allocations),
        tuple(reader.scopes),
        tuple(launch.kernel() for launch in reader.launches),
    )


@define(eq=False)
class _Launch:
    """A kernel while it is read: extents by thread axis, bytes by scope."""

    extents: dict[str, int] = field(factory=dict)
    allocated: dict[str, int] = field(factory=lambda: dict.fromkeys(_SCOPES, 0))

    def bind(self, tag: str, extent: int) -> None:
        if self.extents.setdefault(tag, extent) != extent:
            raise ValueError(f"{tag} has extents {self.extents[tag]} and {extent} in one kernel")

    def kernel(self) -> Kernel:
        counts = {
            level: math.prod(
                extent for tag, extent in self.extents.items() if tag.partition(".")[0] == level
            )
            for level in ("blockIdx", "vthread", "threadIdx")
        }
        return Kernel(
            counts["blockIdx"],
            counts["vthread"],
            counts["threadIdx"],
            self.allocated["shared"],
            self.allocated["local"],
            self.extents.get("threadIdx.y", 1),
        )


@define(eq=False)
class _Reader:
    """Walks a lowered function."""

    stores: list[tuple[int, ...]] = field(factory=list)
    allocations: list[tuple[int, ...]] = field(factory=list)
    scopes: list[str] = field(factory=list)
    launches: list[_Launch] = field(factory=list)

    def visit(self, node: Any, loops: tuple[int, ...], launch: _Launch | None) -> None:
        if isinstance(node, tirx.For):
            self.visit(node.body, _inside(loops, int(node.extent)), launch)
        elif isinstance(node, tirx.AttrStmt) and node.attr_key in _LAUNCHED:
            if launch is None:
                launch = _Launch()
                self.launches.append(launch)
            launch.bind(str(node.node.thread_tag), int(node.value))
            self.visit(node.body, _inside(loops, int(node.value)), launch)
        elif isinstance(node, tirx.SeqStmt):
            for item in node.seq:
                self.visit(item, loops, launch)
        elif isinstance(node, tirx.BufferStore):
            self.stores.append(loops)
        elif isinstance(node, tirx.IfThenElse):
            self.visit(node.then_case, loops, launch)
            if node.else_case is not None:
                self.visit(node.else_case, loops, launch)
        else:
            added = isinstance(node, tirx.AllocBuffer)
            if added and not str(node.buffer.name).startswith(_SCRATCH):
                self._allocate(node.buffer, launch)
            body = getattr(node, "body", None)
            if body is not None:
                self.visit(body, loops, launch)

    def _allocate(self, buffer: Any, launch: _Launch | None) -> None:
        shape = [int(extent) for extent in buffer.shape]
        strides = [int(stride) for stride in buffer.strides]
        for dimension in range(1, len(strides)):
            # Rows that are padded: what lies between the beginnings of two.
            shape[dimension] = strides[dimension - 1] // strides[dimension]
        # Memory that is asked for at a launch is shared memory like any other.
        scope = str(buffer.scope()).removesuffix(".dyn")
        self.allocations.append(tuple(extent for extent in shape if extent != 1))
        self.scopes.append(scope)
        if launch is not None:
            launch.allocated[scope] += math.prod(shape) * element_type(str(buffer.dtype)).bytes


def _inside(loops: tuple[int, ...], extent: int) -> tuple[int, ...]:
    return (*loops, extent) if extent != 1 else loops
