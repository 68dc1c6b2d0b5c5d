"""An interpreter of symbolic loop nests in numpy: the semantics of steps, without a compiler.

Statements run in program order under concrete loops. Buffers of the schedule are kept in the
coordinates of the tensor they hold a part of, and forgotten whenever their allocation is entered
again: a statement that reads what was not produced for it computes with NaN (or the smallest
integer, or true), and the result is wrong. So it is where more is written to a buffer than it
has room for: other memory would be overwritten. The threads of a block run in step; what one of
them keeps in a buffer of its own the others do not know. Floating-point numbers are kept in
double precision, as the reference keeps them. Meant for small workloads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune.ir.expressions import AffineForm
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Stage, Workload
from autotune.ir.workloads.reference import evaluate_body
from autotune.nest import ELEMENT, Loop, LoopNest, Statement, derive_nest
from autotune.nest.derive import kept_buffers
from autotune.nest.loop_nest import Access, Buffer, LoopBound, copy_axis
from autotune.sketches import Candidate

Array = NDArray[Any]

_COMBINE: Mapping[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


# Owner of what no thread has written.
_NOBODY = -1


def run_candidate(candidate: Candidate, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs that the candidate's loop nest computes from ``inputs``."""
    workload = candidate.sketch.workload
    nest = derive_nest(candidate.sketch)
    interpreter = _Interpreter(nest.workload, nest, candidate.config)
    for tensor in workload.inputs:
        numbers = tensor.element.numbers(inputs[tensor.name])
        wide = numbers.astype(np.float64) if tensor.element.is_float else numbers
        interpreter.arrays[tensor.name] = wide
    interpreter.run(nest.packing, 0, {})
    interpreter.run(nest.statements, 0, {})
    outputs = {name: workload.tensors[name] for name in workload.outputs}
    return {
        # Rows and columns of a product of matrices lie as the axes that they are made of.
        name: tensor.element.stored(interpreter.arrays[name].reshape(tensor.shape))
        for name, tensor in outputs.items()
    }


def _unknown(dtype: np.dtype[Any]) -> float | int:
    if dtype.kind == "b":
        return True
    return float("nan") if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _scan(stage: Stage, target: Array, where: tuple[Array, ...], values: Array) -> None:
    """Results in the order of the points, each from what the one before it holds by then."""
    along = [axis.kind for axis in stage.spatial_axes].index("scan")
    combine = _COMBINE[str(stage.combiner)]
    for value, *point in zip(values, *where, strict=True):
        before = tuple(at - (place == along) for place, at in enumerate(point))
        start = target[before] if point[along] else stage.identity()
        target[tuple(point)] = combine(start, value)


def _is_indexed_by_axes(buffer: Buffer, rank: int) -> bool:
    """Tell if a buffer holds one part of a tensor of some rank, laid out as the tensor is."""
    is_plain = buffer.block_dim is None and buffer.group_dim is None and not buffer.dims
    return is_plain and buffer.scope != "local" and 0 < rank == len(buffer.extents)


@define(eq=False)
class _Interpreter:
    workload: Workload
    nest: LoopNest
    config: Mapping[str, int]
    arrays: dict[str, Array] = field(factory=dict)
    padded: dict[str, tuple[int, ...]] = field(factory=dict)
    owners: dict[str, NDArray[np.int64]] = field(factory=dict)
    rooms: dict[str, tuple[int, ...]] = field(factory=dict)
    written: dict[str, tuple[Array, Array]] = field(factory=dict)
    kept: dict[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for buffer in self.nest.buffers:
            tensor = self.workload.tensors[buffer.name.split(".", maxsplit=1)[0]]
            self.padded[buffer.name] = self._coordinates(buffer.name, tensor.shape)
            if _is_indexed_by_axes(buffer, len(tensor.shape)):
                self.rooms[buffer.name] = tuple(
                    int(evaluate(extent, self.config)) for extent in buffer.extents
                )
            if buffer.scope == "local":
                self.owners[buffer.name] = np.empty(self.padded[buffer.name], dtype=np.int64)
            self._forget(buffer.name)
        for name in self.workload.outputs:
            self.padded[name] = self.workload.tensors[name].shape
            self._forget(name)

    def _coordinates(self, buffer: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Extents that hold every coordinate at which ``buffer`` is touched."""
        result = list(shape)
        for statement in self.nest.statements:
            for access in statement.accesses:
                if access.buffer != buffer or statement.role == "pack":
                    continue
                for dim, form in enumerate(access.forms):
                    if form.terms:
                        continue  # Nothing that is padded is read so.
                    reach = {
                        a: int(evaluate(statement.reach(a, 0), self.config))
                        for a in form.coefficients
                    }
                    result[dim] = max(result[dim], form.bounds(reach)[1] + 1)
        return tuple(result)

    def _forget(self, name: str) -> None:
        element = self.workload.tensors[name.split(".", maxsplit=1)[0]].element
        dtype = np.dtype(np.float64) if element.is_float else element.dtype
        self.arrays[name] = np.full(self.padded[name], _unknown(dtype), dtype=dtype)
        self.written.pop(name, None)
        if name in self.owners:
            self.owners[name].fill(_NOBODY)

    def run(
        self,
        statements: Sequence[Statement],
        depth: int,
        outer: dict[str, int],
        threads: tuple[Loop, ...] = (),
    ) -> None:
        """Run statements that share their first ``depth`` loops.

        Those have the values ``outer``, except for ``threads``, which run in step.
        """
        position = 0
        while position < len(statements):
            statement = statements[position]
            group = [statement]
            if depth < len(statement.loops):
                name = statement.loops[depth].name
                for other in statements[position + 1 :]:
                    if depth >= len(other.loops) or other.loops[depth].name != name:
                        break
                    group.append(other)
            if len(group) == 1:
                self._execute(statement, depth, outer, threads)
            elif (loop := statement.loops[depth]).kind in ("thread", "vthread"):
                self._enter(depth + 1)
                self.run(group, depth + 1, outer, (*threads, loop))
            elif group[-1].pipelined is not None and group[-1].pipelined[0] == loop.name:
                self._run_pipelined(group, group[-1].pipelined[1], depth, outer)
            else:
                for value in range(self._extent(loop)):
                    self._enter(depth + 1)
                    self.run(group, depth + 1, {**outer, loop.name: value}, threads)
            position += len(group)

    def _run_pipelined(
        self, group: list[Statement], host: str, depth: int, outer: dict[str, int]
    ) -> None:
        """Iterations of a loop of which the last statement runs late, just before ``host``."""
        *others, late = group
        loop = late.loops[depth]
        position = [statement.name for statement in others].index(host)
        self.kept = dict.fromkeys(kept_buffers(late, group), loop.name)
        extent = self._extent(loop)
        for value in range(extent + 1):
            self._enter(depth + 1)
            now, before = {**outer, loop.name: value}, {**outer, loop.name: value - 1}
            if value < extent:
                self.run(others[:position], depth + 1, now)
            if value > 0:
                self._execute(late, depth + 1, before, ())
            if value < extent:
                self.run(others[position:], depth + 1, now)
        self.kept = {}

    def _extent(self, loop: Loop) -> int:
        return int(evaluate(loop.extent, self.config))

    def _enter(self, depth: int) -> None:
        """A loop's body begins: buffers allocated in it hold nothing yet."""
        for buffer in self.nest.buffers:
            if buffer.depth >= depth > 0 and buffer.name not in self.kept:
                self._forget(buffer.name)

    def _execute(
        self,
        statement: Statement,
        depth: int,
        outer: Mapping[str, int],
        threads: tuple[Loop, ...],
    ) -> None:
        """Execute a statement for given outer loops, over all threads and inner loops at once."""
        own = tuple(loop for loop in threads if loop.name not in statement.cooperating)
        inner = (*own, *statement.loops[depth:])
        values: dict[str, Any] = {
            loop.name: np.arange(self._extent(loop)).reshape(
                [-1 if index == position else 1 for index in range(len(inner))]
            )
            for position, loop in enumerate(inner)
        }
        axes = self._axes(statement, {**outer, **values})
        shape = tuple(self._extent(loop) for loop in inner)
        write = statement.stored
        target = self.arrays[write.buffer]
        if not write.forms:
            target = target.reshape(1)
        index = [
            np.broadcast_to(self._at(form, axes), shape)
            for form in write.forms or (AffineForm({}, 0),)
        ]
        inside = np.ones(shape, dtype=np.bool_)
        for positions, extent in zip(index, target.shape, strict=True):
            inside &= positions < extent
        for axis, bound in statement.guards.items():
            inside &= np.broadcast_to(axes[axis], shape) < int(evaluate(bound, self.config))
        for place, loop in enumerate(statement.loops):
            if loop.bound is not None:
                runs = self._runs(statement, place, loop.bound, {**outer, **values})
                inside &= np.broadcast_to(runs, shape)
        where = tuple(positions[inside] for positions in index)
        stage = self.workload.stage(statement.stage)
        me = np.broadcast_to(self._thread(own, values), shape)
        self._overwrite(statement, write, where)
        if statement.role == "init":
            target[where] = stage.identity()
            self._own(write.buffer, where, me[inside])
            self._keep_to_room(write.buffer, where)
            return
        value = np.broadcast_to(self._value(statement, axes), shape)[inside]
        value = self._known(statement, axes, me, value, inside)
        self._own(write.buffer, where, me[inside])
        if statement.role == "compute" and stage.scan_axis is not None:
            _scan(stage, target, where, value.astype(target.dtype))
        elif statement.role == "compute" and stage.combiner is not None:
            _COMBINE[stage.combiner].at(target, where, value.astype(target.dtype))
        else:
            target[where] = value.astype(target.dtype)
        self._keep_to_room(write.buffer, where)

    def _keep_to_room(self, name: str, where: tuple[Array, ...]) -> None:
        """Lose all of a buffer that holds more than there is room for."""
        if name not in self.rooms or not all(map(np.size, where)) or name in self.kept:
            return
        low, high = (np.array([end(it) for it in where], np.int64) for end in (np.min, np.max))
        if name in self.written:
            before = self.written[name]
            low, high = np.minimum(low, before[0]), np.maximum(high, before[1])
        self.written[name] = low, high
        if np.any(high - low >= self.rooms[name]):
            self.arrays[name].fill(_unknown(self.arrays[name].dtype))

    def _runs(
        self, statement: Statement, place: int, bound: LoopBound, loops: Mapping[str, Any]
    ) -> Any:
        """Return whether iterations of the bounded loop at ``place`` are run."""
        inner, own = statement.loops[place + 1 :], statement.loops[place].axis
        first = self._axes(statement, {**loops, **{loop.name: 0 for loop in inner}})
        ends = {loop.name: self._extent(loop) - 1 for loop in inner}
        last = self._axes(statement, {**loops, **ends})
        near, far = (last, first) if bound.stride < 0 else (first, last)
        offset = int(evaluate(bound.offset, self.config))
        runs = first[own] * bound.scale + near[bound.axis] * bound.stride <= offset
        if bound.least is None:
            return runs
        least = int(evaluate(bound.least, self.config))
        return runs & (last[own] * bound.scale + far[bound.axis] * bound.stride >= least)

    def _overwrite(self, statement: Statement, write: Access, where: tuple[Array, ...]) -> None:
        """Overwrite what a late statement keeps: there is room for one iteration."""
        name = self.kept.get(write.buffer)
        moved = {axis for it in statement.loops if it.name == name for axis, _ in it.parts}
        target = self.arrays[write.buffer]
        for dim, form in enumerate(write.forms):
            if form.axes & moved:
                others = np.setdiff1d(np.arange(target.shape[dim]), where[dim])
                target[(slice(None),) * dim + (others,)] = _unknown(target.dtype)

    def _thread(self, threads: tuple[Loop, ...], values: Mapping[str, Any]) -> Any:
        """Number of the thread that executes."""
        number: Any = np.zeros((), dtype=np.int64)
        for loop in threads:
            number = number * self._extent(loop) + values[loop.name]
        return number

    def _own(self, buffer: str, where: tuple[Array, ...], me: Array) -> None:
        if buffer in self.owners:
            self.owners[buffer][where] = me

    def _known(
        self,
        statement: Statement,
        axes: Mapping[str, Any],
        me: Array,
        value: Array,
        inside: NDArray[np.bool_],
    ) -> Array:
        """``value`` where the thread wrote itself what it read of local buffers, else unknown."""
        for access in statement.accesses:
            if access.write or access.buffer not in self.owners:
                continue
            owner = self.owners[access.buffer][
                tuple(np.broadcast_to(self._at(form, axes), me.shape) for form in access.forms)
            ]
            value = np.where((owner == me)[inside], value, _unknown(value.dtype))
        return value

    def _at(self, form: Any, axes: Mapping[str, Any]) -> Any:
        total = np.asarray(form.constant)
        for axis, coefficient in form.coefficients.items():
            total = total + axes[axis] * coefficient
        return total

    def _axes(self, statement: Statement, loops: Mapping[str, Any]) -> dict[str, Any]:
        """Value of every axis: digits of its loops, the last the fastest; corners added.

        Where loops say by how much they move an axis, that counts. Loops of cooperating threads
        move nothing.
        """
        result: dict[str, Any] = {}
        own_units = any(loop.units for loop in statement.loops)
        for depth, loop in enumerate(statement.loops):
            if loop.name in statement.cooperating:
                continue
            rest = loops[loop.name]
            digits: list[tuple[str, Any, int]] = []
            for axis, extent in reversed(loop.parts):
                size = int(evaluate(extent, self.config))
                digits.append((axis, rest % size, size))
                rest = rest // size
            for position, (axis, digit, size) in enumerate(reversed(digits)):
                known = result.get(axis, 0)
                if own_units:
                    unit = evaluate(statement.unit(depth, position), self.config)
                    result[axis] = known + digit * int(unit)
                else:
                    result[axis] = known * size + digit
        rest = result.get(ELEMENT, 0)
        for axis, extent in reversed(statement.flattened):
            size = int(evaluate(extent, self.config))
            result[axis] = rest % size
            rest = rest // size
        for axis, corners in statement.corners.items():
            for outer, step in corners.items():
                sign = -1 if (axis, outer) in statement.falling else 1
                shift = result[outer] * (sign * int(evaluate(step, self.config)))
                result[axis] = result.get(axis, 0) + shift
        for axis, start in statement.starts.items():
            result[axis] = result.get(axis, 0) + int(evaluate(start, self.config))
        return result

    def _value(self, statement: Statement, axes: Mapping[str, Any]) -> Any:
        if statement.body is None:
            source = next(access for access in statement.accesses if not access.write)
            return self._fetched(source.buffer)[
                tuple(self._at(form, axes) for form in source.forms)
            ]
        arrays = {tensor: self._fetched(buffer) for tensor, buffer in statement.sources.items()}
        if statement.role != "pack":
            return evaluate_body(statement.body, axes, arrays)
        # Beyond the operand's own extent a packed copy holds zeros.
        operand = statement.name.split(".", 1)[0]
        shape = self.workload.tensors[operand].shape
        known = np.ones((), dtype=np.bool_)
        for dim, extent in enumerate(shape):
            known = known & (axes[copy_axis(dim)] >= 0) & (axes[copy_axis(dim)] < extent)
        return np.where(known, evaluate_body(statement.body, axes, arrays), 0)

    def _fetched(self, buffer: str) -> Array:
        return self.arrays[buffer]
