"""Matrix products on the tensor cores of a GPU: tiles of blocks, of warps, and of fragments.

The nest, for the rows ``i`` and columns ``j`` of the result and the reduce axis ``k``: ``i.0 j.0``
blocks, ``i.1 j.1`` warps, then the lanes of a warp as the fragment of the instruction's result has
them; ``k.0``, fetch of both factors into shared memory, ``k.1``, and the tile of a warp, which is
one group of instructions: ``i.2 j.2``, what a lane has of each fragment, and the instruction's own
steps of ``k``. Lanes and warps are the threads of a block. Results stay in registers over all of
``k`` and are written once, through the epilogue if there is one.

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
    Binary,
    Cast,
    IntExpr,
    Load,
    Select,
    const,
    product,
    var,
)
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Axis, Stage
from autotune.nest.loop_nest import is_axis
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
    PadExtent,
    Param,
    ProductEquals,
    Step,
    Tile,
    UnrollLimit,
    WarpTensorize,
    im2col,
    result_axes,
)
from autotune.sketches.intrinsics import Intrinsic, find_intrinsic, result_levels
from autotune.spaces.rules.access import operand_forms, round_up
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_kernel import inlined_operand
from autotune.spaces.rules.gpu_layouts import RowLayout, neighbours
from autotune.spaces.rules.gpu_levels import (
    MAX_SCATTERED,
    REGISTERS_PER_THREAD,
    SHARED_ALIGNMENT,
    SPARE_REGISTERS,
    UNROLL_LIMITS,
    vector_widths,
)
from autotune.spaces.rules.gpu_pipelines import FetchPipeline, fetch_pipeline
from autotune.spaces.rules.tile_params import padded_extents

__all__ = ["TENSOR_LABEL", "as_matrices", "tensor_drafts", "tensor_kernel"]

TENSOR_LABEL = "tensor-cores"

# Exact products of what the workload says, but for TF32, which a target has to allow: it rounds
# the factors of float32.
_INSTRUCTIONS = ("mma-m16n8k16", "mma-m16n8k16-bf16", "mma-m16n8k32-int8", "mma-m16n8k8-tf32")
# `ldmatrix` transposes elements of two bytes.
_TRANSPOSED_BYTES = 2
# Fetches of less than a word per thread only cost instructions.
_NARROWEST_BYTES = 4
_WORD_BYTES = 4
# Where there is too little work for the GPU, results that a warp may have all the same.
_RESULTS_OF_A_WARP = 1024
# Fragments whose multiples are worth padding to, where that adds little.
_USEFUL_CALLS = (1, 2, 4, 8)
# Padding to whole fragments makes no axis longer than so many times its extent.
_MOST_PADDED = 2
# CUDA has no vectors of more bytes to hold what is fetched and what is zero.
_MOST_PADDED_BYTES = 4


@frozen
class _Factor:
    """One factor of the product.

    Attributes:
        tensor: The tensor.
        forms: Where it is read; the last two dimensions are its spatial axis and the reduce axis.
        axis: Its spatial axis.
        layout: How it lies in shared memory.
    """

    tensor: str
    forms: tuple[AffineForm, ...]
    axis: str
    layout: RowLayout


@frozen
class _Product:
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
    left: _Factor
    right: _Factor
    extents: Mapping[str, tuple[int, ...]]

    @property
    def axes(self) -> tuple[str, str, str]:
        """Rows and columns of the result, and the reduce axis."""
        return (self.left.axis, self.right.axis, self.stage.reduce_axes[0].name)

    @property
    def batch(self) -> tuple[Axis, ...]:
        """Axes that number products."""
        return _batch(self.stage, {self.left.axis, self.right.axis})

    def name(self, axis: str, level: int) -> str:
        """Name of the parameter of one level of an axis."""
        return f"{self.stage.name}.{axis}.{level}"

    def factor(self, axis: str, level: int) -> IntExpr:
        """One level of an axis."""
        return var(self.name(axis, level))

    def inner(self, axis: str) -> tuple[int, ...]:
        """The levels of one call of the instruction, outermost first."""
        rows, columns, reduce = self.axes
        if axis == reduce:
            return (self.call.reduce_axes[0].extent,)
        own = self.call.spatial_axes[0 if axis == rows else 1]
        return tuple(digit.extent for digit in result_levels(self.call, own.name))

    def calls(self, axis: str) -> IntExpr:
        """Calls along an axis: one parameter, where there is a choice."""
        extents = self.extents[axis]
        if len(extents) > 1:
            return var(f"{self.stage.name}.{axis}.calls")
        return const(extents[0] // math.prod(self.inner(axis)))

    def padding(self, axis: str) -> PadExtent | None:
        """The step that pads one of `axes`; None where its own extent is the only one."""
        if self.extents[axis] == (self.stage.axis(axis).extent,):
            return None
        return PadExtent(self.stage.name, axis, self.calls(axis) * math.prod(self.inner(axis)))

    def levels(self, axis: str) -> tuple[IntExpr, ...]:
        """All levels of an axis, outermost first."""
        chosen = 2 if axis == self.axes[2] else 3
        outer = tuple(self.factor(axis, level) for level in range(chosen))
        return (*outer, *map(const, self.inner(axis)))


def tensor_drafts(draft: SketchDraft, stage: Stage) -> dict[str, SketchDraft]:
    """The sketch on tensor cores by its label; none where no instruction computes the stage.

    Applies to a sum over one axis of products of two matrices, or of batches of them, whose
    element types an instruction of the target multiplies. Extents that are no multiples of those
    of the instruction are padded, where the backend can and they become at most twice as long.
    """
    found = tensor_kernel(draft, stage, TENSOR_LABEL)
    step = Im2col(stage.name)
    matrices = as_matrices(draft, step) if found is None else None
    if matrices is not None:
        found = tensor_kernel(matrices, matrices.workload.stage(stage.name), TENSOR_LABEL)
        if found is not None:
            found = evolve(found, workload=draft.workload, steps=(step, *found.steps))
    return {} if found is None else {TENSOR_LABEL: found}


def tensor_kernel(draft: SketchDraft, stage: Stage, label: str) -> SketchDraft | None:
    """The draft with a stage as a product on tensor cores; None where no instruction computes it.

    Of a stage that is a part of a reduction, an axis of a batch may count the parts.
    """
    if not draft.can("warp_tensorize", "shared_layout", "fetch"):
        return None
    for name in _INSTRUCTIONS:
        call = find_intrinsic(name)
        found = _matched(draft, stage, call) if call.supported_by(draft.target) else None
        if found is not None:
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


def _matched(draft: SketchDraft, stage: Stage, call: Intrinsic) -> _Product | None:
    """The stage as calls of an instruction, or None."""
    plain = stage.combiner == "add" and stage.output.dtype == call.result.dtype
    if not plain or len(stage.spatial_axes) < 2 or len(stage.reduce_axes) != 1:
        return None
    loads, result = _factors(stage, call), result_axes(stage)
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
        left = _factor(draft, stage, call, first, rows.name, batch)
        right = _factor(draft, stage, call, second, columns.name, batch)
        if left is not None and right is not None and first != second:
            return _Product(stage, call, left, right, extents)
    return None


def _extents(draft: SketchDraft, stage: Stage, axis: Axis, of_call: int) -> tuple[int, ...]:
    """Multiples of a call's extent that an axis may be iterated to; empty where there are none.

    Beyond a part of a reduction are the terms of the next one, and no zeros.
    """
    whole = round_up(axis.extent, of_call)
    reads = [form for load in stage.loads for form in stage.forms(load) if axis.name in form.axes]
    if not draft.can_pad(stage, axis) or not all(map(is_axis, reads)):
        return (whole,) if whole == axis.extent else ()
    if whole > _MOST_PADDED * axis.extent:
        return ()
    useful = padded_extents(axis.extent, tuple(of_call * count for count in _USEFUL_CALLS), 0)
    return tuple(sorted({whole, *(extent for extent in useful if extent % of_call == 0)}))


def _factors(stage: Stage, call: Intrinsic) -> tuple[str, ...]:
    """Tensors whose elements the stage multiplies after converting them to the result's type."""
    body = stage.body
    if not isinstance(body, Binary) or body.op != "mul":
        return ()
    found = []
    widened = call.left.dtype != call.result.dtype
    for side in (body.left, body.right):
        if widened and not (isinstance(side, Cast) and side.dtype == call.result.dtype):
            return ()
        load = side.operand if isinstance(side, Cast) and widened else side
        if not isinstance(load, Load):
            return ()
        found.append(load.tensor)
    return tuple(found)


def _batch(stage: Stage, result: set[str]) -> tuple[Axis, ...]:
    """Axes of the result beside rows and columns."""
    return tuple(axis for axis in stage.spatial_axes if axis.name not in result)


def _apart(form: AffineForm, batch: set[str]) -> AffineForm:
    """An index without what is the same for all of a block: the axes of a batch."""
    kept = {name: value for name, value in form.coefficients.items() if name not in batch}
    return evolve(form, coefficients=kept)


def _factor(
    draft: SketchDraft, stage: Stage, call: Intrinsic, tensor: str, axis: str, batch: set[str]
) -> _Factor | None:
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
    inner = [_apart(form, batch) for form in forms]
    moving = [next(iter(form.coefficients), "") for form in inner]
    if not all(map(is_axis, inner[-2:])) or set(moving[-2:]) != {axis, reduce}:
        return None
    if any(moving[:-2]) or not all(map(is_axis, forms[:-2])):
        return None
    dims = list(range(len(forms)))
    if moving[-1] == axis and known.element.bytes != _TRANSPOSED_BYTES:
        dims[-2:] = dims[:-3:-1]
    name = f"{stage.name}.{tensor}.pad"
    vector = draft.target.vector_bytes // known.element.bytes
    layout = RowLayout(tuple(dims), var(name), Ordinal(name, (0, vector)))
    return _Factor(tensor, forms, axis, layout)


def _sketch(draft: SketchDraft, product_: _Product, label: str) -> SketchDraft:
    stage = product_.stage
    rows, columns, reduce = product_.axes
    params, constraints = _levels(product_)
    lanes = {it.tensor: _fetch_lanes(draft, product_, it) for it in _both(product_)}
    params += [param for param, _, _ in lanes.values()]
    params += [it.layout.param for it in _both(product_) if it.layout.param is not None]
    constraints += [constraint for _, constraint, _ in lanes.values()]
    batch = tuple(f"{axis.name}.0" for axis in product_.batch)
    blocks = (*batch, f"{rows}.0", f"{columns}.0")
    threads = (f"{rows}.1", f"{columns}.1", f"{rows}.4", f"{columns}.3")
    tile = (f"{rows}.2", f"{columns}.2", f"{rows}.3", f"{columns}.4", f"{reduce}.2")
    at = f"{reduce}.0"
    padding = [product_.padding(axis) for axis in product_.axes]
    steps: list[Step] = [
        *(step for step in padding if step is not None),
        *(Tile(stage.name, axis, product_.levels(axis)) for axis in product_.axes),
        Order(stage.name, (*blocks, *threads, at, f"{reduce}.1", *tile)),
        Bind(stage.name, blocks, "block"),
        Bind(stage.name, threads, "thread"),
    ]
    settled = {stage.name}
    for it in _both(product_):
        steps.append(
            CooperativeFetch(stage.name, it.tensor, at, _threads(product_), lanes[it.tensor][2])
        )
        laid_out = it.layout.step(stage.name, it.tensor)
        steps += [] if laid_out is None else [laid_out]
        inlined = _inlined(draft, stage, it.tensor)
        steps += map(Inline, inlined)
        settled.update(inlined)
    pipeline = fetch_pipeline(draft, stage, at, params, steps)
    params += pipeline.params
    steps += pipeline.steps
    constraints += [*_limits(draft, product_, pipeline), *pipeline.constraints]
    pair = product_.inner(columns)[-1]
    written = (product_.factor(columns, 2), const(pair))
    consumer = draft.epilogues.get(stage.name)
    if consumer is None:
        steps.append(Accumulate(stage.name, threads[-1], written))
    else:
        steps.append(FuseConsumer(consumer, stage.name, threads[-1], written))
    unroll = f"{stage.name}.unroll"
    steps.append(WarpTensorize(stage.name, tile, product_.call.name))
    steps.append(UnrollLimit(stage.name, var(unroll)))
    params.append(Ordinal(unroll, UNROLL_LIMITS))
    return draft.extended(
        settled=settled,
        label=label,
        params=params,
        constraints=constraints,
        steps=steps,
    )


def _inlined(draft: SketchDraft, stage: Stage, tensor: str) -> list[str]:
    """What is computed on the way into the copy of a factor, the first stage first."""
    workload = draft.workload
    if tensor in draft.settled or not inlined_operand(draft, workload, stage, tensor, copied=True):
        return []
    before = workload.stage(tensor)
    gathered = [it for read in before.reads for it in _inlined(draft, before, read)]
    return [*gathered, tensor]


def _both(product_: _Product) -> tuple[_Factor, _Factor]:
    return (product_.left, product_.right)


def _levels(product_: _Product) -> tuple[list[Param], list[Constraint]]:
    params: list[Param] = []
    constraints: list[Constraint] = []
    for axis in product_.axes:
        calls = product_.calls(axis)
        if calls.value is None:
            inner = math.prod(product_.inner(axis))
            counts = tuple(extent // inner for extent in product_.extents[axis])
            params.append(Ordinal(f"{product_.stage.name}.{axis}.calls", counts))
        names = tuple(
            product_.name(axis, level)
            for level in range(len(product_.levels(axis)) - len(product_.inner(axis)))
        )
        params += [Factor(name) for name in names]
        constraints.append(ProductEquals(names, calls))
    return params, constraints


def _threads(product_: _Product) -> IntExpr:
    rows, columns, _ = product_.axes
    lanes = product_.levels(rows)[4] * product_.levels(columns)[3]
    return product_.factor(rows, 1) * product_.factor(columns, 1) * lanes


def _reach(product_: _Product) -> dict[str, IntExpr]:
    """How far each axis moves in one block, between two fetches."""
    reach: dict[str, IntExpr] = {axis.name: const(1) for axis in product_.stage.axes}
    for axis in product_.axes:
        reach[axis] = product(product_.levels(axis)[1:])
    return reach


def _fetch_lanes(
    draft: SketchDraft, product_: _Product, factor: _Factor
) -> tuple[Param, Constraint, IntExpr]:
    """Width of the vectors in which a factor is fetched, and that rows have whole ones."""
    tensor = draft.workload.tensors[factor.tensor]
    size = element_type(tensor.dtype).bytes
    run = neighbours(draft.workload, tensor.name)
    widths = vector_widths(run, tensor.dtype, draft.target)
    if factor.layout.is_turned:
        widths = tuple(width for width in widths if width <= MAX_SCATTERED)
    if size == 1 and _is_guarded(draft, product_, factor):
        widths = tuple(width for width in widths if width <= _MOST_PADDED_BYTES)
    wide = tuple(width for width in widths if width * size >= _NARROWEST_BYTES) or widths[-1:]
    name = f"{product_.stage.name}.{factor.tensor}.lanes"
    batch = {axis.name for axis in product_.batch}
    (moved,) = _apart(factor.forms[-1], batch).coefficients
    whole = OneOf(_reach(product_)[moved] % var(name), (0,), "vectors do not cross rows")
    return Ordinal(name, wide), whole, var(name)


def _is_guarded(draft: SketchDraft, product_: _Product, factor: _Factor) -> bool:
    """Whether a fetch has conditions: of what lies beyond an extent, or of what it computes."""
    read = {axis for form in factor.forms for axis in form.coefficients}
    if any(product_.padding(axis) for axis in product_.axes if axis in read):
        return True
    inlined = _inlined(draft, product_.stage, factor.tensor)
    bodies = [draft.workload.stage(name).body for name in inlined]
    return any(isinstance(node, Select) for body in bodies for node in walk(body))


def _limits(draft: SketchDraft, product_: _Product, pipeline: FetchPipeline) -> list[Constraint]:
    """Threads, shared memory and registers."""
    target, (rows, columns, _) = draft.target, product_.axes
    stage, call = product_.stage, product_.call
    shared: IntExpr = const(0)
    for it in _both(product_):
        elements = it.layout.elements(it.forms, _reach(product_))
        shared = shared + elements * draft.workload.tensors[it.tensor].element.bytes
    down, across = product_.factor(rows, 2), product_.factor(columns, 2)
    results = down * across * (call.result.elements // target.warp_size)
    tile = results * stage.output.element.bytes
    fragments = down * _registers(call, call.left.dtype, left=True)
    fragments = fragments + across * _registers(call, call.right.dtype, left=False)
    kept = (tile + _WORD_BYTES - 1) // _WORD_BYTES + SPARE_REGISTERS
    threads = _threads(product_)
    batch = math.prod(axis.extent for axis in product_.batch)
    grid = product_.factor(rows, 0) * product_.factor(columns, 0) * batch
    # What rounding every buffer up may take.
    most = pipeline.shared_bytes - 2 * (SHARED_ALIGNMENT - 1)
    found: list[Constraint] = [
        AtMost(shared * pipeline.depth, most, f"target {target.name}: shared memory of a block"),
        AtMost(threads, target.max_threads_per_block, f"target {target.name}: threads of a block"),
        AtMost(tile, draft.limits.stack_bytes, f"{draft.limits.source}: results of a thread"),
        AtMost(kept + fragments, REGISTERS_PER_THREAD, "registers of a thread", hard=False),
        AtMost(threads * kept, target.registers_per_block, "registers of a block", hard=False),
    ]
    whole = math.prod(axis.extent for axis in stage.spatial_axes)
    blocks = min(target.multiprocessors, whole // _RESULTS_OF_A_WARP)
    if blocks > 1:
        source = "every multiprocessor gets a block, as far as there are so many"
        found.append(AtLeast(grid, blocks, source, hard=False))
    return found


def _registers(call: Intrinsic, dtype: str, *, left: bool) -> int:
    fragment = (call.left if left else call.right).fragment
    return 0 if fragment is None else fragment.registers(dtype)
