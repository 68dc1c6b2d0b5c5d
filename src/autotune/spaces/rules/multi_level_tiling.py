"""Rule: multi-level tiling of a reduction, with packed operands and an explicit register tile.

The nest, for spatial axes ``a, b, ..., v`` (``v`` the innermost, vectorised) and reduce axes
``r``: ``a.0 b.0 v.0 | a.1 b.1 v.1 | r ... | a.2 b.2 v.2 v.3``: level 0 is parallel, level 1
walks over register tiles, levels 2 and 3 are the register tile, kept in an accumulate buffer
over all of ``r``. Sketches differ in which operands are packed, and where.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    AffineForm,
    Binary,
    Cast,
    Constant,
    Load,
    ScalarExpr,
    Select,
    Unary,
    affine_form,
    const,
    substitute,
    var,
)
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import (
    Bind,
    BoundLoop,
    Inline,
    Interleave,
    Order,
    Ordinal,
    Pack,
    Parallel,
    Prepack,
    Step,
    Tensorize,
    Unroll,
    UnrollLimit,
    Vectorize,
)
from autotune.sketches.intrinsics import Intrinsic
from autotune.spaces.rules.access import (
    depends_on,
    dimension_of,
    gathering_tensors,
    index_of_value,
    is_affine,
    is_pointwise,
    largest_divisor,
    operand_places,
    own_producer,
    producer_stage,
    round_up,
    rows_behind,
)
from autotune.spaces.rules.draft import SketchDraft, loops
from autotune.spaces.rules.elementwise import gpu_pointwise, root_copy_steps
from autotune.spaces.rules.gpu_levels import (
    UNROLL_LIMITS,
    Fetched,
    block_threads,
    check_gpu,
    fetchable,
    inlined_operand,
    tiled_kernel,
    transposable,
)
from autotune.spaces.rules.gpu_split_reduction import SPLIT_LABELS, split_drafts
from autotune.spaces.rules.gpu_tensor_tiling import TENSOR_LABELS, tensor_drafts
from autotune.spaces.rules.inline import reduction_before
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.tile_params import CallExtents, RegisterTiles, cover, register_tiles
from autotune.targets import Target

# Rows of fewer elements are not exchanged for columns in registers.
_TRANSPOSED_LANES = 4
# A panel shorter than this costs more to pack than its reuse returns.
_MIN_PANEL_DEPTH = 16


@frozen
class Packing:
    """Packing of operands, as one choice of structure.

    ``blocked`` operands hold the vector axis in one dimension and are laid out in panels of a
    register tile's width; ``plain`` ones are copied as they are. ``None`` leaves them in place,
    ``"root"`` packs the whole operand first, ``"outer"`` inside the parallel loop, ``"panel"``
    and ``"rows"`` inside the level-1 loop of the vector axis and of the last row axis.
    """

    label: str
    blocked: str | None
    plain: str | None


PACKINGS = (
    Packing("direct", None, None),
    Packing("plain-outer", None, "outer"),
    Packing("plain-rows", None, "rows"),
    Packing("packed-root", "root", None),
    Packing("packed-panel", "panel", None),
    Packing("packed-root-rows", "root", "rows"),
    Packing("packed-panel-outer", "panel", "outer"),
)


@frozen
class Operand:
    """A tensor that the stage reads, and how.

    Attributes:
        tensor: Its name.
        forms: Its indices.
        block_dim: Dimension of which it is laid out in blocks where it is packed; None: plain.
        prepacked: Whether a packed copy is made before the program runs, and costs it nothing.
        whole: Whether it is packed as a whole only, as what is read at quotients or remainders.
        in_place: Whether it is never packed: one copy serves neither reads at several places,
            each of which is an operand of its own, nor those where data says.
    """

    tensor: str
    forms: tuple[AffineForm, ...]
    block_dim: int | None
    prepacked: bool = False
    whole: bool = False
    in_place: bool = False

    def contiguous_along(self, axis: str) -> bool:
        """Tell if neighbours along ``axis`` are neighbours in memory, or the same element."""
        if not depends_on(self.forms, axis):
            return True
        return dimension_of(self.forms, axis) == len(self.forms) - 1


@frozen
class Contraction:
    """Computation of a stage by calls of an instruction.

    Attributes:
        intrinsic: The instruction.
        data: The tensor that is its left factor.
        weights: The tensor that is its right factor.
        group_dim: Dimension of ``weights`` along which the reduce axis moves.
    """

    intrinsic: Intrinsic
    data: str
    weights: str
    group_dim: int

    @property
    def group(self) -> int:
        """Neighbours along the reduce axis that lie together in the packed ``weights``."""
        return self.intrinsic.right.layout[-1][1]

    @property
    def call(self) -> CallExtents:
        """Extents of one call."""
        *rows, lanes = self.intrinsic.spatial_axes
        depth = self.intrinsic.reduce_axes[0].extent
        return CallExtents(rows[0].extent if rows else 0, lanes.extent, depth)


class MultiLevelTilingRule(SketchRule):
    """Tiles a reduction with at least one spatial axis, once for every packing that suits it.

    A second tiled stage of the same workload is packed like the first. On a GPU it is tiled for
    blocks and threads, once for every way to read the operands.
    """

    name = "multi-level-tiling"

    def apply(self, draft: SketchDraft, stage: Stage) -> Iterable[SketchDraft] | None:
        if is_pointwise(stage):
            return None
        if draft.on_gpu:
            return gpu_tiles(draft, stage)
        if not stage.spatial_axes:
            return None
        vector = stage.spatial_axes[-1].name
        operands = _operands(draft, stage, vector)
        packings = applicable(PACKINGS, operands, stage, vector)
        if not packings:
            raise UnsupportedWorkload(
                f"no packing suits stage {stage.name!r}, which reads {', '.join(stage.reads)}"
            )
        chosen = alike(packings, draft)
        return (tiled(draft, stage, operands, packing) for packing in chosen)


def alike(packings: list[Packing], draft: SketchDraft) -> list[Packing]:
    """The packings to try: where a stage is tiled already, only the one like its own.

    All combinations over several tiled stages would be too many sketches to try in a run.
    """
    taken = {item.label for item in PACKINGS} & set(draft.labels)
    if not taken:
        return packings
    return [item for item in packings if item.label in taken][:1] or packings[:1]


def _operands(draft: SketchDraft, stage: Stage, vector: str) -> list[Operand]:
    gathering = gathering_tensors(stage)
    operands = []
    for tensor in stage.reads:
        if tensor in gathering:
            places = [stage.forms(read) for read in stage.accesses if read.tensor == tensor]
        else:
            places = operand_places(stage, tensor)
        if len(places) == 1 and tensor not in gathering:
            operands.append(_operand(draft, stage, tensor, places[0], vector))
        else:
            operands.extend(Operand(tensor, forms, None, in_place=True) for forms in places)
    return operands


def _operand(
    draft: SketchDraft, stage: Stage, tensor: str, forms: tuple[AffineForm, ...], vector: str
) -> Operand:
    block_dim = dimension_of(forms, vector)
    divided = not is_affine(forms)
    if divided and (block_dim is None or not draft.can("pack")):
        return Operand(tensor, forms, None)
    depth = math.prod(a.extent for a in stage.reduce_axes if depends_on(forms, a.name))
    trivial = all(len(form.coefficients) <= 1 for form in forms)
    prepacked = draft.can_prepack(stage, tensor)
    operand = Operand(tensor, forms, block_dim, prepacked and block_dim is not None, divided)
    if prepacked:
        worth = depth >= _MIN_PANEL_DEPTH or not operand.contiguous_along(vector)
    else:
        worth = depth >= _MIN_PANEL_DEPTH and _is_reused(operand, stage)
    return operand if worth and trivial else Operand(tensor, forms, None)


def _is_reused(operand: Operand, stage: Stage) -> bool:
    """Return whether several elements of the result need the same element of the operand."""
    return any(
        axis.extent > 1 and not depends_on(operand.forms, axis.name) for axis in stage.spatial_axes
    )


def _copied_plain(operand: Operand, stage: Stage) -> bool:
    """Return whether a plain copy of the operand holds different elements for different rows.

    What is read by quotients or remainders stays where it is.
    """
    rows = stage.spatial_axes[:-1]
    return (
        operand.block_dim is None
        and not operand.in_place
        and is_affine(operand.forms)
        and any(depends_on(operand.forms, axis.name) for axis in rows if axis.extent > 1)
    )


def _place(operand: Operand, packing: Packing, stage: Stage) -> str | None:
    """Place of the operand's copy by ``packing``; None leaves it in place."""
    if operand.block_dim is not None:
        whole = operand.prepacked or operand.whole
        return "root" if packing.blocked is not None and whole else packing.blocked
    return packing.plain if _copied_plain(operand, stage) else None


def applicable(
    packings: Iterable[Packing], operands: list[Operand], stage: Stage, vector: str
) -> list[Packing]:
    """Instructions that suit a stage; of those with equal places of operands the first."""
    found: dict[tuple[str | None, ...], Packing] = {}
    for packing in packings:
        if _suits(packing, operands, stage, vector):
            places = tuple(_place(operand, packing, stage) for operand in operands)
            found.setdefault((*places, packing.plain), packing)
    return list(found.values())


def _suits(packing: Packing, operands: list[Operand], stage: Stage, vector: str) -> bool:
    blocked = [operand for operand in operands if operand.block_dim is not None]
    plain = [operand for operand in operands if _copied_plain(operand, stage)]
    if packing.blocked is None and not all(o.contiguous_along(vector) for o in blocked):
        return False
    has_rows = len(stage.spatial_axes) > 1
    if packing.plain == "rows" and not has_rows:
        return False
    return (packing.blocked is None or bool(blocked)) and (packing.plain is None or bool(plain))


def tiled(
    draft: SketchDraft,
    stage: Stage,
    operands: list[Operand],
    packing: Packing,
    contraction: Contraction | None = None,
) -> SketchDraft:
    """The draft with ``stage`` tiled and packed, around calls of an instruction if given."""
    paddable, batch = _axes_to_pad(draft, stage, operands, packing)
    row_reuse = any(
        it.block_dim is not None and (_is_reused(it, stage) or not it.prepacked) for it in operands
    )
    tiles = register_tiles(
        draft,
        stage,
        paddable - batch,
        batch=batch,
        row_reuse=row_reuse,
        call=None if contraction is None else contraction.call,
    )
    steps: list[Step] = [
        Order(stage.name, _order(stage, tiles, packing, contraction)),
        Parallel(stage.name, loops(stage.spatial_axes)),
    ]
    settled = {stage.name}
    for operand in operands:
        steps.extend(_operand_steps(draft, stage, operand, packing, tiles, settled, contraction))
    steps.extend(_result_steps(draft, stage, tiles, _tile_loop(stage, packing), contraction))
    if draft.can("bound_loop") and (contraction is None or not contraction.intrinsic.corrected):
        called = [] if contraction is None else _called(stage, contraction)
        steps.extend(window_bounds(draft.workload, stage, called))
    return draft.extended(
        settled=settled,
        label=packing.label,
        splits=tiles.splits.values(),
        constraints=tiles.constraints,
        steps=steps,
    )


def _axes_to_pad(
    draft: SketchDraft, stage: Stage, operands: list[Operand], packing: Packing
) -> tuple[set[str], set[str]]:
    """Axes whose padding goes into packed operands, and those that every operand has (batches)."""
    packed = {it.tensor for it in operands if _place(it, packing, stage) is not None}
    divided = {axis for it in operands for form in it.forms for axis in form.divided_axes}
    paddable = {
        axis.name
        for axis in stage.spatial_axes
        if axis.name not in divided
        and draft.can("pad_extent")
        and all(it.tensor in packed for it in operands if depends_on(it.forms, axis.name))
    }
    batch = {
        axis.name
        for axis in stage.spatial_axes[:-1]
        if all(dimension_of(it.forms, axis.name) is not None for it in operands)
    }
    return paddable, batch


def _order(
    stage: Stage, tiles: RegisterTiles, packing: Packing, contraction: Contraction | None
) -> tuple[str, ...]:
    *rows, vector = stage.spatial_axes
    walk = [loops([vector], 1), loops((axis for axis in rows if tiles.depth(axis)), 1)]
    called = [] if contraction is None else _called(stage, contraction)[:-1]
    return (
        *loops(stage.spatial_axes),
        *(loop for part in walk[:: -1 if packing.plain == "rows" else 1] for loop in part),
        *loops(stage.reduce_axes),
        *_unrolled(stage, tiles),
        *called,
        f"{vector.name}.3",
    )


def _unrolled(stage: Stage, tiles: RegisterTiles) -> tuple[str, ...]:
    """Loops of a register tile, and of the terms that it takes at once."""
    *rows, vector = stage.spatial_axes
    return (
        *loops((axis for axis in stage.reduce_axes if tiles.depth(axis)), 1),
        *loops((axis for axis in rows if tiles.depth(axis) > 1), 2),
        f"{vector.name}.2",
    )


def _called(stage: Stage, contraction: Contraction) -> list[str]:
    """The loops that become one call, outermost first."""
    rows = [f"{stage.spatial_axes[-2].name}.3"] if contraction.call.rows else []
    return [*rows, f"{stage.reduce_axes[-1].name}.2", f"{stage.spatial_axes[-1].name}.3"]


def _tile_loop(stage: Stage, packing: Packing) -> str:
    """The loop that encloses exactly one register tile: the last of level 1."""
    rows = [axis for axis in stage.spatial_axes[:-1] if axis.extent > 1]
    if packing.plain == "rows" or not rows:
        return f"{stage.spatial_axes[-1].name}.1"
    return f"{rows[-1].name}.1"


def _pack_loop(place: str, stage: Stage) -> str | None:
    if place == "root":
        return None
    spatial = stage.spatial_axes
    if place == "outer":
        return f"{spatial[-1].name}.0"
    if place == "panel":
        return f"{spatial[-1].name}.1"
    rows = [axis for axis in spatial[:-1] if axis.extent > 1]
    return f"{rows[-1].name}.1" if rows else f"{spatial[-1].name}.0"


def _operand_steps(
    draft: SketchDraft,
    stage: Stage,
    operand: Operand,
    packing: Packing,
    tiles: RegisterTiles,
    settled: set[str],
    contraction: Contraction | None,
) -> list[Step]:
    """Packing of one operand, and the placement of the pointwise stage that computes it."""
    place = _place(operand, packing, stage)
    producer = own_producer(draft.workload, operand.tensor)
    if producer is not None and reduction_before(draft, producer) is not None:
        # It is computed where what it reads is.
        producer = None
    lanes = draft.target.lanes(stage.output.dtype)
    if place is None:
        if producer is None or producer.name in settled:
            return []
        if draft.can("fuse_producer") and rows_behind(draft, producer) is not None:
            return []
        settled.add(producer.name)
        return root_copy_steps(producer, lanes)
    block = tiles.panel if operand.block_dim is not None else None
    if operand.block_dim == len(operand.forms) - 1:
        width = tiles.vector
    else:
        width = _plain_lanes(draft, stage, operand, contraction)
        if operand.block_dim is not None and width % _TRANSPOSED_LANES:
            width = 1
    grouped = contraction is not None and operand.tensor == contraction.weights
    if contraction is not None and grouped and contraction.group_dim == len(operand.forms) - 1:
        width = contraction.group
    steps: list[Step] = [
        Pack(stage.name, operand.tensor, _pack_loop(place, stage), operand.block_dim, block, width)
    ]
    if contraction is not None and grouped:
        group = contraction.group
        steps.append(Interleave(stage.name, operand.tensor, contraction.group_dim, group))
    if operand.prepacked:
        steps.append(Prepack(stage.name, operand.tensor))
    if producer is not None:
        settled.add(producer.name)
        if draft.can("inline"):
            steps.append(Inline(producer.name))
        else:
            steps.extend(root_copy_steps(producer, lanes))
    return steps


def _plain_lanes(
    draft: SketchDraft, stage: Stage, operand: Operand, contraction: Contraction | None
) -> int:
    """Vector width of a plain copy: of its last dimension, when a reduce axis spans all of it."""
    lanes = draft.target.lanes(stage.output.dtype)
    form = operand.forms[-1]
    if len(form.coefficients) != 1:
        return 1
    (axis, coefficient), *_ = form.coefficients.items()
    if coefficient != 1 or axis not in {reduce.name for reduce in stage.reduce_axes}:
        return 1
    extent = draft.workload.tensors[operand.tensor].shape[-1]
    if stage.extents[axis] != extent:
        return 1
    if contraction is not None:
        extent = round_up(extent, contraction.call.depth)
        lanes = draft.target.lanes(draft.workload.tensors[operand.tensor].dtype)
    return largest_divisor(extent, lanes)


def _result_steps(
    draft: SketchDraft,
    stage: Stage,
    tiles: RegisterTiles,
    tile_loop: str,
    contraction: Contraction | None,
) -> list[Step]:
    vector = stage.spatial_axes[-1].name
    run: Step = Vectorize(stage.name, f"{vector}.3")
    if contraction is not None:
        run = Tensorize(stage.name, tuple(_called(stage, contraction)), contraction.intrinsic.name)
    return [
        draft.written(stage.name, tile_loop, tiles.splits[vector].factors[2:]),
        run,
        Unroll(stage.name, _unrolled(stage, tiles)),
    ]


__all__ = ["PaddedWindow", "padded_windows", "window_bounds"]

# Of other axes inside a loop over taps: with three channels a bound costs nothing.
_FEWEST_TERMS = 3

# A sum of axes, times coefficients, and the values that it takes; None: without an end.
_Sum = tuple[tuple[str, int], ...]
_Range = tuple[int | None, int | None]
_Ranges = Mapping[_Sum, _Range]

_OPPOSITE = {"le": "gt", "lt": "ge", "gt": "le", "ge": "lt"}
# What a difference of two numbers is where they compare so.
_DIFFERENCES: Mapping[str, _Range] = {
    "le": (None, 0),
    "lt": (None, -1),
    "gt": (1, None),
    "ge": (0, None),
    "eq": (0, 0),
}


@frozen
class PaddedWindow:
    """Dimension of a window, and its place on what it moves over.

    A term reads position ``scale * tap + stride * result``.

    Attributes:
        tap: The reduce axis.
        result: The spatial axis.
        scale: Distance of taps; positive.
        stride: Distance of results; not 0.
        least: First position that is no padding; None where none before it is read.
        most: Last position that is no padding, or that is read.
    """

    tap: str
    result: str
    scale: int
    stride: int
    least: int | None
    most: int


def window_bounds(workload: Workload, stage: Stage, called: Sequence[str]) -> Iterator[BoundLoop]:
    """Steps that leave out taps on nothing but padding, where this is worth its while.

    A loop over taps is bounded where one over other terms is inside it, such as over channels.
    Where there is none, as in a depthwise convolution or with channels first, a bound takes longer
    than what it leaves out.

    Args:
        workload: Of which the stage is.
        stage: A reduction, whose outermost loops over reduce axes are in the order of these.
        called: Loops that become one call of an instruction.
    """
    windows, reduced = padded_windows(workload, stage), [axis.name for axis in stage.reduce_axes]
    taps = {it.tap for it in windows}
    in_calls = {loop.rpartition(".")[0] for loop in called}
    for it in windows:
        inside = stage.reduce_axes[reduced.index(it.tap) :]
        terms = math.prod(axis.extent for axis in inside if axis.name not in taps)
        if terms >= _FEWEST_TERMS and not in_calls & {it.tap, it.result}:
            least = None if it.least is None else const(it.least)
            numbers = const(it.most), it.scale, it.stride, least
            yield BoundLoop(stage.name, f"{it.tap}.0", it.result, *numbers)


def padded_windows(workload: Workload, stage: Stage) -> list[PaddedWindow]:
    """The dimensions of a reduction's window that reach into padding, one for each reduce axis."""
    if stage.combiner is None or not stage.reduce_axes:
        return []
    ranges = _Terms(workload, stage.identity()).ranges(stage.body)
    found: dict[str, PaddedWindow] = {}
    for axes, (least, most) in (ranges or {}).items():
        window = _window(stage, dict(axes), least, most)
        if window is not None:
            found.setdefault(window.tap, window)
    return list(found.values())


def _window(
    stage: Stage, coefficients: dict[str, int], least: int | None, most: int | None
) -> PaddedWindow | None:
    """The window over these axes; None where it is none, or never reaches beyond the ends."""
    taps = [axis.name for axis in stage.reduce_axes if axis.name in coefficients]
    results = [axis.name for axis in stage.spatial_axes if axis.name in coefficients]
    if len(taps) != 1 or len(results) != 1 or len(coefficients) != 2:
        return None
    if coefficients[taps[0]] < 0:
        coefficients = {name: -value for name, value in coefficients.items()}
        least, most = (None if end is None else -end for end in (most, least))
    reach = {name: value * (stage.extents[name] - 1) for name, value in coefficients.items()}
    lowest, highest = (sum(end(value, 0) for value in reach.values()) for end in (min, max))
    if least is not None and least <= lowest:
        least = None
    if most is None or most >= highest:
        most = highest
    if least is None and most == highest:
        return None
    scale, stride = coefficients[taps[0]], coefficients[results[0]]
    return PaddedWindow(taps[0], results[0], scale, stride, least, most)


@frozen
class _Terms:
    """Terms that are not the neutral element.

    Attributes:
        workload: Of which the stages are.
        neutral: The neutral element.
    """

    workload: Workload
    neutral: float

    def ranges(self, body: ScalarExpr) -> _Ranges | None:
        """Ranges of sums of axes wherever a term may be anything else; None if it never is."""
        if isinstance(body, Constant):
            return None if body.value == self.neutral else {}
        if isinstance(body, Load):
            producer = producer_stage(self.workload, body.tensor)
            if producer is None or not is_pointwise(producer):
                return {}
            names = [axis.name for axis in producer.spatial_axes]
            values = dict(zip(names, body.indices, strict=True))
            return self.ranges(substitute(producer.body, values))
        if isinstance(body, Select):
            return _either(
                _both(_where(body.condition, True), self.ranges(body.on_true)),
                _both(_where(body.condition, False), self.ranges(body.on_false)),
            )
        if self.neutral != 0:
            return {}
        # Zero stays zero.
        if isinstance(body, Cast) or (isinstance(body, Unary) and body.op == "neg"):
            return self.ranges(body.operand)
        if isinstance(body, Binary) and body.op == "mul":
            return _both(self.ranges(body.left), self.ranges(body.right))
        return {}


def _where(condition: ScalarExpr, holds: bool) -> _Ranges:
    """Ranges of sums of axes where a condition holds, or does not."""
    if isinstance(condition, Unary) and condition.op == "not":
        return _where(condition.operand, not holds)
    if isinstance(condition, Binary) and condition.op == ("and" if holds else "or"):
        both = _both(_where(condition.left, holds), _where(condition.right, holds))
        return both or {}
    found = compared(condition, holds)
    return {} if found is None else {found[0]: found[1]}


def compared(condition: ScalarExpr, holds: bool) -> tuple[_Sum, _Range] | None:
    """A sum of axes, and its range where a comparison with it holds, or does not.

    The axes are in alphabetical order, the first times a positive number. None where a condition
    is no comparison of whole numbers that are computed from axes.
    """
    if isinstance(condition, Unary) and condition.op == "not":
        return compared(condition.operand, not holds)
    if not isinstance(condition, Binary):
        return None
    op = condition.op if holds else _OPPOSITE.get(condition.op, "")
    left, right = index_of_value(condition.left), index_of_value(condition.right)
    form = None if left is None or right is None else affine_form(left - right)
    if form is None or not form.coefficients or op not in _DIFFERENCES:
        return None
    axes = sorted(form.coefficients.items())
    least, most = (None if end is None else end - form.constant for end in _DIFFERENCES[op])
    if axes[0][1] < 0:
        axes = [(name, -value) for name, value in axes]
        least, most = (None if end is None else -end for end in (most, least))
    return tuple(axes), (least, most)


def _both(left: _Ranges | None, right: _Ranges | None) -> _Ranges | None:
    """Ranges of sums where two conditions hold."""
    if left is None or right is None:
        return None
    found = dict(left)
    for axes, (least, most) in right.items():
        known = found.get(axes, (None, None))
        found[axes] = (
            max((it for it in (least, known[0]) if it is not None), default=None),
            min((it for it in (most, known[1]) if it is not None), default=None),
        )
    return found


def _either(left: _Ranges | None, right: _Ranges | None) -> _Ranges | None:
    """Ranges of sums where either of two conditions holds."""
    if left is None or right is None:
        return right if left is None else left
    found = {}
    for axes in left.keys() & right.keys():
        (first, last), (least, most) = left[axes], right[axes]
        found[axes] = (
            None if first is None or least is None else min(first, least),
            None if last is None or most is None else max(last, most),
        )
    return found


GPU_LABELS = (
    *TENSOR_LABELS,
    "shared",
    "shared-transposed",
    "direct",
    "cross-thread",
    *SPLIT_LABELS,
)

# A reduction of more steps than this per result gains by what its threads fetch together.
_SHORT_REDUCTION = 64


def gpu_tiles(draft: SketchDraft, stage: Stage) -> list[SketchDraft]:
    """A reduction through shared memory, directly from global memory, and across threads.

    Operands go through shared memory where several threads read the same elements; where rows of
    an operand lie along the reduction, they are also laid out along results. Reading them
    directly is tried as well for short reductions. Reductions with few results are also split
    across the threads of a block, and long ones with too few results for all multiprocessors
    across blocks. Products of matrices that tensor cores multiply are tiled for these as well. A
    second such stage of the same workload is treated like the first.
    """
    check_gpu(draft.target)
    fetched = fetchable(stage)
    tileable = any(axis.extent > 1 for axis in stage.spatial_axes)
    reduce = math.prod(axis.extent for axis in stage.reduce_axes)
    choices = tensor_drafts(draft, stage)
    if tileable and fetched:
        padded = draft.can("shared_layout")
        layouts = "padded" if padded else "plain"
        choices["shared"] = tiled_kernel(draft, stage, fetched, "shared", layouts=layouts)
        if padded and _has_rows_to_turn(stage, fetched):
            label = "shared-transposed"
            choices[label] = tiled_kernel(draft, stage, fetched, label, layouts="transposed")
    if tileable and (not fetched or reduce <= _SHORT_REDUCTION):
        choices["direct"] = tiled_kernel(draft, stage, {}, "direct")
    if not tileable or suits_cross_thread(stage, draft.target):
        choices["cross-thread"] = cross_thread_draft(draft, stage)
    choices |= split_drafts(draft, stage)
    taken = [label for label in choices if label in draft.labels]
    if taken and _is_first_product(draft, stage, choices):
        on_tensor_cores = [choices[it] for it in TENSOR_LABELS if it in choices]
        return [*on_tensor_cores, choices[taken[0]]]
    return [choices[taken[0]]] if taken else list(choices.values())


def _is_first_product(
    draft: SketchDraft, stage: Stage, choices: Mapping[str, SketchDraft]
) -> bool:
    """Return whether tensor cores compute a stage, and none of those that are decided already."""
    decided = [
        other
        for other in draft.workload.stages
        if other.name in draft.settled and not is_pointwise(other)
    ]
    computed = not choices.keys().isdisjoint(TENSOR_LABELS)
    return computed and not any(tensor_drafts(draft, other) for other in decided)


def _has_rows_to_turn(stage: Stage, fetched: Fetched) -> bool:
    """Return whether rows along results differ from the operands' own, for some operand."""
    tiled = [axis.name for axis in stage.axes if axis.extent > 1]
    return any(transposable(stage, forms, tiled) is not None for forms in fetched.values())


def suits_cross_thread(stage: Stage, target: Target) -> bool:
    """Return whether a thread for each result would leave most of the GPU idle."""
    results = math.prod(axis.extent for axis in stage.spatial_axes)
    terms = max(axis.extent for axis in stage.reduce_axes)
    return results <= target.multiprocessors * target.warp_size and terms >= 4 * target.warp_size


def cross_thread_draft(draft: SketchDraft, stage: Stage) -> SketchDraft:
    """A block for each result; its threads share the longest reduce axis.

    An epilogue becomes a kernel of its own.
    """
    shared = max(stage.reduce_axes, key=lambda axis: axis.extent)
    threads = Ordinal(f"{stage.name}.threads", block_threads(shared.extent, draft.target))
    unroll = Ordinal(f"{stage.name}.unroll", UNROLL_LIMITS)
    spatial = loops(stage.spatial_axes)
    others = loops(axis for axis in stage.reduce_axes if axis is not shared)
    inlined = [it for it in stage.reads if inlined_operand(draft, stage, it, copied=False)]
    blocks = [Bind(stage.name, spatial, "block")] if spatial else []
    made = draft.extended(steps=map(Inline, inlined)).extended(
        settled=[stage.name, *inlined],
        label="cross-thread",
        splits=[cover(stage.name, shared, threads)],
        params=[unroll],
        steps=[
            Order(stage.name, (*spatial, *others, f"{shared.name}.0", f"{shared.name}.1")),
            *blocks,
            Bind(stage.name, (f"{shared.name}.1",), "thread"),
            UnrollLimit(stage.name, var(unroll.name)),
        ],
    )
    consumer = draft.epilogues.get(stage.name)
    return made if consumer is None else gpu_pointwise(made, draft.workload.stage(consumer))
