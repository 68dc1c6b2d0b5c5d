"""Factors a channel go into the weights before them, and terms into one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import evolve, frozen

from autotune.ir.expressions import Binary, Cast, Constant, Load, ScalarExpr, Unary
from autotune.ir.workloads import Stage, Workload
from autotune.networks.graph import (
    Graph,
    Node,
    Value,
    binary,
    constant,
    readers,
    reshape,
    rewritten,
    unary,
)
from autotune.networks.graph import transpose as permuted
from autotune.networks.graph.graph import results_of
from autotune.networks.passes.workload_forms import reads_in_place, with_bodies
from autotune.targets import Target

__all__ = ["fold_scales"]


def fold_scales(graph: Graph, machine: Target) -> tuple[Graph, str]:
    """Fold multiplications by constants into the weights of what they multiply.

    With constants ``c`` and ``b`` and weights ``w``::

        conv(x, w) * c         ->  conv(x, w * c)
        (conv(x, w) + b) * c   ->  conv(x, w * c) + b * c
        (conv(x, w) + b) + c   ->  conv(x, w) + (b + c)

    for every sum of products with constant weights of which nothing else is computed, where ``c``
    is one number for each place along axes of the result that are axes of the weights. Batch
    norms of inference are such operations.

    Args:
        graph: A network.
        machine: Not asked.
    """
    folded, count = with_bodies(graph, _folded)
    return folded, f"{count} operations" if count else ""


@frozen
class _Scaled:
    """A value that is the result of a product, and maybe a constant added to it."""

    product: Node
    term: Value | None


def _folded(graph: Graph) -> tuple[Graph, int]:
    uses = readers(graph)
    scaled: dict[object, _Scaled] = {}
    count = 0

    def change(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal count
        same = all(new is old for new, old in zip(operands, node.operands, strict=True))
        here = node if same else evolve(node, operands=operands)
        if _weights_of(here) is not None:
            scaled[results_of(here)[0].key] = _Scaled(here, None)
            return results_of(here)
        found = affine_of(here)
        if found is None:
            return None
        number, affine = found
        before = scaled.get(operands[number].key)
        if before is None or len(uses[node.operands[number].key]) > 1:
            return None
        term, product = before.term, before.product
        if affine.factor is not None:
            multiplied = _multiplied(product, affine.factor)
            if multiplied is None:
                return None
            product = multiplied
            term = None if term is None else combined("mul", term, affine.factor)
        elif term is None:
            scaled[results_of(here)[0].key] = _Scaled(product, affine.term)
            return results_of(here)
        if affine.term is not None:
            term = affine.term if term is None else combined("add", term, affine.term)
        count += 1
        value = results_of(product)[0]
        value = value if term is None else binary("add", value, term)
        scaled[value.key] = _Scaled(product, term)
        return [value]

    return rewritten(graph, change, loops=False), count


def _weights_of(node: Node) -> tuple[int, Load] | None:
    """The number of the constant factor of a sum of products, and how it is read."""
    workload = node.operation
    if not isinstance(workload, Workload):
        return None
    *before, last = workload.stages
    if last.combiner != "add" or any(it.combiner for it in before):
        return None
    if not isinstance(last.body, Binary) or last.body.op != "mul":
        return None
    for side in (last.body.right, last.body.left):
        load = _plain(side)
        if load is None:
            continue
        names = [it.name for it in workload.inputs]
        number = names.index(load.tensor) if load.tensor in names else -1
        reads = [it for stage in workload.stages for it in stage.accesses]
        alone = [it.tensor for it in reads].count(load.tensor) == 1
        if number >= 0 and alone and node.operands[number].constant is not None:
            return number, load
    return None


def _plain(body: ScalarExpr) -> Load | None:
    while isinstance(body, Cast):
        body = body.operand
    return body if isinstance(body, Load) else None


def _multiplied(node: Node, factor: Value) -> Node | None:
    """A product whose result is multiplied by a constant; None where its weights have no room."""
    found = _weights_of(node)
    assert found is not None and isinstance(node.operation, Workload)
    number, load = found
    weights, stage = node.operands[number], node.operation.stages[-1]
    numbers = np.asarray(factor.constant)
    if weights.dtype != factor.dtype or not np.all(np.isfinite(numbers)):
        return None
    places = [it.args[0] if it.op == "var" else None for it in load.indices]
    names = [axis.name for axis in stage.spatial_axes]
    long = [at for at, extent in enumerate(factor.shape) if extent > 1]
    dims = [places.index(names[at]) if names[at] in places else -1 for at in long]
    if -1 in dims:
        return None
    shape = [1] * weights.rank
    for at, dim in zip(long, dims, strict=True):
        shape[dim] = factor.shape[at]
    order = sorted(range(len(long)), key=dims.__getitem__)
    plain = permuted(reshape(factor, [factor.shape[at] for at in long]), order)
    operands = list(node.operands)
    operands[number] = binary("mul", weights, reshape(plain, shape))
    return evolve(node, operands=tuple(operands))


@frozen
class Affine:
    """``x * factor + term``.

    Attributes:
        factor: A constant of the rank of ``x`` that broadcasts to it; None for 1.
        term: Likewise; None for 0.
    """

    factor: Value | None = None
    term: Value | None = None

    def times(self, by: Value, op: str = "mul") -> Affine:
        """Multiply this with a constant, or divide it."""
        factor = by if self.factor is None and op == "mul" else combined(op, self.factor, by)
        return Affine(factor, None if self.term is None else combined(op, self.term, by))

    def plus(self, other: Value) -> Affine:
        """A constant added to this."""
        term = other if self.term is None else combined("add", self.term, other)
        return Affine(self.factor, term)


def combined(op: str, left: Value | None, right: Value) -> Value:
    """An operation on two constants; None stands for 1."""
    first = left if left is not None else constant(np.ones([1] * right.rank), right.dtype)
    return binary(op, first, right)


def affine_of(node: Node) -> tuple[int, Affine] | None:
    """The number of the operand that is no constant, and what is made of it.

    Returns:
        None where the node does not have this form, in one floating-point type.
    """
    stage, workload = node.pointwise, node.operation
    others = [at for at, it in enumerate(node.operands) if it.constant is None]
    if stage is None or len(others) != 1 or stage.gathers:
        return None
    assert isinstance(workload, Workload)
    tensor = workload.inputs[others[0]]
    if {it.dtype for it in workload.tensors.values()} not in ({"float32"}, {"float64"}):
        return None
    if tensor.shape != stage.output.shape or not reads_in_place(workload, tensor.name):
        return None
    found = _affine(stage.body, stage, tensor.name, node.named_operands)
    return None if found is None else (others[0], found)


def _affine(
    body: ScalarExpr, stage: Stage, name: str, known: Mapping[str, Value]
) -> Affine | None:
    if isinstance(body, Load) and body.tensor == name:
        return Affine()
    if isinstance(body, Unary) and body.op == "neg":
        inner = _affine(body.operand, stage, name, known)
        return None if inner is None else inner.times(_number(-1, stage))
    if not isinstance(body, Binary) or body.op not in ("add", "sub", "mul", "div"):
        return None
    right = _constant(body.right, stage, name, known)
    left = _constant(body.left, stage, name, known) if right is None else None
    other, side = (right, body.left) if right is not None else (left, body.right)
    inner = None if other is None else _affine(side, stage, name, known)
    if other is None or inner is None:
        return None
    if body.op == "mul" or body.op == "div" and right is not None:
        return inner.times(other, body.op)
    if body.op == "add" or body.op == "sub" and right is not None:
        return inner.plus(other if body.op == "add" else unary("neg", other))
    return inner.times(_number(-1, stage)).plus(other) if body.op == "sub" else None


def _number(value: float, stage: Stage) -> Value:
    return constant(np.full([1] * len(stage.axes), value), stage.output.dtype)


def _constant(
    body: ScalarExpr, stage: Stage, name: str, known: Mapping[str, Value]
) -> Value | None:
    """A number or the elements of a constant, in the rank of what is computed."""
    if isinstance(body, Constant):
        return _number(float(body.value), stage) if body.dtype == stage.output.dtype else None
    if not isinstance(body, Load) or body.tensor == name:
        return None
    value, shape, at = known[body.tensor], [1] * len(stage.axes), -1
    names = [axis.name for axis in stage.axes]
    for index, extent in zip(body.indices, value.shape, strict=True):
        if extent == 1:
            continue
        place = names.index(index.args[0]) if index.op == "var" else -1
        if place <= at or stage.axes[place].extent != extent:
            return None
        shape[place], at = extent, place
    return reshape(value, shape)
