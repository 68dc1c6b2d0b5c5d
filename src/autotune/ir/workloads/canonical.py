"""Names that do not matter: an order of tensors that depends on none.

Frontends number what they name (``lv3``, ``lv69``). Two workloads are equal where one becomes the
other by renaming tensors and axes, and by another order of inputs and of independent stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from attrs import frozen

__all__ = ["Names", "canonical_order"]


@frozen
class Names:
    """New names of the tensors of a workload, and of the axes of its stages.

    Attributes:
        tensors: New name of each tensor, by its own.
        axes: New name of each axis, by its own, for each stage by the stage's own name.
    """

    tensors: Mapping[str, str]
    axes: Mapping[str, Mapping[str, str]]


class _Stage(Protocol):
    """Stage that is asked for."""

    @property
    def name(self) -> str:
        """Name of the stage, which is that of what it writes."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors read, in reading order."""

    def look(self, tensors: Mapping[str, str]) -> str:
        """Structure without names: tensors are called as they look, axes by their position."""


def canonical_order(
    inputs: Mapping[str, str], stages: Sequence[_Stage], outputs: Sequence[str]
) -> tuple[str, ...]:
    """Names of all tensors in an order that depends on neither names nor the order of stages.

    What is computed from others follows these, in reading order, from the outputs in their order;
    then come stages that no output needs, and inputs that nobody reads. Only stages that no
    output needs and that look alike, but for what they share with each other, may change places.

    Args:
        inputs: Look of each input, by its name.
        stages: The stages, producers first.
        outputs: Names of what is returned.
    """
    reads = {stage.name: stage.reads for stage in stages}
    order: dict[str, None] = {}
    for output in outputs:
        _visit(output, reads, order)
    for name in _unneeded(inputs, [it for it in stages if it.name not in order], order):
        _visit(name, reads, order)
    unread = [name for name in inputs if name not in order]
    return (*order, *sorted(unread, key=inputs.__getitem__))


def _visit(root: str, reads: Mapping[str, Iterable[str]], order: dict[str, None]) -> None:
    """Add a tensor and what it is computed from, producers first."""
    stack = [root]
    while stack:
        name = stack[-1]
        missing = next((it for it in reads.get(name, ()) if it not in order), None)
        if missing is not None:
            stack.append(missing)
        else:
            order[name] = None
            stack.pop()


def _unneeded(
    inputs: Mapping[str, str], left: Sequence[_Stage], order: Mapping[str, None]
) -> list[str]:
    """Stages left that no output needs and no other stage reads, by their looks."""
    looks = {**inputs, **{name: f"#{number}" for number, name in enumerate(order)}}
    for stage in left:
        looks[stage.name] = stage.look(looks)
    read = {name for stage in left for name in stage.reads}
    return sorted((it.name for it in left if it.name not in read), key=looks.__getitem__)
