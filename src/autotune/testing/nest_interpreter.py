"""Executing a symbolic loop nest in numpy: what the steps of a sketch mean, without a compiler.

Statements run in program order under concrete loops. Buffers of the schedule are kept in the
coordinates of the tensor they hold a part of, and forgotten whenever their allocation is
entered again: a statement that reads what was not produced for it computes with NaN (or the
smallest integer), and the result is wrong. Blocks and threads run one after the other, and a copy
that the threads of a block make together is made once by each of them. Floating-point numbers are
kept in double precision, as the reference keeps them. Meant for small workloads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune.expressions.integer import evaluate
from autotune.nest import ELEMENT, Loop, LoopNest, Statement, derive_nest
from autotune.sketches import Candidate
from autotune.workloads import Workload
from autotune.workloads.reference import evaluate_body

Array = NDArray[Any]

_COMBINE: Mapping[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def run_candidate(candidate: Candidate, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs that the candidate's loop nest computes from ``inputs``."""
    workload = candidate.sketch.workload
    nest = derive_nest(candidate.sketch)
    interpreter = _Interpreter(nest.workload, nest, candidate.config)
    for tensor in workload.inputs:
        array = inputs[tensor.name]
        wide = array.astype(np.float64) if array.dtype.kind == "f" else array
        interpreter.arrays[tensor.name] = wide
    interpreter.run(interpreter.nest.statements, 0, {})
    return {
        name: interpreter.arrays[name].astype(workload.tensors[name].dtype)
        for name in workload.outputs
    }


@define(eq=False)
class _Interpreter:
    workload: Workload
    nest: LoopNest
    config: Mapping[str, int]
    arrays: dict[str, Array] = field(factory=dict)
    padded: dict[str, tuple[int, ...]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for buffer in self.nest.buffers:
            tensor = self.workload.tensors[buffer.name.split(".", maxsplit=1)[0]]
            self.padded[buffer.name] = self._coordinates(buffer.name, tensor.shape)
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
                    reach = {
                        a: int(evaluate(statement.reach(a, 0), self.config))
                        for a in form.coefficients
                    }
                    result[dim] = max(result[dim], form.bounds(reach)[1] + 1)
        return tuple(result)

    def _forget(self, name: str) -> None:
        dtype = np.dtype(self.workload.tensors[name.split(".", maxsplit=1)[0]].dtype)
        dtype = np.dtype(np.float64) if dtype.kind == "f" else dtype
        unknown = np.nan if dtype.kind == "f" else np.iinfo(dtype).min
        self.arrays[name] = np.full(self.padded[name], unknown, dtype=dtype)

    def run(self, statements: Sequence[Statement], depth: int, outer: dict[str, int]) -> None:
        """Run statements that share their first ``depth`` loops, whose values are ``outer``."""
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
                self._execute(statement, depth, outer)
            else:
                loop = statement.loops[depth]
                for value in range(self._extent(loop)):
                    self._enter(depth + 1)
                    self.run(group, depth + 1, {**outer, loop.name: value})
            position += len(group)

    def _extent(self, loop: Loop) -> int:
        return int(evaluate(loop.extent, self.config))

    def _enter(self, depth: int) -> None:
        """A loop's body begins: buffers allocated in it hold nothing yet."""
        for buffer in self.nest.buffers:
            if buffer.depth >= depth > 0:
                self._forget(buffer.name)

    def _execute(self, statement: Statement, depth: int, outer: Mapping[str, int]) -> None:
        """One statement for given outer loops, over all its inner loops at once."""
        inner = statement.loops[depth:]
        values: dict[str, Any] = {
            loop.name: np.arange(self._extent(loop)).reshape(
                [-1 if index == position else 1 for index in range(len(inner))]
            )
            for position, loop in enumerate(inner)
        }
        axes = self._axes(statement, {**outer, **values})
        shape = tuple(self._extent(loop) for loop in inner)
        write = next(access for access in statement.accesses if access.write)
        target = self.arrays[write.buffer]
        index = [np.broadcast_to(self._at(form, axes), shape) for form in write.forms]
        inside = np.ones(shape, dtype=np.bool_)
        for positions, extent in zip(index, target.shape, strict=True):
            inside &= positions < extent
        for axis, bound in statement.guards.items():
            inside &= np.broadcast_to(axes[axis], shape) < int(evaluate(bound, self.config))
        where = tuple(positions[inside] for positions in index)
        stage = self.workload.stage(statement.stage)
        if statement.role == "init":
            target[where] = stage.identity()
            return
        value = np.broadcast_to(self._value(statement, axes), shape)[inside]
        if statement.role == "compute" and stage.combiner is not None:
            _COMBINE[stage.combiner].at(target, where, value.astype(target.dtype))
        else:
            target[where] = value.astype(target.dtype)

    def _at(self, form: Any, axes: Mapping[str, Any]) -> Any:
        total = np.asarray(form.constant)
        for axis, coefficient in form.coefficients.items():
            total = total + axes[axis] * coefficient
        return total

    def _axes(self, statement: Statement, loops: Mapping[str, Any]) -> dict[str, Any]:
        """Value of every axis: digits of its loops, the last the fastest; corners added.

        Loops of cooperating threads move nothing.
        """
        result: dict[str, Any] = {}
        for loop in statement.loops:
            if loop.name in statement.cooperating:
                continue
            rest = loops[loop.name]
            digits: list[tuple[str, Any, int]] = []
            for axis, extent in reversed(loop.parts):
                size = int(evaluate(extent, self.config))
                digits.append((axis, rest % size, size))
                rest = rest // size
            for axis, digit, size in reversed(digits):
                result[axis] = result.get(axis, 0) * size + digit
        rest = result.get(ELEMENT, 0)
        for axis, extent in reversed(statement.flattened):
            size = int(evaluate(extent, self.config))
            result[axis] = rest % size
            rest = rest // size
        for axis, corners in statement.corners.items():
            for outer, step in corners.items():
                result[axis] = result.get(axis, 0) + result[outer] * int(
                    evaluate(step, self.config)
                )
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
            known = known & (axes[f"d{dim}"] < extent)
        return np.where(known, evaluate_body(statement.body, axes, arrays), 0)

    def _fetched(self, buffer: str) -> Array:
        return self.arrays[buffer]
