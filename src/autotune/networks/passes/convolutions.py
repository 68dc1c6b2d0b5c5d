"""Which workloads are convolutions, in whatever order of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from autotune.ir.expressions import AffineForm, Binary, Cast, Load, ScalarExpr
from autotune.ir.rewrites.permuted import Order, inverse
from autotune.ir.workloads import Stage, Workload
from autotune.ir.workloads.padding import padding_of_stage
from autotune.networks.graph import Node, Value

__all__ = ["Convolution"]


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
    left, right = _uncast(stage.body.left), _uncast(stage.body.right)
    if not isinstance(left, Load) or not isinstance(right, Load):
        return None
    return left, right


def _uncast(body: ScalarExpr) -> ScalarExpr:
    return body.operand if isinstance(body, Cast) else body


def _is_converted(workload: Workload, summed: Stage) -> bool:
    """Tell if nothing but a conversion follows a sum."""
    last = workload.stages[-1]
    if last is summed:
        return True
    body = last.body
    if not isinstance(body, Cast) or not isinstance(body.operand, Load):
        return False
    here = [repr(index) for index in body.operand.indices]
    return body.operand.tensor == summed.name and here == [axis.name for axis in last.axes]


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
