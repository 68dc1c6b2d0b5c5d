"""Costs of matrix instructions for a warp: cycles of its tensor core, fragments, their loads.

A statement that warps run as matrix instructions reads as a thread's loops; its costs do not. One
step loads every fragment of the warp's tile once, and multiplies each of one factor with each of
the other. Instructions of warpgroups read both factors from shared memory themselves: each of the
four warps its own rows of the left one, and all of them together the right one.
"""

from __future__ import annotations

from attrs import frozen

from autotune.ir.element_types import element_type
from autotune.ir.expressions import IntExpr, ceildiv, const, maximum, minimum
from autotune.models.pruning.launches import trip_count
from autotune.nest.loop_nest import Access, LoopNest, Statement
from autotune.nest.quantities.strides import layout_of
from autotune.sketches.intrinsics import Fragment, Intrinsic, IntrinsicOperand, find_intrinsic
from autotune.sketches.intrinsics.fragment import WARPGROUP_LANES
from autotune.targets import Target

__all__ = [
    "FragmentLoads",
    "fragment_loads",
    "fragment_registers",
    "matrix_instructions",
    "matrix_slots",
    "waiting_slots",
]

SLOTS_PER_CYCLE = 16

# Loops of a warp's tile: fragments of either factor, what a lane has of one, and its steps.
_TILE_LOOPS = 5
# 8x8 matrices of 16-bit elements: 8 rows of 16 bytes, of which an instruction loads four.
_ROWS, _ROW_BYTES, _MATRICES, _BANKS_BYTES = 8, 16, 4, 128
# Sixteenths of an instruction whose dependence takes as long as that of one matrix instruction,
# about 33 cycles on sm_80, where as many are independent as the tensor core has in flight.
_DEPENDENT_SLOTS, _FEWEST_CHAINS, _MOST_CHAINS = 315, 2, 4
# Instructions of warps reach so much of the rate of tensor cores that have those of warpgroups:
# on average 62.9 % of the peak of an H800, where `wgmma` reaches 95 % (Luo et al., "Benchmarking
# and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", arXiv 2402.13499).
_SHARE_OF_WARPS = 0.63
_OF_WARPGROUP = "wgmma-m64n8k16"
_WARP = 32


@frozen
class FragmentLoads:
    """Loads of one factor's fragments.

    Attributes:
        instructions: Of a warp.
        wavefronts: Of shared memory.
        bytes: That one thread receives.
        steps: How often the warp waits for them.
    """

    instructions: IntExpr
    wavefronts: IntExpr
    bytes: IntExpr
    steps: IntExpr


def matrix_instructions(statement: Statement) -> IntExpr:
    """Matrix instructions of a warp; of a warpgroup, each for every eight columns."""
    down, across, *_ = statement.loops[-_TILE_LOOPS:]
    return _steps(statement) * down.extent * across.extent


def matrix_slots(statement: Statement, target: Target) -> IntExpr:
    """Sixteenths of a cycle in which a scheduler's tensor core works for one warp.

    By the target's rate for the type of the factors; where it has none, by that of float32. A
    warpgroup's instruction keeps those of four schedulers busy, a quarter each.
    Where there are such instructions, those of warps reach 0.63 of the rate (Luo et al., arXiv
    2402.13499).
    """
    call = find_intrinsic(statement.intrinsic)
    rate = target.tensor_peak_flops.get(call.left.dtype, target.peak_flops.get("float32", 0.0))
    if not call.is_of_warpgroup and find_intrinsic(_OF_WARPGROUP).supported_by(target):
        rate = rate * _SHARE_OF_WARPS
    units = target.clock * target.multiprocessors * max(1, target.warp_schedulers)
    flop = 2 * call.result.elements * call.reduce_axes[0].extent * _WARP // call.lanes
    cycles = flop * units / rate if rate and units else flop / (2 * target.warp_size)
    return matrix_instructions(statement) * max(1, round(SLOTS_PER_CYCLE * cycles))


def waiting_slots(statement: Statement) -> IntExpr:
    """Slots of ordinary instructions that depend on each other for as long as these do.

    A group of instructions of a warpgroup is waited for once.
    """
    down, across, *_ = statement.loops[-_TILE_LOOPS:]
    if find_intrinsic(statement.intrinsic).is_of_warpgroup:
        return _groups(statement) * _DEPENDENT_SLOTS
    chains = maximum(down.extent * across.extent, _FEWEST_CHAINS)
    return matrix_instructions(statement) * _DEPENDENT_SLOTS // minimum(chains, _MOST_CHAINS)


def fragment_registers(statement: Statement) -> IntExpr:
    """Registers of a thread for the fragments of one step."""
    call = find_intrinsic(statement.intrinsic)
    if call.is_of_warpgroup:
        return const(0)
    down, across, *_ = statement.loops[-_TILE_LOOPS:]
    left = down.extent * _registers(call, call.left)
    return left + across.extent * _registers(call, call.right)


def fragment_loads(nest: LoopNest, statement: Statement, access: Access) -> FragmentLoads:
    """Loads of the fragments of one factor, which an access of the statement reads."""
    call = find_intrinsic(statement.intrinsic)
    down, across, *_ = statement.loops[-_TILE_LOOPS:]
    moving = {axis for form in access.forms for axis in form.coefficients}
    is_left = any(axis in moving for axis, _ in down.parts)
    if call.is_of_warpgroup:
        return _read_by_warpgroup(statement, call.left if is_left else call.right, is_left=is_left)
    operand, fragments = (call.left, down) if is_left else (call.right, across)
    held = _registers(call, operand)
    steps = _steps(statement)
    matrices = fragments.extent * held
    return FragmentLoads(
        steps * ceildiv(matrices, _MATRICES),
        steps * matrices * _conflicts(nest, access),
        steps * matrices * 4,
        steps,
    )


def _read_by_warpgroup(
    statement: Statement, operand: IntrinsicOperand, *, is_left: bool
) -> FragmentLoads:
    """Cost of a warp's share of reading a factor, which no instruction of its own loads.

    Each instruction reads its 64 rows, or all its columns: core matrices are 128 bytes in a row,
    which meet no bank twice.
    """
    down, across, *_ = statement.loops[-_TILE_LOOPS:]
    read = _steps(statement) * down.extent * (operand.bytes // (WARPGROUP_LANES // _WARP))
    read = read if is_left else read * across.extent
    return FragmentLoads(const(0), ceildiv(read, _BANKS_BYTES), ceildiv(read, _WARP), const(0))


def _groups(statement: Statement) -> IntExpr:
    """Number of times that the loops of the tile are run."""
    return trip_count(
        loop for loop in statement.loops[:-_TILE_LOOPS] if loop.kind not in ("block", "thread")
    )


def _steps(statement: Statement) -> IntExpr:
    """Steps of the reduction that a warp takes."""
    depth = find_intrinsic(statement.intrinsic).reduce_axes[0].extent
    return _groups(statement) * (statement.loops[-1].extent // depth)


def _conflicts(nest: LoopNest, access: Access) -> IntExpr:
    """Wavefronts of one matrix: its rows are as far apart in memory as those of the copy."""
    row = layout_of(nest, access.buffer).shape[-1] * nest.element_bytes(access.buffer)
    apart = maximum(row // _ROW_BYTES, 1)
    places = _BANKS_BYTES // _ROW_BYTES
    # Rows whose distance shares a power of two with the places meet as often as that says.
    shared: IntExpr = const(1)
    power = 2
    while power <= places:
        shared = maximum(shared, power * (1 - minimum(apart % power, 1)))
        power *= 2
    return shared


def _registers(call: Intrinsic, operand: IntrinsicOperand) -> int:
    fragment: Fragment | None = operand.fragment
    if fragment is None:
        return -(-operand.elements * element_type(operand.dtype).bytes // (32 * 4))
    return fragment.registers(operand.dtype)
