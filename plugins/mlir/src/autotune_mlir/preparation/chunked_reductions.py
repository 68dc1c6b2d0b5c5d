"""Reductions in chunks, as step ``chunk_reduction`` has them, in the program before its schedule.

``tile_reduction_using_forall`` of the Transform dialect shares chunks among cores, or results, but
not both. So the program gets two reductions: one whose results are those of chunks, and one that
combines them. The first one reads operands in which chunks are a dimension
(``tensor.expand_shape``, which copies nothing); so does what is inlined into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import evolve, field, frozen

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import (
    AffineForm,
    IntExpr,
    Load,
    ScalarExpr,
    affine_form,
    substitute,
    transform,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, padding_of_stage
from autotune.sketches import Candidate, chunk_axis, partial_name, split_reduction
from autotune.sketches.steps import ChunkReduction, inlined_stages
from autotune_mlir import bindings
from autotune_mlir.building import Builder, stage_operation
from autotune_mlir.emit import INIT, payload
from autotune_mlir.importing.generic_form import dimensions_of
from autotune_mlir.parsing import parse_payload

__all__ = ["ChunkedReduction", "chunk_program", "chunked_reductions", "with_chunks"]


@frozen
class ChunkedReduction:
    """A reduction in chunks.

    Attributes:
        step: Which one, and how many chunks.
        inlined: Stages that get the chunks as an axis, too, for they are computed inside of it:
            position of the axis that becomes chunks and what is inside of them.
    """

    step: ChunkReduction
    inlined: Mapping[str, int] = field(factory=lambda: MappingProxyType({}))

    @property
    def partial(self) -> str:
        """The stage with the results of chunks."""
        return partial_name(self.step.stage)


def chunked_reductions(
    candidate: Candidate | None, workload: Workload
) -> tuple[ChunkedReduction, ...]:
    """Those that a candidate asks for.

    Args:
        candidate: The steps; None is the untuned program.
        workload: What is computed.
    """
    steps = () if candidate is None else candidate.sketch.core_steps
    inlined = inlined_stages(steps)
    return tuple(
        ChunkedReduction(step, _chunked_with(step, workload, inlined))
        for step in steps
        if isinstance(step, ChunkReduction)
    )


def _chunked_with(
    step: ChunkReduction, workload: Workload, inlined: frozenset[str]
) -> dict[str, int]:
    """Inlined stages whose every reader has chunks, with the axis that becomes them."""
    axes = {step.stage: step.axis}
    found: dict[str, int] = {}
    for stage in reversed(workload.stages):
        readers = workload.consumers(stage.name)
        is_alone = readers and all(reader.name in axes for reader in readers)
        if stage.name not in inlined or stage.name in workload.outputs or not is_alone:
            continue
        if stage.combiner is not None or padding_of_stage(stage, workload) is not None:
            continue
        places = {
            _whole_dimension(stage, load.indices, axes[reader.name])
            for reader in readers
            for load in reader.loads
            if load.tensor == stage.name
        }
        gathered = any(it.tensor == stage.name for reader in readers for it in reader.gathers)
        place = places.pop() if len(places) == 1 else None
        if place is not None and not gathered:
            found[stage.name] = place
            axes[stage.name] = stage.spatial_axes[place].name
    return found


def _whole_dimension(stage: Stage, indices: Sequence[Any], axis: str) -> int | None:
    """The dimension of a stage that is read at an axis, if it is the only one, and all is read."""
    forms = [affine_form(index) for index in indices]
    plain = [form is not None and list(form.coefficients.values()) == [1] for form in forms]
    if not all(plain) or any(form is not None and form.constant for form in forms):
        return None
    names = [next(iter(form.coefficients)) for form in forms if form is not None]
    return names.index(axis) if names.count(axis) == 1 else None


def with_chunks(workload: Workload, reductions: Sequence[ChunkedReduction]) -> Workload:
    """A workload with the results of chunks and what combines them.

    Each operand that has chunks as a dimension is made by a stage of its own, which is a view.
    """
    for reduction in reductions:
        workload = _with_one(workload, reduction)
    return workload


def _with_one(workload: Workload, reduction: ChunkedReduction) -> Workload:
    step = reduction.step
    length = workload.stage(step.stage).axis(step.axis).extent // step.chunks
    workload = split_reduction(workload, step)
    made: dict[str, Stage] = {}
    stages: list[Stage] = []
    for stage in workload.stages:
        axis = step.axis
        if stage.name in reduction.inlined:
            place = reduction.inlined[stage.name]
            axis = stage.spatial_axes[place].name
            stage = _split_axis(stage, axis, place, step.chunks, length)
        elif stage.name != reduction.partial:
            stages.append(stage)
            continue
        known = set(made)
        body = transform(stage.body, _read_views(workload, reduction, axis, length, made))
        stages += [view for name, view in made.items() if name not in known]
        stages.append(evolve(stage, body=body))
    return evolve(workload, stages=tuple(stages))


def _split_axis(stage: Stage, axis: str, place: int, chunks: int, length: int) -> Stage:
    """A pointwise stage with an axis as chunks and what is inside of them."""
    chunk, output = chunk_axis(axis), stage.output
    axes = [
        made
        for other in stage.axes
        for made in (
            (Axis(chunk, chunks), evolve(other, extent=length)) if other.name == axis else (other,)
        )
    ]
    shape = (*output.shape[:place], chunks, length, *output.shape[place + 1 :])
    body = substitute(stage.body, {axis: var(chunk) * length + var(axis)})
    return Stage(Tensor(output.name, shape, output.dtype), tuple(axes), body)


def _read_views(
    workload: Workload, reduction: ChunkedReduction, axis: str, length: int, made: dict[str, Stage]
) -> Callable[[ScalarExpr], ScalarExpr | None]:
    """Replaces reads at a chunk and a place in it; notes the views in ``made``."""
    chunk = chunk_axis(axis)

    def replace(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Load):
            return None
        forms = [affine_form(index) for index in node.indices]
        moving = [
            at for at, form in enumerate(forms) if form is None or chunk in form.coefficients
        ]
        if not moving or not all(_is_place(forms[at], chunk, axis, length) for at in moving):
            return None
        indices = [
            made
            for at, index in enumerate(node.indices)
            for made in ((var(chunk), var(axis)) if at in moving else (index,))
        ]
        if node.tensor in reduction.inlined:
            return Load(node.tensor, tuple(indices))
        view = _view(workload.tensors[node.tensor], reduction, node, moving, length)
        made.setdefault(view.name, view)
        return Load(view.name, tuple(indices))

    return replace


def _is_place(form: AffineForm | None, chunk: str, axis: str, length: int) -> bool:
    return form is not None and form.coefficients == {chunk: length, axis: 1}


def _view(
    tensor: Tensor, reduction: ChunkedReduction, load: Load, places: Sequence[int], length: int
) -> Stage:
    """A stage that is an operand with chunks as dimensions, from where it is read on."""
    axes: list[Axis] = []
    indices: list[IntExpr] = []
    name = f"{reduction.partial}.{tensor.name}"
    for place, extent in enumerate(tensor.shape):
        form, axis = affine_form(load.indices[place]), f"d{place}"
        if place not in places or form is None:
            axes.append(Axis(axis, extent))
            indices.append(var(axis))
            continue
        chunk = chunk_axis(axis)
        axes += [Axis(chunk, reduction.step.chunks), Axis(axis, length)]
        indices.append(var(chunk) * length + var(axis) + form.constant)
        # One of other dimensions, or that begins elsewhere, is another view.
        name += f".{place}+{form.constant}"
    output = Tensor(f"{name}.chunks", tuple(axis.extent for axis in axes), tensor.dtype)
    return Stage(output, tuple(axes), Load(tensor.name, tuple(indices)))


def chunk_program(program: str, workload: Workload, reductions: Sequence[ChunkedReduction]) -> str:
    """A program with the results of chunks and what combines them.

    Args:
        program: The text of a program with attributes for stages.
        workload: What it computes.
        reductions: What is reduced in chunks.

    Raises:
        InvalidSchedule: a reduction is no operation that can be divided.
    """
    if not reductions:
        return program
    mlir = bindings.load()
    module = parse_payload(program)
    with module.context, mlir.ir.Location.unknown():
        for reduction in reductions:
            _Chunks(mlir, module, workload, reduction).write()
            workload = _with_one(workload, reduction)
    return str(module)


@frozen
class _Iterators:
    """The iterators of an operation of which one becomes chunks and what is inside of them.

    Attributes:
        count: How many there are before.
        split: The one that is divided.
        outer: Position that the one over chunks gets.
        length: Iterations of what is inside of them.
    """

    count: int
    split: int
    outer: int
    length: int

    def position(self, before: int) -> int:
        """Where an iterator is then: of the one that is divided, its inner part."""
        return before + (before >= self.outer)

    def values(self, ir: Any) -> list[Any]:
        """Each of the old ones as an expression of the new ones."""
        dimension = ir.AffineExpr.get_dim
        made = [dimension(self.position(before)) for before in range(self.count)]
        made[self.split] = dimension(self.outer) * self.length + made[self.split]
        return made


class _Chunks:
    """Writes one reduction in chunks.

    Args:
        mlir: The bindings.
        module: The program.
        workload: What it computes.
        reduction: What to divide.
    """

    def __init__(
        self, mlir: bindings.Bindings, module: Any, workload: Workload, reduction: ChunkedReduction
    ) -> None:
        self._mlir, self._ir, self._module = mlir, mlir.ir, module
        self._workload, self._reduction = workload, reduction
        self._build = Builder(mlir)
        step = reduction.step
        stage = workload.stage(step.stage)
        self._length = stage.axis(step.axis).extent // step.chunks

    def write(self) -> None:
        """Make both reductions; what is inlined first, for it is read."""
        for stage in self._workload.stages:
            if stage.name in self._reduction.inlined:
                self._split_pointwise(stage)
        self._split_reduction()

    def _split_pointwise(self, stage: Stage) -> None:
        operation, place = self._operation(stage.name), self._reduction.inlined[stage.name]
        iterators = _Iterators(len(stage.axes), place, place, self._length)
        result = operation.results[0].type
        shape = list(result.shape)
        shape[place : place + 1] = [self._reduction.step.chunks, self._length]
        with self._ir.InsertionPoint(operation), operation.location:
            kind = self._ir.RankedTensorType.get(shape, result.element_type)
            made = self._divided(operation, stage.name, iterators, self._build.empty(kind))
        operation.results[0].replace_all_uses_with(made.results[0])
        operation.erase()

    def _split_reduction(self) -> None:
        """Results of chunks get a tensor of their own; the old one is for what combines them."""
        step = self._reduction.step
        stage = self._workload.stage(step.stage)
        axes = [axis.name for axis in (*stage.spatial_axes, *stage.reduce_axes)]
        operation = self._operation(stage.name)
        iterators = _Iterators(len(axes), axes.index(step.axis), 0, self._length)
        start = list(operation.operands)[-1]
        kind = start.type
        filled = start.owner
        if INIT not in filled.attributes:
            raise InvalidSchedule(f"{step}: {stage.name!r} does not start with a number")
        with self._ir.InsertionPoint(operation), operation.location:
            partial = self._ir.RankedTensorType.get([step.chunks, *kind.shape], kind.element_type)
            attribute = self._build.constant_of(filled.operands[0])
            begun = self._build.filled(partial, attribute, self._reduction.partial)
            made = self._divided(operation, self._reduction.partial, iterators, begun)
            final = self._combination(made.results[0], start)
        operation.results[0].replace_all_uses_with(final.results[0])
        operation.erase()

    def _combination(self, partial: Any, start: Any) -> Any:
        """What combines the results of chunks: the operation of a program that does only that."""
        divided = split_reduction(self._workload, self._reduction.step)
        final = divided.stage(self._reduction.step.stage)
        read = divided.stage(self._reduction.partial).output
        other = self._ir.Module.parse(
            payload(Workload("chunks", (read,), (final,), (final.name,)))
        )
        made = stage_operation(other, final.name).clone()
        for number, value in enumerate((partial, start)):
            made.operands[number] = value
        return made

    def _operation(self, name: str) -> Any:
        found = stage_operation(self._module, name)
        if found.name != "linalg.generic":
            raise InvalidSchedule(f"{self._reduction.step}: {name!r} is {found.name}")
        return found

    def _divided(self, operation: Any, name: str, iterators: _Iterators, output: Any) -> Any:
        """An operation with one iterator more; takes its body from another one.

        Args:
            operation: The other one.
            name: Of its stage.
            iterators: How those of one become those of the other.
            output: What it writes into.
        """
        ir = self._ir
        *inputs, _ = operation.operands
        *maps, written = [item.value for item in operation.attributes["indexing_maps"]]
        values = iterators.values(ir)
        read = [self._divided_read(*pair, iterators) for pair in zip(inputs, maps, strict=True)]
        results = _replaced(ir, written, values)
        split = [place for place, it in enumerate(written.results) if it == _of(ir, iterators)]
        outer = ir.AffineExpr.get_dim(iterators.outer)
        inner = ir.AffineExpr.get_dim(iterators.position(iterators.split))
        if split:
            results[split[0] : split[0] + 1] = [outer, inner]
        else:
            results.insert(0, outer)
        count = iterators.count + 1
        kinds = [str(item) for item in operation.attributes["iterator_types"]]
        made = self._build.generic(
            name,
            [value for value, _ in read],
            [*(item for _, item in read), ir.AffineMap.get(count, 0, results)],
            output,
            sum("reduction" in kind for kind in kinds),
        )
        body = operation.regions[0].blocks[0]
        body.append_to(made.regions[0])
        self._renumber(made.regions[0].blocks[0], iterators)
        return made

    def _divided_read(self, value: Any, read: Any, iterators: _Iterators) -> tuple[Any, Any]:
        """An operand and its map: chunks are a dimension of what is read at the iterator alone."""
        ir = self._ir
        results = list(read.results)
        moving = [at for at, it in enumerate(results) if iterators.split in dimensions_of(ir, it)]
        made = _replaced(ir, read, iterators.values(ir))
        if all(results[at] == _of(ir, iterators) for at in moving):
            outer = ir.AffineExpr.get_dim(iterators.outer)
            inner = ir.AffineExpr.get_dim(iterators.position(iterators.split))
            has_chunks = len(value.type.shape) > len(results)  # of what is inlined
            for place in reversed(moving):
                made[place : place + 1] = [outer, inner]
                value = value if has_chunks else self._expanded(value, place)
        return value, ir.AffineMap.get(iterators.count + 1, 0, made)

    def _expanded(self, value: Any, place: int) -> Any:
        """A tensor with a dimension as chunks and what is inside of them."""
        ir = self._ir
        shape = list(value.type.shape)
        extents = [*shape[:place], self._reduction.step.chunks, self._length, *shape[place + 1 :]]
        kind = ir.RankedTensorType.get(extents, value.type.element_type)
        return self._build.reshaped("tensor.expand_shape", value, kind, [place])

    def _renumber(self, body: Any, iterators: _Iterators) -> None:
        """Have a body ask for the new iterators."""
        ir = self._ir
        index, whole = ir.IndexType.get(), ir.IntegerType.get_signless(64)

        def number(position: int) -> Any:
            attributes = {"dim": ir.IntegerAttr.get(whole, position)}
            return ir.Operation.create(
                "linalg.index", results=[index], attributes=attributes
            ).results[0]

        for view in list(body.operations):
            asked = view.operation
            if asked.name != "linalg.index":
                continue
            before = asked.attributes["dim"].value
            with ir.InsertionPoint(asked), asked.location:
                made = number(iterators.position(before))
                if before == iterators.split:
                    first, second = (ir.AffineExpr.get_dim(place) for place in range(2))
                    place = ir.AffineMap.get(2, 0, [first * iterators.length + second])
                    made = ir.Operation.create(
                        "affine.apply",
                        results=[index],
                        operands=[number(iterators.outer), made],
                        attributes={"map": ir.AffineMapAttr.get(place)},
                    ).results[0]
            asked.results[0].replace_all_uses_with(made)
            asked.erase()


def _of(ir: Any, iterators: _Iterators) -> Any:
    """The iterator that is divided."""
    return ir.AffineExpr.get_dim(iterators.split)


def _replaced(ir: Any, read: Any, values: Sequence[Any]) -> list[Any]:
    """The results of a map with other expressions for its dimensions."""
    count = max(len(values) + 1, 1)
    return [result.compose(ir.AffineMap.get(count, 0, list(values))) for result in read.results]
