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
sketch has the copy engine fetch them (:mod:`~autotune.spaces.rules.gpu_bulk_copies`).

Convolutions are such products by step ``im2col``: what is fetched of one factor is gathered from
windows. Axes of the result beside rows and columns number products, each in blocks of its own.
Extents that no fragment divides are padded: what is fetched beyond them is zero, and
what is computed there is not written. The instructions know nothing of it.
"""

from __future__ import annotations

import math

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import IntExpr, Select, const, product, var
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Stage
from autotune.sketches import (
    Accumulate,
    AtLeast,
    AtMost,
    Bind,
    Constraint,
    CooperativeFetch,
    Factor,
    FuseConsumer,
    Im2col,
    Inline,
    OneOf,
    Order,
    Ordinal,
    Param,
    ProductEquals,
    Step,
    Tile,
    UnrollLimit,
    WarpTensorize,
    im2col,
)
from autotune.sketches.copy_engine import SWIZZLED_ALIGNMENT
from autotune.sketches.intrinsics import Intrinsic, find_intrinsic
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_bulk_copies import BulkLayout, bulk_product
from autotune.spaces.rules.gpu_kernel import inlined_operand
from autotune.spaces.rules.gpu_layouts import neighbours
from autotune.spaces.rules.gpu_levels import (
    MAX_SCATTERED,
    REGISTERS_PER_THREAD,
    SHARED_ALIGNMENT,
    SPARE_REGISTERS,
    UNROLL_LIMITS,
    vector_widths,
)
from autotune.spaces.rules.gpu_pipelines import DEPTHS, FetchPipeline, fetch_pipeline, is_moved
from autotune.spaces.rules.gpu_products import (
    MatrixFactor,
    MatrixProduct,
    apart_from,
    match_product,
)

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
    step = Im2col(stage.name)
    matrices = None if found else as_matrices(draft, step)
    if matrices is None:
        return found
    return {
        label: evolve(made, workload=draft.workload, steps=(step, *made.steps))
        for label, made in _kernels(matrices, matrices.workload.stage(stage.name)).items()
    }


def _kernels(draft: SketchDraft, stage: Stage) -> dict[str, SketchDraft]:
    made = {
        label: tensor_kernel(
            draft,
            stage,
            label,
            of_warpgroups=label != TENSOR_LABEL,
            bulk=label == BULK_LABEL,
        )
        for label in TENSOR_LABELS
    }
    return {label: found for label, found in made.items() if found is not None}


def tensor_kernel(
    draft: SketchDraft, stage: Stage, label: str, *, of_warpgroups: bool, bulk: bool = False
) -> SketchDraft | None:
    """The draft with a stage as a product on tensor cores; None where no instruction computes it.

    Of a stage that is a part of a reduction, an axis of a batch may count the parts. Instructions
    are those of warpgroups, or else those of warps; ``bulk``: what they multiply is fetched by the
    copy engine.
    """
    layout = "core_matrices" if of_warpgroups else "shared_layout"
    if not draft.can("warp_tensorize", "fetch", layout):
        return None
    for name in _OF_WARPGROUPS if of_warpgroups else _INSTRUCTIONS:
        call = find_intrinsic(name)
        found = match_product(draft, stage, call) if call.supported_by(draft.target) else None
        if found is not None and bulk:
            found = bulk_product(draft, found)
        if found is not None and (not call.rounds_when_fetched or _are_moved(draft, found)):
            return _sketch(draft, found, label)
    return None


def as_matrices(draft: SketchDraft, step: Im2col) -> SketchDraft | None:
    """The draft with a stage as a product of matrices, where it is one and can be replayed."""
    if not draft.can("im2col", "inline.into_copy"):
        return None
    try:
        return evolve(draft, workload=im2col(draft.workload, step))
    except InvalidValueError:
        return None


def _sketch(draft: SketchDraft, product_: MatrixProduct, label: str) -> SketchDraft | None:
    stage = product_.stage
    rows, columns, reduce = product_.axes
    params, constraints = _levels(product_)
    lanes = {it.tensor: _fetch_lanes(draft, product_, it) for it in product_.factors}
    params += [param for param, _, _ in lanes.values() if param is not None]
    params += [it.layout.param for it in product_.factors if it.layout.param is not None]
    constraints += [constraint for _, constraint, _ in lanes.values()]
    batch = tuple(f"{axis.name}.0" for axis in product_.batch)
    blocks = (*batch, f"{rows}.0", f"{columns}.0")
    threads = (f"{rows}.1", f"{columns}.1", *product_.lane_levels())
    terms = product_.step_level()
    tile = (f"{rows}.2", f"{columns}.2", *product_.kept_levels(), terms)
    at = f"{reduce}.0"
    between = tuple(name for name in (f"{reduce}.1",) if name != terms)
    padding = [product_.padding(axis) for axis in product_.axes]
    steps: list[Step] = [
        *(step for step in padding if step is not None),
        *(Tile(stage.name, axis, product_.levels(axis)) for axis in product_.axes),
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
    pipeline = fetch_pipeline(draft, stage, at, params, steps, _depths(product_))
    if _is_bulk(product_) and not pipeline.steps:
        return None
    params += pipeline.params
    steps += pipeline.steps
    constraints += [*_limits(draft, product_, pipeline), *pipeline.constraints]
    written = (product_.factor(columns, 2), product_.levels(columns)[-1])
    consumer = draft.epilogues.get(stage.name)
    if consumer is None:
        steps.append(Accumulate(stage.name, threads[-1], written))
    else:
        steps.append(FuseConsumer(consumer, stage.name, threads[-1], written))
    unroll = f"{stage.name}.unroll"
    steps.append(WarpTensorize(stage.name, tile, product_.call.name))
    steps.append(UnrollLimit(stage.name, var(unroll)))
    of_warpgroup = product_.call.is_of_warpgroup
    params.append(Ordinal(unroll, _WARPGROUP_UNROLL_LIMITS if of_warpgroup else UNROLL_LIMITS))
    return draft.extended(
        settled=settled,
        label=label,
        params=params,
        constraints=constraints,
        steps=steps,
    )


def _depths(product_: MatrixProduct) -> tuple[int, ...]:
    """Stages to choose from.

    Threads that round what they fetch wait for it: of further stages nothing is on its way. What
    the copy engine fetches is always ahead.
    """
    if product_.call.rounds_when_fetched:
        return DEPTHS[:2]
    return DEPTHS[1:] if _is_bulk(product_) else DEPTHS


def _is_bulk(product_: MatrixProduct) -> bool:
    return isinstance(product_.left.layout, BulkLayout)


def _are_moved(draft: SketchDraft, product_: MatrixProduct) -> bool:
    """Return whether both factors are fetched as they are, with zeros where there is nothing."""
    inlined = [_inlined(draft, product_.stage, it.tensor) for it in product_.factors]
    return all(is_moved(draft.workload.stage(name).body) for names in inlined for name in names)


def _inlined(draft: SketchDraft, stage: Stage, tensor: str) -> list[str]:
    """Stages computed on the way into the copy of a factor, the first stage first."""
    workload = draft.workload
    if tensor in draft.settled or not inlined_operand(draft, workload, stage, tensor, copied=True):
        return []
    before = workload.stage(tensor)
    gathered = [it for read in before.reads for it in _inlined(draft, before, read)]
    return [*gathered, tensor]


def _levels(product_: MatrixProduct) -> tuple[list[Param], list[Constraint]]:
    params: list[Param] = []
    constraints: list[Constraint] = []
    for axis in product_.axes:
        calls = product_.calls(axis)
        if calls.value is None:
            of_call = product_.call_extent(axis)
            counts = tuple(extent // of_call for extent in product_.extents[axis])
            params.append(Ordinal(f"{product_.stage.name}.{axis}.calls", counts))
        names = product_.chosen(axis)
        params += [Factor(name) for name in names]
        constraints.append(ProductEquals(names, calls))
    return params, constraints


def _threads(product_: MatrixProduct) -> IntExpr:
    rows, columns, _ = product_.axes
    return product_.factor(rows, 1) * product_.factor(columns, 1) * product_.call.lanes


def _reach(product_: MatrixProduct) -> dict[str, IntExpr]:
    """Distance that each axis moves in one block, between two fetches."""
    reach: dict[str, IntExpr] = {axis.name: const(1) for axis in product_.stage.axes}
    for axis in product_.axes:
        reach[axis] = product(product_.levels(axis)[1:])
    return reach


def _fetch_lanes(
    draft: SketchDraft, product_: MatrixProduct, factor: MatrixFactor
) -> tuple[Param | None, Constraint, IntExpr]:
    """Width of the vectors in which a factor is fetched, and that rows have whole ones."""
    if isinstance(factor.layout, BulkLayout):
        return None, factor.layout.whole, const(factor.layout.vector)
    tensor = draft.workload.tensors[factor.tensor]
    size = element_type(tensor.dtype).bytes
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
    if any(product_.padding(axis) for axis in product_.axes if axis in read):
        return True
    inlined = _inlined(draft, product_.stage, factor.tensor)
    bodies = [draft.workload.stage(name).body for name in inlined]
    return any(isinstance(node, Select) for body in bodies for node in walk(body))


def _limits(
    draft: SketchDraft, product_: MatrixProduct, pipeline: FetchPipeline
) -> list[Constraint]:
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
    fragments = down * _registers(call, call.left.dtype, left=True)
    fragments = fragments + across * _registers(call, call.right.dtype, left=False)
    kept = (tile + _WORD_BYTES - 1) // _WORD_BYTES + SPARE_REGISTERS
    threads = _threads(product_)
    batch = math.prod(axis.extent for axis in product_.batch)
    grid = product_.factor(rows, 0) * product_.factor(columns, 0) * batch
    # What rounding every buffer up may take, and barriers of the copy engine in front of them.
    rounded = 2 * (SHARED_ALIGNMENT - 1)
    most = pipeline.shared_bytes - (3 * SWIZZLED_ALIGNMENT if _is_bulk(product_) else rounded)
    found: list[Constraint] = [
        AtMost(shared * pipeline.depth, most, f"target {target.name}: shared memory of a block"),
        AtMost(threads, target.max_threads_per_block, f"target {target.name}: threads of a block"),
        AtMost(tile, draft.limits.stack_bytes, f"{draft.limits.source}: results of a thread"),
        AtMost(kept + fragments, REGISTERS_PER_THREAD, "registers of a thread", hard=False),
        AtMost(threads * kept, target.registers_per_block, "registers of a block", hard=False),
    ]
    if call.is_of_warpgroup:
        found += _columns_of_an_instruction(product_)
    whole = math.prod(axis.extent for axis in stage.spatial_axes)
    warps = call.lanes // target.warp_size
    blocks = min(target.multiprocessors, whole // (_RESULTS_OF_A_WARP * warps))
    if call.is_of_warpgroup:
        # Tiles of 64 rows leave few choices: 128 blocks are better for 132 than 256 are.
        blocks = blocks * _BUSY_SHARE[0] // _BUSY_SHARE[1]
    if blocks > 1:
        source = "every multiprocessor gets a block, as far as there are so many"
        found.append(AtLeast(grid, blocks, source, hard=False))
    return found


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


def _registers(call: Intrinsic, dtype: str, *, left: bool) -> int:
    fragment = (call.left if left else call.right).fragment
    return 0 if fragment is None else fragment.registers(dtype)
