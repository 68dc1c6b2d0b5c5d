"""Factors a channel go into the weights before them, and terms into one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import evolve, frozen

from autotune.ir.expressions import Binary, Cast, Load, ScalarExpr
from autotune.ir.workloads import Workload
from autotune.networks.graph import Graph, Node, Value, binary, readers, reshape, rewritten
from autotune.networks.graph import transpose as permuted
from autotune.networks.graph.graph import results_of
from autotune.networks.passes.affine import affine_of, combined
from autotune.networks.passes.bodies import with_bodies
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
    count = 0

    def folded(one: Graph) -> Graph:
        nonlocal count
        found, here = _folded(one)
        count += here
        return found if here else one

    return with_bodies(graph, folded), f"{count} operations" if count else ""


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
