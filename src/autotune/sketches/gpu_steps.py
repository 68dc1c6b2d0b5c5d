"""Schedule steps of GPUs: threads, what they fetch, and what warps compute.

Loops are bound to the levels of the machine (:class:`Bind`). A buffer inside a thread's
loop is in registers (scope ``local``), one that only a block's loop encloses is in shared memory
(``shared``), any other is in global memory.
"""

from __future__ import annotations

from attrs import frozen

from autotune.ir.expressions import IntExpr

__all__ = [
    "BIND_ROLES",
    "Bind",
    "BulkCopy",
    "CooperativeFetch",
    "CoreMatrices",
    "PipelineFetches",
    "SharedLayout",
    "WarpTensorize",
]

BIND_ROLES = ("block", "vthread", "thread_y", "thread")
"""Levels of a GPU that :class:`Bind` binds loops to."""


@frozen
class WarpTensorize:
    """Run the given innermost loops of all threads of a warp as matrix instructions of the warp.

    ``intrinsic`` names a declaration whose result has a fragment. The last levels of each axis of
    the stage are as one call has them: a thread keeps the results that the fragment gives to its
    lane, and ``loops`` are what is left to a thread of the tile of its warp, with one call's steps
    of the reduction. Factors are read from copies in shared memory. All these loops are unrolled.
    An instruction of a warpgroup is one of four warps: it takes all columns of the tile, and the
    last loop may have several calls' steps of the reduction.
    """

    stage: str
    loops: tuple[str, ...]
    intrinsic: str


@frozen
class Bind:
    """Fuse the given consecutive loops of ``stage`` and run them on one level of a GPU.

    ``role`` is one of :data:`BIND_ROLES`: ``block`` (the blocks of the grid), ``vthread``
    (virtual threads, which one thread interleaves), ``thread`` (the threads of a block) or
    ``thread_y`` (a second dimension of them, in loops around those of ``thread``, bound before
    these). All loops of one kernel that are bound to one dimension have one extent. Where the
    loops are those of a reduce axis, the partial results of the threads along their dimension
    are combined.
    """

    stage: str
    loops: tuple[str, ...]
    role: str


@frozen
class CooperativeFetch:
    """Copy what a whole block reads of ``operand`` inside loop ``at`` into shared memory.

    ``at`` is a loop of ``stage`` inside its blocks, virtual threads and threads. All
    threads copy together: the loops over the copied region are fused and split into
    ``[ceil(elements / (threads * lanes)), threads, lanes]``, of which the second is bound to the
    threads of the block, of which there are ``threads``, and the last is vectorised. The copy
    is called ``OPERAND.fetch``.
    """

    stage: str
    operand: str
    at: str
    threads: IntExpr
    lanes: IntExpr


@frozen
class SharedLayout:
    """Lay the fetched copy of ``operand`` out with other rows, so that threads meet no bank twice.

    Follows the step that fetches the operand. ``dims`` are the operand's dimensions in the order
    in which they are laid out, the last one along rows; ``pad`` elements that nothing reads
    follow each row. Vectors of the fetch stay aligned where their lanes divide ``pad``.
    """

    stage: str
    operand: str
    dims: tuple[int, ...]
    pad: IntExpr


@frozen
class PipelineFetches:
    """Fetch what ``stage`` fetches inside loop ``at`` ahead of time, by asynchronous copies.

    Follows the steps that fetch there. Shared memory holds what ``depth`` iterations read: while
    threads compute on one part, the others are on their way past their registers. 1: everything
    is fetched when it is needed, as without the step. ``depth`` is at most the iterations.
    """

    stage: str
    at: str
    depth: IntExpr


@frozen
class CoreMatrices:
    """Lay the fetched copy of ``operand`` out in core matrices, as warpgroups' instructions read.

    Follows the step that fetches the operand. A core matrix is eight rows of 16 bytes that lie
    together; ``width`` elements are 16 bytes. Dimension ``dim`` of the operand is along these
    rows: its neighbours are in the same row, or in the same row of another plane. Indices in
    memory are ``[dim // width, the other dimensions, dim % width]``, and ``pad`` rows that nothing
    reads follow those of each plane, so that threads that store neighbours meet no bank twice.
    """

    stage: str
    operand: str
    dim: int
    width: int
    pad: IntExpr


@frozen
class BulkCopy:
    """Have the device's copy engine fetch ``operand``, in panels of swizzled rows.

    Follows the step that fetches the operand, an input that is copied as it is, with zeros beyond
    its ends; a step that fetches ahead follows. One thread asks for boxes of a tensor, and all
    wait until their bytes are there. A row of ``row`` elements along the operand's last dimension
    is 32, 64 or 128 bytes. Indices in memory are ``[last // row, the other dimensions, last %
    row]``; within eight rows, the 16 bytes of each are exchanged as the engine does it, and as
    warpgroups' instructions read them.
    """

    stage: str
    operand: str
    row: IntExpr
