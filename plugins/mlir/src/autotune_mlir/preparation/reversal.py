"""Operands of products that are read backwards are reversed before.

Tiles of what falls along an iterator are beyond MLIR, which leaves gathering elements one by one.
So the program gets stages that reverse such operands, which are then read forwards. Where an index
grows along one axis and falls along another, one of the axes runs backwards
(:mod:`autotune_mlir.preparation.directions`); where no directions do, the program gets a stage
that spreads the operand, with a dimension for each axis. Steps on an operand become steps on what
is read in its place.

A stage of which an axis of the result runs backwards computes a reversed result. What else reads
it reads a stage that restores it; without such readers, outputs are written through reversed views
of their buffers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import (
    AffineForm,
    Gather,
    IntExpr,
    Load,
    ScalarExpr,
    const,
    substitute,
    transform,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches import Candidate, Step
from autotune.sketches.steps import BoundLoop, Interleave, Pack, Prefetch, Prepack
from autotune_mlir import bindings
from autotune_mlir.building import Builder, stage_operation
from autotune_mlir.parsing import parse_payload
from autotune_mlir.preparation.directions import axis_directions, reversed_places
from autotune_mlir.preparation.insertion import MATERIALIZE, Inside, erase_unused, users

__all__ = ["Forwards", "forwards", "reverse_program"]

_MOST_SPREAD_BYTES = 1 << 28


@frozen
class Forwards:
    """A candidate whose products read forwards.

    Attributes:
        candidate: Its steps; None is the untuned program.
        workload: What is computed, with stages that reverse, spread and restore. Outputs of
            ``reversed`` stages are reversed in it.
        made: The stages that reverse or spread operands, by the stage that reads them.
        reversed: Dimensions along which results are reversed, by stage.
        restored: The stages that restore such results, where they are read, by stage.
    """

    candidate: Candidate | None
    workload: Workload
    made: Mapping[str, tuple[Stage, ...]]
    reversed: Mapping[str, tuple[int, ...]]
    restored: Mapping[str, Stage]

    @property
    def copies(self) -> tuple[Stage, ...]:
        """All stages that the program has more."""
        return (*(stage for made in self.made.values() for stage in made), *self.restored.values())


def forwards(candidate: Candidate | None, workload: Workload) -> Forwards:
    """A candidate with products that read forwards.

    Args:
        candidate: The steps; None is the untuned program.
        workload: What is computed.

    Raises:
        InvalidSchedule: an operand is too large to be spread.
    """
    if candidate is None:
        return Forwards(candidate, workload, {}, {}, {})
    directions = axis_directions(workload, candidate)
    results = _Results(workload)
    made: dict[str, tuple[Stage, ...]] = {}
    read: dict[tuple[str, str], dict[str, _Copy]] = {}
    stages: list[Stage] = []
    for stage in workload.stages:
        if stage.name not in directions:
            stages.append(evolve(stage, body=transform(stage.body, results.read_restored)))
            continue
        packed = {
            step.operand
            for step in candidate.sketch.core_steps
            if isinstance(step, Pack) and step.stage == stage.name
        }
        reading = _Reading(stage, results, directions[stage.name], packed)
        forward = reading.stage_forwards()
        if forward == stage:
            stages.append(stage)
            continue
        candidate = _turn_bounds(candidate, stage, directions[stage.name])
        if places := reversed_places(stage, directions[stage.name]):
            results.reversed[stage.name] = places
        made[stage.name] = tuple(reading.made.values())
        read |= {(stage.name, name): copies for name, copies in reading.read.items()}
        stages += [*made[stage.name], forward]
    if not made:
        return Forwards(candidate, workload, {}, {}, {})
    stages = [
        it for stage in stages for it in (stage, *filter(None, [results.restored.get(stage.name)]))
    ]
    workload = evolve(workload, stages=tuple(stages))
    steps = tuple(own for step in candidate.sketch.steps for own in _renamed(step, read))
    sketch = evolve(candidate.sketch, workload=workload, steps=steps)
    found = evolve(candidate, sketch=sketch)
    return Forwards(found, workload, made, results.reversed, results.restored)


def _turn_bounds(candidate: Candidate, stage: Stage, directions: Mapping[str, int]) -> Candidate:
    """A candidate that runs the same iterations of loops whose axes ran backwards."""

    def turned(step: Step) -> Step:
        if not isinstance(step, BoundLoop) or step.stage != stage.name:
            return step
        axis = step.loop.rpartition(".")[0]
        if directions.get(axis, 1) > 0:
            return step
        last, stride = step.scale * (stage.axis(axis).extent - 1), -step.stride
        furthest = last + max(stride, 0) * (stage.axis(step.axis).extent - 1)
        most = const(furthest) if step.least is None else last - step.least
        return evolve(step, stride=stride, offset=most, least=last - step.offset)

    steps = tuple(map(turned, candidate.sketch.steps))
    return evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))


def _renamed(step: Step, read: Mapping[tuple[str, str], Mapping[str, _Copy]]) -> tuple[Step, ...]:
    """A step on what is read in the place of an operand."""
    if not isinstance(step, (Interleave, Pack, Prefetch, Prepack)):
        return (step,)
    copies = read.get((step.stage, step.operand))
    return (step,) if copies is None else tuple(it.renamed(step) for it in copies.values())


@frozen
class _Copy:
    """What is read in the place of an operand.

    Attributes:
        name: Its name; the operand's own where that is read as it is.
        dimensions: Its dimension that each one of the operand has become; None where they are
            the same.
    """

    name: str
    dimensions: tuple[int, ...] | None = None

    def moved(self, indices: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
        """Indices of the operand in the order of dimensions of what is read in its place."""
        if self.dimensions is None:
            return tuple(indices)
        placed = dict(zip(self.dimensions, indices, strict=True))
        return tuple(placed[place] for place in sorted(placed))

    def renamed(self, step: Interleave | Pack | Prefetch | Prepack) -> Step:
        """A step on the operand as one on what is read in its place."""
        if self.dimensions is None or not isinstance(step, Pack) or step.block_dim is None:
            return evolve(step, operand=self.name)
        return evolve(step, operand=self.name, block_dim=self.dimensions[step.block_dim])


@define
class _Results:
    """Results of a workload that are reversed.

    Attributes:
        workload: The workload, in which they are not.
        reversed: Along which of their dimensions, by stage.
        restored: What restores those that are read as they were.
    """

    workload: Workload
    reversed: dict[str, tuple[int, ...]] = field(factory=dict)
    restored: dict[str, Stage] = field(factory=dict)

    def as_it_was(self, tensor: str) -> str:
        """The name of a tensor that is not reversed."""
        if tensor not in self.reversed:
            return tensor
        if tensor not in self.restored:
            output = evolve(self.workload.tensors[tensor], name=f"{tensor}.restored")
            self.restored[tensor] = _reverse_of(
                tensor, output, self.reversed[tensor], range(len(output.shape))
            )
        return self.restored[tensor].name

    def read_restored(self, node: ScalarExpr) -> ScalarExpr | None:
        """A read of a tensor that is not reversed."""
        if not isinstance(node, (Load, Gather)) or node.tensor not in self.reversed:
            return None
        return evolve(node, tensor=self.as_it_was(node.tensor))


def _reverse_of(source: str, output: Tensor, places: Sequence[int], order: Sequence[int]) -> Stage:
    """A stage that reverses some dimensions of a tensor.

    Args:
        source: Its name.
        output: What is made.
        places: The dimensions of the tensor that are reversed.
        order: The dimension of the tensor that each one of what is made is.
    """
    axes = tuple(
        Axis(f"d{place}", extent) for place, extent in zip(order, output.shape, strict=True)
    )
    indices = {
        place: axis.extent - 1 - var(axis.name) if place in places else var(axis.name)
        for place, axis in zip(order, axes, strict=True)
    }
    return Stage(output, axes, Load(source, tuple(indices[place] for place in sorted(order))))


@frozen
class _Reading:
    """Makes a stage read forwards.

    Attributes:
        stage: The stage.
        results: Those of stages before it.
        directions: Of its axes.
        packed: Operands that are to be copied in one of its loops, or as a whole.
        made: Stages that reverse or spread operands, by name; filled in.
        read: What is read in the place of each operand, by operand and name; filled in.
    """

    stage: Stage
    results: _Results
    directions: Mapping[str, int]
    packed: set[str]
    made: dict[str, Stage] = field(factory=dict)
    read: dict[str, dict[str, _Copy]] = field(factory=dict)

    def stage_forwards(self) -> Stage:
        """The stage, which reads what ``made`` then has."""
        stage = self.stage
        turned = {
            axis.name: axis.extent - 1 - var(axis.name)
            for axis in stage.axes
            if self.directions[axis.name] < 0
        }
        return evolve(stage, body=transform(substitute(stage.body, turned), self._forwards))

    def _forwards(self, node: ScalarExpr) -> ScalarExpr | None:
        if isinstance(node, Gather):
            return self.results.read_restored(node)
        if not isinstance(node, Load):
            return None
        forms = self.stage.forms(node)
        tensor = self.results.workload.tensors[node.tensor]
        if self._is_inside(forms, tensor):
            affine = [() if form.terms else tuple(form.coefficients.values()) for form in forms]
            falling = [at for at, own in enumerate(affine) if own and max(own) < 0]
            crossed = any(own and min(own) < 0 < max(own) for own in affine)
            if crossed and node.tensor in self.packed:
                copy, indices = self._spread(node, tensor)
            else:
                copy = self._reversed(tensor, falling, self._order(forms))
                indices = copy.moved(
                    [
                        tensor.shape[place] - 1 - index if place in falling else index
                        for place, index in enumerate(node.indices)
                    ]
                )
        else:
            copy, indices = _Copy(self.results.as_it_was(node.tensor)), node.indices
        self.read.setdefault(node.tensor, {})[copy.name] = copy
        return Load(copy.name, indices)

    def _is_inside(self, forms: Sequence[AffineForm], tensor: Tensor) -> bool:
        bounds = [(0, 0) if form.terms else form.bounds(self.stage.extents) for form in forms]
        return all(
            low >= 0 and high < extent
            for (low, high), extent in zip(bounds, tensor.shape, strict=True)
        )

    def _order(self, forms: Sequence[AffineForm]) -> list[int]:
        """The order of dimensions in which neighbours along the innermost axis are neighbours.

        Windows of another dimension than the last one would be taken apart into elements.
        """
        order = list(range(len(forms)))
        lanes = self.stage.spatial_axes[-1].name
        found = [at for at, form in enumerate(forms) if lanes in form.axes]
        if len(found) == 1 and not forms[found[0]].terms:
            (place,) = found
            scales = forms[place].coefficients
            if len(scales) > 1 and abs(scales[lanes]) == 1:
                order.remove(place)
                order.append(place)
        return order

    def _reversed(self, tensor: Tensor, places: Sequence[int], order: Sequence[int]) -> _Copy:
        """A tensor with some dimensions reversed, and all of them in another order."""
        transposed = list(order) != sorted(order)
        if not transposed and tuple(places) == self.results.reversed.get(tensor.name, ()):
            return _Copy(tensor.name)
        source = self.results.as_it_was(tensor.name)
        if not places and not transposed:
            return _Copy(source)
        name = ".".join(
            [
                *(self.stage.name, tensor.name, *map(str, places)),
                *(["reversed"] if places else []),
                *(["moved"] if transposed else []),
            ]
        )
        shape = tuple(tensor.shape[place] for place in order)
        output = Tensor(name, shape, tensor.dtype)
        self.made.setdefault(name, _reverse_of(source, output, places, order))
        return _Copy(name, tuple(map(order.index, sorted(order))) if transposed else None)

    def _spread(self, node: Load, tensor: Tensor) -> tuple[_Copy, tuple[IntExpr, ...]]:
        """A tensor of what is read, with a dimension for each axis that it depends on."""
        names: dict[str, None] = {}
        dimensions = []
        for form in self.stage.forms(node):
            own = [axis.name for axis in self.stage.axes if axis.name in form.axes]
            names |= dict.fromkeys(own)
            dimensions.append(list(names).index(own[-1]) if own else max(len(names) - 1, 0))
        axes = tuple(evolve(self.stage.axis(name), kind="spatial") for name in names)
        shape = tuple(axis.extent for axis in axes)
        size = math.prod(shape) * tensor.element.bytes
        if size > _MOST_SPREAD_BYTES:
            raise InvalidSchedule(
                f"stage {self.stage.name!r} reads {tensor.name!r} forwards and backwards at once: "
                f"backend 'mlir' would copy {size} bytes, and copies {_MOST_SPREAD_BYTES} at most"
            )
        count = sum(name.endswith(f"{tensor.name}.spread") for name in self.made)
        name = f"{self.stage.name}.{f'{count}.' if count else ''}{tensor.name}.spread"
        body = Load(self.results.as_it_was(tensor.name), node.indices)
        made = next((it.name for it in self.made.values() if it.body == body), name)
        self.made.setdefault(made, Stage(Tensor(made, shape, tensor.dtype), axes, body))
        return _Copy(made, tuple(dimensions)), tuple(var(name) for name in names)


def reverse_program(program: str, workload: Workload, found: Forwards) -> str:
    """A program whose stages read operands forwards.

    Args:
        program: The text of a program with attributes for stages.
        workload: What it computes.
        found: What is to be read forwards.
    """
    if not found.made:
        return program
    mlir = bindings.load()
    module = parse_payload(program)
    with module.context, mlir.ir.Location.unknown():
        inside = Inside(mlir, module, workload.inputs, {})
        for name, made in found.made.items():
            old = stage_operation(module, name)
            restored = [found.restored[name]] if name in found.restored else []
            stages = (*made, found.workload.stage(name), *restored)
            with old.location:
                inside.insert(stages, found.workload.tensors, old)
            if name in found.reversed and not restored:
                new, places = inside.value(name), found.reversed[name]
                _write_reversed(mlir, module, old.results[-1], new, places)
            old.results[-1].replace_all_uses_with(inside.value(stages[-1].name))
            erase_unused(old)
    return str(module)


def _write_reversed(
    mlir: bindings.Bindings, module: Any, old: Any, new: Any, places: Sequence[int]
) -> None:
    """Write a reversed result where an output is, through a view of its buffer."""
    for write in users(old, MATERIALIZE):
        first = module.body.operations[0].regions[0].blocks[0].operations[0]
        with mlir.ir.InsertionPoint(first):
            write.operands[1] = Builder(mlir).reversed(write.operands[1], places)
        write.operands[0] = new
