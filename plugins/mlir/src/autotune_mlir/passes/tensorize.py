"""Contractions of small tiles as calls of instructions, in programs on buffers.

A schedule leaves a note in an attribute of the function: which stages are run as calls of which
instruction. A tile of such a stage is a contraction of vectors, as deep as a call is, which is
found by the place in the program's text that it comes from. It becomes calls on vectors of the
instruction's width; their right factors are read from a packed copy that is interleaved
(:mod:`autotune_mlir.passes.interleave`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from autotune.backends import InvalidSchedule
from autotune.sketches.intrinsics import Intrinsic, find_intrinsic
from autotune_mlir.dot_products import DotProduct
from autotune_mlir.emit import STAGE
from autotune_mlir.importing.locations import positions
from autotune_mlir.passes.carried_sums import chains
from autotune_mlir.passes.contractions import Contraction
from autotune_mlir.passes.dot_product_calls import DotProductCalls, replace_by_dot_products
from autotune_mlir.passes.interleave import copy_behind, interleave
from autotune_mlir.passes.tile_accumulators import TileAccumulators
from autotune_mlir.passes.tile_product_calls import TileCalls
from autotune_mlir.traversal import operations_in

__all__ = ["PRODUCTS", "TENSORIZE", "body_positions", "mark_of", "tensorize", "tensorized_stages"]

TENSORIZE = "autotune.tensorize"
"""Attribute of a function: which stages are calls of which instruction."""

PRODUCTS = "products"
"""The last sequence of a schedule with such stages: it is for what they leave."""

_SEPARATOR = "; "


def mark_of(instructions: Mapping[str, str]) -> str:
    """The value of the attribute: names of instructions by stage."""
    return _SEPARATOR.join(f"{name} {stage}" for stage, name in instructions.items())


def tensorized_stages(kernel: Any) -> list[str]:
    """The stages that are calls of instructions.

    Args:
        kernel: The function, with the attribute.
    """
    return [stage for _, stage in _marks(kernel)]


def _marks(kernel: Any) -> list[tuple[str, str]]:
    """Names of instructions and the stages that are calls of them."""
    if TENSORIZE not in kernel.attributes:
        return []
    marks = kernel.attributes[TENSORIZE].value.split(_SEPARATOR)
    return [(name, stage) for name, _, stage in (mark.partition(" ") for mark in marks)]


def body_positions(module: Any) -> dict[str, set[str]]:
    """Where what computes each stage is in the text that a program was parsed from.

    Args:
        module: The program, before its schedule.
    """
    return {
        str(operation.attributes[STAGE].value): positions(operation).union(
            *map(positions, operations_in(operation))
        )
        for operation in operations_in(module.operation)
        if STAGE in operation.attributes
    }


def tensorize(ir: Any, kernel: Any, places: Mapping[str, set[str]], *, parallel: bool) -> None:
    """Make calls of instructions of the marked stages' contractions.

    Args:
        ir: The ``ir`` module of the bindings.
        kernel: The function, on buffers; loses the attribute.
        places: As of :func:`body_positions`.
        parallel: Whether loops may run on several threads.

    Raises:
        InvalidSchedule: a contraction is none of the instruction's.
    """
    if TENSORIZE not in kernel.attributes:
        return
    marks = _marks(kernel)
    del kernel.attributes[TENSORIZE]
    found = [it for it in operations_in(kernel) if it.name == "vector.contract"]
    tiles = TileAccumulators(ir, kernel)
    # Calls take the place of contractions, which are then nowhere any more.
    by_stage = {
        stage: [operation for operation in found if places[stage] & positions(operation)]
        for _, stage in marks
    }
    for name, stage in marks:
        own = by_stage[stage]
        if not own:
            raise InvalidSchedule(f"no contraction of {stage!r} can be calls of {name!r}")
        intrinsic = find_intrinsic(name)
        if isinstance(intrinsic.implementation("mlir"), DotProduct):
            for chain in _continued(ir, own, intrinsic, DotProductCalls, parallel=parallel):
                replace_by_dot_products(ir, chain)
        else:
            tiles.replace(_continued(ir, own, intrinsic, TileCalls, parallel=parallel))
    tiles.configure()


_Calls = TypeVar("_Calls", bound=Contraction)


def _continued(
    ir: Any, own: Sequence[Any], intrinsic: Intrinsic, kind: type[_Calls], *, parallel: bool
) -> list[list[_Calls]]:
    """Contractions that continue each other's sums, once their right factors are interleaved."""
    calls = [kind(ir, operation, intrinsic) for operation in own]
    for copy, readers in _by_copy(calls):
        groups = readers[0].groups
        if any(call.groups != groups for call in readers):
            raise InvalidSchedule(
                f"calls of {intrinsic.name!r} read {copy.type} as rows of two lengths"
            )
        interleave(ir, copy, groups, [call.read for call in readers], parallel=parallel)
    return [[call for call in calls if call.operation in chain] for chain in chains(own)]


def _by_copy(calls: Sequence[Contraction]) -> list[tuple[Any, list[Contraction]]]:
    """Calls by the copy that they read."""
    found: list[tuple[Any, list[Contraction]]] = []
    for call in calls:
        copy = copy_behind(call.read.operands[0])
        known = next((readers for other, readers in found if other == copy), None)
        if known is None:
            found.append((copy, [call]))
        else:
            known.append(call)
    return found
