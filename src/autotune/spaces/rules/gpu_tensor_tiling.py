"""Matrix products on the tensor cores of a GPU: tiles of blocks, of warps, and of fragments.

The nest, for the rows ``i`` and columns ``j`` of the result and the reduce axis ``k``: ``i.0 j.0``
blocks, ``i.1 j.1`` warps, then the lanes of a warp as the fragment of the instruction's result has
them; ``k.0``, fetch of both factors into shared memory, ``k.1``, and the tile of a warp, which is
one group of instructions: ``i.2 j.2``, what a lane has of each fragment, and the instruction's own
steps of ``k``. Lanes and warps are the threads of a block. Results stay in registers over all of
``k`` and are written once, through the epilogue if there is one.

For instructions of warpgroups (``wgmma``), ``i.1 j.1`` are warpgroups, and the lanes are those of
four warps. Copies of both factors consist of core matrices, and one group of instructions takes
all terms of a fetch: ``k.1`` is inside the tile. Where both factors are plain inputs, another
sketch has the copy engine fetch them (:mod:`~autotune.spaces.rules.gpu_tensor_tiling`).

Convolutions are such products by step ``im2col``: what is fetched of one factor is gathered from
windows. Axes of the result beside rows and columns number products, each in blocks of its own.
Extents that no fragment divides are padded: what is fetched beyond them is zero, and
what is computed there is not written. The instructions know nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from attrs import evolve, frozen

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    AffineForm,
    Constant,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    const,
    less,
    product,
    select,
    var,
)
from autotune.ir.workloads import Axis, Stage
from autotune.nest.loop_nest import is_axis
from autotune.sketches import (
    AtLeast,
    AtMost,
    Bind,
    Constraint,
    CooperativeFetch,
    Factor,
    Im2col,
    Inline,
    OneOf,
    Order,
    Ordinal,
    Param,
    PipelineFetches,
    ProductEquals,
    Step,
    UnrollLimit,
    WarpTensorize,
    im2col,
    result_axes,
)
from autotune.sketches.copy_engine import (
    MOST_DIMENSIONS,
    SWIZZLED_ALIGNMENT,
    SWIZZLED_ROW_BYTES,
    VECTOR_BYTES,
)
from autotune.sketches.intrinsics import (
    Digit,
    Intrinsic,
    IntrinsicOperand,
    find_intrinsic,
    result_levels,
)
from autotune.spaces.rules.access import is_selected, operand_forms, product_factors, round_up
from autotune.spaces.rules.draft import SketchDraft, Split, loops
from autotune.spaces.rules.gpu_levels import (
    MAX_SCATTERED,
    SHARED_ALIGNMENT,
    UNROLL_LIMITS,
    FetchLayout,
    enough_blocks,
    inlined_operand,
    neighbours,
    register_limits,
    vector_widths,
)
from autotune.spaces.rules.tile_params import padded_extents
from autotune.targets import compute_capability, most_shared_memory

__all__ = [
    "BULK_LABEL",
    "TENSOR_LABEL",
    "TENSOR_LABELS",
    "WARPGROUP_LABEL",
    "as_matrices",
    "tensor_drafts",
    "tensor_kernel",
]

TENSOR_LABEL = "tensor-cores"
WARPGROUP_LABEL = "tensor-cores-warpgroup"
BULK_LABEL = "tensor-cores-bulk"
TENSOR_LABELS = (WARPGROUP_LABEL, BULK_LABEL, TENSOR_LABEL)

# Exact products of what the workload says, but for TF32, which a target has to allow: it rounds
# the factors of float32.
_INSTRUCTIONS = ("mma-m16n8k16", "mma-m16n8k16-bf16", "mma-m16n8k32-int8", "mma-m16n8k8-tf32")
_OF_WARPGROUPS = (
    "wgmma-m64n8k16",
    "wgmma-m64n8k16-bf16",
    "wgmma-m64n8k32-int8",
    "wgmma-m64n8k8-tf32",
)
# Fetches of less than a word per thread only cost instructions.
_NARROWEST_BYTES = 4
_WORD_BYTES = 4
# Where there is too little work for the GPU, results that a warp may have all the same.
_RESULTS_OF_A_WARP = 1024
# Columns of one instruction of a warpgroup, in eights. With fewer it waits for shared memory:
# 64 x 16 and 16 x 64 halves are 4 KiB, of which 128 bytes are read in a cycle, and take the four
# tensor cores 32 cycles.
_ENOUGH_ACROSS = 8
# Above these the loop around fetches is unrolled: a hundred groups take the assembler minutes.
_WARPGROUP_UNROLL_LIMITS = UNROLL_LIMITS[:2]
# Of the multiprocessors, those that must have a block of warpgroups.
_BUSY_SHARE = (3, 4)
# CUDA has no vectors of more bytes to hold what is fetched and what is zero.
_MOST_PADDED_BYTES = 4


def tensor_drafts(draft: SketchDraft, stage: Stage) -> dict[str, SketchDraft]:
    """The sketches on tensor cores by label; none where no instruction computes the stage.

    Applies to a sum over one axis of products of two matrices, or of batches of them, whose
    element types an instruction of the target multiplies. Extents that are no multiples of those
    of the instruction are padded, where the backend can and they become at most twice as long.
    """
    found = _kernels(draft, stage)
    matrices = None if found else as_matrices(draft, stage)
    if matrices is None:
        return found
    made = _kernels(matrices, matrices.workload.stage(stage.name))
    return {label: evolve(it, workload=draft.workload) for label, it in made.items()}


def _kernels(draft: SketchDraft, stage: Stage) -> dict[str, SketchDraft]:
    made = {label: tensor_kernel(draft, stage, label) for label in TENSOR_LABELS}
    return {label: found for label, found in made.items() if found is not None}


def tensor_kernel(
    draft: SketchDraft, stage: Stage, label: str, prefix: str = ""
) -> SketchDraft | None:
    """The draft with a stage as a product on tensor cores; None where no instruction computes it.

    Args:
        draft: What is decided so far.
        stage: The product. Of a part of a reduction, an axis of a batch may count the parts.
        label: One of :data:`TENSOR_LABELS`. Instructions are those of warps or of warpgroups; what
            the latter multiply may be fetched by the copy engine.
        prefix: Of the label that the sketch gets.
    """
    of_warps = label == TENSOR_LABEL
    layout = "shared_layout" if of_warps else "core_matrices"
    if not draft.can("warp_tensorize", "fetch", layout):
        return None
    for name in _INSTRUCTIONS if of_warps else _OF_WARPGROUPS:
        call = find_intrinsic(name)
        found = match_product(draft, stage, call) if call.supported_by(draft.target) else None
        if found is not None and label == BULK_LABEL:
            found = bulk_product(draft, found)
        if found is not None and (not call.rounds_when_fetched or _are_moved(draft, found)):
            return _sketch(draft, found, prefix + label)
    return None


def as_matrices(draft: SketchDraft, stage: Stage) -> SketchDraft | None:
    """The draft with a stage as a product of matrices, where it is one and can be replayed."""
    if not draft.can("im2col", "inline"):
        return None
    step = Im2col(stage.name)
    try:
        return evolve(draft, workload=im2col(draft.workload, step), steps=(step, *draft.steps))
    except InvalidValueError:
        return None


def _sketch(draft: SketchDraft, product_: MatrixProduct, label: str) -> SketchDraft | None:
    stage, call = product_.stage, product_.call
    rows, columns, reduce = product_.axes
    splits = [product_.split(axis) for axis in product_.axes]
    lanes = {it.tensor: _fetch_lanes(draft, product_, it) for it in product_.factors}
    params = [param for param, _, _ in lanes.values() if param is not None]
    params += [it.layout.param for it in product_.factors if it.layout.param is not None]
    blocks = (*loops(product_.batch), f"{rows}.0", f"{columns}.0")
    threads = (f"{rows}.1", f"{columns}.1", *product_.result_levels(of_lanes=True))
    # One group of a warpgroup's instructions takes all terms that are fetched together.
    terms, at = f"{reduce}.{1 if call.is_of_warpgroup else 2}", f"{reduce}.0"
    tile = (f"{rows}.2", f"{columns}.2", *product_.result_levels(of_lanes=False), terms)
    between = tuple(name for name in (f"{reduce}.1",) if name != terms)
    steps: list[Step] = [
        Order(stage.name, (*blocks, *threads, at, *between, *tile)),
        Bind(stage.name, blocks, "block"),
        Bind(stage.name, threads, "thread"),
    ]
    settled = {stage.name}
    for it in product_.factors:
        steps.append(
            CooperativeFetch(stage.name, it.tensor, at, _threads(product_), lanes[it.tensor][2])
        )
        laid_out = it.layout.step(stage.name, it.tensor)
        steps += [] if laid_out is None else [laid_out]
        inlined = _inlined(draft, stage, it.tensor)
        steps += map(Inline, inlined)
        settled.update(inlined)
    depths = _depths(draft, product_, {name: it for name, (it, _, _) in lanes.items()})
    if product_.is_bulk and not depths:
        return None
    stages, depth = Ordinal(f"{stage.name}.stages", depths), const(1)
    constraints = [constraint for _, constraint, _ in lanes.values()]
    ahead: list[Constraint] = []
    if depths:
        depth = var(stages.name)
        params.append(stages)
        steps.append(PipelineFetches(stage.name, at, depth))
        rounds = product_.factor(reduce, 0)
        ahead.append(AtLeast(rounds - depth, 0, "as many iterations as stages"))
    limits = _WARPGROUP_UNROLL_LIMITS if call.is_of_warpgroup else UNROLL_LIMITS
    unroll = Ordinal(f"{stage.name}.unroll", limits)
    return draft.extended(
        settled=settled,
        label=label,
        splits=splits,
        params=[*params, unroll],
        constraints=[*constraints, *_limits(draft, product_, depth), *ahead],
        steps=[
            *steps,
            draft.written(
                stage.name, threads[-1], (product_.factor(columns, 2), splits[1].factors[-1])
            ),
            WarpTensorize(stage.name, tile, call.name),
            UnrollLimit(stage.name, var(unroll.name)),
        ],
    )


def _depths(
    draft: SketchDraft, product_: MatrixProduct, lanes: Mapping[str, Ordinal | None]
) -> tuple[int, ...]:
    """Stages to choose from, of iterations whose fetches are in shared memory at once.

    None where not everything that is fetched can be copied asynchronously. Threads that round
    what they fetch wait for it: of further stages nothing is on its way. What the copy engine
    fetches is always ahead.

    Args:
        draft: What is decided so far.
        product_: The product.
        lanes: Choices of the width in which each factor is fetched; None: what the engine copies.
    """
    depths = DEPTHS[1:] if product_.is_bulk else DEPTHS
    if product_.call.rounds_when_fetched:
        depths = DEPTHS[:2]
    capable = compute_capability(draft.target.processor) >= _FIRST_CAPABILITY
    if not (capable and draft.can("pipeline_fetches") and _are_moved(draft, product_)):
        return ()
    for it in product_.factors:
        size, choice = draft.workload.tensors[it.tensor].element.bytes, lanes[it.tensor]
        widths = (VECTOR_BYTES // size,) if choice is None else choice.values
        # Neighbours that are copied together are not laid out in different rows.
        one_by_one = it.layout.core and widths == (1,)
        if it.layout.is_turned and not one_by_one:
            return ()
        if any(width * size not in _COPIED_BYTES for width in widths):
            return ()
    reduce = product_.stage.reduce_axes[0]
    most = -(-reduce.extent // product_.call_extent(reduce.name))
    found = tuple(depth for depth in depths if depth <= most)
    return found if max(found, default=1) > 1 else ()


def _are_moved(draft: SketchDraft, product_: MatrixProduct) -> bool:
    """Return whether both factors are fetched as they are, with zeros where there is nothing."""
    inlined = [_inlined(draft, product_.stage, it.tensor) for it in product_.factors]
    return all(is_moved(draft.workload.stage(name).body) for names in inlined for name in names)


def _inlined(draft: SketchDraft, stage: Stage, tensor: str) -> list[str]:
    """Stages computed on the way into the copy of a factor, the first stage first."""
    workload = draft.workload
    if tensor in draft.settled or not inlined_operand(draft, stage, tensor, copied=True):
        return []
    before = workload.stage(tensor)
    gathered = [it for read in before.reads for it in _inlined(draft, before, read)]
    return [*gathered, tensor]


def _threads(product_: MatrixProduct) -> IntExpr:
    rows, columns, _ = product_.axes
    return product_.factor(rows, 1) * product_.factor(columns, 1) * product_.call.lanes


def _reach(product_: MatrixProduct) -> dict[str, IntExpr]:
    """Distance that each axis moves in one block, between two fetches."""
    reach: dict[str, IntExpr] = {axis.name: const(1) for axis in product_.stage.axes}
    for axis in product_.axes:
        reach[axis] = product(product_.split(axis).factors[1:])
    return reach


def _fetch_lanes(
    draft: SketchDraft, product_: MatrixProduct, factor: MatrixFactor
) -> tuple[Ordinal | None, Constraint, IntExpr]:
    """Width of the vectors in which a factor is fetched, and that rows have whole ones."""
    tensor = draft.workload.tensors[factor.tensor]
    size = element_type(tensor.dtype).bytes
    if factor.whole is not None:
        return None, factor.whole, const(VECTOR_BYTES // size)
    run = neighbours(draft.workload, tensor.name)
    widths = vector_widths(run, tensor.dtype, draft.target)
    if factor.layout.is_turned:
        # What is rounded on the way is stored as it is loaded.
        most = 1 if product_.call.rounds_when_fetched else MAX_SCATTERED
        widths = tuple(width for width in widths if width <= most)
    if size == 1 and _is_guarded(draft, product_, factor):
        widths = tuple(width for width in widths if width <= _MOST_PADDED_BYTES)
    wide = tuple(width for width in widths if width * size >= _NARROWEST_BYTES) or widths[-1:]
    name = f"{product_.stage.name}.{factor.tensor}.lanes"
    batch = {axis.name for axis in product_.batch}
    (moved,) = apart_from(factor.forms[-1], batch).coefficients
    whole = OneOf(_reach(product_)[moved] % var(name), (0,), "vectors do not cross rows")
    return Ordinal(name, wide), whole, var(name)


def _is_guarded(draft: SketchDraft, product_: MatrixProduct, factor: MatrixFactor) -> bool:
    """Tell if a fetch has conditions: of what lies beyond an extent, or of what it computes."""
    read = {axis for form in factor.forms for axis in form.coefficients}
    if any(product_.is_padded(axis) for axis in product_.axes if axis in read):
        return True
    inlined = _inlined(draft, product_.stage, factor.tensor)
    return any(is_selected(draft.workload, name) for name in inlined)


def _limits(draft: SketchDraft, product_: MatrixProduct, depth: IntExpr) -> list[Constraint]:
    """Threads, shared memory and registers."""
    target, (rows, columns, _) = draft.target, product_.axes
    stage, call = product_.stage, product_.call
    shared: IntExpr = const(0)
    for it in product_.factors:
        elements = it.layout.elements(it.forms, _reach(product_))
        shared = shared + elements * draft.workload.tensors[it.tensor].element.bytes
    down, across = product_.factor(rows, 2), product_.factor(columns, 2)
    results = down * across * (call.result.elements // call.lanes)
    tile = results * stage.output.element.bytes
    fragments = down * _registers(call.left) + across * _registers(call.right)
    threads = _threads(product_)
    batch = math.prod(axis.extent for axis in product_.batch)
    grid = product_.factor(rows, 0) * product_.factor(columns, 0) * batch
    # What rounding every buffer up may take, and barriers of the copy engine in front of them.
    rounded = 2 * (SHARED_ALIGNMENT - 1)
    pipelined = depth.value is None
    most = most_shared_memory(target) if pipelined else target.shared_memory_bytes
    most -= 3 * SWIZZLED_ALIGNMENT if product_.is_bulk else rounded
    found: list[Constraint] = [
        AtMost(shared * depth, most, f"target {target.name}: shared memory of a block"),
        AtMost(threads, target.max_threads_per_block, f"target {target.name}: threads of a block"),
        *register_limits(draft, threads, tile, fragments, "results"),
    ]
    if call.is_of_warpgroup:
        found += _columns_of_an_instruction(product_)
    whole = math.prod(axis.extent for axis in stage.spatial_axes)
    warps = call.lanes // target.warp_size
    blocks = min(target.multiprocessors, whole // (_RESULTS_OF_A_WARP * warps))
    if call.is_of_warpgroup:
        # Tiles of 64 rows leave few choices: 128 blocks are better for 132 than 256 are.
        blocks = blocks * _BUSY_SHARE[0] // _BUSY_SHARE[1]
    return [*found, *enough_blocks(grid, blocks)]


def _columns_of_an_instruction(product_: MatrixProduct) -> list[Constraint]:
    """Columns that a warpgroup's tile may have, and should have where there are so many."""
    columns = product_.axes[1]
    across, source = product_.factor(columns, 2), "columns of one wgmma"
    most = max(product_.extents[columns]) // product_.call_extent(columns)
    counts = tuple(it for it in range(1, most + 1) if product_.call.takes_columns(it))
    found: list[Constraint] = [OneOf(across, counts, source)]
    if most >= _ENOUGH_ACROSS:
        found.append(AtLeast(across, _ENOUGH_ACROSS, source, hard=False))
    return found


def _registers(operand: IntrinsicOperand) -> int:
    return 0 if operand.fragment is None else operand.fragment.registers(operand.dtype)


def bulk_product(draft: SketchDraft, matrices: MatrixProduct) -> MatrixProduct | None:
    """The product with both factors fetched by the copy engine; None where it cannot."""
    if matrices.call.rounds_when_fetched or not draft.can("bulk_copy", "pipeline_fetches"):
        return None
    left, right = (_bulk_factor(draft, matrices, it) for it in matrices.factors)
    if left is None or right is None:
        return None
    return evolve(matrices, left=left, right=right)


def _bulk_factor(
    draft: SketchDraft, matrices: MatrixProduct, factor: MatrixFactor
) -> MatrixFactor | None:
    tensor = draft.workload.tensors[factor.tensor]
    size = tensor.element.bytes
    is_input = any(it.name == factor.tensor for it in draft.workload.inputs)
    aligned = tensor.shape[-1] * size % VECTOR_BYTES == 0
    if not is_input or not aligned or factor.layout.is_turned:
        return None
    if len(tensor.shape) > MOST_DIMENSIONS:
        return None
    # What an instruction reads begins and ends with rows: all terms of a fetch, or its results.
    batch = {axis.name for axis in matrices.batch}
    (axis,) = apart_from(factor.forms[-1], batch).coefficients
    level = 1 if axis == matrices.axes[2] else 2
    tile = matrices.factor(axis, level) * matrices.call_extent(axis)
    narrow, middle, wide = (row // size for row in SWIZZLED_ROW_BYTES)
    row = select(less(tile % middle, 1), middle, narrow)
    row = select(less(tile % wide, 1), wide, row)
    whole = OneOf(tile % narrow, (0,), "tiles have whole rows that the copy engine swizzles")
    return evolve(factor, layout=FetchLayout(factor.layout.dims, bulk=row), whole=whole)


DEPTHS: tuple[int, ...] = (1, 2, 3, 4)
"""Stages to choose from: more hide no more latency than they cost residency."""

_FIRST_CAPABILITY = 80
# What one asynchronous copy of a thread moves.
_COPIED_BYTES = (4, 8, 16)


def is_moved(body: ScalarExpr) -> bool:
    """Return whether a stage moves elements of a tensor, with zeros where there are none."""
    if isinstance(body, Select):
        other = body.on_false
        return isinstance(other, Constant) and other.value == 0 and is_moved(body.on_true)
    return isinstance(body, Load)


# `ldmatrix` and `wgmma` transpose elements of two bytes.
_TRANSPOSED_BYTES = 2
# A row of a core matrix.
_CORE_ROW_BYTES = 16
# Fragments whose multiples are worth padding to, where that adds little.
_USEFUL_CALLS = (1, 2, 4, 8)
# Padding to whole fragments makes no axis longer than so many times its extent.
_MOST_PADDED = 2
# What a tile's own levels begin with: blocks, warps (or warpgroups), and its fragments.
_OUTER_LEVELS = 3


@frozen
class MatrixFactor:
    """Factor of the product.

    Attributes:
        tensor: The tensor.
        forms: Where it is read; the last two dimensions are its spatial axis and the reduce axis.
        axis: Its spatial axis.
        layout: How it lies in shared memory.
        whole: That tiles have whole rows that the copy engine swizzles, where it fetches them.
    """

    tensor: str
    forms: tuple[AffineForm, ...]
    axis: str
    layout: FetchLayout
    whole: Constraint | None = None


@frozen
class MatrixProduct:
    """A stage as calls of an instruction.

    Attributes:
        stage: The stage.
        call: The instruction.
        left: The factor that moves with the rows of the result.
        right: The factor that moves with its columns.
        extents: By axis, what it may be iterated to: multiples of the instruction's extent.
    """

    stage: Stage
    call: Intrinsic
    left: MatrixFactor
    right: MatrixFactor
    extents: Mapping[str, tuple[int, ...]]

    @property
    def factors(self) -> tuple[MatrixFactor, MatrixFactor]:
        """Both factors."""
        return (self.left, self.right)

    @property
    def axes(self) -> tuple[str, str, str]:
        """Rows and columns of the result, and the reduce axis."""
        return (self.left.axis, self.right.axis, self.stage.reduce_axes[0].name)

    @property
    def batch(self) -> tuple[Axis, ...]:
        """Axes that number products."""
        return _batch(self.stage, {self.left.axis, self.right.axis})

    @property
    def is_bulk(self) -> bool:
        """True if the copy engine fetches the factors."""
        return self.left.whole is not None

    def factor(self, axis: str, level: int) -> IntExpr:
        """Factor of a level of an axis outside one call."""
        return var(f"{self.stage.name}.{axis}.{level}")

    def call_extent(self, axis: str) -> int:
        """Distance that a call of the instruction reaches along an axis."""
        rows, columns, _ = self.axes
        places = {rows: 0, columns: 1}
        if axis in places:
            return self.call.spatial_axes[places[axis]].extent
        return self.call.reduce_axes[0].extent

    def is_padded(self, axis: str) -> bool:
        """Return whether an axis may be iterated beyond its own extent."""
        return self.extents[axis] != (self.stage.axis(axis).extent,)

    def split(self, axis: str) -> Split:
        """Levels of an axis: those that are chosen, and those of one call.

        One group of a warpgroup's instructions takes all terms that are fetched together.
        """
        count, of_call = 2 if axis == self.axes[2] else _OUTER_LEVELS, self.call_extent(axis)
        names = tuple(f"{self.stage.name}.{axis}.{level}" for level in range(count))
        counts = tuple(extent // of_call for extent in self.extents[axis])
        calls, outer = const(counts[0]), [*map(var, names)]
        params: list[Param] = [*map(Factor, names)]
        if len(counts) > 1:
            choice = Ordinal(f"{self.stage.name}.{axis}.calls", counts)
            calls, params = var(choice.name), [choice, *params]
        if axis != self.axes[2]:
            outer += [const(digit.extent) for digit in self._digits(axis)]
        elif self.call.is_of_warpgroup:
            outer[-1] = outer[-1] * of_call
        else:
            outer.append(const(of_call))
        padded = calls * of_call if self.is_padded(axis) else None
        products = (ProductEquals(names, calls),)
        return Split(self.stage.name, axis, tuple(outer), tuple(params), products, padded)

    def _digits(self, axis: str) -> tuple[Digit, ...]:
        own = self.call.spatial_axes[self.axes.index(axis)]
        return result_levels(self.call, own.name)

    def result_levels(self, *, of_lanes: bool) -> tuple[str, ...]:
        """Levels of rows and columns that are lanes, or that a lane has of one call's results."""
        fragment = self.call.result.fragment
        lanes = () if fragment is None else fragment.lanes
        return tuple(
            f"{axis}.{level}"
            for axis in self.axes[:2]
            for level, digit in enumerate(self._digits(axis), _OUTER_LEVELS)
            if (digit in lanes) == of_lanes
        )


def match_product(draft: SketchDraft, stage: Stage, call: Intrinsic) -> MatrixProduct | None:
    """The stage as calls of an instruction, or None."""
    plain = stage.combiner == "add" and stage.output.dtype == call.result.dtype
    if not plain or len(stage.spatial_axes) < 2 or len(stage.reduce_axes) != 1:
        return None
    loads, result = product_factors(stage, call.result.dtype), result_axes(stage)
    if result is None:
        return None
    rows, columns = result
    own = (rows, stage.reduce_axes[0], columns)
    extents = {
        axis.name: _extents(draft, stage, axis, of_call.extent)
        for axis, of_call in zip(own, call.axes, strict=True)
    }
    if not all(extents.values()):
        return None
    batch = {axis.name for axis in _batch(stage, {rows.name, columns.name})}
    for first, second in (loads, loads[::-1]) if loads else ():
        left = _factor(draft, stage, call, first.tensor, rows.name, batch)
        right = _factor(draft, stage, call, second.tensor, columns.name, batch)
        if left is not None and right is not None and first.tensor != second.tensor:
            return MatrixProduct(stage, call, left, right, extents)
    return None


def _batch(stage: Stage, result: set[str]) -> tuple[Axis, ...]:
    """Axes of the result beside rows and columns."""
    return tuple(axis for axis in stage.spatial_axes if axis.name not in result)


def apart_from(form: AffineForm, batch: set[str]) -> AffineForm:
    """An index without what is the same for all of a block: the axes of a batch."""
    kept = {name: value for name, value in form.coefficients.items() if name not in batch}
    return evolve(form, coefficients=kept)


def _extents(draft: SketchDraft, stage: Stage, axis: Axis, of_call: int) -> tuple[int, ...]:
    """Multiples of a call's extent that an axis may be iterated to; empty where there are none.

    Beyond a part of a reduction are the terms of the next one, and no zeros.
    """
    whole = round_up(axis.extent, of_call)
    reads = [form for load in stage.loads for form in stage.forms(load) if axis.name in form.axes]
    if not draft.can("pad_extent") or not all(map(is_axis, reads)):
        return (whole,) if whole == axis.extent else ()
    if whole > _MOST_PADDED * axis.extent:
        return ()
    useful = padded_extents(axis.extent, tuple(of_call * count for count in _USEFUL_CALLS), 0)
    return tuple(sorted({whole, *(extent for extent in useful if extent % of_call == 0)}))


def _factor(
    draft: SketchDraft, stage: Stage, call: Intrinsic, tensor: str, axis: str, batch: set[str]
) -> MatrixFactor | None:
    """A factor that moves with one spatial axis and the reduce axis in its last two dimensions.

    Other dimensions move with the axes of a batch, and these two may move with one as well. Bytes
    must lie along the reduction for an instruction to read them, so where they do not, the copy in
    shared memory is transposed.
    """
    known = draft.workload.tensors[tensor]
    if known.dtype != call.left.dtype:
        return None
    try:
        forms = operand_forms(stage, tensor)
    except UnsupportedWorkload:
        return None
    reduce = stage.reduce_axes[0].name
    inner = [apart_from(form, batch) for form in forms]
    moving = [next(iter(form.coefficients), "") for form in inner]
    if not all(map(is_axis, inner[-2:])) or set(moving[-2:]) != {axis, reduce}:
        return None
    if any(moving[:-2]) or not all(map(is_axis, forms[:-2])):
        return None
    dims = list(range(len(forms)))
    if moving[-1] == axis and known.element.bytes != _TRANSPOSED_BYTES:
        dims[-2:] = dims[:-3:-1]
    name = f"{stage.name}.{tensor}.pad"
    if call.is_of_warpgroup:
        row = _CORE_ROW_BYTES // known.element.bytes
        core = FetchLayout(tuple(dims), var(name), Ordinal(name, (0, 1)), row)
        return MatrixFactor(tensor, forms, axis, core)
    vector = draft.target.vector_bytes // known.element.bytes
    layout = FetchLayout(tuple(dims), var(name), Ordinal(name, (0, vector)))
    return MatrixFactor(tensor, forms, axis, layout)
