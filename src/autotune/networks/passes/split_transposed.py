"""Transposed convolutions as convolutions.

A transposed convolution of stride s reads an image with s - 1 zeros between its elements: of the
products, all but one in s (along each axis) are with zeros. Each of the s phases of the result is
a convolution of the image itself with every s-th element of the weights; the phases are further
channels of one convolution, and are put in their places afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from attrs import frozen

from autotune.ir.expressions import Binary, Cast, IntExpr, Load, ScalarExpr, Select, const, var
from autotune.ir.workloads import Stage, Tensor, Workload, padding_of_stage
from autotune.networks.graph import (
    Graph,
    Node,
    Value,
    Window,
    constant,
    convolution,
    reshape,
    rewritten,
)
from autotune.networks.graph.making import load, program, spatial
from autotune.targets import Target

__all__ = ["split_transposed"]


def split_transposed(graph: Graph, machine: Target) -> tuple[Graph, str]:
    """Replace convolutions of images with zeros between their elements by others of the images.

    Those with groups, dilation or weights that are no constants stay.

    Args:
        graph: A network.
        machine: Not asked.
    """
    count = 0

    def split(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal count
        found = _Spread.of(node, operands)
        if found is None:
            return None
        count += 1
        return [found.split()]

    changed = rewritten(graph, split)
    return changed, f"{count} convolutions" if count else ""


@frozen
class _Spread:
    """A convolution, of steps of 1, of an image with zeros between its elements.

    Attributes:
        image: ``[n, ci, *image]``, without the zeros.
        weights: ``[co, ci, *kernel]``.
        steps: From one element of the image to the next, by axis.
        low: Widths of the margin before the spread image.
        places: Extents of the result.
        dtype: Type of the result.
    """

    image: Value
    weights: Value
    steps: tuple[int, ...]
    low: tuple[int, ...]
    places: tuple[int, ...]
    dtype: str

    @staticmethod
    def of(node: Node, operands: tuple[Value, ...]) -> _Spread | None:
        """What a node computes; None where that is something else."""
        workload = node.operation
        source = operands[0].node if operands else None
        if not isinstance(workload, Workload) or source is None:
            return None
        steps = _steps(source)
        stages = [it for it in workload.stages if it.combiner == "add"]
        if steps is None or len(stages) != 1 or len(operands) != 2:
            return None
        read = _factors(stages[0].body)
        rank = operands[0].rank - 2
        names = [f"{kind}{at}" for kind in "ok" for at in range(rank)]
        if operands[1].constant is None or read != _plain_indices(names[:rank], names[rank:]):
            return None
        low = [0] * rank
        first = workload.stages[0]
        if first is not stages[0]:
            padding = padding_of_stage(first, workload)
            if padding is None or padding.tensor != workload.inputs[0].name:
                return None
            low = [*padding.low[2:]]
        shape, dtype = node.results[0]
        image = source.operands[0]
        return _Spread(image, operands[1], steps, tuple(low), shape[2:], dtype)

    def split(self) -> Value:
        """The result, by a convolution of the image itself.

        Element ``o`` is the sum of ``x[i] * w[k]`` over ``o + k == low + s * i``. With a margin
        ``low + c`` that is one less than a multiple of ``s``, place ``s * q + r`` of the result,
        which begins ``c`` before the wanted one, needs ``k == s - 1 - r + s * t`` and
        ``i == q + t - (low + c) // s``: a convolution, of the same margin for every phase ``r``.
        """
        axes = [
            _Axis.of(step, low, extent, kernel, count)
            for step, low, extent, kernel, count in zip(
                *(self.steps, self.low, self.image.shape[2:], self.weights.shape[2:]),
                self.places,
                strict=True,
            )
        ]
        window = Window.of(
            [it.taps for it in axes],
            low=[it.before for it in axes],
            high=[it.after for it in axes],
        )
        phases = convolution(self.image, self._of_phases(axes), window, dtype=self.dtype)
        return self._placed(phases, axes)

    def _of_phases(self, axes: Sequence[_Axis]) -> Value:
        """Weights ``[co * phases, ci, *taps]``."""
        held = np.asarray(self.weights.constant)
        outer, inner = held.shape[:2]
        parts = []
        for phase in product(*(range(it.step) for it in axes)):
            part = np.zeros((outer, inner, *(it.taps for it in axes)), held.dtype)
            chosen = held[
                (slice(None), slice(None))
                + tuple(
                    slice(it.step - 1 - r, None, it.step)
                    for it, r in zip(axes, phase, strict=True)
                )
            ]
            part[tuple(slice(0, extent) for extent in chosen.shape)] = chosen
            parts.append(part)
        whole = np.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:])
        return constant(whole, self.weights.dtype)

    def _placed(self, phases: Value, axes: Sequence[_Axis]) -> Value:
        """Every phase at its places of the result."""
        outer, lengths = self.weights.shape[0], [it.length for it in axes]
        split = reshape(phases, (phases.shape[0], outer, *(it.step for it in axes), *lengths))
        shape = (phases.shape[0], outer, *self.places)
        names = [axis.name for axis in spatial(shape)]
        here = [var(name) + it.cut for name, it in zip(names[2:], axes, strict=True)]
        phase = [
            at % it.step if it.step > 1 else const(0) for at, it in zip(here, axes, strict=True)
        ]
        place = [at // it.step for at, it in zip(here, axes, strict=True)]
        indices = [*map(var, names[:2]), *phase, *place]

        def stages(given: Sequence[Tensor]) -> list[Stage]:
            return [Stage(Tensor("y", shape, self.dtype), spatial(shape), load(given[0], indices))]

        return program("phases", [split], stages)


@frozen
class _Axis:
    """One axis of the image.

    Attributes:
        step: How many phases there are.
        taps: Elements of the weights of a phase.
        before: Margin before the image; negative where elements are left out.
        after: Margin behind it.
        length: Of a phase.
        cut: Elements of the phases, put in their places, before the first of the result.
    """

    step: int
    taps: int
    before: int
    after: int
    length: int
    cut: int

    @staticmethod
    def of(step: int, low: int, extent: int, kernel: int, count: int) -> _Axis:
        """From the step and margin of the spread image, and all extents."""
        cut = (step - 1 - low) % step
        taps, length = -(-kernel // step), -(-(count + cut) // step)
        before = (low + cut) // step
        return _Axis(step, taps, before, length + taps - 1 - extent - before, length, cut)


def _factors(body: ScalarExpr) -> list[tuple[IntExpr, ...]]:
    """Indices of the two factors of a product."""
    if not isinstance(body, Binary) or body.op != "mul":
        return []
    sides = [it.operand if isinstance(it, Cast) else it for it in (body.left, body.right)]
    return [it.indices for it in sides if isinstance(it, Load)]


def _plain_indices(places: Sequence[str], kernel: Sequence[str]) -> list[tuple[IntExpr, ...]]:
    """Indices of the factors of a convolution without groups, steps and dilation."""
    moved = (var(o) + var(k) for o, k in zip(places, kernel, strict=True))
    return [(var("n"), var("ci"), *moved), (var("co"), var("ci"), *map(var, kernel))]


def _steps(node: Node) -> tuple[int, ...] | None:
    """How far the elements of an image are apart, by axis; None where a node is no such thing."""
    operation = node.operation
    if not isinstance(operation, Workload) or operation.name != "spread":
        return None
    body = operation.stages[0].body
    while isinstance(body, Select):
        body = body.on_true
    if not isinstance(body, Load):
        return None
    steps = [1 if it.op == "var" else it.args[1].value for it in body.indices[2:]]
    return tuple(steps)
