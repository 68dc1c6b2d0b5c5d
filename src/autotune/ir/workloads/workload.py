"""A workload: a DAG of stages over tensors, each stage a scalar body over iteration axes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir.converter import JsonForm, json_forms, list_form, object_form
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    AffineForm,
    Cast,
    Constant,
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    gathers,
    index_form,
    loads,
    operation_counts,
)
from autotune.ir.expressions.affine import unknown_form
from autotune.ir.expressions.scalar import reads, renamed_body, walk
from autotune.ir.workloads.canonical import Names, canonical_order
from autotune.ir.workloads.tensor import Tensor, validate_dtype, validate_tensor

if TYPE_CHECKING:
    from cattrs import Converter

AXIS_KINDS = ("spatial", "reduce", "scan")
COMBINERS = ("add", "mul", "max", "min")
_FOR_PEOPLE = ("name", "parameters")
# Functions of whole numbers that are whole.
_WHOLE = ("neg", "abs", "floor", "ceil", "round", "not")
_NOT_FLOP = ("cast", "select", "and", "or", "not")


@frozen
class Axis:
    """An iteration axis of a stage; ``kind`` is ``"spatial"``, ``"reduce"`` or ``"scan"``."""

    name: str
    extent: int
    kind: str = "spatial"


@frozen(cache_hash=True)
class Stage:
    """Statement: ``output[spatial axes] = combine over reduce axes of body``.

    The output is written at the spatial axes in their order. A ``combiner`` goes with reduce axes,
    or with one scan axis: that indexes the output, and each result combines the body at its own
    position and at all before it, in their order. The stage is called after the tensor that it
    writes.
    """

    output: Tensor
    axes: tuple[Axis, ...]
    body: ScalarExpr
    combiner: str | None = None

    @property
    def name(self) -> str:
        """Name of the stage: that of its output tensor."""
        return self.output.name

    @property
    def spatial_axes(self) -> tuple[Axis, ...]:
        """Axes that index the output, in the output's order; a scan axis is among them."""
        return tuple(axis for axis in self.axes if axis.kind != "reduce")

    @property
    def reduce_axes(self) -> tuple[Axis, ...]:
        """Axes that are reduced over."""
        return tuple(axis for axis in self.axes if axis.kind == "reduce")

    @property
    def scan_axis(self) -> Axis | None:
        """The axis along which each result continues the one before; None of other stages."""
        return next((axis for axis in self.axes if axis.kind == "scan"), None)

    @property
    def extents(self) -> dict[str, int]:
        """Extent of each axis by name."""
        return {axis.name: axis.extent for axis in self.axes}

    def axis(self, name: str) -> Axis:
        """The axis called ``name``."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise InvalidValueError(f"stage {self.name!r} has no axis {name!r}: {list(self.extents)}")

    @property
    def loads(self) -> tuple[Load, ...]:
        """Loads of the body in reading order."""
        return loads(self.body)

    @property
    def gathers(self) -> tuple[Gather, ...]:
        """Gathers of the body in reading order."""
        return gathers(self.body)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors read, each once, in reading order."""
        return tuple(dict.fromkeys(read.tensor for read in self.accesses))

    @cached_property
    def accesses(self) -> tuple[Load | Gather, ...]:
        """Loads and gathers of the body in reading order."""
        return reads(self.body)

    def forms(self, read: Load | Gather) -> tuple[AffineForm, ...]:
        """The form of each index of a read: with terms where it is not affine in the axes."""
        if isinstance(read, Load):
            return tuple(index_form(index) for index in read.indices)
        return tuple(_form_of_value(index) for index in read.indices)

    def access_map(self, load: Load) -> tuple[AffineForm, ...]:
        """The affine form of each index of ``load``.

        Raises:
            UnsupportedWorkload: an index is not affine in the axes.
        """
        forms = []
        for index in load.indices:
            form = index_form(index)
            if form.terms:
                raise UnsupportedWorkload(
                    f"stage {self.name!r} reads {load.tensor!r} at {index!r}, "
                    "which is not affine in its axes"
                )
            forms.append(form)
        return tuple(forms)

    @property
    def points(self) -> int:
        """Number of points of the iteration space."""
        return math.prod(axis.extent for axis in self.axes)

    @property
    def flop(self) -> int:
        """Arithmetic operations over the whole iteration space."""
        counts = operation_counts(self.body)
        per_point = sum(count for op, count in counts.items() if op not in _NOT_FLOP)
        return self.points * (per_point + (1 if self.combiner else 0))

    def renamed(self, tensors: Mapping[str, str], axes: Mapping[str, str]) -> Stage:
        """The same stage over tensors and axes of these names.

        Args:
            tensors: New name of each tensor that it reads, and of its output.
            axes: New name of each of its axes.
        """
        return Stage(
            evolve(self.output, name=tensors[self.name]),
            tuple(evolve(axis, name=axes[axis.name]) for axis in self.axes),
            renamed_body(self.body, tensors, axes),
            self.combiner,
        )

    @property
    def axes_by_position(self) -> dict[str, str]:
        """Canonical name of each axis."""
        return {axis.name: f"a{number}" for number, axis in enumerate(self.axes)}

    def look(self, tensors: Mapping[str, str]) -> str:
        """Digest of its structure without names, as 64 hexadecimal digits.

        Args:
            tensors: What each tensor that it reads looks like.
        """
        made = self.renamed({**tensors, self.name: ""}, self.axes_by_position)
        return hashlib.sha256(repr(made).encode()).hexdigest()

    def identity(self) -> float | int:
        """The combiner's neutral element in the output's type.

        Raises:
            InvalidValueError: the stage has no combiner.
        """
        if self.combiner is None:
            raise InvalidValueError(f"stage {self.name!r} does not reduce")
        if self.combiner in ("add", "mul"):
            return 0 if self.combiner == "add" else 1
        sign = -1 if self.combiner == "max" else 1
        element = self.output.element
        if element.is_float:
            return sign * math.inf
        if element.storage == "bool":
            return int(self.combiner == "min")
        bits, signed = element.bytes * 8, not element.storage.startswith("u")
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        return low if self.combiner == "max" else high


@frozen(cache_hash=True)
class Workload(JsonForm):
    """A tensor program: inputs, stages in topological order, and which tensors it returns.

    ``name`` and ``parameters`` say how it came about, for people; the digest covers the
    computation only, and no name in it.

    Attributes:
        external: Identifies a program that is not described here, and only its own tools
            understand; such a workload has no tensors and no stages. "" for any other.
    """

    name: str
    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    parameters: dict[str, Any] = field(factory=dict, eq=False)
    external: str = field(default="", kw_only=True)

    def __attrs_post_init__(self) -> None:
        _validate(self)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name."""
        tensors = {tensor.name: tensor for tensor in self.inputs}
        tensors.update({stage.name: stage.output for stage in self.stages})
        return tensors

    def stage(self, name: str) -> Stage:
        """The stage called ``name``."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise InvalidValueError(
            f"workload {self.name!r} has no stage {name!r}: {[s.name for s in self.stages]}"
        )

    def consumers(self, tensor: str) -> tuple[Stage, ...]:
        """Stages that read ``tensor``."""
        return tuple(stage for stage in self.stages if tensor in stage.reads)

    @property
    def dtypes(self) -> frozenset[str]:
        """Element types of its tensors, and of what its bodies compute with."""
        nodes = [node for stage in self.stages for node in walk(stage.body)]
        inside = {node.dtype for node in nodes if isinstance(node, (Cast, Constant))}
        return frozenset({*inside, *(tensor.dtype for tensor in self.tensors.values())})

    @property
    def io_bytes(self) -> int:
        """Bytes of its inputs and outputs."""
        outputs = [self.tensors[name] for name in self.outputs]
        return sum(tensor.bytes for tensor in (*self.inputs, *outputs))

    @property
    def flop(self) -> int:
        """Arithmetic operations of all stages."""
        return sum(stage.flop for stage in self.stages)

    @cached_property
    def names(self) -> Names:
        """Canonical names of its tensors and axes, by which equal workloads correspond."""
        inputs = {
            it.name: f"{it.shape} {it.dtype}{' constant' * it.constant}" for it in self.inputs
        }
        order = canonical_order(inputs, self.stages, self.outputs)
        tensors = {name: f"t{number}" for number, name in enumerate(order)}
        return Names(tensors, {stage.name: stage.axes_by_position for stage in self.stages})

    def renamed(self, names: Names) -> Workload:
        """The same workload under these names; inputs and stages keep their order."""
        return evolve(
            self,
            inputs=tuple(evolve(it, name=names.tensors[it.name]) for it in self.inputs),
            stages=tuple(it.renamed(names.tensors, names.axes[it.name]) for it in self.stages),
            outputs=tuple(names.tensors[name] for name in self.outputs),
        )

    def with_constants(self, *names: str) -> Workload:
        """The same workload with these inputs as its constants, and no others.

        Args:
            names: Inputs that hold the same in all calls of a program, such as weights.

        Raises:
            UnknownNameError: there is no such input.
        """
        known = [it.name for it in self.inputs]
        for name in names:
            if name not in known:
                raise UnknownNameError("input", name, known)
        return evolve(
            self, inputs=tuple(evolve(it, constant=it.name in names) for it in self.inputs)
        )

    @property
    def canonical(self) -> Workload:
        """The one workload that all equal ones become under their canonical names."""
        made = self.renamed(self.names)
        place = {name: number for number, name in enumerate(self.names.tensors.values())}
        inputs = sorted(made.inputs, key=lambda tensor: place[tensor.name])
        stages = sorted(made.stages, key=lambda stage: place[stage.name])
        return evolve(made, inputs=tuple(inputs), stages=tuple(stages))

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that identify the computation, equal in every process.

        Names of tensors and axes do not matter, nor does the order of inputs and of independent
        stages: structure, shapes, types and what the bodies compute make it.
        """
        return _digest_of(self.canonical)

    @cached_property
    def spelling(self) -> str:
        """16 hexadecimal digits that identify the computation as it is written, with its names."""
        return _digest_of(self)


def _digest_of(workload: Workload) -> str:
    written = workload.to_json()
    computation = {key: value for key, value in written.items() if key not in _FOR_PEOPLE}
    text = json.dumps(computation, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_whole(body: ScalarExpr, known: Mapping[str, Tensor]) -> bool:
    """Return whether a body is a whole number by the types of what it computes with."""
    if isinstance(body, IndexValue):
        return True
    if isinstance(body, (Load, Gather)):
        return not known[body.tensor].element.is_float
    if isinstance(body, (Constant, Cast)):
        return not element_type(body.dtype).is_float
    if isinstance(body, Unary):
        return body.op in _WHOLE and is_whole(body.operand, known)
    parts = (body.on_true, body.on_false) if isinstance(body, Select) else (body.left, body.right)
    return all(is_whole(part, known) for part in parts)


def _form_of_value(index: ScalarExpr) -> AffineForm:
    if isinstance(index, IndexValue):
        return index_form(index.index)
    axes: frozenset[str] = frozenset()
    for node in walk(index):
        used = node.indices if isinstance(node, Load) else ()
        if isinstance(node, IndexValue):
            used = (node.index,)
        axes = axes.union(*(each.variables for each in used))
    return unknown_form(repr(index), axes)


@json_forms
def _forms(converter: Converter) -> None:
    list_form(converter, Axis)
    object_form(converter, Stage)
    write, read = object_form(converter, Workload, ignores_others=True, order=_FOR_PEOPLE)

    def write_described(workload: Workload) -> dict[str, Any]:
        # Digests are made from this: what is described is written as before there were others.
        data = write(workload)
        if not workload.external:
            del data["external"]
        return data

    converter.register_unstructure_hook(Workload, write_described)
    # What holds a workload may have read it already.
    converter.register_structure_hook(
        Workload, lambda data, _: data if isinstance(data, Workload) else read(data, Workload)
    )


def _validate(workload: Workload) -> None:
    if workload.external:
        if workload.inputs or workload.stages or workload.outputs:
            raise InvalidValueError(
                f"workload {workload.name!r} is external, and has tensors or stages"
            )
        return
    known: dict[str, Tensor] = {}
    for tensor in workload.inputs:
        validate_tensor(tensor, known)
        known[tensor.name] = tensor
    for stage in workload.stages:
        validate_tensor(stage.output, known)
        if stage.output.constant:
            raise InvalidValueError(f"stage {stage.name!r} computes what is marked as constant")
        _validate_stage(stage, known)
        known[stage.name] = stage.output
    produced = {stage.name for stage in workload.stages}
    for name in workload.outputs:
        if name not in produced:
            raise InvalidValueError(f"output {name!r} is not computed by any stage")
        if workload.outputs.count(name) > 1:
            raise InvalidValueError(f"output {name!r} is named twice")
    if not workload.stages or not workload.outputs:
        raise InvalidValueError(f"workload {workload.name!r} computes nothing")


def _validate_axis(stage: Stage, axis: Axis) -> None:
    if axis.kind not in AXIS_KINDS:
        raise InvalidValueError(
            f"axis {axis.name!r} of stage {stage.name!r} is of kind {axis.kind!r}; "
            f"allowed: {', '.join(AXIS_KINDS)}"
        )
    if not isinstance(axis.extent, int) or axis.extent <= 0:
        raise InvalidValueError(
            f"axis {axis.name!r} of stage {stage.name!r} has extent {axis.extent!r}"
        )


def _validate_stage(stage: Stage, known: dict[str, Tensor]) -> None:
    for axis in stage.axes:
        _validate_axis(stage, axis)
    shape = tuple(axis.extent for axis in stage.spatial_axes)
    if shape != stage.output.shape:
        raise InvalidValueError(
            f"stage {stage.name!r} has spatial extents {shape} and output {stage.output.shape}"
        )
    if len(stage.extents) != len(stage.axes):
        raise InvalidValueError(f"stage {stage.name!r} repeats an axis name")
    scans = [axis for axis in stage.axes if axis.kind == "scan"]
    if len(scans) > 1 or (scans and stage.reduce_axes):
        raise InvalidValueError(
            f"stage {stage.name!r} has one scan axis, and no reduce axis beside it, or none"
        )
    if (stage.combiner is None) == bool(stage.reduce_axes or scans):
        raise InvalidValueError(
            f"stage {stage.name!r}: reduce axes and combiner go together, and so do a scan axis "
            "and a combiner"
        )
    if stage.combiner is not None and stage.combiner not in COMBINERS:
        raise InvalidValueError(
            f"stage {stage.name!r} combines by {stage.combiner!r}; allowed: {', '.join(COMBINERS)}"
        )
    for read in stage.accesses:
        if read.tensor not in known:
            raise InvalidValueError(f"stage {stage.name!r} reads unknown tensor {read.tensor!r}")
        if len(read.indices) != len(known[read.tensor].shape):
            raise InvalidValueError(
                f"stage {stage.name!r} reads {read.tensor!r} with {len(read.indices)} indices"
            )
    for gather in stage.gathers:
        for position, index in enumerate(gather.indices):
            if not is_whole(index, known):
                raise InvalidValueError(
                    f"index {position} by which stage {stage.name!r} reads {gather.tensor!r} "
                    "is no whole number: cast it to an integer type"
                )
    for node in walk(stage.body):
        if isinstance(node, (Cast, Constant)):
            validate_dtype(f"stage {stage.name!r}", node.dtype)
        indices = node.indices if isinstance(node, Load) else ()
        if isinstance(node, IndexValue):
            indices = (node.index,)
        for name in sorted({name for index in indices for name in index.variables}):
            stage.axis(name)
