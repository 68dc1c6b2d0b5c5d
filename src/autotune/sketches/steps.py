"""Schedule steps: intents that every backend replays with its own primitives.

Loops are named ``axis.level`` (``i.0`` is the outermost level of axis ``i``); an axis that is
not tiled is one loop ``axis.0``. Statements are named after the stage they belong to:
``C`` (the computation), ``B.pack`` (the copy that packs operand ``B``), ``C.write`` (the copy
that writes an accumulate tile back). Steps are applied in order; within one stage the order is
pad, tile, order, then the rest.

Those of GPUs alone are in :mod:`autotune.sketches.steps`.
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from attrs import frozen

from autotune.errors import InvalidValueError, PluginError
from autotune.ir.converter import json_forms, tagged_objects
from autotune.ir.expressions import IntExpr
from autotune.plugins.manager import manager

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["STEP_CLASSES", "OpenStep"]

STEP_CLASSES: dict[str, type[Any]] = {}
"""The steps of the core, and those of plugins that were imported so far, by name."""


@frozen
class OpenStep(ABC):
    """A step that is not one of the core's: a frozen attrs class, registered as kind ``step``.

    It says what it does in one of three ways. One that stands for other steps returns them from
    :meth:`expanded`. One that does something new has an effect on the nest (:meth:`derive`): from
    the nest follow features, and the programs of every backend that prints nests. One that is a
    whole schedule of a compiler's own is ``opaque``, and has a :meth:`replay` on its ``backends``.

    Attributes:
        name: What plugins, records and limits call it: lower-case letters, digits and ``_``.
        opaque: Whether it is a whole schedule that describes no loops: the only step of its
            sketch, which then has no symbolic nest.
        backends: Of an opaque step, names of the backends that :meth:`replay` knows.
        stage: The stage that it is about.

    Raises:
        PluginError: the class has the name of another step, or says in two ways what it does.
    """

    name: ClassVar[str]
    backends: ClassVar[frozenset[str]] = frozenset()
    opaque: ClassVar[bool] = False
    stage: str

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        known = STEP_CLASSES.get(cls.name)
        # attrs makes a class twice.
        if known is not None and (known.__module__, known.__qualname__) != (
            cls.__module__,
            cls.__qualname__,
        ):
            raise PluginError(f"step {cls.name!r} is both {known!r} and {cls!r}")
        if not cls.opaque and (cls.backends or cls.replay is not OpenStep.replay):
            raise PluginError(
                f"step {cls.name!r} of {cls.__module__} has a replay or names backends, as steps "
                "had before plugin interface 3; its effect on the nest (derive) is enough now, "
                "and only opaque steps have those"
            )
        STEP_CLASSES[cls.name] = cls

    def expanded(self) -> tuple[Any, ...]:
        """The steps that it stands for; itself where it does something new."""
        return (self,)

    def derive(self, schedules: Mapping[str, Any]) -> None:
        """Its effect on the symbolic nest.

        Args:
            schedules: The :class:`autotune.nest.emission.StageSchedule` of every stage, as
                the steps before have left it, to be changed.
        """
        raise InvalidValueError(f"step {self.name!r} has no effect on the nest")

    def replay(self, backend: str, state: Any, config: Mapping[str, int]) -> None:
        """Schedule a program in a compiler; for opaque steps.

        Args:
            backend: One of ``backends``.
            state: What that backend schedules; see ``docs/plugins.md``.
            config: Values of the sketch's parameters.
        """
        raise InvalidValueError(f"backend {backend!r} cannot replay step {self.name!r}")


BIND_ROLES = ("block", "vthread", "thread_y", "thread")
"""Levels of a GPU that :class:`Bind` binds loops to."""


# Loops are bound to the levels of the machine (:class:`Bind`). A buffer inside a thread's
# loop is in registers (scope ``local``), one that only a block's loop encloses is in shared memory
# (``shared``), any other is in global memory.
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


@frozen
class Inline:
    """Compute ``stage`` inside its consumers; it has no buffer and no loops of its own."""

    stage: str


@frozen
class PadExtent:
    """Iterate ``axis`` of ``stage`` to ``extent``, which is at least the axis's own extent.

    Every operand that depends on the axis is packed and the result is accumulated in a tile:
    reads beyond the original extent see zero, results beyond it are dropped.
    """

    stage: str
    axis: str
    extent: IntExpr


@frozen
class SplitReduction:
    """Reduce ``axis`` of ``stage`` in ``lanes`` interleaved partial results, then over those.

    The partial results are a stage of their own, called by
    :func:`~autotune.sketches.rewrites.partial_name`; its lane axis can be vectorised. Where
    ``lanes`` does not divide the axis, the last round has fewer elements than lanes. Sums of
    floats are reassociated.
    """

    stage: str
    axis: str
    lanes: int


@frozen
class ChunkReduction:
    """Reduce ``axis`` of ``stage`` in ``chunks`` consecutive parts, then combine their results.

    As :class:`SplitReduction`, but each partial result is of neighbours: parts for cores, where
    that one has lanes of a vector. ``chunks`` divides the axis.
    """

    stage: str
    axis: str
    chunks: int


@frozen
class ChunkScan:
    """Scan each of ``chunks`` consecutive parts of ``stage`` by itself, then continue all of them.

    The stage becomes one without an order, which combines the scan of a part with the result of
    all parts before: see :func:`~autotune.sketches.rewrites.chunk_scan`. ``chunks`` divides the
    axis. Sums of floats are reassociated.
    """

    stage: str
    chunks: int


@frozen
class Im2col:
    """Compute ``stage``, a convolution, as products of matrices ("implicit GEMM").

    Rows and columns are as :func:`~autotune.sketches.matrix_form` finds them, the terms all that
    is summed over: axes of the stage and of what follows it are as
    :func:`~autotune.sketches.im2col` makes them. Two stages gather the elements of its factors;
    steps that follow compute these in the copies of the factors, so that the matrices are never in
    memory as wholes. Comes before all other steps.
    """

    stage: str


@frozen
class Tile:
    """Split ``axis`` into loops with the given extents, outermost first."""

    stage: str
    axis: str
    factors: tuple[IntExpr, ...]


@frozen
class Order:
    """The loops of ``stage``, outermost first; every loop of the stage appears once."""

    stage: str
    loops: tuple[str, ...]


@frozen
class Pack:
    """Copy the part of ``operand`` that ``stage`` reads inside loop ``at`` into a buffer.

    ``at`` is None for the whole operand, copied before the stage in a parallel loop nest of
    its own. With ``block_dim`` the buffer's layout is ``[operand[block_dim] // block, the
    other dimensions in order, operand[block_dim] % block]``; without it the layout is kept.
    The copy's loops follow the operand's dimensions; the innermost is split into vectors of
    ``lanes``, which divide it (1: not vectorised).
    """

    stage: str
    operand: str
    at: str | None
    block_dim: int | None
    block: IntExpr | None
    lanes: int


@frozen
class Interleave:
    """Lay the packed copy of ``operand`` out with ``size`` neighbours along ``dim`` innermost.

    Follows the step that packs the operand in blocks of another dimension: the layout becomes
    ``[operand[block_dim] // block, the other dimensions with operand[dim] // size,
    operand[block_dim] % block, operand[dim] % size]``, as instructions read it that multiply
    groups of neighbours. ``size`` divides the (padded) extent of ``dim``. The copy handles
    ``size`` vectors at a time: the loop over ``dim`` is split by ``size``, and the inner part
    comes just outside the vector, or is the vector where ``dim`` is the operand's last dimension.
    """

    stage: str
    operand: str
    dim: int
    size: int


@frozen
class Prepack:
    """Give the program the packed copy of ``operand``, which is made before it first runs.

    Follows the step that packs all of the operand before the stage (``at`` absent). The operand
    is a constant input of the workload that nothing else reads. A program that is used by itself,
    with operands that nobody has packed, still packs it whenever it runs.
    """

    stage: str
    operand: str


@frozen
class Accumulate:
    """Keep the result of ``stage`` inside loop ``at`` in a buffer, written back after the loops.

    ``write_factors`` split the innermost dimension of the write-back, the last one vectorised.
    """

    stage: str
    at: str
    write_factors: tuple[IntExpr, ...]


@frozen
class FuseConsumer:
    """Compute ``stage``, which reads ``producer`` point by point, inside the producer's loop.

    The producer's result then lives in a buffer inside loop ``at`` and is never written out.
    ``write_factors`` split the innermost axis of ``stage``, the last one vectorised.
    """

    stage: str
    producer: str
    at: str
    write_factors: tuple[IntExpr, ...]


@frozen
class FuseProducer:
    """Compute the part of ``stage`` that ``consumer`` needs inside its loop ``at``.

    The innermost loop is split into vectors of ``lanes``, which divide it (1: not vectorised).
    Steps that follow may tile axes that the consumer needs whole.
    """

    stage: str
    consumer: str
    at: str
    lanes: int


@frozen
class Parallel:
    """Fuse the given outermost loops of ``stage`` and run them on all cores."""

    stage: str
    loops: tuple[str, ...]


@frozen
class Vectorize:
    """Run ``loop`` of ``stage``, its innermost, as vector lanes."""

    stage: str
    loop: str


@frozen
class Unroll:
    """Unroll the given loops of ``stage`` completely."""

    stage: str
    loops: tuple[str, ...]


@frozen
class Tensorize:
    """Run the given innermost loops of ``stage`` as calls of one instruction, ``intrinsic``.

    ``intrinsic`` is the name of a declaration that
    :func:`~autotune.sketches.intrinsics.find_intrinsic` finds. The loops have exactly the extents
    of its axes; what they read lies in memory as it says. The last loop, over vector lanes,
    counts as vectorised, the others as unrolled.
    """

    stage: str
    loops: tuple[str, ...]
    intrinsic: str


@frozen
class TileCeil:
    """Split ``axis`` into loops whose product is at least its extent, outermost first.

    Iterations beyond the extent are skipped by a condition. For axes whose extent has no useful
    factors and along which nothing is tiled; follows the step that fuses the stage.
    """

    stage: str
    axis: str
    factors: tuple[IntExpr, ...]


@frozen
class UnrollLimit:
    """Let the compiler unroll loops inside the outermost loop of ``stage``.

    It unrolls what makes at most ``limit`` statements; 0 unrolls nothing.
    """

    stage: str
    limit: IntExpr


@frozen
class Stream:
    """Write the result of ``stage`` past the caches where ``choice`` is 1; 0: as usual.

    For results that no cache holds until they are read again: a store past the caches saves
    reading the lines that it overwrites. The stage is an output of the workload.
    """

    stage: str
    choice: IntExpr


@frozen
class SoftwarePipeline:
    """Run ``stage`` one iteration of its loop ``loop`` late, inside the loops of ``inside``.

    What the stage reads of the stages that are fused at ``loop`` stays until then: ``inside`` is
    one of them, before any that overwrites it. Computing one row so overlaps with the stores of
    the row before.
    """

    stage: str
    loop: str
    inside: str


@frozen
class Prefetch:
    """Ask for what ``stage`` reads of ``operand`` in the next iteration of loop ``at``.

    ``at`` is a loop of ``consumer``, in which the stage is computed; a stage may be its own. It
    asks in each iteration of its own loops, where ``choice`` is 1; 0: not at all. For inputs that
    no cache holds, and stages on what the caches hold by then.
    """

    stage: str
    operand: str
    consumer: str
    at: str
    choice: IntExpr


def are_distances(stride: int, least: IntExpr | None) -> bool:
    """Tell if positions of a bounded loop are distances, and end at one: a causal mask's."""
    return stride == -1 and least is None


@frozen
class BoundLoop:
    """Run only those iterations of ``loop`` of ``stage`` that compute anything of use.

    A point is at the position ``scale`` times the loop's own axis plus ``stride`` times ``axis``.
    An iteration is run where its least position is at most ``offset``, and its greatest at least
    ``least`` if there is one: what others would compute is neutral, or never read. Under a causal
    mask positions are distances of columns from rows (``stride`` -1), in a window places in what
    it moves over. The loop is serial, and its axis is not covered. What is allocated, and what a
    loop may touch at most, stays as it is.
    """

    stage: str
    loop: str
    axis: str
    offset: IntExpr
    scale: int
    stride: int = -1
    least: IntExpr | None = None

    @property
    def is_causal(self) -> bool:
        """Truth of :func:`are_distances` for this step."""
        return are_distances(self.stride, self.least)


Step = (
    Inline
    | PadExtent
    | SplitReduction
    | ChunkReduction
    | ChunkScan
    | Im2col
    | Tile
    | Order
    | Pack
    | Interleave
    | Prepack
    | Accumulate
    | FuseConsumer
    | FuseProducer
    | Parallel
    | Vectorize
    | Unroll
    | Tensorize
    | WarpTensorize
    | Bind
    | CooperativeFetch
    | SharedLayout
    | PipelineFetches
    | CoreMatrices
    | BulkCopy
    | TileCeil
    | UnrollLimit
    | Stream
    | SoftwarePipeline
    | Prefetch
    | BoundLoop
    | OpenStep
)

STEP_SPELLINGS = {"cooperative_fetch": "fetch", "tile_ceil": "cover"}
"""Further names that are read; those of `STEP_TYPES` are written, for digests depend on them."""


def _written_name(step: type[Any]) -> str:
    """The name of a class with underscores in it, or the shorter one that is written instead."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", step.__name__).lower()
    return STEP_SPELLINGS.get(name, name)


STEP_TYPES: dict[str, type[Any]] = {
    _written_name(step): step for step in get_args(Step) if step is not OpenStep
}
CORE_STEP_NAMES = frozenset({*STEP_TYPES, *STEP_SPELLINGS})
"""Names that no plugin may register."""
GPU_STEP_NAMES = frozenset(
    {
        *("bind", "bulk_copy", "core_matrices", "fetch", "im2col", "pipeline_fetches"),
        *("shared_layout", "warp_tensorize"),
    }
)
"""Names of the steps that only schedules of GPUs have."""
STEP_CLASSES.update(STEP_TYPES)
STEP_NAMES = {cls: name for name, cls in STEP_TYPES.items()}


def step_name(step: Step) -> str:
    """The name under which a step is written, in records and in limits."""
    return step.name if isinstance(step, OpenStep) else STEP_NAMES[type(step)]


def inlined_stages(steps: Iterable[Step]) -> frozenset[str]:
    """Names of the stages that are computed where they are read."""
    return frozenset(step.stage for step in steps if isinstance(step, Inline))


def _import_step(name: str) -> None:
    """Import the plugin that brings a step, if there is one: its class is then known."""
    if name not in manager().names("step"):
        return
    found = manager().factory("step", name)
    if STEP_CLASSES.get(name) is not found:
        raise PluginError(f"step {name!r} is registered as {found!r}, which has another name")


@json_forms
def _forms(converter: Converter) -> None:
    tagged_objects(
        *(converter, Step, "step", "step", STEP_CLASSES),
        spellings=STEP_SPELLINGS,
        find=_import_step,
        added={BoundLoop: ("stride", "least")},
    )
