"""Workloads made of others: what one computes is read by the next, in one program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from attrs import evolve, frozen

from autotune.ir.expressions import Gather, Load, ScalarExpr, substitute, transform
from autotune.ir.workloads.tensor import Tensor
from autotune.ir.workloads.workload import Stage, Workload

__all__ = ["Part", "composed", "computed_where_read"]


@frozen
class Part:
    """A workload of those that make a composed one.

    Attributes:
        workload: The workload; it has one output.
        reads: Identifies what each of its inputs is: the result of a part before it, or an input.
        writes: Identifies its result.
        constants: Which of ``reads`` hold the same in all calls.
    """

    workload: Workload
    reads: tuple[Hashable, ...]
    writes: Hashable
    constants: frozenset[Hashable] = frozenset()


def composed(name: str, parts: Sequence[Part]) -> tuple[Workload, tuple[Hashable, ...]]:
    """Compose a workload with the stages of all parts, which returns the result of the last one.

    Args:
        name: What it is called.
        parts: Each behind those that it reads from.

    Returns:
        The workload, and what each of its inputs is.
    """
    inputs: dict[Hashable, Tensor] = {}
    results: dict[Hashable, str] = {}
    stages: list[Stage] = []
    taken: set[str] = set()
    for part in parts:
        called: dict[str, str] = {}
        for tensor, key in zip(part.workload.inputs, part.reads, strict=True):
            if key not in results and key not in inputs:
                constant = key in part.constants
                inputs[key] = evolve(tensor, name=f"x{len(inputs)}", constant=constant)
            called[tensor.name] = results[key] if key in results else inputs[key].name
        for stage in part.workload.stages:
            new = _free(stage.name, taken)
            taken.add(new)
            called[stage.name] = new
            stages.append(_called(stage, called))
        results[part.writes] = called[part.workload.outputs[0]]
    whole = Workload(name, tuple(inputs.values()), tuple(stages), (results[parts[-1].writes],))
    return whole, tuple(inputs)


def _free(name: str, taken: Collection[str]) -> str:
    """A name like this one that no other stage has, nor an input could have."""
    base = f"s{name}" if name[:1] == "x" else name
    number, found = 0, base
    while found in taken:
        number += 1
        found = f"{base}{number}"
    return found


def _called(stage: Stage, names: dict[str, str]) -> Stage:
    """A stage over tensors of other names."""

    def replace(node: ScalarExpr) -> ScalarExpr | None:
        if isinstance(node, Load):
            return Load(names[node.tensor], node.indices)
        if isinstance(node, Gather):
            places = tuple(transform(it, replace) for it in node.indices)
            return Gather(names[node.tensor], places)
        return None

    output = evolve(stage.output, name=names[stage.name])
    return Stage(output, stage.axes, transform(stage.body, replace), stage.combiner)


def computed_where_read(workload: Workload, names: Iterable[str]) -> Workload:
    """The workload without these stages: what they compute is in the bodies that read it.

    Args:
        workload: A workload.
        names: Stages without a combiner, none of them an output or read where data says.
    """
    left_out = set(names)
    if not left_out:
        return workload
    known: dict[str, Stage] = {}
    replace = _with_bodies(known)
    kept = []
    for stage in workload.stages:
        found = evolve(stage, body=transform(stage.body, replace))
        if stage.name in left_out:
            known[stage.name] = found
        else:
            kept.append(found)
    return evolve(workload, stages=tuple(kept))


def _with_bodies(known: dict[str, Stage]) -> Callable[[ScalarExpr], ScalarExpr | None]:
    def replace(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Load) or node.tensor not in known:
            return None
        stage = known[node.tensor]
        places = zip((axis.name for axis in stage.axes), node.indices, strict=True)
        return substitute(stage.body, dict(places))

    return replace
