"""Questions about what the workloads of a graph compute, whatever they are called.

Convolutions are found in whatever order of axes, and indices of elements followed through other
shapes of the same elements. What may be fused is composed of parts whose schedules it has, by the
rules by which sketches are made: a consumer is computed in the tile of the reduction before it,
reductions of rows and what is computed of them in one loop over rows, what only a reduction reads
inside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod

import numpy as np
from attrs import evolve, frozen

from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    AffineForm,
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Unary,
    const,
    var,
)
from autotune.ir.expressions.bounds import simplify_index
from autotune.ir.expressions.integer import rebuilt
from autotune.ir.expressions.scalar import walk
from autotune.ir.rewrites.permuted import Order, inverse
from autotune.ir.workloads import Axis, Stage, Workload
from autotune.ir.workloads.composing import computed_where_read
from autotune.ir.workloads.padding import padding_of_stage
from autotune.networks.graph import Graph, Loop, Node, Value, rewritten
from autotune.networks.graph.graph import results_of
from autotune.sketches import STEP_TYPES
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.rules import SketchDraft
from autotune.spaces.rules.access import (
    is_expensive,
    is_pointwise,
    is_without_reuse,
    numbers_behind,
    rows_behind,
)
from autotune.spaces.rules.inline import reduction_before
from autotune.targets import Target

__all__ = [
    "Contraction",
    "Convolution",
    "Form",
    "before_move",
    "contraction",
    "flat_index",
    "form_of",
    "has_exponentials",
    "is_gathered_from",
    "permutation",
    "reads_each_once",
    "reads_in_place",
    "reads_in_rows",
    "reshaped_indices",
    "scheduled_as_one",
    "uniform_number",
    "with_bodies",
]


@frozen
class Contraction:
    """The sum of products of two tensors over one axis, which may be rounded then.

    Attributes:
        stage: The sum.
        left: The element of the first factor, as it is loaded.
        right: That of the second one.
        total: Type of the sum.
    """

    stage: Stage
    left: Load
    right: Load
    total: str

    @property
    def axis(self) -> Axis:
        """The axis that is summed over."""
        return self.stage.reduce_axes[0]


def contraction(node: Node) -> Contraction | None:
    """The sum of products of floats that a node is, rounded to its type or not."""
    workload = node.operation
    if not isinstance(workload, Workload) or len(workload.stages) > 2 or node.requirements:
        return None
    stage, *rest = workload.stages
    if any(not _only_casts(it, stage) for it in rest) or stage.combiner != "add":
        return None
    body = stage.body
    if not (isinstance(body, Binary) and body.op == "mul" and len(stage.reduce_axes) == 1):
        return None
    left, right = _behind_cast(body.left), _behind_cast(body.right)
    if left is None or right is None or not stage.output.element.is_float:
        return None
    return Contraction(stage, left, right, stage.output.dtype)


def _behind_cast(body: ScalarExpr) -> Load | None:
    body = body.operand if isinstance(body, Cast) else body
    return body if isinstance(body, Load) else None


def _only_casts(stage: Stage, before: Stage) -> bool:
    """Return whether a stage is another one at the same place, in another type."""
    body = _behind_cast(stage.body)
    if body is None or body.tensor != before.name or stage.combiner is not None:
        return False
    return [repr(index) for index in body.indices] == [axis.name for axis in stage.axes]


def permutation(node: Node) -> tuple[int, ...] | None:
    """The order of axes that a node permutes to; None where it does something else."""
    stage = node.pointwise
    if stage is None or not isinstance(stage.body, Load):
        return None
    if len(stage.body.indices) != len(stage.axes):
        return None
    names, places = [axis.name for axis in stage.axes], stage.body.indices
    moved = {it.args[0]: at for at, it in enumerate(places) if it.op == "var"}
    shape = node.operands[0].shape
    if stage.output.dtype != node.operands[0].dtype:
        return None
    whole = {*moved} == {*names} and len(moved) == len(places)
    if not whole or any(shape[moved[it.name]] != it.extent for it in stage.axes):
        return None
    return tuple(moved[name] for name in names)


def _scaled_load(node: Node) -> tuple[Load, float] | None:
    """The element that a node moves, and the number by which it is multiplied."""
    stage = node.pointwise
    if stage is None:
        return None
    body = stage.body
    if isinstance(body, Load):
        return body, 1.0
    if not isinstance(body, Binary) or body.op not in ("mul", "div"):
        return None
    divides = body.op == "div"
    for load, number in [(body.left, body.right), (body.right, body.left)][: 2 - divides]:
        factor = _number(number, node.named_operands)
        if isinstance(load, Load) and factor:
            return load, 1 / factor if divides else factor
    return None


def _number(body: ScalarExpr, operands: Mapping[str, Value]) -> float | None:
    """The one number that a body is everywhere."""
    if isinstance(body, Constant):
        return float(body.value)
    return uniform_number(operands[body.tensor]) if isinstance(body, Load) else None


def uniform_number(value: Value) -> float | int | bool | None:
    """The one number that a constant holds everywhere; None for all else, and for NaN."""
    array = value.constant
    if array is None or not array.size:
        return None
    first = array[(0,) * array.ndim]
    # The ends first: most constants differ there, and are not looked at whole.
    if array[(-1,) * array.ndim] != first or not np.all(array == first):
        return None
    number: float | int | bool = element_type(value.dtype).numbers(np.asarray(first)).item()
    return number if number == number else None


def has_exponentials(node: Node) -> bool:
    """Return whether a node computes exponentials."""
    workload = node.operation
    if not isinstance(workload, Workload):
        return False
    nodes = (it for stage in workload.stages for it in walk(stage.body))
    return any(isinstance(it, Unary) and it.op == "exp" for it in nodes)


def with_bodies(graph: Graph, change: Callable[[Graph], tuple[Graph, int]]) -> tuple[Graph, int]:
    """The changed graph, with changed bodies of its loops, and the number of all changes.

    Args:
        graph: A network.
        change: From a graph to one of the same inputs and outputs, and the number of changes.
    """
    count = 0

    def changed(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal count
        if not isinstance(node.operation, Loop):
            return None
        body, here = with_bodies(node.operation.body, change)
        if not here:
            return None
        count += here
        operation = evolve(node.operation, body=body)
        return results_of(evolve(node, operation=operation, operands=operands))

    if any(isinstance(node.operation, Loop) for node in graph.nodes):
        graph = rewritten(graph, changed, loops=False)
    found, here = change(graph)
    return found if here else graph, count + here


@frozen
class _Window:
    """Dimension of an image: ``stride * place + dilation * tap``.

    Attributes:
        place: Axis of the places of the window.
        tap: Axis of the elements of the window.
        stride: Steps between its places.
        dilation: Steps between its elements.
    """

    place: str
    tap: str
    stride: int
    dilation: int


_Dimension = str | _Window
"""Of an image: one of ``batch``, ``group``, ``channel``, or a window."""


@frozen(eq=False)
class Convolution:
    """A node that sums products of windows of an image with constant weights.

    Attributes:
        data: The image.
        image_name: What the workload calls it.
        weights: What it is multiplied with; a constant.
        dimensions: What the dimensions of the image are.
        taken: By axis of ``weights``: the axis of the stage that sums.
        stage: The stage that sums.
        low: Widths of the margins of zeros before each dimension of the image.
        high: Widths of the margins behind it.
        dtype: Type of the result.
    """

    data: Value
    image_name: str
    weights: Value
    dimensions: tuple[_Dimension, ...]
    taken: tuple[str, ...]
    stage: Stage
    low: tuple[int, ...]
    high: tuple[int, ...]
    dtype: str

    @staticmethod
    def of(node: Node, operands: Sequence[Value]) -> Convolution | None:
        """Recognise the operation of a node on these operands, if it is one.

        Margins are a stage before the one that sums; a stage behind it may convert its sums.
        """
        workload = node.operation
        if not isinstance(workload, Workload) or len(workload.outputs) > 1:
            return None
        sums = [stage for stage in workload.stages if stage.combiner is not None]
        if len(sums) != 1 or len(workload.stages) > 3:
            return None
        (stage,) = sums
        loads = _factors(stage)
        given = {it.name: value for it, value in zip(workload.inputs, operands, strict=True)}
        if loads is None or not _is_converted(workload, stage):
            return None
        image, kernel = loads
        if (
            kernel.tensor not in given
            or given[kernel.tensor].constant is None
            or image.tensor == kernel.tensor
        ):
            return None
        found = _image(workload, image.tensor, stage)
        dimensions = _dimensions(stage, image, kernel)
        if found is None or dimensions is None or found[0] not in given:
            return None
        source, low, high = found
        taken = tuple(next(iter(form.axes)) for form in stage.forms(kernel))
        dtype = workload.stages[-1].output.dtype
        return Convolution(
            given[source], source, given[kernel.tensor], dimensions, taken, stage, low, high, dtype
        )

    @property
    def windows(self) -> tuple[_Window, ...]:
        """Of the dimensions of the image, in order."""
        return tuple(it for it in self.dimensions if isinstance(it, _Window))

    @property
    def is_grouped(self) -> bool:
        """Tell if parts of the channels do not mix."""
        return "group" in self.dimensions

    @property
    def channels_last(self) -> Order:
        """Storage order of the image with the channels last."""
        ranks: Mapping[str, int] = {"batch": 0, "group": 2, "channel": 3}
        keys = [1 if isinstance(it, _Window) else ranks[it] for it in self.dimensions]
        return inverse(sorted(range(len(keys)), key=lambda at: keys[at]))

    @property
    def is_product(self) -> bool:
        """Tell if every position is multiplied by the same matrix, of channels and features."""
        extents = self.stage.extents
        alone = all(extents[it.tap] == 1 and it.stride == 1 for it in self.windows)
        matrix = len(self.stage.reduce_axes) == len(self.taken) - 1 and not self.is_grouped
        return alone and matrix and not any((*self.low, *self.high))


def _factors(stage: Stage) -> tuple[Load, Load] | None:
    """The two elements whose products a stage adds up."""
    if stage.combiner != "add" or not isinstance(stage.body, Binary) or stage.body.op != "mul":
        return None
    left, right = _behind_cast(stage.body.left), _behind_cast(stage.body.right)
    return None if left is None or right is None else (left, right)


def _is_converted(workload: Workload, summed: Stage) -> bool:
    """Tell if nothing but a conversion follows a sum."""
    last = workload.stages[-1]
    return last is summed or _only_casts(last, summed)


def _image(
    workload: Workload, name: str, summed: Stage
) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """Image that is read with its margins: the tensor, and their widths."""
    before = [stage for stage in workload.stages[:-1] if stage is not summed]
    if name in {tensor.name for tensor in workload.inputs}:
        none = (0,) * len(workload.tensors[name].shape)
        return None if before else (name, none, none)
    if len(before) != 1 or before[0].name != name:
        return None
    padding = padding_of_stage(before[0], workload)
    if padding is None or padding.value.value or any(padding.offsets):
        return None
    if padding.sizes != workload.tensors[padding.tensor].shape:
        return None
    return padding.tensor, padding.low, padding.high


def _dimensions(stage: Stage, image: Load, kernel: Load) -> tuple[_Dimension, ...] | None:
    """Kinds of the dimensions of an image, by who else has their axes."""
    reduced = {axis.name for axis in stage.reduce_axes}
    weights = stage.forms(kernel)
    if any(form.constant or list(form.coefficients.values()) != [1] for form in weights):
        return None
    taken = [name for form in weights for name in form.axes]
    found: list[_Dimension] = []
    for form in stage.forms(image):
        names = [*form.coefficients]
        if form.constant or form.terms:
            return None
        if len(names) == 2:
            window = _window(form, reduced, taken)
            if window is None:
                return None
            found.append(window)
        elif [*form.coefficients.values()] != [1]:
            return None
        elif names[0] in reduced:
            found.append("channel")
        else:
            found.append("group" if names[0] in taken else "batch")
    single = [it for it in found if isinstance(it, str)]
    is_image = len(single) < len(found) and len({*single}) == len(single)
    return tuple(found) if is_image and len({*taken}) == len(taken) else None


def _window(form: AffineForm, reduced: set[str], taken: Sequence[str]) -> _Window | None:
    first, second = form.coefficients
    place, tap = (second, first) if first in reduced else (first, second)
    if tap not in reduced or place in reduced or tap not in taken or place in taken:
        return None
    return _Window(place, tap, form.coefficients[place], form.coefficients[tap])


def flat_index(indices: Sequence[IntExpr], shape: Sequence[int]) -> IntExpr:
    """The number, in row-major order, of the element at ``indices`` of a tensor of ``shape``.

    Digits of one number, next to each other, become that number again: ``h // 6 * 6 + h % 6`` is
    ``h``.
    """
    found = const(0)
    for index, extent in zip(indices, shape, strict=True):
        if extent > 1:
            found = _joined(found, index, extent)
    return found


def _joined(high: IntExpr, low: IntExpr, extent: int) -> IntExpr:
    if low.op == "mod" and low.args[1].value == extent:
        whole: IntExpr = low.args[0]
        if _quotient(whole, extent) == high:
            return whole
    return high * extent + low


def _quotient(top: IntExpr, divisor: int) -> IntExpr:
    """The quotient by a number, of a quotient by that of both, of a digit as a higher one."""
    inner: int | None = top.args[1].value if top.op in ("floordiv", "mod") else None
    if inner is None:
        return top // divisor
    whole: IntExpr = top.args[0]
    if top.op == "floordiv":
        return whole // (inner * divisor)
    return top // divisor if inner % divisor else _quotient(whole, divisor) % (inner // divisor)


def _remainder(top: IntExpr, divisor: int) -> IntExpr:
    """The remainder by a number, of a digit as a lower one."""
    inner: int | None = top.args[1].value if top.op == "mod" else None
    is_lower = inner is not None and inner % divisor == 0
    whole: IntExpr = top.args[0] if is_lower else top
    return whole % divisor


def _digit(index: IntExpr, extents: Mapping[str, int]) -> IntExpr:
    """A quotient or remainder by a number, as simple as it can be."""
    found = simplify_index(index, extents)
    if found.op == "add":
        return rebuilt("add", [_digit(it, extents) for it in found.args])
    if found.op not in ("floordiv", "mod") or found.args[1].value is None:
        return found
    make = _quotient if found.op == "floordiv" else _remainder
    return simplify_index(make(found.args[0], found.args[1].value), extents)


def reshaped_indices(
    indices: Sequence[IntExpr],
    shape: Sequence[int],
    before: Sequence[int],
    extents: Mapping[str, int],
) -> tuple[IntExpr, ...]:
    """The indices in a tensor of shape ``before`` of an element of the same in ``shape``.

    Args:
        indices: In the reshaped tensor, over variables.
        shape: Of the reshaped tensor.
        before: Of the tensor as it was.
        extents: How many values each variable has.
    """
    rest = simplify_index(flat_index(indices, shape), extents)
    found: list[IntExpr] = []
    longer = [at for at, extent in enumerate(before) if extent > 1]
    for at in reversed(range(len(before))):
        if before[at] == 1:
            found.append(const(0))
        elif at == longer[0]:
            found.append(rest)
        else:
            found.append(_digit(rest % before[at], extents))
            rest = _digit(_quotient(rest, before[at]), extents)
    return tuple(reversed(found))


@frozen
class Before:
    """An element of a tensor, where it was before it was moved and multiplied by a number.

    Attributes:
        value: The tensor in which it was.
        indices: Where.
        factor: The number.
        in_order: Whether the axes that are read have the order that they had.
    """

    value: Value
    indices: tuple[IntExpr, ...]
    factor: float = 1.0
    in_order: bool = True


def before_move(
    value: Value, indices: Sequence[IntExpr], extents: Mapping[str, int]
) -> Before | None:
    """The element at ``indices`` of a tensor that a node moves; None where none does.

    Args:
        value: The tensor.
        indices: Over variables.
        extents: How many values each variable has.
    """
    node = value.node
    if node is None:
        return None
    if node.is_reshape:
        source = node.operands[0]
        return Before(source, reshaped_indices(indices, value.shape, source.shape, extents))
    found = _scaled_load(node)
    if found is None or node.pointwise is None:
        return None
    load, factor = found
    axes = [axis.name for axis in node.pointwise.axes]
    used = [name for it in load.indices for name in sorted(it.variables)]
    bound = dict(zip(axes, indices, strict=True))
    places = tuple(simplify_index(it.substitute(bound), extents) for it in load.indices)
    in_order = used == [name for name in axes if name in used]
    return Before(node.named_operands[load.tensor], places, factor, in_order)


@frozen
class Form:
    """Facts about a workload that decide what it is fused with.

    Attributes:
        is_pointwise: Whether every stage computes its elements each on its own.
        is_anchor: Whether it is a reduction that others may be fused with.
        is_product: Whether it has a reduction that reads elements several times.
        is_expensive: Whether it is pointwise and costs more than a buffer.
    """

    is_pointwise: bool
    is_anchor: bool
    is_product: bool
    is_expensive: bool


def form_of(workload: Workload) -> Form:
    """The form of a workload with one output."""
    stages = workload.stages
    reductions = [it for it in stages if not is_pointwise(it)]
    scans = any(it.scan_axis is not None for it in stages)
    products = [it for it in reductions if not is_without_reuse(it)]
    several = bool(products) and len(reductions) > 1
    return Form(
        not reductions,
        bool(reductions) and not scans and not several,
        bool(products),
        not reductions and any(map(is_expensive, stages)),
    )


def _loads(stage: Stage, tensor: str) -> Iterator[Load]:
    return (it for it in stage.loads if it.tensor == tensor)


def is_gathered_from(workload: Workload, tensor: str) -> bool:
    """Return whether elements of a tensor are read where data says."""
    return any(it.tensor == tensor for stage in workload.stages for it in stage.gathers)


def reads_in_place(workload: Workload, tensor: str) -> bool:
    """Return whether a pointwise workload reads a tensor only at the place that it computes."""
    if is_gathered_from(workload, tensor):
        return False
    for stage in workload.stages:
        here = [axis.name for axis in stage.axes]
        for load in _loads(stage, tensor):
            places = [it.args[0] if it.op == "var" else None for it in load.indices]
            if places != here:
                return False
    return True


def reads_in_rows(workload: Workload, tensor: str) -> bool:
    """Tell if neighbours along the last axis of each stage are neighbours in a tensor, or one."""
    for stage in workload.stages:
        last = stage.axes[-1].name if stage.axes else ""
        for read in (it for it in stage.accesses if it.tensor == tensor):
            moving = [at for at, it in enumerate(stage.forms(read)) if last in it.axes]
            if moving not in ([], [len(read.indices) - 1]):
                return False
            if moving and read.indices[-1] not in (var(last), IndexValue(var(last))):
                return False
    return True


def reads_each_once(workload: Workload, tensor: str, elements: int) -> bool:
    """Return whether no stage reads more elements of a tensor than there are."""
    return all(
        prod(axis.extent for axis in stage.axes) * len({*_loads(stage, tensor)}) <= elements
        for stage in workload.stages
        if any(_loads(stage, tensor))
    )


def without_movements(workload: Workload) -> Workload:
    """The workload whose readers of what is only moved read from where it was."""
    moved = [
        it.name
        for it in workload.stages
        if isinstance(it.body, Load)
        and is_pointwise(it)
        and it.name not in workload.outputs
        and it.output.dtype == workload.tensors[it.body.tensor].dtype
    ]
    return computed_where_read(workload, moved)


def with_readers_joined(workload: Workload) -> Workload:
    """The workload in which one stage alone reads its last reduction, as epilogues have it.

    Behind the reduction, stages are kept through which everything goes, unless they are expensive
    and read again. The others are computed where they are read, as is all but the last of what is
    only computed of operands that they read besides.
    """
    last = max(
        (at for at, it in enumerate(workload.stages) if not is_pointwise(it)),
        default=len(workload.stages),
    )
    if last >= len(workload.stages) - 1:
        return workload
    behind = {workload.stages[last].name}
    waiting = {workload.stages[last].name: _reader_names(workload, workload.stages[last].name)}
    joined: list[str] = []
    heavy: set[str] = set()
    for stage in workload.stages[last + 1 :]:
        for readers in waiting.values():
            readers.discard(stage.name)
        waiting = {name: readers for name, readers in waiting.items() if readers}
        if not behind & {*stage.reads}:
            continue
        behind.add(stage.name)
        readers = _reader_names(workload, stage.name)
        # What is joined makes its reader as heavy as it is.
        if is_expensive(stage) or heavy & {*stage.reads}:
            heavy.add(stage.name)
        if readers and (waiting or stage.name in heavy):
            joined.append(stage.name)
        if readers:
            waiting[stage.name] = readers
    return computed_where_read(workload, [*_beside(workload, last, behind), *joined])


def _beside(workload: Workload, last: int, behind: Collection[str]) -> list[str]:
    """Stages that neither read a reduction nor are read by it, and that only such ones read."""
    needed = _ancestors(workload, workload.stages[last].name) | {workload.stages[last].name}
    beside = {
        it.name
        for it in workload.stages
        if is_pointwise(it)
        and not is_expensive(it)
        and it.name not in needed
        and it.name not in behind
    }
    return [name for name in beside if _reader_names(workload, name) <= beside]


def _reader_names(workload: Workload, tensor: str) -> set[str]:
    return {it.name for it in workload.consumers(tensor)}


_ANY_STEPS = ScheduleLimits(
    steps=frozenset(STEP_TYPES), stack_bytes=1 << 16, unrolled_statements=1 << 12, source="any"
)


def scheduled_as_one(workload: Workload, machine: Target) -> Workload | None:
    """A workload in the form in which rules compute all of it in one loop nest.

    Args:
        workload: Has one output, its last stage.
        machine: What it runs on.

    Returns:
        The workload, or one of fewer stages; None where the last stage would have loops of its
        own behind those of a reduction.
    """
    whole = without_movements(workload)
    last = whole.stages[-1]
    if not is_pointwise(last) or all(map(is_pointwise, whole.stages)):
        # What a reduction reads is decided together with it.
        return whole
    draft = SketchDraft(whole, machine, _ANY_STEPS)
    found = rows_behind(draft, last) or numbers_behind(draft, last)
    if found is not None and len(found[0]) + 1 == len(whole.stages):
        return whole
    joined = with_readers_joined(whole)
    before = reduction_before(SketchDraft(joined, machine, _ANY_STEPS), joined.stages[-1])
    if before is None:
        return None
    after = {before.reduction, *before.inlined, joined.stages[-1].name}
    needed = _ancestors(joined, before.reduction)
    return joined if all(it.name in after or it.name in needed for it in joined.stages) else None


def _ancestors(workload: Workload, name: str) -> set[str]:
    found = {name}
    for stage in reversed(workload.stages):
        if stage.name in found:
            found |= {*stage.reads}
    return found - {name}
