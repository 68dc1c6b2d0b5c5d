"""Named quantities of a loop nest, as expressions of the sketch's parameters."""

from __future__ import annotations

from autotune.ir.expressions import IntExpr
from autotune.nest.loop_nest import LoopNest
from autotune.nest.quantities.regions import (
    KIND_OUTPUTS,
    Region,
    body_depth,
    buffers_of,
    distinct,
    held_depth,
    loop_quantities,
    region_dimensions,
    region_elements,
    region_quantities,
    regions_inside,
    unique_elements,
)
from autotune.nest.quantities.reuse import (
    Walk,
    contiguous,
    counted,
    covered,
    innermost_stride,
    line_bytes,
    line_quantities,
    lines_by_power,
    memory_quantities,
    operation_quantities,
    physical_region,
    reloads,
    reuse_of,
    reuse_quantities,
    touched_bytes,
    traffic_quantities,
)

__all__ = [
    "KIND_OUTPUTS",
    "Region",
    "Walk",
    "body_depth",
    "buffers_of",
    "contiguous",
    "counted",
    "covered",
    "distinct",
    "held_depth",
    "innermost_stride",
    "line_bytes",
    "lines_by_power",
    "nest_quantities",
    "physical_region",
    "region_dimensions",
    "region_elements",
    "regions_inside",
    "reloads",
    "reuse_of",
    "touched_bytes",
    "unique_elements",
]


def nest_quantities(nest: LoopNest) -> dict[str, IntExpr]:
    """Every output of a nest's tape by name: all of each statement in turn, then the memory."""
    outputs: dict[str, IntExpr] = {}
    for statement in nest.statements:
        outputs.update(loop_quantities(statement))
        outputs.update(operation_quantities(statement))
        outputs.update(region_quantities(nest, statement))
        outputs.update(traffic_quantities(nest, statement, outputs))
        outputs.update(line_quantities(nest, statement, outputs))
        outputs.update(reuse_quantities(nest, statement, outputs))
    outputs.update(memory_quantities(nest))
    return outputs
